"""``tidelog quorum …``: the arguments of the commands that look at the controllers."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, reported

app = typer.Typer(help="Look at and change the quorum of controllers.", no_args_is_help=True)


@app.callback()
def quorum() -> None:
    """A group stays a group, even with one command."""


@app.command()
def describe(
    status: Annotated[
        bool, typer.Option("--status", help="Who leads and how far (the default).")
    ] = False,
    replication: Annotated[
        bool, typer.Option("--replication", help="How far every replica is.")
    ] = False,
    human_readable: Annotated[
        bool, typer.Option("--human-readable", help="Ages instead of timestamps.")
    ] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Print the state of the metadata quorum, as kafka-metadata-quorum does."""
    from tidelog.cli.quorum import describe_quorum

    with reported():
        if human_readable and not replication:
            raise typer.BadParameter("--human-readable goes with --replication")
        if status and replication:
            raise typer.BadParameter("one of --status and --replication, not both")
        describe_quorum(
            bootstrap_server,
            replication=replication,
            human_readable=human_readable,
            as_json=json,
        )


NodeIdArgument = Annotated[int, typer.Argument(metavar="NODE", min=0, help="The controller's id.")]
Directory = Annotated[
    str | None,
    typer.Option("--directory-id", metavar="ID", help="If it is not to be found out by asking."),
]


@app.command()
def add(
    node: NodeIdArgument,
    directory_id: Directory = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Let a controller vote that runs and follows the metadata log."""
    from tidelog.cli.quorum_changes import add_voter

    with reported():
        add_voter(bootstrap_server, node, directory_id, as_json=json)


@app.command()
def remove(
    node: NodeIdArgument,
    directory_id: Directory = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Take the vote from a controller, such as one whose disk is lost."""
    from tidelog.cli.quorum_changes import remove_voter

    with reported():
        remove_voter(bootstrap_server, node, directory_id, as_json=json)
