"""Kill brokers, coordinators and copiers under copiers, then compare what they made of the input.

Copiers are processes, so that they can be killed too. What is fed is known, so what must come out
is: every record once and in order per partition, under read_committed. Meanwhile the last stable
offset is watched: while something stands above it, it must move within the time-out of a
transaction and one sweep of the coordinator.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from copier_kits import group_of
from transactional_copier import History, Partition, poll_of, read_committed

from tidelog.coordinator.partitioning import coordinator_partition
from tidelog.testing.checkers import (
    Anomaly,
    End,
    Outcome,
    Write,
    check_transactional_log,
)
from tidelog.testing.local_cluster import LocalCluster

PARTITIONS: Final = 2
TRANSACTION_MS: Final = 10_000
SWEEP_MS: Final = 10_000
"""What ``transaction.abort.timed.out.transaction.cleanup.interval.ms`` is by default."""
PATIENCE_S: Final = 90.0
_FEED_S: Final = 0.05
_AHEAD: Final = 400
_COPIER: Final = Path(__file__).parent / "transactional_copier.py"
Say = Callable[[str], None]


class Fault(Enum):
    """Who is killed."""

    LEADER = "the leader of a partition that is written"
    TRANSACTION_COORDINATOR = "the coordinator of transactions"
    GROUP_COORDINATOR = "the coordinator of the group"
    COPIER = "the copier"
    COPIER_FOR_LONG = "the copier, for longer than a transaction may last"
    ZOMBIE = "nobody: the copier is stopped, replaced, and goes on"


class Stalled(AssertionError):
    """Nothing moved for ``PATIENCE_S``; the text says how things stand."""


@dataclass
class CopierRunOutcome:
    records: int = 0
    gaps_s: dict[Fault, list[float]] = field(default_factory=lambda: defaultdict(list))
    """From each fault to the next transaction that the copier it hit has committed."""
    longest_stall_s: float = 0.0
    """For which the last stable offset stood still below the high watermark."""
    anomalies: list[Anomaly] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Partitions whose output is not the input."""
    blind_s: float = 0.0
    """For which the last stable offset could not be asked for, at the longest."""
    aborted: int = 0
    begun_again: int = 0

    @property
    def is_sound(self) -> bool:
        allowed_s = (TRANSACTION_MS + SWEEP_MS) / 1000
        return not (self.anomalies or self.wrong) and self.longest_stall_s <= allowed_s


class CopierProcess:
    """One process of the copier; what it tells goes into the history, also if it is killed."""

    def __init__(self, copies: Copies, life: int) -> None:
        self._copies = copies
        self._process = subprocess.Popen(
            [
                *(sys.executable, str(_COPIER), copies.kit, copies.servers, copies.source),
                *(copies.target, copies.name, str(life), str(TRANSACTION_MS), copies.membership),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.complaints: deque[str] = deque(maxlen=3000)
        self._ears = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._overhear, daemon=True),
        ]
        for ear in self._ears:
            ear.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # its last may be torn
                self._copies.hear(json.loads(line))

    def _overhear(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.complaints.append(line.rstrip())

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._wait(PATIENCE_S)

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGUSR1)
            time.sleep(0.5)
            self.kill()
            raise Stalled(
                f"{self._copies.name} does not end:\n" + "\n".join(self.complaints)
            ) from None

    def _wait(self, timeout_s: float) -> None:
        self._process.wait(timeout_s)
        for ear in self._ears:
            ear.join(PATIENCE_S)


class Copies:
    """A source, a target, and whoever copies from one to the other at the moment."""

    def __init__(
        self, servers: str, source: str, target: str, kit: str, membership: str, note: Say
    ) -> None:
        self.membership = membership
        self._note = note
        self.servers, self.source, self.target, self.kit = servers, source, target, kit
        self.name = f"{kit} to {target}"
        self.history = History()
        self.reached = 0
        """Behind the highest number that was ever attempted."""
        self.committed = 0
        self.aborted = 0
        self.begun_again = 0
        self.last_words: list[str] = []
        self._lives = 0
        self._lock = threading.Lock()
        self.feeder = Feeder(servers, source, lambda: self.reached)
        self.process = self.new_process()

    def new_process(self) -> CopierProcess:
        self._lives += 1
        return CopierProcess(self, self._lives)

    def hear(self, told: dict[str, object]) -> None:
        if "writes" not in told:
            self._note(f"{self.kit}: {told}")
        with self._lock:
            match told:
                case {"transaction": str(transaction), "writes": list(rows)}:
                    self.history.writes += [
                        Write(self.name, (self.target, partition), value, transaction)
                        for partition, value in rows
                    ]
                    self.reached = max(self.reached, *(_number(value) + 1 for _, value in rows))
                case {"transaction": str(transaction), "outcome": str(outcome)}:
                    self.history.ends.append(End(transaction, Outcome(outcome)))
                    self.committed += outcome == "committed"
                    self.aborted += outcome == "aborted"
                case _:
                    self.begun_again += "begins again" in told
                    self.last_words.append(f"{time.strftime('%X')} {self.name}: {told}")


class Feeder(threading.Thread):
    """Numbers, one after the other, to the partitions in turn; never far ahead of the copier."""

    def __init__(self, servers: str, topic: str, reached: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        self._topic, self._reached = topic, reached
        self._is_stopping = threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self._is_stopping.wait(_FEED_S):
            self._producer.poll(0)
            if self.count > self._reached() + _AHEAD:
                continue
            for _ in range(5 * PARTITIONS):
                partition = self.count % PARTITIONS
                self._producer.produce(self._topic, str(self.count), partition=partition)
                self.count += 1

    def stop(self) -> None:
        self._is_stopping.set()
        self.join()
        left = self._producer.flush(PATIENCE_S)
        assert left == 0, f"{left} records could not be fed"


class StabilityWatch(threading.Thread):
    """How long the last stable offset of any partition stood still with something above it."""

    def __init__(self, servers: str, topics: Sequence[str], note: Say) -> None:
        super().__init__(daemon=True)
        self._note = note
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        self._places = [TopicPartition(t, i) for t in topics for i in range(PARTITIONS)]
        self._is_stopping = threading.Event()
        self.longest_s = 0.0
        self.blind_s = 0.0
        """The longest time without an answer."""
        self.looks = 0
        self._since: dict[Partition, tuple[int, float]] = {}

    def run(self) -> None:
        looked = time.monotonic()
        while not self._is_stopping.wait(0.2):
            stable = self._ends(IsolationLevel.READ_COMMITTED)
            ends = self._ends(IsolationLevel.READ_UNCOMMITTED)
            for place in stable.keys() & ends.keys():
                self._look(place, stable[place], ends[place])
            if len(stable) == len(ends) == len(self._places):
                now = time.monotonic()
                self.blind_s, looked = max(self.blind_s, now - looked), now
                self.looks += 1

    def _ends(self, level: IsolationLevel) -> dict[Partition, int]:
        """Of those partitions whose leader answers."""
        asked = {place: OffsetSpec.latest() for place in self._places}
        answers = self._admin.list_offsets(asked, isolation_level=level, request_timeout=5)
        found: dict[Partition, int] = {}
        for place, answer in answers.items():
            try:
                found[place.topic, place.partition] = answer.result(20).offset
            except KafkaException as error:
                self._note(f"{place.topic}-{place.partition} cannot be asked: {error}")
        if len(found) < len(self._places):
            self._look_around()
        return found

    def _look_around(self) -> None:
        """The client keeps to the leaders it knows, and their epochs, until it is told others."""
        for topic in {place.topic for place in self._places}:
            with suppress(KafkaException):
                self._admin.list_topics(topic, timeout=2)

    def _look(self, place: Partition, stable: int, end: int) -> None:
        """The end was asked for later, so a transaction may have begun in between: no matter."""
        now = time.monotonic()
        before, since = self._since.get(place, (-1, now))
        if stable != before or stable >= end:
            self._since[place] = (stable, now)
        else:
            self.longest_s = max(self.longest_s, now - since)

    def stop(self) -> None:
        self._is_stopping.set()
        self.join()


class CopierRun:
    """Two topics for each kit, a copier between them, and faults one after the other."""

    def __init__(
        self,
        cluster: LocalCluster,
        kits: Sequence[str],
        *,
        seed: int,
        label: str,
        membership: str,
        say: Say,
        note: Say,
    ) -> None:
        self._cluster, self._say, self._note = cluster, say, note
        self._random = random.Random(seed)
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        sources = [f"source-{label}-{kit}" for kit in kits]
        targets = [f"target-{label}-{kit}" for kit in kits]
        for topic in (*sources, *targets):
            self._admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(30)
        self.outcome = CopierRunOutcome()
        self._watch = StabilityWatch(cluster.bootstrap, targets, note)
        self._copies = [
            Copies(cluster.bootstrap, source, target, kit, membership, note)
            for kit, source, target in zip(kits, sources, targets, strict=True)
        ]

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """At the end everything is copied and judged."""
        for copies in self._copies:
            copies.feeder.start()
        self._watch.start()
        try:
            for copies in self._copies:
                self._wait_for_commit(copies, copies.committed)
            yield
            for copies in self._copies:
                copies.feeder.stop()
                self._wait_until_copied(copies)
                copies.process.stop()
            self._watch.stop()
            self._judge()
        finally:
            for copies in self._copies:
                copies.process.kill()

    # --- faults ------------------------------------------------------------------------

    def hit(self, fault: Fault) -> None:
        """One fault, until the copier it hit goes on and the cluster is whole again."""
        copies = self._random.choice(self._copies)
        began, committed = time.monotonic(), copies.committed
        whom = ""
        match fault:
            case Fault.COPIER:
                copies.process.kill()
                time.sleep(self._random.uniform(0, 1))
                copies.process = copies.new_process()
            case Fault.COPIER_FOR_LONG:
                copies.process.kill()
                time.sleep(TRANSACTION_MS / 1000 + self._random.uniform(0, 2))
                copies.process = copies.new_process()
            case Fault.ZOMBIE:
                self._replace(copies)
            case _:
                victim = self._victim(fault, copies)
                whom = f" (node {victim})"
                began, committed = time.monotonic(), copies.committed
                self._note(f"killing node {victim}: {fault.value} of {copies.kit}")
                self._cluster.kill(victim)
                time.sleep(self._random.uniform(0.2, 2))
                self._cluster.start_node(victim)
                self._note(f"node {victim} is started")
        self._wait_for_commit(copies, committed + 1)  # the first may have been on its way
        gap_s = time.monotonic() - began
        self.outcome.gaps_s[fault].append(gap_s)
        self._wait_until_whole()
        self._say(
            f"{fault.value}{whom}: {copies.kit} committed again after {gap_s:.1f} s; "
            f"the last stable offset stood still for at most {self._watch.longest_s:.1f} s, "
            f"and was not to be had for {self._watch.blind_s:.1f} s"
        )

    def _replace(self, copies: Copies) -> None:
        """The first one wakes up when another has its name, and must not write any more."""
        first = copies.process
        first.send(signal.SIGSTOP)
        committed = copies.committed
        copies.process = copies.new_process()
        try:
            self._wait_for_commit(copies, committed)
        finally:
            first.send(signal.SIGCONT)
        time.sleep(1)
        first.kill()

    def _victim(self, fault: Fault, copies: Copies) -> int:
        if fault is Fault.LEADER:
            return self._leader(copies.target, self._random.randrange(PARTITIONS))
        if fault is Fault.TRANSACTION_COORDINATOR:
            return self._coordinator("__transaction_state", copies.name)
        return self._coordinator("__consumer_offsets", group_of(copies.name))

    def _coordinator(self, topic: str, name: str) -> int:
        partitions = len(self._admin.list_topics(topic, timeout=30).topics[topic].partitions)
        return self._leader(topic, coordinator_partition(name, partitions))

    def _leader(self, topic: str, partition: int) -> int:
        leader = -1

        def found() -> bool:
            nonlocal leader
            rows = self._admin.list_topics(topic, timeout=30).topics[topic].partitions
            leader = rows[partition].leader if partition in rows else -1
            return leader > 0

        self._wait(found, lambda: f"{topic}-{partition} has no leader")
        return leader

    # --- waiting -----------------------------------------------------------------------

    def _wait(
        self,
        holds: Callable[[], bool],
        why: Callable[[], str],
        progress: Callable[[], int] = lambda: 0,
    ) -> None:
        seen, deadline = progress(), time.monotonic() + PATIENCE_S
        while not _dependable(holds):
            if (now := progress()) != seen:
                seen, deadline = now, time.monotonic() + PATIENCE_S
            if time.monotonic() > deadline:
                raise Stalled(why())
            time.sleep(0.05)

    def _wait_for_commit(self, copies: Copies, before: int) -> None:
        def committed() -> bool:
            if not copies.process.is_alive:
                raise Stalled(self._standing(copies))
            return copies.committed > before

        self._wait(committed, lambda: self._standing(copies))

    def _wait_until_whole(self) -> None:
        self._cluster.wait_until_serving(PATIENCE_S)

        def whole() -> bool:
            topics = self._admin.list_topics(timeout=30).topics.values()
            parts = [part for topic in topics for part in topic.partitions.values()]
            return all(len(part.isrs) == len(part.replicas) for part in parts)

        self._wait(whole, lambda: "the replicas do not come into sync")

    def _wait_until_copied(self, copies: Copies) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "group.id": group_of(copies.name),
                "isolation.level": "read_committed",
            }
        )
        places = [TopicPartition(copies.source, index) for index in range(PARTITIONS)]

        def copied() -> bool:
            offsets = consumer.committed(places, 10)
            return sum(max(0, place.offset) for place in offsets) == copies.feeder.count

        self._wait(copied, lambda: self._standing(copies), lambda: copies.committed)
        consumer.close()

    def _standing(self, copies: Copies) -> str:
        """How things stand with a copier that does not go on."""
        servers = self._cluster.bootstrap
        copies.process.send(signal.SIGUSR1)
        told = [f"{copies.name} stands still after {copies.committed} transactions"]
        told += copies.last_words[-20:]
        for command in (
            ["txn", "list"],
            ["txn", "describe", copies.name],
            ["txn", "find-hanging", "--max-transaction-timeout", "0"],
            ["group", "describe", group_of(copies.name), "--members", "--verbose"],
            ["group", "describe", group_of(copies.name)],
            ["group", "describe", group_of(copies.name), "--state"],
        ):
            asked = subprocess.run(
                [Path(sys.executable).parent / "tidelog", *command, "-b", servers],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            told += [f"$ tidelog {' '.join(command)}", asked.stdout, asked.stderr]
        return "\n".join([*told, *copies.process.complaints])

    # --- judging -----------------------------------------------------------------------

    def _judge(self) -> None:
        self.outcome.longest_stall_s = self._watch.longest_s
        self.outcome.blind_s = self._watch.blind_s
        for copies in self._copies:
            self.outcome.records += copies.feeder.count
            self.outcome.aborted += copies.aborted
            self.outcome.begun_again += copies.begun_again
            found = read_committed(self._cluster.bootstrap, copies.target, PARTITIONS)
            for (topic, index), rows in found.items():
                copied = [_number(value) for _, value in rows]
                expected = list(range(index, copies.feeder.count, PARTITIONS))
                if copied != expected:
                    self.outcome.wrong.append(f"{topic}-{index}: {_difference(copied, expected)}")
            copies.history.polls.append(poll_of("the last reader", found))
            self.outcome.anomalies += check_transactional_log(copies.history.judged_with(found))


def _number(value: str) -> int:
    """Of the input that became this value."""
    return int(value.partition("@")[0])


def _dependable(holds: Callable[[], bool]) -> bool:
    try:
        return holds()
    except KafkaException:
        return False


def _difference(copied: Sequence[int], expected: Sequence[int]) -> str:
    missing = sorted(set(expected) - set(copied))
    twice = len(copied) - len(set(copied))
    return f"{len(missing)} missing {missing[:5]}, {twice} duplicates, of {len(expected)}"


def run_copiers(
    cluster: LocalCluster,
    kits: Sequence[str],
    faults: Sequence[Fault],
    *,
    label: str,
    membership: str = "dynamic",
    seed: int = 1,
    say: Say = lambda line: None,
    note: Say = lambda line: None,
) -> CopierRunOutcome:
    """``say`` hears of every fault, ``note`` of every detail.

    With a ``static`` membership the next process need not wait until the group misses the last.
    """
    run = CopierRun(
        cluster, kits, seed=seed, label=label, membership=membership, say=say, note=note
    )
    with run.under_way():
        for fault in faults:
            run.hit(fault)
    return run.outcome
