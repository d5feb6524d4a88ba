"""`make bench-cluster`: three nodes on this machine, replication factor 3, seen by librdkafka.

Goals are Apache Kafka 4.3.1's figures on two cores, measured the same way, or the project's own
where it has set one. Kafka leaves flushing to the system, so that its figures are held against
those of the page-cache policy; those with fsync are beside them. The client runs on the same cores
as the nodes, here as there. To measure another cluster with the same client:
`python -m bench.cluster --bootstrap HOST:PORT`. `make bench-cluster ARGS=--idle` takes half a
minute and measures only what needs no load.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.start import await_first_answer
from bench.table import Row, report
from tidelog.testing.local_cluster import LocalCluster

PARTITIONS = 3
SECONDS = 6.0
RATE = 1000
SETTLE_S = 1.0
DRAIN_S = 300.0
PAGE_CACHE = "page-cache"
"""What Apache Kafka does by default, and what its figures are the goals for."""
FSYNC = "fsync"
KAFKAS_POLICY = "its own policy"
"""Of another cluster: Apache Kafka leaves flushing to the system, as page-cache does here."""
DELETE_SOON = {"log.segment.delete.delay.ms": "0"}
"""What is deleted after a load is gone before the next one: the loads together are 40 GB."""


@dataclass(frozen=True, slots=True)
class Load:
    size: int
    goal_records: float | None
    goal_mb: float | None
    goal_consume_mb: float


LOADS = (
    Load(100, 208_000, None, 107),
    Load(1_000, None, 79, 560),
    Load(10_000, None, 75, 540),
)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def producer(bootstrap: str, acks: str, **more: object) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "enable.idempotence": acks == "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 200_000,
            "log_level": 0,
            **more,
        }
    )


def create(bootstrap: str, name: str, partitions: int, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    made = admin.create_topics([NewTopic(name, partitions, 3, config=config)])
    made[name].result(60)


def delete(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_topics([name])[name].result(60)


def topic_config(policy: str) -> dict[str, str]:
    return {} if policy == KAFKAS_POLICY else {"flush.policy": policy}


def settle() -> None:
    """What one load left to be written must not slow down the next."""
    os.sync()
    time.sleep(SETTLE_S)


def produce_for(
    bootstrap: str, topic: str, size: int, acks: str, seconds: float
) -> tuple[float, int]:
    """Records per second that were acknowledged, and how many."""
    client = producer(bootstrap, acks)
    client.list_topics(topic, timeout=10)
    value, count = b"x" * size, 0
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(500):
            try:
                client.produce(topic, value, on_delivery=delivered)
                count += 1
            except BufferError:
                client.poll(0.005)
        client.poll(0)
    client.flush(60)
    assert not failed, failed[0]
    return count / (time.perf_counter() - start), count


def consume(bootstrap: str, topic: str, count: int) -> float:
    """Records per second."""
    client = Consumer(
        {
            "bootstrap.servers": bootstrap,
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
    )
    client.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    seen, start = 0, time.perf_counter()
    while seen < count and time.perf_counter() - start < 60:
        found = client.consume(min(10_000, count - seen), 0.5)
        seen += sum(1 for message in found if message.error() is None)
    took = time.perf_counter() - start
    client.close()
    return seen / took


def drain(bootstrap: str, topic: str, count: int) -> None:
    """Wait until all is replicated: what acks=1 left behind must not slow down what follows."""
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 0})
    deadline = time.monotonic() + DRAIN_S
    while True:
        ends = [
            client.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1]
            for p in range(PARTITIONS)
        ]
        if sum(ends) >= count:
            client.close()
            return
        assert time.monotonic() < deadline, f"of {count} records {sum(ends)} are replicated"
        time.sleep(0.1)


def bench_throughput(bootstrap: str, policies: Sequence[str], seconds: float) -> Iterator[Row]:
    for acks in ("all", "1"):
        for load in LOADS:
            for policy in policies:
                yield from bench_load(bootstrap, load, acks, policy, seconds)


def bench_load(bootstrap: str, load: Load, acks: str, policy: str, seconds: float) -> Iterator[Row]:
    topic = f"{policy}-{acks}-{load.size}".replace(" ", "-")
    create(bootstrap, topic, PARTITIONS, topic_config(policy))
    settle()
    rate, count = produce_for(bootstrap, topic, load.size, acks, seconds)
    drain(bootstrap, topic, count)
    name = f"produce {load.size} B, acks={acks}, {policy}"
    is_peer = acks == "all" and policy != FSYNC
    yield Row(name, rate, "records/s", load.goal_records if is_peer else None)
    yield Row(name, rate * load.size / 1e6, "MB/s", load.goal_mb if is_peer else None)
    if is_peer:
        settle()
        read = consume(bootstrap, topic, count)
        yield Row(f"consume {load.size} B", read * load.size / 1e6, "MB/s", load.goal_consume_mb)
    if policy != KAFKAS_POLICY:  # elsewhere files may be unlinked while something is measured
        delete(bootstrap, topic)


def bench_latency(bootstrap: str, policy: str, seconds: float) -> Iterator[Row]:
    """At a fixed rate, from the call of produce to its callback and to the consumer."""
    topic = f"latency-{policy}".replace(" ", "-")
    create(bootstrap, topic, PARTITIONS, topic_config(policy))
    settle()
    client = producer(bootstrap, "all", **{"linger.ms": 0})
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "fetch.wait.max.ms": 500,
         "enable.auto.commit": False, "log_level": 0}
    )  # fmt: skip
    reader.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    reader.consume(1, 1.0)
    acked: list[float] = []
    arrived: list[float] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert error is None and value is not None
        acked.append(time.perf_counter() - float(value))

    start, sent = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        while sent < (time.perf_counter() - start) * RATE:
            client.produce(topic, str(time.perf_counter()).encode(), on_delivery=delivered)
            sent += 1
        client.poll(0)
        # The client counts whole milliseconds: anything less would spin and starve the nodes.
        for message in reader.consume(100, 0.001):
            value = message.value()
            if message.error() is None and value is not None:
                arrived.append(time.perf_counter() - float(value))
    client.flush(10)
    reader.close()
    for name, values, p50, p99 in (
        ("produce latency", acked, 21, 198),
        ("end to end latency", arrived, 60, 287),
    ):
        for share, goal in ((0.5, p50), (0.99, p99)):
            yield Row(
                f"{name} at {RATE}/s, {policy}, p{share * 100:.0f}",
                percentile(values, share) * 1000,
                "ms",
                None if policy == FSYNC else goal,
                "lower",
            )


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


@contextmanager
def started() -> Iterator[tuple[LocalCluster, float]]:
    start = time.perf_counter()
    cluster = LocalCluster(3, settings=DELETE_SOON)
    cluster.start()
    try:
        await_first_answer(cluster.bootstrap, replicas=3)
        yield cluster, time.perf_counter() - start
    finally:
        cluster.stop()


def process_ids(cluster: LocalCluster) -> list[int]:
    return [node.process.pid for node in cluster.nodes.values() if node.process is not None]


def bench_idle(cluster: LocalCluster) -> Iterator[Row]:
    pids = process_ids(cluster)
    create(cluster.bootstrap, "many", 1000, {})
    time.sleep(10)  # making 3,000 logs is work, and not what is asked here
    before = [processor_seconds(pid) for pid in pids]
    time.sleep(10)
    used = [processor_seconds(pid) - one for pid, one in zip(pids, before, strict=True)]
    yield Row(
        "idle processor time with 1,000 partitions", max(used) * 10, "% of a core", 3, "lower"
    )


def bench_peer(bootstrap: str, seconds: float) -> Iterator[Row]:
    yield from bench_latency(bootstrap, KAFKAS_POLICY, seconds)
    yield from bench_throughput(bootstrap, [KAFKAS_POLICY], seconds)


def bench_own(seconds: float) -> Iterator[Row]:
    yield from bench_loaded(seconds)
    settle()
    with started() as (cluster, _):
        yield from bench_idle(cluster)


def bench_started() -> Iterator[Row]:
    """What needs no load: the start, and what nodes use that have nothing to do."""
    with started() as (cluster, first_answer_s):
        yield from rows_of_start(cluster, first_answer_s)
        yield from bench_idle(cluster)


def rows_of_start(cluster: LocalCluster, first_answer_s: float) -> Iterator[Row]:
    memory_mb = max(map(resident_mb, process_ids(cluster)))
    yield Row("start to the first acks=all answer", first_answer_s, "s", 1.5, "lower")
    yield Row("idle memory per node", memory_mb, "MB", 80, "lower")


def bench_loaded(seconds: float) -> Iterator[Row]:
    with started() as (cluster, first_answer_s):
        pids = process_ids(cluster)
        yield from rows_of_start(cluster, first_answer_s)
        for policy in (PAGE_CACHE, FSYNC):
            yield from bench_latency(cluster.bootstrap, policy, seconds)
        yield from bench_throughput(cluster.bootstrap, [PAGE_CACHE, FSYNC], seconds)
        loaded_mb = max(map(resident_mb, pids))
        yield Row("memory after load per node", loaded_mb, "MB", 770, "lower")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", help="measure this cluster instead, whatever it is")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="how long each load lasts; if not the "
        "default, results are printed and not kept"
    )  # fmt: skip
    parser.add_argument(
        "--idle", action="store_true", help="measure only what needs no load; results are not kept"
    )
    options = parser.parse_args()
    bootstrap, seconds = options.bootstrap, options.seconds
    if options.idle:
        measured = bench_started()
    else:
        measured = bench_own(seconds) if bootstrap is None else bench_peer(bootstrap, seconds)
    rows: list[Row] = []
    for row in measured:
        print(f"{row.name}: {row.value:,.1f} {row.unit}", flush=True)
        rows.append(row)
    name = "cluster" if bootstrap is None else "cluster_peer"
    report(name, rows, is_kept=seconds == SECONDS and not options.idle)
    return 0


if __name__ == "__main__":
    sys.exit(main())
