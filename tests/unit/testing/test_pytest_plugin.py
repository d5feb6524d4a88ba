"""The pytest plugin: light to load, there by its entry point, clear when misused."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tidelog.testing.fixture_cluster import AsyncView, FixtureCluster
from tidelog.testing.local_cluster import ClusterFailed

ROOT = Path(__file__).parents[3]
HEAVY = {
    "aiohttp", "asyncio", "confluent_kafka", "grpc", "kio", "numpy", "socket", "subprocess",
    "tidelog.client", "tidelog.kernel", "tidelog.simulation", "tidelog.testing.local_cluster",
    "tidelog.wire",
}  # fmt: skip


def test_the_plugin_imports_nothing_heavy() -> None:
    program = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        "import tidelog.testing.pytest_plugin\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    new = set(found.stdout.split())
    assert not new & HEAVY
    assert {name for name in new if name.startswith("tidelog")} <= {
        "tidelog",
        "tidelog.testing",
        "tidelog.testing.pytest_plugin",
    }


def test_the_entry_points_lead_somewhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = project["entry-points"]
    assert points["pytest11"] == {"tidelog": "tidelog.testing.pytest_plugin"}
    module, _, name = points["tidelog.testing"]["simulated_cluster"].partition(":")
    path = ROOT / "simulation" / Path(*module.split(".")).with_suffix(".py")
    assert f"class {name}:" in path.read_text(encoding="utf-8")


def test_every_method_that_waits_has_an_asynchronous_form() -> None:
    waiting = {
        "kill", "shut_down", "restart", "pause", "resume", "cut", "mend", "isolate", "heal",
        "leader_of", "wait_healthy", "wait_group_stable", "create_topic", "delete_topic",
    }  # fmt: skip
    assert waiting == {name for name in vars(AsyncView) if not name.startswith("_")}
    own = {"start", "stop", "healthy", "group_stable"}
    methods = {
        name for name, one in vars(FixtureCluster).items() if callable(one) and name[0] != "_"
    }
    assert methods == waiting | own


def test_a_cluster_that_was_not_started_says_so() -> None:
    cluster = FixtureCluster(3)
    assert not cluster.is_harmed
    for ask in (lambda: cluster.bootstrap, lambda: cluster.kill(1), lambda: cluster.leader_of("t")):
        with pytest.raises(ClusterFailed, match="not started"):
            ask()
    cluster.stop()
