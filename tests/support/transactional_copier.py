r"""A program that reads one topic and writes another, exactly once, and tells what it did.

    python tests/support/transactional_copier.py KIT SERVERS SOURCE TARGET NAME LIFE TIMEOUT_MS \
        static|dynamic

Consume, transform, produce (KIP-98, KIP-447): what is read, what is written and how far was read
belong to one transaction. Every attempt writes values of its own (the input and the number of the
attempt), so that a checker can tell which of them came through.

As a process, to be killed, it prints a line of JSON before it writes and one when it knows the
outcome, and ends when its input does.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, TopicPartition
from copier_kits import KITS, Kit, MustAbort, MustBeginAgain, Read, Work

from tidelog.testing.checkers import End, Outcome, Poll, Seen, TransactionalHistory, Write

Partition = tuple[str, int]
Tell = Callable[[dict[str, object]], None]


@dataclass
class History:
    """What a copier did and what readers saw, for ``check_transactional_log``."""

    writes: list[Write] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)

    def judged_with(self, final: dict[Partition, list[tuple[int, str]]]) -> TransactionalHistory:
        return TransactionalHistory(self.writes, self.ends, self.polls, final)


class Copier:
    """Copies until asked to stop; whatever goes wrong is answered as the client's manual says."""

    def __init__(self, kit: type[Kit], work: Work, life: str, tell: Tell) -> None:
        """``life`` makes the values of several copiers of one name differ."""
        self._kit, self._work, self._life, self._tell = kit, work, life, tell
        self._attempt = 0
        self._is_stopping = threading.Event()

    def ask_to_stop(self) -> None:
        self._is_stopping.set()

    def run(self) -> None:
        while not self._is_stopping.is_set():
            try:
                self._live()
            except (MustAbort, MustBeginAgain) as reason:
                self._tell({"begins again": str(reason)})
                self._is_stopping.wait(0.1)

    def _live(self) -> None:
        """One life of the program: until a fatal error, which only a new producer survives."""
        kit = self._kit(self._work)
        try:
            kit.open()
            while not self._is_stopping.is_set():
                if read := kit.read():
                    self._copy(kit, read)
        finally:
            kit.close()

    def _copy(self, kit: Kit, read: Read) -> None:
        self._attempt += 1
        attempt = f"{self._life}.{self._attempt}"
        transaction = f"{self._work.name}-{attempt}"
        rows = [(partition, f"{value}@{attempt}") for partition, value in read]
        self._tell({"transaction": transaction, "writes": rows})
        outcome = Outcome.UNKNOWN
        try:
            try:
                kit.begin()
                for partition, value in rows:
                    kit.write(partition, value)
                kit.commit()
                outcome = Outcome.COMMITTED
            except MustAbort as reason:
                self._tell({"aborts": str(reason)})
                kit.abort()
                outcome = Outcome.ABORTED
        finally:
            self._tell({"transaction": transaction, "outcome": outcome.value})


def read_committed(
    bootstrap: str, topic: str, partitions: int, *, timeout_s: float = 60.0
) -> dict[Partition, list[tuple[int, str]]]:
    """All that is committed up to the last stable offset of this moment."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader of {topic}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    places = [TopicPartition(topic, index, 0) for index in range(partitions)]
    found: dict[Partition, list[tuple[int, str]]] = {(topic, i): [] for i in range(partitions)}
    consumer.assign(places)
    at_end: set[int] = set()
    deadline = time.monotonic() + timeout_s
    while len(at_end) < partitions:
        assert time.monotonic() < deadline, f"the end of {topic} is not reached"
        for message in consumer.consume(500, 0.5):
            index, offset, value = message.partition(), message.offset(), message.value()
            assert index is not None
            if message.error() is not None:
                at_end.add(index)
            else:
                assert offset is not None and value is not None
                found[topic, index].append((offset, value.decode()))
    consumer.close()
    return found


def poll_of(reader: str, found: dict[Partition, list[tuple[int, str]]]) -> Poll:
    return Poll(
        reader,
        tuple(
            Seen(place, offset, value) for place, rows in found.items() for offset, value in rows
        ),
    )


def main(argv: Sequence[str]) -> int:
    kit, servers, source, target, name, life, timeout_ms, membership = argv
    faulthandler.register(signal.SIGUSR1)  # where does it hang?
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)

    def tell(told: dict[str, object]) -> None:
        print(json.dumps(told), flush=True)

    work = Work(servers, source, target, name, int(timeout_ms), membership == "static")
    copier = Copier(KITS[kit], work, life, tell)

    def await_end_of_input() -> None:
        sys.stdin.read()
        copier.ask_to_stop()

    threading.Thread(target=await_end_of_input, daemon=True).start()
    copier.run()
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # a client that hangs would not let it end
