"""``tidelog chaos summary``: what several runs come to, as if they had been one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.cli.exit_codes import OK, PROBLEM
from tidelog.cli.failures import CommandFailed, WrongUse
from tidelog.cli.options import AsJson, reported

if TYPE_CHECKING:
    from tidelog.chaos.run_summary import RunSummary

SUMMARY_NAME: Final = "summary.json"

Directories = Annotated[
    list[Path],
    typer.Argument(metavar="DIR…", help="What runs wrote to (--output), or summary.json of runs."),
]


def summary(directories: Directories, json: AsJson = False) -> None:
    """Add up runs: counts, anomalies, gaps; exit code 1 if any of them found something amiss."""
    from tidelog.chaos.run_summary import add_up, encode_summary
    from tidelog.chaos.run_summary_text import summary_text
    from tidelog.cli.chaos_check import print_whole

    with reported("tidelog chaos summary: "):
        total = add_up([read_summary(path) for path in directories])
        if json:
            typer.echo(encode_summary(total), nl=False)
        else:
            print_whole(summary_text(total))
    raise typer.Exit(OK if total.is_good else PROBLEM)


def read_summary(path: Path) -> RunSummary:
    from tidelog.chaos.run_summary import BadSummary, decode_summary

    file = path / SUMMARY_NAME if path.is_dir() else path
    try:
        return decode_summary(file.read_text(encoding="utf-8"))
    except (BadSummary, UnicodeDecodeError) as error:
        raise WrongUse(f"{file} is no summary of a run: {error}") from None
    except OSError as error:
        raise WrongUse(f"{file}: {error.strerror or error}") from None


def write_summary(directory: Path, run: RunSummary) -> None:
    """Appears whole or not at all, so that its being there says that the run is over."""
    from tidelog.chaos.run_summary import encode_summary

    file, draft = directory / SUMMARY_NAME, directory / f"{SUMMARY_NAME}.new"
    try:
        draft.write_text(encode_summary(run), encoding="utf-8")
        draft.replace(file)
    except OSError as error:
        raise CommandFailed(f"{file}: {error.strerror or error}") from None
