"""The load on every peer that speaks Kafka's protocol: librdkafka, with one set of settings.

The client runs on the same cores as the nodes. So that it takes little of them, nothing of Python
runs per record: records go in by batches and delivery is checked once, by flushing and comparing
the ends of the partitions with what was sent. An idempotent producer with ``acks=all`` writes a
record once or fails, so equal ends mean that every record was acknowledged.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, PartitionMetadata
from confluent_kafka.cimpl import NewTopic

from bench.peers.peer import Latencies, PeerFailed, Produced

PRODUCER: Final[Mapping[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 200_000,
    "log_level": 0,
}
CONSUMER: Final[Mapping[str, Any]] = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "fetch.max.bytes": 50 << 20,
    "max.partition.fetch.bytes": 10 << 20,
    "queued.max.messages.kbytes": 400_000,
    # Else the client stops fetching for a second whenever it has 100,000 messages.
    "queued.min.messages": 1_000_000,
    "fetch.queue.backoff.ms": 1,
    "log_level": 0,
}
PROMPT: Final[Mapping[str, Any]] = {"linger.ms": 0}
"""For latency: what is there is sent at once."""
WATCHFUL: Final[Mapping[str, Any]] = {**PROMPT, "topic.metadata.refresh.interval.ms": 200}
"""For gaps: also asks again and again who leads. By itself librdkafka asks after an error and backs
off, and so may learn of a new leader long after there is one, whichever cluster it talks to."""

_BATCH_BYTES: Final = 256_000
_WAIT_S: Final = 60.0


class KafkaClient:
    """Talks to whatever listens at ``bootstrap``."""

    def __init__(self, bootstrap: str) -> None:
        self._servers = {"bootstrap.servers": bootstrap}

    # --- topics ------------------------------------------------------------------------

    def create(self, topic: str, partitions: int) -> None:
        """Asked again until three nodes are there: right after a start they may not be."""
        admin = AdminClient({**self._servers, "log_level": 0})
        deadline = time.monotonic() + _WAIT_S
        while True:
            made = admin.create_topics([NewTopic(topic, partitions, 3)], request_timeout=10)
            try:
                made[topic].result(_WAIT_S)
                break
            except KafkaException as failure:
                if time.monotonic() > deadline:
                    raise PeerFailed(f"topic {topic} was not made: {failure}") from failure
                time.sleep(0.05)
        self._await_leaders(admin, topic, partitions, deadline)

    def _await_leaders(
        self, admin: AdminClient, topic: str, partitions: int, deadline: float
    ) -> None:
        while time.monotonic() < deadline:
            seen = admin.list_topics(topic, timeout=10).topics[topic].partitions
            if len(seen) == partitions and all(p.leader >= 0 for p in seen.values()):
                return
            time.sleep(0.05)
        raise PeerFailed(f"topic {topic} has no leaders")

    def delete(self, topic: str) -> None:
        admin = AdminClient({**self._servers, "log_level": 0})
        admin.delete_topics([topic])[topic].result(_WAIT_S)

    def leader(self, topic: str) -> int:
        return int(self._first_partition(topic).leader)

    def in_sync(self, topic: str) -> int:
        return len(self._first_partition(topic).isrs)

    def _first_partition(self, topic: str) -> PartitionMetadata:
        admin = AdminClient({**self._servers, "log_level": 0})
        return admin.list_topics(topic, timeout=10).topics[topic].partitions[0]

    # --- throughput --------------------------------------------------------------------

    def produce(self, topic: str, size: int, seconds: float, clients: int = 1) -> Produced:
        share = {"queue.buffering.max.kbytes": PRODUCER["queue.buffering.max.kbytes"] // clients}
        producers = [self._producer(share) for _ in range(clients)]
        partitions = 0
        for producer in producers:
            partitions = len(producer.list_topics(topic, timeout=_WAIT_S).topics[topic].partitions)
        before = self._end(topic, partitions)
        sent, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            for producer in producers:
                sent += _enqueue(producer, topic, size, _BATCH_BYTES // size + 1)
        took = _flush(producers, start)
        self._check(topic, partitions, before + sent)
        return Produced(sent, took)

    def write(self, topic: str, size: int, records: int) -> None:
        producer = self._producer()
        partitions = len(producer.list_topics(topic, timeout=_WAIT_S).topics[topic].partitions)
        before, sent = self._end(topic, partitions), 0
        while sent < records:
            sent += _enqueue(producer, topic, size, min(records - sent, _BATCH_BYTES // size + 1))
        _flush([producer], time.perf_counter())
        self._check(topic, partitions, before + sent)

    def touch(self, topic: str, partitions: int) -> None:
        producer = self._producer({"linger.ms": 0, "reconnect.backoff.max.ms": 200})
        for partition in range(partitions):
            producer.produce(topic, b"x", partition=partition)
        _flush([producer], time.perf_counter(), timeout_s=600.0)

    def _producer(self, more: Mapping[str, Any] = {}) -> Producer:
        return Producer({**self._servers, **PRODUCER, **more})

    def _end(self, topic: str, partitions: int) -> int:
        client = Consumer({**self._servers, **CONSUMER})
        ends = [
            client.get_watermark_offsets(TopicPartition(topic, p), timeout=_WAIT_S)[1]
            for p in range(min(partitions, 100))
        ]
        client.close()
        return sum(ends)

    def _check(self, topic: str, partitions: int, expected: int) -> None:
        """A follower may hear of the newest high watermark a moment later than a client."""
        if partitions > 100:
            return
        deadline = time.monotonic() + _WAIT_S
        while (found := self._end(topic, partitions)) < expected:
            if time.monotonic() > deadline:
                raise PeerFailed(f"{expected} records were sent to {topic}, {found} are there")
            time.sleep(0.1)

    def consume(self, topic: str, partitions: int, records: int) -> float:
        errors: list[KafkaError] = []
        client = Consumer({**self._servers, **CONSUMER, "error_cb": errors.append})
        client.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        seen, start = 0, time.perf_counter()
        while seen < records:
            # Never more than are left: the client would wait for them until its time-out.
            seen += len(client.consume(min(10_000, records - seen), 0.5))
            if time.perf_counter() - start > _WAIT_S:
                where = client.position(client.assignment())
                raise PeerFailed(
                    f"{seen} of {records} records of {topic} came from {self._servers} within "
                    f"{_WAIT_S:g} s; positions {[one.offset for one in where]}, errors {errors}"
                )
        took = time.perf_counter() - start
        client.close()
        return seen / took

    # --- time --------------------------------------------------------------------------

    def latencies(self, topic: str, rate: int, seconds: float) -> Latencies:
        producer = self._producer(PROMPT)
        reader = Consumer({**self._servers, **CONSUMER})
        reader.assign([TopicPartition(topic, p, 0) for p in range(3)])
        reader.consume(1, 1.0)
        acked: list[float] = []
        arrived: list[float] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                raise PeerFailed(f"a record of {topic} was refused: {error}")
            acked.append(time.perf_counter() - _sent_at(message))

        start, sent = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            while sent < (time.perf_counter() - start) * rate:
                producer.produce(topic, str(time.perf_counter()).encode(), on_delivery=delivered)
                sent += 1
            producer.poll(0)
            # The client counts whole milliseconds: anything less would spin and starve the nodes.
            for message in reader.consume(100, 0.001):
                if message.error() is None:
                    arrived.append(time.perf_counter() - _sent_at(message))
        producer.flush(_WAIT_S)
        reader.close()
        return Latencies(acked, arrived)

    def acknowledgements(self, topic: str, interval_s: float) -> SteadyWriter:
        return SteadyWriter(self._producer(WATCHFUL), topic, interval_s)


class SteadyWriter:
    """Writes a record to partition 0 every so often, and notes when each was acknowledged."""

    def __init__(self, producer: Producer, topic: str, interval_s: float) -> None:
        self._producer = producer
        self._topic = topic
        self._interval_s = interval_s
        self._at: list[float] = []
        self._failed: list[KafkaError] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def newest(self) -> float:
        return self._at[-1] if self._at else 0.0

    def end(self) -> Sequence[float]:
        self._is_over.set()
        self._thread.join(_WAIT_S)
        if self._failed:
            raise PeerFailed(f"a record of {self._topic} was lost: {self._failed[0]}")
        return self._at

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._producer.produce(self._topic, b"x", partition=0, on_delivery=self._delivered)
            self._producer.poll(self._interval_s)
            self._is_over.wait(self._interval_s)
        self._producer.flush(_WAIT_S)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error)
        else:
            self._at.append(time.perf_counter())


def _sent_at(message: Message) -> float:
    return float(cast(bytes, message.value()))


def _enqueue(producer: Producer, topic: str, size: int, count: int) -> int:
    """How many of these the producer took; it takes no more than its buffer holds."""
    batch: list[dict[str, Any]] = [{"value": bytes(size)}] * count
    taken = producer.produce_batch(topic, batch)
    producer.poll(0 if taken == count else 0.002)
    return int(taken)


def _flush(producers: Sequence[Producer], start: float, timeout_s: float = _WAIT_S) -> float:
    """Seconds since the start, when all is acknowledged."""
    for producer in producers:
        if producer.flush(timeout_s) > 0:
            raise PeerFailed(f"records were not acknowledged within {timeout_s:g} s")
    return time.perf_counter() - start
