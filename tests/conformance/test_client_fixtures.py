"""The fixtures of the pytest plugin, in runs of pytest of their own, as a user has them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*/pytest.ini"))

FAULTS = """
import pytest
from tidelog.client import sync, Consumer

WORKERS = set()

def test_a_dead_leader_is_replaced(tidelog_cluster, tidelog_topic):
    leader = tidelog_cluster.leader_of(tidelog_topic)
    with sync.Producer({"bootstrap.servers": tidelog_cluster.bootstrap}) as producer:
        assert producer.send(tidelog_topic, b"1").offset == 0
        tidelog_cluster.kill(leader)
        assert producer.send(tidelog_topic, b"2").offset == 1
    assert tidelog_cluster.leader_of(tidelog_topic) != leader
    assert tidelog_cluster.is_harmed
    with pytest.raises(TimeoutError, match=f"healthy: node {leader} is down"):
        tidelog_cluster.wait_healthy(timeout_s=0.1)
    tidelog_cluster.restart(leader)
    tidelog_cluster.wait_healthy()

def test_a_leader_that_is_cut_off_is_replaced(tidelog_cluster, tidelog_topic):
    leader = tidelog_cluster.leader_of(tidelog_topic)
    tidelog_cluster.isolate(leader)
    while tidelog_cluster.leader_of(tidelog_topic) == leader:
        pass
    other = tidelog_cluster.leader_of(tidelog_topic)
    tidelog_cluster.mend(leader, other)
    # and one link stays cut: the plugin mends it

def test_what_the_last_test_cut_is_mended(tidelog_cluster):
    assert not tidelog_cluster.is_harmed
    with pytest.raises(ValueError, match="there is no node 9; there are 1, 2, 3"):
        tidelog_cluster.kill(9)
    with pytest.raises(ValueError, match="from itself"):
        tidelog_cluster.cut(1, 1)

@pytest.mark.asyncio
async def test_under_pytest_asyncio(tidelog_cluster, tidelog_topic):
    await waits(tidelog_cluster, tidelog_topic)

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_under_anyio(tidelog_cluster, tidelog_topic):
    await waits(tidelog_cluster, tidelog_topic)

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_under_anyio_on_either_event_loop(tidelog_cluster, tidelog_topic, simulated_cluster):
    leader = await tidelog_cluster.aio.leader_of(tidelog_topic)
    await tidelog_cluster.aio.pause(leader)
    await tidelog_cluster.aio.heal()
    await tidelog_cluster.healthy()
    simulated = simulated_cluster(1, nodes=1)
    await simulated.aio.create_topic("t")
    await simulated.aio.advance(days=7)
    await simulated.healthy()

async def waits(cluster, topic):
    import asyncio
    async with Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic}) as consumer:
        await consumer.subscribe(topic)
        polling = asyncio.ensure_future(consumer.poll(30))
        await cluster.group_stable(topic, members=1)
        polling.cancel()
    leader = await cluster.aio.leader_of(topic)
    await cluster.aio.pause(leader)
    assert leader not in cluster.living
    await cluster.aio.resume(leader)
    await cluster.healthy()
"""

PORTS = """
def test_a_broker_of_its_own(tidelog_broker, tidelog_topic):
    assert tidelog_broker.nodes == (1,)
    assert tidelog_broker.leader_of(tidelog_topic) == 1

def test_the_same_broker(tidelog_broker, tidelog_topic):
    assert tidelog_broker.leader_of(tidelog_topic) == 1

def test_a_third(tidelog_broker): pass
def test_a_cluster_beside_it(tidelog_cluster, tidelog_topic):
    assert tidelog_cluster.living == (1, 2, 3)
    assert tidelog_cluster.leader_of(tidelog_topic) in tidelog_cluster.living
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, "."],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )


def write_project(folder: Path, tests: str) -> Path:
    (folder / "test_it.py").write_text(tests, encoding="utf-8")
    (folder / "pytest.ini").write_text(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\ntimeout = 100\n", encoding="utf-8"
    )
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("project", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_project_passes(project: Path) -> None:
    found = run_pytest(project.parent)
    assert found.returncode == 0, found.stdout + found.stderr


def test_faults_and_waiting(tmp_path: Path) -> None:
    found = run_pytest(write_project(tmp_path, FAULTS))
    assert found.returncode == 0, found.stdout + found.stderr
    assert "7 passed" in found.stdout


def test_workers_have_brokers_of_their_own_though_ports_are_taken(tmp_path: Path) -> None:
    """Some thousand ports of the range are in use; two workers start at the same time."""
    taken = []
    try:
        for port in range(15_000, 32_768, 40):
            one = socket.socket()
            taken.append(one)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        found = run_pytest(write_project(tmp_path, PORTS), "-n", "2")
    finally:
        for one in taken:
            one.close()
    assert found.returncode == 0, found.stdout + found.stderr
    assert "4 passed" in found.stdout
