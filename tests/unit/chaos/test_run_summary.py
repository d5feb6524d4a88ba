"""Summaries of runs: kept as JSON, added up as if all had been one run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from chaos_pages import example_run
from typer.testing import CliRunner

from tidelog.chaos.run_summary import (
    BadSummary,
    FaultGaps,
    RunSummary,
    add_up,
    decode_summary,
    encode_summary,
    summarize,
)
from tidelog.chaos.verdict import judge
from tidelog.cli.chaos_summary import summary, write_summary

app = typer.Typer()
app.command()(summary)

KILLS = FaultGaps("kill-leader", 2, 0, (400.0, 500.0), (900.0,), (1000.0, 1100.0))
GOOD = RunSummary("one", 60.0, 100, 1, 2, 300, 4, {"lost write": 0, "reorder": 0}, (), (KILLS,))
CUT = FaultGaps("cut", 1, 1, (3000.0,), (), ())
BAD = replace(GOOD, anomalies={"lost write": 3, "reorder": 0}, faults=(CUT, KILLS))
SHORT = replace(GOOD, command="short", is_whole=False, problems=("not in sync again",))


def test_a_run_is_summed_up() -> None:
    history = example_run(20, lost=2)
    found = summarize(history.header, judge(history), ["it was raining"])
    assert found.anomalies["lost write"] == 2 and found.anomalies["duplicate"] == 0
    assert not found.is_good and found.problems == ("it was raining",)
    (cut,) = [one for one in found.faults if one.name == "cut"]
    assert cut.count == len(cut.gaps_ms) == 1
    assert found.command == history.header.command


def test_a_run_that_was_cut_short_says_so() -> None:
    history = example_run(20)
    assert history.end is not None
    cut_off, interrupted = None, replace(history.end, was_interrupted=True)
    for end, is_whole in ((history.end, True), (interrupted, False), (cut_off, False)):
        found = summarize(history.header, judge(replace(history, end=end)), [])
        assert found.is_whole is is_whole
        assert json.loads(encode_summary(found))["is_whole"] is is_whole


def test_it_is_read_as_it_was_written() -> None:
    for run in (BAD, SHORT, add_up([GOOD, SHORT])):
        assert decode_summary(encode_summary(run)) == run
    assert json.loads(encode_summary(GOOD))["faults"][0]["gap_ms"] == {
        "p50": 400.0, "p99": 500.0, "max": 500.0,
    }  # fmt: skip


def test_several_runs_are_as_one() -> None:
    total = add_up([GOOD, BAD])
    assert total.command == "2 runs" and total.acknowledged == 200 and total.lasted_s == 120.0
    assert total.anomalies == {"lost write": 3, "reorder": 0} and not total.is_good
    kills, cut = total.faults
    assert kills == FaultGaps(
        "kill-leader", 4, 0, (400.0, 500.0, 400.0, 500.0), (900.0, 900.0),
        (1000.0, 1100.0, 1000.0, 1100.0),
    )  # fmt: skip
    assert cut == CUT
    assert add_up([GOOD]) is GOOD


def test_a_run_that_was_cut_short_does_not_count() -> None:
    total = add_up([GOOD, SHORT, GOOD])
    assert total == replace(add_up([GOOD, GOOD]), left_out=("short",))
    assert total.is_good and total.is_whole
    assert add_up([total, SHORT]).left_out == ("short", "short")


def test_what_a_run_found_before_it_was_cut_short_is_not_forgotten() -> None:
    total = add_up([GOOD, replace(SHORT, anomalies=BAD.anomalies)])
    assert total.anomalies == GOOD.anomalies and not total.is_good
    assert total.problems == ("short, cut short and left out, found 3 lost write",)


def test_nothing_but_runs_that_were_cut_short_is_not_good() -> None:
    total = add_up([SHORT])
    assert total.acknowledged == 0 and total.faults == () and total.left_out == ("short",)
    assert total.problems == ("there is nothing to add up: no run came to its end",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "it is not JSON"),
        ("[]", "a summary is an object, and this is list"),
        (encode_summary(GOOD).replace("acknowledged", "admired"), "a summary has acknowledged"),
        (encode_summary(GOOD).replace('"unknown": 2', '"unknown": "two"'), "unknown: int"),
        (encode_summary(GOOD).replace('"unknown": 2', '"unknown": true'), "unknown: int"),
        (encode_summary(GOOD).replace('"is_whole": true', '"is_whole": 1'), "is_whole: bool"),
        (encode_summary(GOOD).replace("400.0", '"long"'), "a fault has times in gaps_ms"),
    ],
)
def test_what_is_no_summary_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadSummary, match=words):
        decode_summary(text)


# --- the command -------------------------------------------------------------------------


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for directory, run in ((good, GOOD), (bad, BAD)):
        directory.mkdir()
        write_summary(directory, run)
    return good, bad


def test_good_runs_are_added_up(runs: tuple[Path, Path]) -> None:
    done = CliRunner().invoke(app, [str(runs[0]), str(runs[0] / "summary.json")])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[2].split() == [
        "kill-leader", "4", "400", "ms", "500", "ms", "500", "ms", "900", "ms", "1.00", "s",
        "1.10", "s",
    ]  # fmt: skip
    assert lines[-1] == "OK: no anomaly (0 lost write, 0 reorder)"


def test_what_is_left_out_is_said(runs: tuple[Path, Path]) -> None:
    write_summary(runs[1], SHORT)
    done = CliRunner().invoke(app, list(map(str, runs)))
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("1 run: 100 records acknowledged")
    assert lines[-2:] == [
        "left out, because it was cut short: short",
        "OK: no anomaly (0 lost write, 0 reorder)",
    ]


def test_without_a_whole_run_nothing_is_called_good(runs: tuple[Path, Path]) -> None:
    write_summary(runs[1], SHORT)
    done = CliRunner().invoke(app, [str(runs[1])])
    assert done.exit_code == 1
    assert "no run came to its end" in done.stdout
    assert done.stdout.splitlines()[-1] == "NOTHING JUDGED"


def test_one_bad_run_is_enough(runs: tuple[Path, Path]) -> None:
    done = CliRunner().invoke(app, [*map(str, runs), "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["anomalies"]["lost write"] == 3


def test_what_cannot_be_added_up_is_refused(runs: tuple[Path, Path], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [str(tmp_path)])
    assert done.exit_code == 2 and "No such file" in done.stderr
    (runs[1] / "summary.json").write_text("{}")
    done = CliRunner().invoke(app, list(map(str, runs)))
    assert done.exit_code == 2
    assert "bad/summary.json is no summary of a run: a summary has command" in done.stderr
