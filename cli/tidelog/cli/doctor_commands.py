"""``tidelog doctor``."""

from __future__ import annotations

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, reported


def doctor(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: AsJson = False) -> None:
    """Find out why a cluster cannot be used from here, or what is not well with it."""
    from tidelog.cli.doctor import examine

    with reported():
        raise typer.Exit(examine(bootstrap_server, as_json=json))
