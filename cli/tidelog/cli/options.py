"""Options that several commands share, and how a command that failed says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from tidelog.cli.failures import CommandFailed

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
"""Where ``tidelog up`` serves if nothing else is said."""

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="TIDELOG_BOOTSTRAP_SERVER",
        metavar="HOST:PORT,...",
        help="Nodes to ask first.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        metavar="NAME=VALUE",
        help="A setting that beats the file and the environment; may be repeated.",
    ),
]
Help: Final = {"help_option_names": ["-h", "--help"]}


@contextmanager
def reported(prefix: str = "") -> Iterator[None]:
    """A failure becomes a sentence on standard error and an exit code."""
    try:
        yield
    except CommandFailed as failure:
        typer.echo(f"{prefix}{failure}", err=True)
        raise typer.Exit(failure.exit_code) from None
