"""Target ``compose``: containers cut off, killed and healed, as ``tidelog chaos`` would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from compose_cluster import DEPLOY
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.chaos import Cluster
from tidelog.chaos.targets.compose import ComposeTarget

pytestmark = pytest.mark.docker

TOPIC = "events"
NODES = {1, 2, 3}


@pytest.fixture(scope="module")
def cluster(compose: Sequence[str]) -> Iterator[Cluster]:
    target = ComposeTarget(DEPLOY / "docker-compose.yml", project="tidelog-chaos-test")
    with Cluster(target) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(30)
        running.wait_until_whole(TOPIC)
        yield running


def test_a_container_that_is_cut_off_is_replaced_and_comes_back(cluster: Cluster) -> None:
    leader = cluster.leader_of(TOPIC, 0)

    with cluster.cut(leader):
        cluster.wait_until_isr(TOPIC, 0, NODES - {leader})
        assert cluster.leader_of(TOPIC, 0) != leader
    cluster.wait_until_isr(TOPIC, 0, NODES)


def test_a_cut_outlives_a_start_of_the_container(cluster: Cluster) -> None:
    victim = cluster.followers_of(TOPIC, 0)[0]

    with cluster.cut(victim):
        with cluster.killed(victim):
            cluster.wait_until_isr(TOPIC, 0, NODES - {victim})
        assert cluster.target.is_running(victim)
        assert victim not in cluster.view.alive()
    cluster.wait_until_isr(TOPIC, 0, NODES)


def test_what_containers_cannot_suffer_is_said(cluster: Cluster) -> None:
    assert "not rigged" in str(cluster.target.cannot("power-loss"))
    assert cluster.target.cannot("kill-leader") is None
