"""Processes in network namespaces: the kernel drops packets, and nothing is left behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.chaos import Cluster
from tidelog.chaos.targets.commands import run
from tidelog.chaos.targets.netns import NetnsTarget

pytestmark = pytest.mark.xdist_group("chaos-netns")

TOPIC = "events"
SETTINGS = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "1500",
    "replica.lag.time.max.ms": "1500",
}
NODES = {1, 2, 3}


@pytest.fixture(scope="module")
def cluster(require: Callable[[str], None]) -> Iterator[Cluster]:
    require("netns")
    with Cluster(NetnsTarget(3, settings=SETTINGS)) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(60)
        running.wait_until_whole(TOPIC)
        yield running


def own_namespaces() -> list[str]:
    """Those of this process; other workers have and remove some at the same time."""
    return [line for line in run("ip", "netns", "list").splitlines() if f"tl{os.getpid()}x" in line]


def test_a_leader_that_is_cut_off_is_replaced_and_comes_back(cluster: Cluster) -> None:
    leader = cluster.leader_of(TOPIC, 0)

    with cluster.cut(leader):
        cluster.wait_until_isr(TOPIC, 0, NODES - {leader}, timeout_s=60)
        assert cluster.leader_of(TOPIC, 0) != leader
    cluster.wait_until_isr(TOPIC, 0, NODES, timeout_s=60)


def test_a_follower_that_is_not_heard_leaves_and_comes_back(cluster: Cluster) -> None:
    victim = next(n for n in cluster.followers_of(TOPIC, 0) if n != cluster.controller())

    with cluster.cut(victim, one_way=True):
        cluster.wait_until_isr(TOPIC, 0, NODES - {victim}, timeout_s=60)
    cluster.wait_until_isr(TOPIC, 0, NODES, timeout_s=60)


def test_links_that_lose_packets_are_slow_or_reset_still_serve(cluster: Cluster) -> None:
    with cluster.losing(1, 0.1), cluster.slowed(2, bytes_per_s=100_000):
        cluster.reset(3, to=1)
        assert cluster.leader_of(TOPIC, 0) in NODES
    cluster.heal()
    cluster.wait_until_whole(TOPIC)


def test_a_start_that_fails_leaves_no_namespace_behind(require: Callable[[str], None]) -> None:
    require("netns")
    before = own_namespaces()

    with (
        pytest.raises(Exception, match=r"no\.such\.setting"),
        Cluster(NetnsTarget(1, settings={"no.such.setting": "1"})),
    ):
        pass
    assert own_namespaces() == before
