"""``tidelog chaos check``: a saved history is judged again."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.cli.exit_codes import OK, PROBLEM
from tidelog.cli.failures import CommandFailed, WrongUse
from tidelog.cli.options import AsJson, reported

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tidelog.chaos.history import History
    from tidelog.chaos.verdict import Verdict

_WIDTH: Final = 500
"""More than any table needs: one that is given less leaves out what does not fit."""

HistoryPath = Annotated[
    Path, typer.Argument(metavar="HISTORY", help="history.jsonl of a run, whole or cut off.")
]
ReportPath = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="Write the report as an HTML page, too."),
]


def check(history: HistoryPath, report: ReportPath = None, json: AsJson = False) -> None:
    """Judge a saved history; exit code 1 on any anomaly, 2 if the file is no history."""
    with reported("tidelog chaos check: "):
        _, verdict = judge_file(history, report)
        print_verdict(verdict, as_json=json)
    if report is not None:
        typer.echo(f"report: {report}", err=True)
    raise typer.Exit(OK if verdict.is_good else PROBLEM)


def judge_file(path: Path, report: Path | None = None) -> tuple[History, Verdict]:
    """The history in a file and the verdict on it; writes a report if one is wanted."""
    from tidelog.chaos.history_file import CorruptHistory, read_history
    from tidelog.chaos.report import render_report
    from tidelog.chaos.verdict import judge

    try:
        history = read_history(path)
    except CorruptHistory as error:
        raise WrongUse(str(error)) from None
    except OSError as error:
        raise WrongUse(f"{path}: {error.strerror or error}") from None
    verdict = judge(history)
    if report is not None:
        try:
            report.write_text(render_report(history, verdict), encoding="utf-8")
        except OSError as error:
            raise CommandFailed(f"--report {report}: {error.strerror or error}") from None
    return history, verdict


def print_verdict(verdict: Verdict, *, as_json: bool) -> None:
    from tidelog.chaos.verdict import as_json as plain
    from tidelog.chaos.verdict_text import summary

    if as_json:
        typer.echo(json_module.dumps(plain(verdict), indent=2, ensure_ascii=False))
    else:
        print_whole(summary(verdict))


def print_whole(content: RenderableType) -> None:
    """A terminal breaks lines that are too long for it; nothing is cut off."""
    from rich.console import Console

    Console(highlight=False, soft_wrap=True, width=_WIDTH).print(content)
