"""Processes of a peer: they and their files go with the benchmark, killed even."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

from bench.peers.nodes import Nodes

ROOT = Path(__file__).parents[3]
BENCHMARK = """
import sys
from bench.peers.nodes import Nodes
from bench.scratch import ended_by_sigterm
nodes = Nodes("double")
with ended_by_sigterm():
    try:
        nodes.launch(1, ["sleep", "600"])
        print(nodes.home, *nodes.pids(), flush=True)
        sys.stdin.read()
    finally:
        nodes.stop()
"""


def is_running(pid: int) -> bool:
    """And not only waited for by nobody."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def command_of(pid: int) -> str:
    """First whatever makes the kernel kill it, then what was launched."""
    return Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip()


def test_what_is_stopped_leaves_nothing() -> None:
    nodes = Nodes("double")
    nodes.launch(1, ["sleep", "600"])
    [pid] = nodes.pids()
    nodes.stop()
    assert not nodes.home.exists() and not is_running(pid)


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv (util-linux) is missing")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_is_killed_leaves_nothing(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BENCHMARK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as benchmark:
        assert benchmark.stdout is not None
        home, pid = benchmark.stdout.readline().split()
        until(lambda: command_of(int(pid)) == "sleep", "its node runs")
        assert Path(home).is_dir()
        benchmark.send_signal(number)
        benchmark.wait(60)
    until(lambda: not is_running(int(pid)), "its node has ended")
    until(lambda: not Path(home).exists(), "its files are removed")
