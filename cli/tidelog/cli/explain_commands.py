"""``tidelog explain …``: why something is as it is."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, reported

app = typer.Typer(help="Say why something is as it is.", no_args_is_help=True)


@app.callback()
def _explain() -> None:
    """Say why something is as it is."""


@app.command()
def compaction(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Say what of the topic is compacted on each replica, and what holds the rest back."""
    from tidelog.cli.compaction_explain import explain

    with reported("Error: "):
        explain(bootstrap_server, topic, as_json=json)
