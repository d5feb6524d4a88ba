"""Kill or stop the leader again and again under a producer, then compare what was promised with
what is there.

The producer is librdkafka's, idempotent and with acks=all. Each record carries its number; each
partition's numbers must be there once and in order, and none may be missing that was acknowledged.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.chaos.faults.view import AdminView
from tidelog.testing.local_cluster import LocalCluster

TOPIC = "kills"
PATIENCE_S = 60.0
LOOK_FOR_LEADERS_MS = 200
"""How often the producer asks who leads, whatever it is told meanwhile.

By default librdkafka asks every five minutes, and after an error once its back-off is over. If that
question comes just before there is a new leader, the producer learns of it late: the gap it sees is
then its own back-off, and not the time the cluster was without a leader."""
Say = Callable[[str], None]


@dataclass
class Outcome:
    acknowledged: dict[int, list[int]] = field(default_factory=dict)
    """Numbers by partition, in the order of their offsets."""
    unplaced: list[tuple[int, int]] = field(default_factory=list)
    """Acknowledged, but the client does not say at which offset: it was told of a later one."""
    failed: int = 0
    gaps_s: list[float] = field(default_factory=list)
    """From each fault to the acknowledgement of a record that was sent after it."""
    lost: list[tuple[int, int]] = field(default_factory=list)
    duplicated: list[tuple[int, int]] = field(default_factory=list)
    reordered: list[tuple[int, int]] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)
    """Nodes that were stopped, and by then another led."""

    @property
    def total(self) -> int:
        placed = sum(len(numbers) for numbers in self.acknowledged.values())
        return placed + len(self.unplaced)

    @property
    def is_sound(self) -> bool:
        return not (self.lost or self.duplicated or self.reordered or self.failed or self.missed)


class SteadyProducer:
    """One record at a time to each partition, as fast as acknowledgements allow a small window."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, look_ms: int | None = LOOK_FOR_LEADERS_MS
    ) -> None:
        """``look_ms`` None: as rarely as the client does by default."""
        self._topic = topic
        self._partitions = partitions
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": 60_000,
                "request.timeout.ms": 4_000,  # a node that stands still answers nothing
                "socket.timeout.ms": 4_000,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "topic.metadata.refresh.fast.interval.ms": 50,
                **({} if look_ms is None else {"topic.metadata.refresh.interval.ms": look_ms}),
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.offsets: dict[int, dict[int, int]] = {p: {} for p in range(partitions)}
        self.unplaced: list[tuple[int, int]] = []
        self._sent_at: dict[int, float] = {}
        self._fault_at = 0.0
        self._over_at: float | None = None
        self.failed = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(PATIENCE_S)

    def note_fault(self) -> None:
        """From now on look for the first record that is sent and acknowledged."""
        with self._lock:
            self._fault_at, self._over_at = time.monotonic(), None

    def gap_s(self) -> float | None:
        """From the fault to that acknowledgement, on partition 0; None while there is none."""
        with self._lock:
            return None if self._over_at is None else self._over_at - self._fault_at

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for partition in range(self._partitions):
                with self._lock:
                    self._sent_at[number] = time.monotonic()
                self._producer.produce(
                    self._topic,
                    str(number).encode(),
                    partition=partition,
                    on_delivery=self._delivered,
                )
                number += 1
            while len(self._producer) > 200 and not self._stop.is_set():
                self._producer.poll(0.01)
            self._producer.poll(0.002)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        with self._lock:
            if error is not None:
                self.failed += 1
                return
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None and value is not None
            if offset is None:
                self.unplaced.append((partition, int(value)))
            else:
                self.offsets[partition][offset] = int(value)
            sent_at = self._sent_at.pop(int(value))
            if partition == 0 and self._over_at is None and sent_at > self._fault_at:
                self._over_at = time.monotonic()


class Run:
    """A topic with a producer on it; faults are done to the leader of its partition 0."""

    def __init__(
        self,
        cluster: LocalCluster,
        topic: str,
        partitions: int,
        say: Say,
        look_ms: int | None = LOOK_FOR_LEADERS_MS,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        self._say = say
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        # Any single node may have slept, and then names the leader of before its sleep.
        self._view = AdminView(cluster.bootstrap, [topic])
        self.outcome = Outcome()
        self._producer = SteadyProducer(cluster.bootstrap, topic, partitions, look_ms)

    @contextmanager
    def under_way(self) -> Iterator[None]:
        self._admin.create_topics([NewTopic(self._topic, self._partitions, 3)])[self._topic].result(
            30
        )
        self._producer.start()
        try:
            self._wait_for_ack()
            yield
        finally:
            self._producer.stop()
            self._view.close()
        self.outcome.failed = self._producer.failed
        self._compare()

    def kill_leader(self) -> None:
        """SIGKILL; then wait until writes go on, the node is back and every replica in sync."""
        victim = self._leader()
        self._producer.note_fault()
        self._cluster.kill(victim)
        gap_s = self._wait_for_ack()
        self.outcome.gaps_s.append(gap_s)
        self._cluster.start_node(victim)
        self._wait_until_whole()
        self._say(f"killed node {victim}, next acknowledgement after {gap_s * 1000:.0f} ms")

    def pause_leader(self, for_s: float) -> None:
        """SIGSTOP: the process is there, its connections are open, and it does nothing."""
        victim = self._leader()
        self._producer.note_fault()
        self._cluster.pause(victim)
        until = time.monotonic() + for_s
        try:
            if self._leader() != victim:  # asked at once, long before a session is over
                self.outcome.missed.append(victim)
            time.sleep(max(0.0, until - time.monotonic()))
        finally:
            self._cluster.resume(victim)
        gap_s = self._wait_for_ack()
        self.outcome.gaps_s.append(gap_s)
        self._wait_until_whole()
        self._say(f"stopped node {victim} for {for_s:g} s, a gap of {gap_s * 1000:.0f} ms")

    # --- waiting -----------------------------------------------------------------------

    def _wait_for_ack(self) -> float:
        """The gap that the producer saw, once it is over."""
        deadline = time.monotonic() + PATIENCE_S
        while (gap_s := self._producer.gap_s()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no acknowledgement within {PATIENCE_S:g} s")
            time.sleep(0.002)
        return gap_s

    def _leader(self) -> int:
        """Of partition 0, by the latest epoch that any node knows."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            leader = self._view.leader_of(self._topic, 0)
            if leader is not None:
                return leader
            time.sleep(0.02)
        raise TimeoutError("partition 0 has no leader")

    def _wait_until_whole(self) -> None:
        self._cluster.wait_until_serving(PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if len(self._view.partitions()) == self._partitions and self._view.is_whole():
                return
            time.sleep(0.05)
        raise TimeoutError(f"the ISR is not complete within {PATIENCE_S:g} s")

    # --- judging -----------------------------------------------------------------------

    def _compare(self) -> None:
        outcome = self.outcome
        outcome.unplaced = self._producer.unplaced
        stored = self._read_all()
        outcome.lost += [
            (partition, number)
            for partition, number in outcome.unplaced
            if number not in stored[partition].values()
        ]
        for partition, offsets in self._producer.offsets.items():
            numbers = [number for _, number in sorted(stored[partition].items())]
            outcome.acknowledged[partition] = [number for _, number in sorted(offsets.items())]
            outcome.lost += [
                (partition, number)
                for offset, number in offsets.items()
                if stored[partition].get(offset) != number
            ]
            counted = Counter(numbers)
            outcome.duplicated += [(partition, n) for n, times in counted.items() if times > 1]
            outcome.reordered += [
                (partition, after) for before, after in pairwise(numbers) if after < before
            ]

    def _read_all(self) -> dict[int, dict[int, int]]:
        partitions = range(self._partitions)
        consumer = Consumer(
            {"bootstrap.servers": self._cluster.bootstrap, "group.id": "check", "log_level": 0,
             "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        )  # fmt: skip
        found: dict[int, dict[int, int]] = {p: {} for p in partitions}
        ends = {
            p: consumer.get_watermark_offsets(TopicPartition(self._topic, p), timeout=30)[1]
            for p in partitions
        }
        consumer.assign([TopicPartition(self._topic, p, 0) for p in partitions])
        deadline = time.monotonic() + 2 * PATIENCE_S
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.2):
                partition, offset, value = message.partition(), message.offset(), message.value()
                if message.error() is None and None not in (partition, offset, value):
                    found[partition][offset] = int(value)  # type: ignore[index,arg-type]
            if all(ends[p] == 0 or ends[p] - 1 in found[p] for p in partitions):
                break
        consumer.close()
        return found


def run_kills(
    cluster: LocalCluster,
    kills: int,
    *,
    topic: str = TOPIC,
    partitions: int = 3,
    say: Say = lambda line: None,
    look_ms: int | None = LOOK_FOR_LEADERS_MS,
) -> Outcome:
    run = Run(cluster, topic, partitions, say, look_ms)
    with run.under_way():
        for _ in range(kills):
            run.kill_leader()
    return run.outcome


def run_pauses(
    cluster: LocalCluster,
    pauses_s: Sequence[float],
    *,
    topic: str = "pauses",
    partitions: int = 3,
    say: Say = lambda line: None,
    look_ms: int | None = LOOK_FOR_LEADERS_MS,
) -> Outcome:
    run = Run(cluster, topic, partitions, say, look_ms)
    with run.under_way():
        for pause_s in pauses_s:
            run.pause_leader(pause_s)
    return run.outcome
