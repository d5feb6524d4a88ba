"""Target ``compose``: containers cut off, killed and healed, as ``tidelog chaos`` would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from compose_cluster import DEPLOY
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.chaos import Cluster
from tidelog.chaos.history_file import read_history
from tidelog.chaos.run import run
from tidelog.chaos.run_options import RunOptions
from tidelog.chaos.targets.compose import ComposeTarget
from tidelog.chaos.verdict import judge

pytestmark = pytest.mark.docker

TOPIC = "trial"
NODES = {1, 2, 3}


def project() -> ComposeTarget:
    return ComposeTarget(DEPLOY / "docker-compose.yml", project="tidelog-chaos-test")


@pytest.fixture(scope="module")
def cluster(compose: Sequence[str]) -> Iterator[Cluster]:
    with Cluster(project()) as running:
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


def test_a_run_on_containers_that_are_up_loses_nothing_and_leaves_them_up(
    cluster: Cluster, tmp_path: Path
) -> None:
    counts = (("kill-leader", 1), ("cut", 1))
    names = tuple(name for name, _ in counts)
    options = RunOptions("append", names, 60.0, 10, rate=200, calm_s=(0.5, 0.5), counts=counts)
    result = run(options, project(), tmp_path)

    assert result.problems == []
    history = read_history(result.history)
    verdict = judge(history)
    assert [anomaly.text for anomaly in verdict.anomalies] == []
    assert verdict.totals.acknowledged > 200
    assert len(history.faults) == 2 and not any(fault.failure for fault in history.faults)
    assert all(cluster.target.is_running(node) for node in NODES)
