"""``tidelog chaos check``: exit codes, text, JSON and report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
from chaos_pages import example_run
from typer.testing import CliRunner

from tidelog.chaos.history import Event, History
from tidelog.chaos.history_file import HistoryWriter
from tidelog.cli.chaos_check import check

app = typer.Typer()
app.command()(check)


def saved(history: History, path: Path) -> Path:
    writer = HistoryWriter(path)
    events: list[Event] = [history.header, *history.operations, *history.faults]
    events += [*history.samples, *history.notes]
    for event in events if history.end is None else [*events, history.end]:
        writer.note(event)
    writer.close()
    return path


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(example_run(20), tmp_path_factory.mktemp("good") / "history.jsonl")


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(example_run(20, lost=2), tmp_path_factory.mktemp("bad") / "history.jsonl")


def test_a_good_history(good: Path) -> None:
    done = CliRunner().invoke(app, [str(good)])
    assert done.exit_code == 0, done.output
    assert "OK: no anomaly" in done.stdout
    assert re.search(r"cut +1 +703 ms", done.stdout)


def test_nothing_of_the_table_is_cut_off(good: Path) -> None:
    done = CliRunner().invoke(app, [str(good)], env={"COLUMNS": "60"})
    assert "…" not in done.stdout
    header = next(line for line in done.stdout.splitlines() if line.startswith("fault"))
    assert header.split() == [
        "fault", "count", "gap", "p50", "p99", "max", "in", "transactions", "before/s",
        "during/s", "after/s", "full", "ISR",
    ]  # fmt: skip


def test_a_bad_history_names_what_is_lost(bad: Path) -> None:
    done = CliRunner().invoke(app, [str(bad)])
    assert done.exit_code == 1
    assert "ANOMALIES: 2 lost write" in done.stdout
    assert "lost write: k0#50 of events-0 was acknowledged at offset 50 to producer" in done.stdout


def test_json(bad: Path) -> None:
    done = CliRunner().invoke(app, [str(bad), "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["anomaly_counts"]["lost write"] == 2


def test_a_report_is_written(bad: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    done = CliRunner().invoke(app, [str(bad), "--report", str(report)])
    assert done.exit_code == 1
    assert "2 anomalies" in report.read_text(encoding="utf-8")
    assert f"report: {report}" in done.stderr


def test_a_report_that_cannot_be_written_is_told(good: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [str(good), "--report", str(tmp_path / "no" / "report.html")])
    assert done.exit_code == 1
    assert "No such file or directory" in done.stderr


def test_a_history_that_was_cut_off_is_judged_as_far_as_it_goes(good: Path, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    data = good.read_bytes()
    path.write_bytes(data[: len(data) // 3])
    done = CliRunner().invoke(app, [str(path)])
    assert done.exit_code == 0
    assert "The run was cut off" in done.stdout
    assert "were not looked for" in done.stdout


def test_a_corrupt_history_is_refused(good: Path, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    lines = good.read_text(encoding="utf-8").splitlines()
    lines[4] = lines[4][:20]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = CliRunner().invoke(app, [str(path)])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"tidelog chaos check: {path}, line 5: it is not JSON")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [str(tmp_path / "none")])
    assert done.exit_code == 2
    assert "No such file or directory" in done.stderr
    done = CliRunner().invoke(app, [str(tmp_path)])
    assert done.exit_code == 2
    assert "Is a directory" in done.stderr
