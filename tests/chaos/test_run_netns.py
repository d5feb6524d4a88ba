"""The same run on network namespaces, where the kernel breaks the links."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.chaos.history_file import read_history
from tidelog.chaos.run import run
from tidelog.chaos.run_options import RunOptions
from tidelog.chaos.run_targets import make_target
from tidelog.chaos.verdict import judge

pytestmark = pytest.mark.xdist_group("chaos")


@pytest.mark.slow
def test_a_sound_cluster_loses_nothing_in_namespaces(
    tmp_path: Path, require: Callable[[str], None]
) -> None:
    require("netns")
    counts = (("cut-leader", 1),)  # for two and a half seconds, says the seed
    options = RunOptions(
        "append", ("cut-leader",), 60.0, 8, rate=500, calm_s=(0.5, 0.5), counts=counts
    )
    settings = {"broker.heartbeat.interval.ms": "300", "broker.session.timeout.ms": "1500"}
    result = run(options, make_target("netns", 3, settings), tmp_path)
    assert result.problems == []
    history = read_history(result.history)
    verdict = judge(history)
    assert [anomaly.text for anomaly in verdict.anomalies] == []
    assert verdict.caveats == () and verdict.totals.acknowledged > 500
    assert len(history.faults) == 1 and not any(fault.failure for fault in history.faults)
