"""Processes of this machine, broken through the library as a user's own test would."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.chaos import Cluster
from tidelog.chaos.targets.base import TargetError

pytestmark = pytest.mark.xdist_group("chaos-local")

TOPIC = "events"
SETTINGS = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "1500",
    "replica.lag.time.max.ms": "1500",
}
NODES = {1, 2, 3}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster.local(3, settings=SETTINGS) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(60)
        running.wait_until_whole(TOPIC)
        yield running


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.heal()
    cluster.wait_until_whole(TOPIC)


def write(cluster: Cluster, *values: str) -> None:
    """Acknowledged by all that are in sync, or an assertion fails."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for value in values:
        producer.produce(TOPIC, value)
    assert producer.flush(20) == 0


def vouched_end(consumer: Consumer) -> int:
    """The end of the partition, as soon as its leader knows it.

    One that has just started serves what it knows to be replicated, so a reader may meet an early
    end; asked for the end, it refuses until its followers have told it what they have.
    """
    deadline = time.monotonic() + 60
    while True:
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=20)[1])
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def read(cluster: Cluster) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "readers",
            "enable.auto.commit": False,
        }
    )
    end = vouched_end(consumer)
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    values: list[str] = []
    while len(values) < end and (message := consumer.poll(20)) is not None:
        assert message.error() is None, message.error()
        values.append((message.value() or b"").decode())
    consumer.close()
    return values


def test_a_follower_that_is_cut_off_leaves_the_isr_and_comes_back(cluster: Cluster) -> None:
    leader = cluster.leader_of(TOPIC, 0)
    victim = next(n for n in cluster.followers_of(TOPIC, 0) if n != cluster.controller())

    with cluster.cut(victim):
        cluster.wait_until_isr(TOPIC, 0, NODES - {victim}, timeout_s=60)
        write(cluster, "while a follower was away")
        assert cluster.leader_of(TOPIC, 0) == leader
    cluster.wait_until_isr(TOPIC, 0, NODES, timeout_s=60)


def test_a_leader_that_nobody_hears_is_replaced_although_it_hears_all(cluster: Cluster) -> None:
    leader = cluster.leader_of(TOPIC, 0)

    with cluster.cut(leader, one_way=True):
        cluster.wait_until_isr(TOPIC, 0, NODES - {leader}, timeout_s=60)
        assert cluster.leader_of(TOPIC, 0) != leader


def test_a_leader_that_is_paused_is_replaced_and_does_not_know_it(cluster: Cluster) -> None:
    leader = cluster.leader_of(TOPIC, 0)

    with cluster.paused(leader):
        cluster.wait_until_isr(TOPIC, 0, NODES - {leader}, timeout_s=60)
    cluster.wait_until_isr(TOPIC, 0, NODES, timeout_s=60)
    assert cluster.leader_of(TOPIC, 0) != leader


def test_what_was_acknowledged_survives_power_loss_of_all(cluster: Cluster) -> None:
    before = read(cluster)
    write(cluster, *(f"before the lights went out {number}" for number in range(500)))

    assert cluster.lose_power().count("were not synced") == 3
    cluster.wait_until_whole(TOPIC)
    assert read(cluster) == before + [f"before the lights went out {n}" for n in range(500)]


def test_what_a_target_cannot_do_it_says(cluster: Cluster) -> None:
    assert "carry streams, not packets" in str(cluster.target.cannot("loss"))
    with pytest.raises(TargetError, match="as root"):
        cluster.fault("loss")
