"""Nodes as processes: what they load, and that none is left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from client_kits import Confluent, Sent
from telling_node import LOADED
from waiting import until

from tidelog.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.xdist_group("cluster")

TELLING_NODE = (sys.executable, str(Path(__file__).parents[1] / "support/telling_node.py"))
OF_OTHERS = frozenset({
    "typer", "click", "rich", "confluent_kafka", "hypothesis", "aiohttp", "pytest", "kafka",
    "aiokafka", "grpc", "numpy", "tidelog.cli", "tidelog.testing", "tidelog.simulation",
})  # fmt: skip
"""The command line's, the tests', and those of parts that a node has not been asked for."""


def of_others(modules: str) -> set[str]:
    names = modules.split()
    return {name for name in names for package in OF_OTHERS if f"{name}.".startswith(f"{package}.")}


def modules_after(program: str) -> str:
    """What a new interpreter has loaded when it has run the program."""
    told = "; import sys; print(*(name for name, module in sys.modules.items() if module))"
    command = [sys.executable, "-c", program + told]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_node_that_served_has_loaded_nothing_of_others() -> None:
    with LocalCluster(1, server=TELLING_NODE) as one:
        kit = Confluent(one.bootstrap)
        kit.produce("t", [Sent(b"k", b"v" * 1000)], codec="zstd", idempotent=True)
        assert len(kit.consume("t", {0: 1})[0]) == 1
    told = one.nodes[1].last_words[-1]
    assert told.startswith(LOADED)
    assert "kio.schema" in told and "hpack" in told
    assert of_others(told.removeprefix(LOADED)) == set()


def test_forked_nodes_start_with_nothing_of_others() -> None:
    loaded = modules_after(
        "import tidelog.testing.nursery_process as nursery; nursery.process.load_modules()"
    )
    assert "tidelog.broker.node" in loaded
    launcher = {"tidelog.testing", "tidelog.testing.nursery_process"}
    assert of_others(loaded) == launcher


def test_a_controller_alone_loads_nothing_of_brokers() -> None:
    loaded = modules_after(
        "from tidelog.broker import process; process.load_modules(is_broker=False)"
    ).split()
    assert "tidelog.broker.controller_role" in loaded
    of_brokers = {"tidelog.broker.broker_role", "tidelog.replication.replicas", "kio.index"}
    assert not of_brokers.intersection(loaded)


def test_whose_a_module_is() -> None:
    assert of_others("os typing typerx rich rich.console numpy") == {
        "rich", "rich.console", "numpy",
    }  # fmt: skip


class Watched:
    """A process that is somebody else's child, known until it is gone."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)

    def wait_for_end(self, timeout_s: float) -> bool:
        has_ended, _, _ = select.select([self._descriptor], [], [], timeout_s)
        os.close(self._descriptor)
        return bool(has_ended)


@pytest.fixture
def watched() -> Any:
    made: list[Watched] = []

    def watch(pid: int) -> Watched:
        made.append(Watched(pid))
        return made[-1]

    yield watch
    for one in made:
        with suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)


Watch = Callable[[int], Watched]


def test_nodes_and_their_data_go_when_their_launcher_is_killed(watched: Watch) -> None:
    program = (
        "import sys\n"
        "from tidelog.testing.local_cluster import LocalCluster\n"
        "with LocalCluster(2) as cluster:\n"
        "    print(*(node.process.pid for node in cluster.nodes.values()), flush=True)\n"
        "    print(cluster.data_dir, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        nodes = [watched(int(pid)) for pid in launcher.stdout.readline().split()]
        data_dir = Path(launcher.stdout.readline().strip())
        assert (data_dir / "node-2" / "meta.properties").is_file()
        launcher.kill()
    assert len(nodes) == 2
    assert all(node.wait_for_end(40) for node in nodes)
    until(lambda: not data_dir.exists(), f"{data_dir} goes with its launcher")


def test_nodes_end_when_what_forked_them_is_killed(watched: Watch) -> None:
    with LocalCluster(1) as cluster:
        process = cluster.nodes[1].process
        assert process is not None
        node = watched(process.pid)
        with open(f"/proc/{process.pid}/stat", encoding="ascii") as status:
            parent = int(status.read().rsplit(")", 1)[1].split()[1])
        os.kill(parent, signal.SIGKILL)
        assert node.wait_for_end(40)
        assert process.wait(40) == -signal.SIGKILL
        assert cluster.fallen() == [cluster.nodes[1]]
