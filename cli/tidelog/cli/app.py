"""The table of commands: groups and their help, and nothing that takes long to import.

The module behind a command is imported when the command runs. `tidelog --help` and completion
therefore cost what typer costs, whatever the commands need.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli import (
    admin_commands,
    chaos_commands,
    cluster_commands,
    config_commands,
    consume_commands,
    doctor_commands,
    explain_commands,
    feature_commands,
    group_commands,
    log_commands,
    perf_commands,
    pipeline_commands,
    produce_commands,
    quorum_commands,
    reassign_commands,
    storage_commands,
    topic_commands,
    txn_commands,
    up_commands,
    verifiable_commands,
)
from tidelog.cli.nodes import NODE_COMMANDS, run_node

app = typer.Typer(
    name="tidelog",
    help="A replicated, partitioned log that speaks the Apache Kafka protocol.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up")(up_commands.up)
app.add_typer(topic_commands.app, name="topic")
app.add_typer(group_commands.app, name="group")
app.add_typer(txn_commands.app, name="txn")
app.command("produce")(produce_commands.produce)
app.command("consume")(consume_commands.consume)


def _add_node_command(name: str, text: str) -> None:
    """So that help lists it, and so that it works where typer came first."""

    @app.command(
        name,
        help=text,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def run(context: typer.Context) -> None:
        raise typer.Exit(run_node(name, context.args))


for _name, _text in NODE_COMMANDS.items():
    _add_node_command(_name, _text)
app.add_typer(storage_commands.app, name="storage")
app.command("doctor")(doctor_commands.doctor)
app.add_typer(explain_commands.app, name="explain")
app.add_typer(cluster_commands.app, name="cluster")
app.add_typer(quorum_commands.app, name="quorum")
app.add_typer(config_commands.app, name="config")
app.add_typer(feature_commands.app, name="features")
app.add_typer(reassign_commands.app, name="reassign")
app.command("leader-election")(admin_commands.leader_election)
app.command("log-dirs")(admin_commands.log_dirs)
app.command("offsets")(admin_commands.offsets)
app.command("delete-records")(admin_commands.delete_records)
app.add_typer(log_commands.app, name="log")
app.add_typer(perf_commands.app, name="perf")
app.add_typer(chaos_commands.app, name="chaos")
app.add_typer(pipeline_commands.app, name="pipeline")
app.command("verifiable-producer")(verifiable_commands.verifiable_producer)
app.command("verifiable-consumer")(verifiable_commands.verifiable_consumer)


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
