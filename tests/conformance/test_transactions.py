"""Transactions with a stock client: all or nothing, once, though their coordinator dies."""

from __future__ import annotations

import time
import uuid

import kafka
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from copier_run import Fault, run_copiers
from kafka.structs import OffsetAndMetadata
from transactional_copier import read_committed
from waiting import until

from tidelog.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.xdist_group("cluster")

PARTITIONS = 2


def new_topic(cluster: LocalCluster, what: str) -> str:
    name = f"{what}-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 3)])[name].result(30)
    return name


def producer_of(cluster: LocalCluster, name: str, timeout_ms: int = 30_000) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
        }
    )
    producer.init_transactions(60)
    return producer


def write(producer: Producer, topic: str, *values: str) -> None:
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    producer.flush(30)


def committed_values(cluster: LocalCluster, topic: str) -> list[str]:
    found = read_committed(cluster.bootstrap, topic, PARTITIONS)
    return [value for _, value in sorted(row for rows in found.values() for row in rows)]


def test_what_is_committed_is_read_and_what_is_aborted_is_not(cluster: LocalCluster) -> None:
    topic = new_topic(cluster, "outcomes")
    producer = producer_of(cluster, f"outcomes of {topic}")
    for number in range(6):
        producer.begin_transaction()
        write(producer, topic, f"{number}-a", f"{number}-b")
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    expected = {f"{number}-{half}" for number in (0, 2, 4) for half in "ab"}
    assert set(committed_values(cluster, topic)) == expected


def test_an_open_transaction_is_not_read(cluster: LocalCluster) -> None:
    topic = new_topic(cluster, "open")
    producer = producer_of(cluster, f"open in {topic}")
    producer.begin_transaction()
    write(producer, topic, "a", "b")
    assert committed_values(cluster, topic) == []
    producer.commit_transaction(30)
    assert set(committed_values(cluster, topic)) == {"a", "b"}


def test_a_second_producer_fences_the_first(cluster: LocalCluster) -> None:
    topic = new_topic(cluster, "fenced")
    first = producer_of(cluster, f"fenced in {topic}")
    first.begin_transaction()
    write(first, topic, "lost")
    second = producer_of(cluster, f"fenced in {topic}")
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(30)
    assert refused.value.args[0].fatal()
    second.begin_transaction()
    write(second, topic, "kept")
    second.commit_transaction(30)
    assert committed_values(cluster, topic) == ["kept"]


def test_a_transaction_that_takes_too_long_is_aborted(cluster: LocalCluster) -> None:
    """And does not hold up the readers of those that came after it."""
    topic = new_topic(cluster, "overdue")
    slow = producer_of(cluster, f"overdue in {topic}", timeout_ms=4_000)
    slow.begin_transaction()
    write(slow, topic, "overdue")
    other = producer_of(cluster, f"another in {topic}")
    other.begin_transaction()
    write(other, topic, "in time")
    other.commit_transaction(30)
    until(
        lambda: committed_values(cluster, topic) == ["in time"],
        "the last stable offset stands still",
    )
    with pytest.raises(KafkaException):
        slow.commit_transaction(30)


def test_kafka_python_copies_exactly_once(cluster: LocalCluster) -> None:
    source, target = new_topic(cluster, "source"), new_topic(cluster, "target")
    feeder = producer_of(cluster, f"feeder of {source}")
    for number in range(4):
        feeder.begin_transaction()
        write(feeder, source, *(f"{number}-{index}" for index in range(10)))
        if number % 2:
            feeder.abort_transaction(30)
        else:
            feeder.commit_transaction(30)
    servers = cluster.bootstrap.split(",")
    consumer = kafka.KafkaConsumer(
        source,
        bootstrap_servers=servers,
        group_id=f"copier of {source}",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers, transactional_id=f"copier to {target}"
    )
    producer.init_transactions()
    copied = 0
    deadline = time.monotonic() + 60
    while copied < 20:
        assert time.monotonic() < deadline, f"{copied} of 20 were copied"
        records = consumer.poll(500)
        if not records:
            continue
        producer.begin_transaction()
        for place, messages in records.items():
            for message in messages:
                producer.send(target, message.value, partition=place.partition)
                copied += 1
        positions = {
            place: OffsetAndMetadata(consumer.position(place), "", -1)
            for place in consumer.assignment()
        }
        producer.send_offsets_to_transaction(positions, consumer.group_metadata())
        producer.commit_transaction()
    consumer.close()
    producer.close()
    found = read_committed(cluster.bootstrap, source, PARTITIONS)
    expected = {index: [value for _, value in rows] for (_, index), rows in found.items()}
    found = read_committed(cluster.bootstrap, target, PARTITIONS)
    assert {i: [value for _, value in rows] for (_, i), rows in found.items()} == expected


@pytest.mark.parametrize(
    ("kit", "faults"),
    [
        ("confluent", [Fault.TRANSACTION_COORDINATOR, Fault.COPIER]),
        pytest.param("kafka-python", [Fault.COPIER, Fault.LEADER], marks=pytest.mark.slow),
    ],
)
def test_a_copier_copies_exactly_once_though_it_and_brokers_are_killed(
    cluster: LocalCluster, kit: str, faults: list[Fault]
) -> None:
    label = uuid.uuid4().hex[:8]
    outcome = run_copiers(cluster, [kit], faults, label=label, membership="static")
    assert outcome.wrong == [] and outcome.anomalies == []
    assert outcome.is_sound, f"the last stable offset stood still {outcome.longest_stall_s:.0f} s"
    assert outcome.records > 100
