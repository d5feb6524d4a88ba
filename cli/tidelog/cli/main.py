"""The entry of the ``tidelog`` command: groups of commands, and nothing that takes long to import.

The module behind a command is imported when the command runs. `tidelog --help` and completion
therefore cost what typer costs, whatever the commands need.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli import log_commands

app = typer.Typer(
    name="tidelog",
    help="A replicated, partitioned log that speaks the Apache Kafka protocol.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(log_commands.app, name="log")


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tidelog {version('tidelog')}")
        raise typer.Exit


@app.callback()
def tidelog(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    app()
