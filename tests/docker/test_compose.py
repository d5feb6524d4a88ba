"""The compose files as people use them: up, in use, with faults, restarted; and nothing lost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, cast

import pytest
from compose_cluster import PATIENCE_S, ComposeCluster, run
from confluent_kafka import Consumer, Producer
from kill_run import Run
from waiting import until

from tidelog.testing.local_cluster import LocalCluster

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

Harm: TypeAlias = Callable[[ComposeCluster, int], None]
PAUSE_S = 5.0  # longer than broker.session.timeout.ms
SERVING_GOAL_S = 5.0


@pytest.fixture(scope="module")
def cluster(image: str, compose: Sequence[str]) -> Iterator[ComposeCluster]:
    with ComposeCluster(compose, "docker-compose.yml", "tidelogtest", "node") as running:
        yield running


class FaultyRun(Run):
    """Harms containers where the others harm processes.

    Docker's commands take a while, so the clock runs from when the harm is done: what is
    acknowledged then was acknowledged without the victim.
    """

    def __init__(self, cluster: ComposeCluster, topic: str) -> None:
        super().__init__(cast(LocalCluster, cluster), topic, 3, print)
        self._containers = cluster

    def without_leader(self, harm: Harm, heal: Harm, for_s: float = 0.0) -> None:
        victim = self._leader()
        harm(self._containers, victim)
        self._producer.note_fault()
        gap_s = self._wait_for_ack()
        time.sleep(for_s)
        heal(self._containers, victim)
        self._wait_until_whole()
        print(f"{harm.__name__} node {victim}: writes go on after {gap_s * 1000:.0f} ms")

    def restart_everything(self) -> None:
        self._producer.note_fault()
        self._containers.compose("restart", "--timeout", "20")
        self._wait_until_whole()
        self._wait_for_ack()


def records(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"readers-of-{topic}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(count, 0.2):
            value = message.value()
            if message.error() is None and value is not None:
                found.append(value)
    consumer.close()
    return found


def test_it_serves_soon(cluster: ComposeCluster) -> None:
    met = "met" if cluster.serving_after_s <= SERVING_GOAL_S else "MISSED"
    print(f"serving {cluster.serving_after_s:.1f} s after `up` (goal {SERVING_GOAL_S:g}: {met})")
    until(
        lambda: {cluster.health(node) for node in (1, 2, 3)} == {"healthy"},
        "the health check does not pass",
        within_s=PATIENCE_S,
    )


def test_the_host_and_another_container_share_topics(cluster: ComposeCluster, image: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(100):
        producer.produce("shared", f"host {number}".encode())
    assert producer.flush(PATIENCE_S) == 0
    lines = "".join(f"container {number}\n" for number in range(100))
    cluster.from_a_container(image, "produce", "shared", stdin=lines)

    wanted = {f"{place} {n}" for place in ("host", "container") for n in range(100)}
    printed = cluster.from_a_container(
        image, "consume", "shared", "--from-beginning", "-n", "200", "--timeout-ms", "60000"
    )
    assert set(printed.splitlines()) == wanted
    assert {value.decode() for value in records(cluster.bootstrap, "shared", 200)} == wanted


def test_faults_of_the_leader_lose_nothing(cluster: ComposeCluster) -> None:
    faults = FaultyRun(cluster, "faults")
    with faults.under_way():
        faults.without_leader(ComposeCluster.kill, ComposeCluster.start_node)
        faults.without_leader(ComposeCluster.pause, ComposeCluster.resume, PAUSE_S)
        faults.without_leader(ComposeCluster.disconnect, ComposeCluster.reconnect, PAUSE_S)
        faults.restart_everything()
    outcome = faults.outcome
    print(f"{outcome.total} records acknowledged")
    assert outcome.is_sound, outcome
    assert outcome.total > 0


def test_down_and_up_keep_the_data(cluster: ComposeCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(50):
        producer.produce("kept", str(number).encode())
    assert producer.flush(PATIENCE_S) == 0
    cluster.compose("down", "--timeout", "20")
    cluster.compose("up", "-d")
    cluster.wait_until_serving(PATIENCE_S)
    found = records(cluster.bootstrap, "kept", 50)
    assert sorted(found, key=int) == [str(number).encode() for number in range(50)]


def test_a_node_stops_cleanly_when_asked(cluster: ComposeCluster) -> None:
    container = cluster.container(3)
    run("docker", "stop", "-t", "30", container)
    assert run("docker", "inspect", "-f", "{{.State.ExitCode}}", container).strip() == "0"
    cluster.start_node(3)
    cluster.wait_until_serving(PATIENCE_S)


@pytest.fixture
def split_cluster(
    image: str, compose: Sequence[str], cluster: ComposeCluster
) -> Iterator[ComposeCluster]:
    """Takes the ports of the other one, which is gone afterwards."""
    cluster.compose("down", "-v", "--timeout", "10")
    file = "docker-compose.controllers.yml"
    with ComposeCluster(compose, file, "tidelogsplit", "broker") as running:
        yield running


def test_brokers_with_dedicated_controllers_serve(split_cluster: ComposeCluster) -> None:
    """The last test of this file: see the fixture."""
    faults = FaultyRun(split_cluster, "split")
    with faults.under_way():
        faults.without_leader(ComposeCluster.kill, ComposeCluster.start_node)
    assert faults.outcome.is_sound, faults.outcome
    controller = split_cluster.compose("ps", "-q", "controller1").strip()
    state = json.loads(run("docker", "inspect", "-f", "{{json .State}}", controller))
    assert state["Health"]["Status"] == "healthy"
