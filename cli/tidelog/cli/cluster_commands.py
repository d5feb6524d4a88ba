"""``tidelog cluster …``."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, reported

app = typer.Typer(help="Look at the cluster as a whole.", no_args_is_help=True)


@app.command()
def info(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: AsJson = False) -> None:
    """Print the cluster's id and its brokers."""
    from tidelog.cli.cluster import print_info

    with reported():
        print_info(bootstrap_server, as_json=json)


@app.command()
def health(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: AsJson = False) -> None:
    """Say whether brokers, partitions and controllers are well; ends with 1 if not."""
    from tidelog.cli.cluster import check_health

    with reported():
        raise typer.Exit(check_health(bootstrap_server, as_json=json))


@app.command()
def unregister(
    broker: Annotated[int, typer.Argument(metavar="ID", min=0, help="The broker's id.")],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Forget a broker that is gone for good. Move its replicas away first."""
    from tidelog.cli.cluster import unregister as forget

    with reported():
        forget(bootstrap_server, broker, as_json=json)
