"""``tidelog features …``."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, reported

app = typer.Typer(
    help="Look at and raise what the whole cluster has agreed to speak.", no_args_is_help=True
)


@app.command()
def describe(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: AsJson = False) -> None:
    """Print the levels that are supported and in use."""
    from tidelog.cli.features import print_features

    with reported():
        print_features(bootstrap_server, as_json=json)


@app.command()
def upgrade(
    features: Annotated[
        list[str] | None, typer.Argument(metavar="FEATURE=LEVEL", help="Levels to raise.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All to the highest that all brokers support.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say whether it is possible.")] = (
        False
    ),
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Raise feature levels, once all nodes run the new release. There is no way back."""
    from tidelog.cli.features import parse_levels, upgrade_features

    if bool(features) == everything:
        raise typer.BadParameter("name features and levels, or give --all")
    with reported():
        levels = None if everything else parse_levels(features or [])
        upgrade_features(bootstrap_server, levels, dry_run=dry_run, as_json=json)
