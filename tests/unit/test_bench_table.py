"""Rows of benchmarks: which goals are met, and what is kept and printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import report as bench_report
from bench.table import Row, report


@pytest.mark.parametrize(
    ("row", "met", "goal"),
    [
        (Row("append", 0.9, "×", 0.8), True, "≥ 0.800"),
        (Row("append", 0.7, "×", 0.8), False, "≥ 0.800"),
        (Row("look-up", 39, "µs", 40, "lower"), True, "≤ 40.0"),
        (Row("look-up", 41, "µs", 40, "lower"), False, "≤ 40.0"),
        (Row("segments", 7, ""), None, None),
    ],
)
def test_a_goal_is_met_or_not(row: Row, met: bool | None, goal: str | None) -> None:
    assert (row.met, row.goal_text) == (met, goal)


def test_results_are_kept_and_printed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report("tides", [Row("speed", 1234.5, "MB/s", 1000), Row("lag", 3, "ms", 2, "lower")], tmp_path)
    stored = json.loads((tmp_path / "tides.json").read_text(encoding="utf-8"))
    assert stored == {
        "benchmark": "tides",
        "rows": [
            {"name": "speed", "value": 1234.5, "unit": "MB/s", "goal": "≥ 1,000", "met": True},
            {"name": "lag", "value": 3, "unit": "ms", "goal": "≤ 2.00", "met": False},
        ],
    }
    printed = capsys.readouterr().out
    assert "1,234" in printed and "NO" in printed

    assert bench_report.main(tmp_path) == 0
    assert capsys.readouterr().out == printed


def test_no_results_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_report.main(tmp_path) == 1
    assert "run a benchmark first" in capsys.readouterr().err
