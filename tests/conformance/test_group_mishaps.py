"""One answer about a group fails, and stock clients get over it: every partition is read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from group_run import PARTITIONS, ConfluentMember, Member, Production, Readings, are_shared, unread
from slow_tests import slow_after
from unreliable_node import AFTER_ALL, FAILED, LATE, NOT_COORDINATOR
from waiting import until

from tidelog.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.xdist_group("cluster")

NODE = str(Path(__file__).parents[1] / "support/unreliable_node.py")
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
TOPIC, GROUP = "t", "g"


@contextmanager
def unreliable(mishap: str, told: list[str]) -> Iterator[LocalCluster]:
    server = (sys.executable, NODE, mishap)
    keep = lambda node_id, line: told.append(line)  # noqa: E731
    with LocalCluster(1, server=server, settings=SETTINGS, on_line=keep) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        yield cluster
        cluster.kill_all()


def member(name: str, readings: Readings, cluster: LocalCluster, protocol: str) -> Member:
    return ConfluentMember(name, readings, cluster.bootstrap, GROUP, TOPIC, group_protocol=protocol)


@pytest.mark.parametrize("protocol", slow_after(1, ["consumer", "classic"]))
def test_a_member_asks_again_where_to_read_on(protocol: str) -> None:
    """librdkafka asks again only for partitions that the answer names."""
    readings, told = Readings(), list[str]()
    with unreliable(NOT_COORDINATOR, told) as cluster:
        production = Production(cluster.bootstrap, TOPIC)
        production.start()
        only = member("a", readings, cluster, protocol)
        only.start()
        until(lambda: readings.seen, "it reads")
        production.finish()
        until(lambda: not unread(production.sent, readings), "everything is read")
        only.leave()
    assert FAILED in told


def test_a_member_hears_later_what_it_did_not_hear() -> None:
    """librdkafka gives a heartbeat up after one interval, and does not say so with the next."""
    readings, told = Readings(), list[str]()
    with unreliable(LATE, told) as cluster:
        first = member("a", readings, cluster, "consumer")
        first.start()
        until(lambda: are_shared(readings, ("a",)), "the first has all")
        second = member("b", readings, cluster, "consumer")
        second.start()
        until(lambda: are_shared(readings, ("a", "b")), "they share the topic")
        for each in (first, second):
            each.leave()
    assert FAILED in told


def commit(consumer: Consumer, offset: int) -> None:
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)


def committed(consumer: Consumer) -> int:
    [place] = consumer.committed([TopicPartition(TOPIC, 0)], 30)
    return int(place.offset)


def test_a_commit_that_was_given_up_does_not_come_behind_the_next() -> None:
    """It stands in line behind a heartbeat, on a connection that librdkafka leaves for another."""
    readings, told = Readings(), list[str]()
    with unreliable(LATE, told) as cluster:
        first = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": GROUP,
                "group.protocol": "consumer",
                "enable.auto.commit": False,
                "socket.timeout.ms": 500,
            }
        )
        first.subscribe([TOPIC])
        until(lambda: first.poll(0.1) or len(first.assignment()) == PARTITIONS, "it has all")
        second = member("b", readings, cluster, "consumer")
        second.start()
        until(lambda: FAILED in told, "a heartbeat waits")
        commit(first, 5)
        commit(first, 9)
        assert AFTER_ALL not in told, "the commits were to be served on another connection"
        until(lambda: AFTER_ALL in told, "the heartbeat is answered")
        assert [committed(first) for _ in range(5)] == [9] * 5
        first.close()
        second.leave()
