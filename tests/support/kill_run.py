"""Kill the leader again and again under a producer, then compare promises with what is there.

The producer is librdkafka's, idempotent and with acks=all. Each record carries its number; each
partition's numbers must be there once and in order, and none may be missing that was acknowledged.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidelog.testing.local_cluster import LocalCluster

TOPIC = "kills"


@dataclass
class Outcome:
    acknowledged: dict[int, list[int]] = field(default_factory=dict)
    """Numbers by partition, in the order of their offsets."""
    failed: int = 0
    gaps_s: list[float] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    duplicated: list[tuple[int, int]] = field(default_factory=list)
    reordered: list[tuple[int, int]] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(len(numbers) for numbers in self.acknowledged.values())


class SteadyProducer:
    """One record at a time to one partition, as fast as acknowledgements allow a small window."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self._partitions = partitions
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": 60_000,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.offsets: dict[int, dict[int, int]] = {p: {} for p in range(partitions)}
        self._sent_at: dict[int, float] = {}
        self._acked: dict[int, tuple[float, float]] = {p: (0.0, 0.0) for p in range(partitions)}
        self.failed = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(60)

    def last_ack(self, partition: int) -> tuple[float, float]:
        """When the newest acknowledged record was sent, and when it was acknowledged."""
        with self._lock:
            return self._acked[partition]

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for partition in range(self._partitions):
                with self._lock:
                    self._sent_at[number] = time.monotonic()
                self._producer.produce(
                    TOPIC,
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
            assert partition is not None and offset is not None and value is not None
            self.offsets[partition][offset] = int(value)
            sent_at = self._sent_at.pop(int(value))
            if sent_at > self._acked[partition][0]:
                self._acked[partition] = (sent_at, time.monotonic())


def leader_of(admin: AdminClient, partition: int) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        topic = admin.list_topics(TOPIC, timeout=5).topics[TOPIC]
        if partition in topic.partitions and topic.partitions[partition].leader > 0:
            return int(topic.partitions[partition].leader)
        time.sleep(0.02)
    raise TimeoutError(f"partition {partition} has no leader")


def run_kills(
    cluster: LocalCluster,
    kills: int,
    *,
    partitions: int = 3,
    say: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Kill the leader of partition 0, wait until it is acknowledged again and the node is back."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, partitions, 3)])[TOPIC].result(30)
    producer = SteadyProducer(cluster.bootstrap, partitions)
    producer.start()
    outcome = Outcome()
    _wait_for_ack(producer, 0, 0.0)
    for kill in range(1, kills + 1):
        victim = leader_of(admin, 0)
        killed_at = time.monotonic()
        cluster.kill(victim)
        gap_s = _wait_for_ack(producer, 0, killed_at) - killed_at
        outcome.gaps_s.append(gap_s)
        cluster.start_node(victim)
        cluster.wait_until_serving(60)
        _wait_for_full_isr(admin, partitions)
        say(f"kill {kill}: leader was {victim}, next acknowledgement after {gap_s * 1000:.0f} ms")
    producer.stop()
    outcome.failed = producer.failed
    _compare(cluster.bootstrap, producer.offsets, outcome)
    return outcome


def _wait_for_ack(producer: SteadyProducer, partition: int, after: float) -> float:
    """When a record that was sent later than ``after`` was first acknowledged."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        sent_at, acked_at = producer.last_ack(partition)
        if sent_at > after:
            return acked_at
        time.sleep(0.002)
    raise TimeoutError("no acknowledgement within 60 s")


def _wait_for_full_isr(admin: AdminClient, partitions: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        topic = admin.list_topics(TOPIC, timeout=5).topics[TOPIC]
        if all(len(topic.partitions[p].isrs) == 3 for p in range(partitions)):
            return
        time.sleep(0.05)
    raise TimeoutError("the ISR is not complete within 60 s")


def _compare(bootstrap: str, acked: dict[int, dict[int, int]], outcome: Outcome) -> None:
    stored = _read_all(bootstrap, list(acked))
    for partition, offsets in acked.items():
        numbers = [number for _, number in sorted(stored[partition].items())]
        outcome.acknowledged[partition] = [number for _, number in sorted(offsets.items())]
        outcome.lost += [
            (partition, number)
            for offset, number in offsets.items()
            if stored[partition].get(offset) != number
        ]
        outcome.duplicated += [(partition, n) for n in set(numbers) if numbers.count(n) > 1][:20]
        outcome.reordered += [
            (partition, after) for before, after in pairwise(numbers) if after < before
        ]


def _read_all(bootstrap: str, partitions: list[int]) -> dict[int, dict[int, int]]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False,
         "auto.offset.reset": "earliest", "log_level": 0}
    )  # fmt: skip
    found: dict[int, dict[int, int]] = {p: {} for p in partitions}
    ends = {
        p: consumer.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=30)[1] for p in found
    }
    consumer.assign([TopicPartition(TOPIC, p, 0) for p in partitions])
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.2):
            partition, offset, value = message.partition(), message.offset(), message.value()
            if message.error() is None and None not in (partition, offset, value):
                found[partition][offset] = int(value)  # type: ignore[index,arg-type]
        if all(ends[p] == 0 or ends[p] - 1 in found[p] for p in partitions):
            break
    consumer.close()
    return found
