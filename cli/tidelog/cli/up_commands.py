"""``tidelog up``: its arguments."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.options import AsJson, reported


class Level(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


Nodes = Annotated[int, typer.Option("--nodes", min=1, max=99, help="How many nodes.")]
Port = Annotated[
    int,
    typer.Option(
        "--port",
        min=1,
        max=65535,
        help="Of the first node; the next ones are 10 higher each.",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", file_okay=False, help="Where data is kept (./data)."),
]
Ephemeral = Annotated[
    bool, typer.Option("--ephemeral", help="Keep nothing: data goes when the cluster stops.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("-o", metavar="NAME=VALUE", help="A setting of all nodes; may be repeated."),
]
ReadyFile = Annotated[
    Path | None,
    typer.Option(
        "--ready-file",
        metavar="FILE",
        dir_okay=False,
        help="Written once the cluster serves, removed when it stops: JSON for scripts.",
    ),
]
Restart = Annotated[
    bool, typer.Option("--restart", help="Start a node again that ended by itself.")
]
Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where clients may connect.")]
Advertise = Annotated[
    str | None,
    typer.Option(
        "--advertise",
        metavar="HOST",
        help="The name clients are told, if it is not --host.",
    ),
]
LogLevel = Annotated[
    Level, typer.Option("--log-level", case_sensitive=False, help="Of the nodes' log lines.")
]


def up(
    context: typer.Context,
    nodes: Nodes = 3,
    port: Port = 9092,
    data_dir: DataDir = None,
    ephemeral: Ephemeral = False,
    o: Settings = None,
    ready_file: ReadyFile = None,
    json: AsJson = False,
    restart: Restart = False,
    host: Host = "127.0.0.1",
    advertise: Advertise = None,
    log_level: LogLevel = Level.INFO,
) -> None:
    """Start a local cluster, each node a process of its own, and stop it on Ctrl-C."""
    from tidelog.cli.up import UpOptions, run_up

    if ephemeral and data_dir is not None:
        raise typer.BadParameter("one of --ephemeral and --data-dir, not both")
    options = UpOptions(
        nodes=nodes,
        port=port,
        data_dir=None if ephemeral else data_dir or Path("data"),
        overrides=tuple(o or ()),
        ready_file=ready_file,
        as_json=json,
        restart=restart,
        host=host,
        advertised_host=advertise,
        level=log_level.name,
    )
    with reported("tidelog up: "):
        run_up(options, context.obj)
