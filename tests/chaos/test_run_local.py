"""Short runs against real processes: a sound cluster is found sound, a broken promise is found."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from waiting import until

from tidelog.chaos.checkers import Kind
from tidelog.chaos.history import History
from tidelog.chaos.history_file import read_history
from tidelog.chaos.run import RunResult, run
from tidelog.chaos.run_options import RunOptions
from tidelog.chaos.run_targets import make_target
from tidelog.chaos.verdict import judge
from tidelog.cli.chaos_summary import read_summary
from tidelog.kernel.real.rigging import ACK_BEFORE_REPLICATION
from tidelog.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.xdist_group("chaos")


SETTINGS = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "1500",
    "replica.lag.time.max.ms": "1500",
}
"""Leaders that are cut off are soon replaced, so that a short run shows it; long ones are
``make chaos``."""


def run_local(
    directory: Path, counts: tuple[tuple[str, int], ...], seed: int, switches: Sequence[str] = ()
) -> tuple[RunResult, History]:
    """The seeds are those that draw cuts of three seconds or so."""
    names = tuple(name for name, _ in counts)
    options = RunOptions("append", names, 60.0, seed, rate=500, calm_s=(0.5, 0.5), counts=counts)
    target = make_target("local", 3, SETTINGS, unsafe_switches=switches)
    result = run(options, target, directory)
    return result, read_history(result.history)


@pytest.mark.slow
def test_a_sound_cluster_loses_nothing(tmp_path: Path) -> None:
    result, history = run_local(tmp_path, (("kill-leader", 1), ("cut", 1)), seed=10)
    assert result.problems == []
    assert sum(result.parts_s.values()) < 60, result.parts_s
    verdict = judge(history)
    assert [anomaly.text for anomaly in verdict.anomalies] == []
    assert verdict.caveats == ()
    assert verdict.totals.acknowledged > 500
    assert sorted(fault.name for fault in history.faults) == ["cut", "kill-leader"]
    assert not any(fault.failure for fault in history.faults)
    assert len(history.samples) >= 5 and history.end is not None


def test_an_acknowledgement_before_replication_is_caught(tmp_path: Path) -> None:
    """A leader that is cut off goes on saying yes, and what it said is lost with its tail."""
    _, history = run_local(tmp_path, (("cut-leader", 1),), 31, [ACK_BEFORE_REPLICATION])
    lost = [a for a in judge(history).anomalies if a.kind is Kind.LOST_WRITE]
    assert lost
    name = re.match(r"writer-\d-\d+#\d+ of events-\d was acknowledged at offset \d+", lost[0].text)
    assert name, lost[0].text


@pytest.mark.slow
def test_the_command_loads_a_cluster_that_runs(tmp_path: Path) -> None:
    with LocalCluster(1) as cluster:
        arguments = ["--target", cluster.bootstrap, "--workload", "append", "--faults", ""]
        arguments += ["--duration", "2s", "--rate", "200", "--output", str(tmp_path)]
        ended = subprocess.run(
            _command("run", *arguments), capture_output=True, text=True, timeout=120, check=False
        )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "OK: no anomaly" in ended.stdout
    assert "</html>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert read_summary(tmp_path).acknowledged > 100


def test_an_interrupted_run_is_healed_and_reported(tmp_path: Path) -> None:
    arguments = ["--workload", "append", "--faults", "kill-random,pause-random", "--seed", "3"]
    arguments += ["--duration", "10m", "--rate", "200", "--output", str(tmp_path)]
    command = subprocess.Popen(
        _command("run", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )
    lines: list[str] = []
    assert command.stdout is not None
    reading = threading.Thread(target=lines.extend, args=(command.stdout,), daemon=True)
    reading.start()
    try:
        _wait_for_a_fault(lines, command)
        os.killpg(command.pid, signal.SIGINT)
        assert command.wait(90) == 130, "".join(lines)
    finally:
        command.kill()
    reading.join(60)
    history = read_history(tmp_path / "history.jsonl")
    assert history.end is not None and history.end.was_interrupted
    assert judge(history).anomalies == ()
    assert all(fault.ended_ms is not None for fault in history.faults)
    assert not read_summary(tmp_path).is_whole
    assert "The run was interrupted" in (tmp_path / "report.html").read_text(encoding="utf-8")


def _wait_for_a_fault(lines: list[str], command: subprocess.Popen[str]) -> None:
    def is_under_way() -> bool:
        assert command.poll() is None, "".join(lines)
        fault = r"fault \d+/\d+: (kill|pause)-random node"
        return any(re.search(fault, line) for line in list(lines))

    until(is_under_way, lambda: "a fault\n" + "".join(lines))


def _command(*arguments: str) -> list[str]:
    program = "from tidelog.cli.main import main; main()"
    return [sys.executable, "-c", program, "chaos", *arguments]
