"""A program that reads one topic and writes another, exactly once, and tells what it did.

Consume, transform, produce (KIP-98, KIP-447): what is read, what is written and how far was read
belong to one transaction. Every attempt writes values of its own (the input and the number of the
attempt), so that a checker can tell which of them came through.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tidelog.testing.checkers import End, Outcome, Poll, Seen, TransactionalHistory, Write

_BATCH: Final = 40
_CALL_S: Final = 30.0
Partition = tuple[str, int]


@dataclass
class History:
    """What the copier did and what readers saw, for ``check_transactional_log``."""

    writes: list[Write] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)

    def judged_with(self, final: dict[Partition, list[tuple[int, str]]]) -> TransactionalHistory:
        return TransactionalHistory(self.writes, self.ends, self.polls, final)


class Copier(threading.Thread):
    """Copies until ``stop``; whatever goes wrong is answered as the client's manual says."""

    def __init__(self, bootstrap: str, source: str, target: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.history = History()
        self.failure: BaseException | None = None
        self.committed = 0
        self.begun_again = 0
        self._servers = bootstrap
        self._from_topic, self._to_topic = source, target
        self._attempt = 0
        self._is_stopping = threading.Event()

    def stop(self) -> None:
        self._is_stopping.set()
        self.join(120)
        assert not self.is_alive(), "the copier hangs"
        if self.failure is not None:
            raise self.failure

    def run(self) -> None:
        try:
            while not self._is_stopping.is_set():
                self._live()
        except BaseException as error:  # the test is told, on its own thread
            self.failure = error

    def _live(self) -> None:
        """One life of the program: until a fatal error, which only a new producer survives."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": f"group of {self.name}",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
            }
        )
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": self.name,
                "transaction.timeout.ms": 20_000,
            }
        )
        try:
            consumer.subscribe([self._from_topic])
            _until_done(lambda: producer.init_transactions(_CALL_S))
            while not self._is_stopping.is_set():
                messages = [m for m in consumer.consume(_BATCH, 0.5) if m.error() is None]
                if messages and not self._copy(consumer, producer, messages):
                    self.begun_again += 1
                    return
        finally:
            consumer.close()

    def _copy(self, consumer: Consumer, producer: Producer, messages: list[Message]) -> bool:
        """False: this producer is of no use any more."""
        self._attempt += 1
        transaction = f"{self.name}-{self._attempt}"
        outcome = Outcome.UNKNOWN
        producer.begin_transaction()
        try:
            for message in messages:
                self._write(producer, message, transaction)
            _until_done(
                lambda: producer.send_offsets_to_transaction(
                    consumer.position(consumer.assignment()),
                    consumer.consumer_group_metadata(),
                    _CALL_S,
                )
            )
            _until_done(lambda: producer.commit_transaction(_CALL_S))
            outcome = Outcome.COMMITTED
            self.committed += len(messages)
            return True
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                return False
            _until_done(lambda: producer.abort_transaction(_CALL_S))
            outcome = Outcome.ABORTED
            _rewind(consumer)
            return True
        finally:
            self.history.ends.append(End(transaction, outcome))

    def _write(self, producer: Producer, message: Message, transaction: str) -> None:
        read = message.value()
        partition = message.partition()
        assert read is not None and partition is not None
        value = f"{read.decode()}@{self._attempt}"
        place = (self._to_topic, partition)
        self.history.writes.append(Write(self.name, place, value, transaction))
        producer.produce(self._to_topic, value, partition=partition)
        producer.poll(0)


def _until_done(call: Callable[[], object]) -> None:
    """Again while the client says that trying again may help."""
    deadline = time.monotonic() + 90
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _rewind(consumer: Consumer) -> None:
    """Back to what is committed: what was read since was not copied."""
    assignment = consumer.assignment()
    for place in consumer.committed(assignment, _CALL_S):
        offset = place.offset if place.offset >= 0 else 0
        consumer.seek(TopicPartition(place.topic, place.partition, offset))


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
