"""``tidelog storage …``: the arguments of the commands that prepare a node's directories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.options import AsJson, Overrides, reported

app = typer.Typer(help="Prepare the directories of a node.", no_args_is_help=True)

Config = Annotated[
    Path,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        readable=True,
        help="The node's properties file.",
    ),
]


@app.command("random-uuid")
def random_uuid(json: AsJson = False) -> None:
    """Print an id for a new cluster."""
    from tidelog.cli.storage import new_uuid

    typer.echo(f'{{"uuid": "{new_uuid()}"}}' if json else new_uuid())


@app.command("format")
def format_(
    cluster_id: Annotated[
        str,
        typer.Option(
            "--cluster-id", "-t", metavar="ID", help="The same for all nodes of a cluster."
        ),
    ],
    config: Config,
    ignore_formatted: Annotated[
        bool,
        typer.Option(
            "--ignore-formatted", "-g", help="Leave directories that are formatted as they are."
        ),
    ] = False,
    o: Overrides = None,
    json: AsJson = False,
) -> None:
    """Write the node's identity into its directories, before its first start."""
    from tidelog.cli.storage import format_storage

    with reported():
        format_storage(config, o or [], cluster_id, ignore_formatted=ignore_formatted, as_json=json)


@app.command()
def info(config: Config, o: Overrides = None, json: AsJson = False) -> None:
    """Print what is in the node's directories."""
    from tidelog.cli.storage import storage_info

    with reported():
        raise typer.Exit(storage_info(config, o or [], as_json=json))
