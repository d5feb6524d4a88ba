"""``tidelog reassign …``: the arguments of moving replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, reported

app = typer.Typer(help="Move replicas to other brokers.", no_args_is_help=True)

Plan = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="What generate proposed; - is standard input."),
]
PreserveThrottles = Annotated[
    bool, typer.Option("--preserve-throttles", help="Leave the speed limit as it is.")
]


@app.command()
def generate(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="Topics to move.")
    ] = None,
    topics_to_move_json_file: Annotated[
        Path | None,
        typer.Option("--topics-to-move-json-file", metavar="FILE", help="The same, as a file."),
    ] = None,
    broker_list: Annotated[
        str | None, typer.Option("--broker-list", metavar="1,2", help="To these; all by default.")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", min=1, metavar="N", help="Another one than now."),
    ] = None,
    disable_rack_aware: Annotated[
        bool, typer.Option("--disable-rack-aware", help="Take no notice of racks.")
    ] = False,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Only the plan, for reassign execute -.")
    ] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Print where the replicas of topics are, and a plan that spreads them evenly."""
    from tidelog.cli.partition_files import parse_numbers, read_json
    from tidelog.cli.reassign import generate as propose
    from tidelog.cli.reassignment import parse_topics

    if bool(topics) == (topics_to_move_json_file is not None):
        raise typer.BadParameter("name topics, or give --topics-to-move-json-file")
    with reported():
        names = list(topics or ())
        if topics_to_move_json_file is not None:
            names = parse_topics(read_json(topics_to_move_json_file), topics_to_move_json_file)
        propose(
            bootstrap_server,
            names,
            None if broker_list is None else parse_numbers("--broker-list", broker_list),
            uses_racks=not disable_rack_aware,
            factor=replication_factor,
            plan_only=plan_only,
            as_json=json,
        )


@app.command()
def execute(
    plan: Plan,
    throttle: Annotated[
        int | None,
        typer.Option("--throttle", min=1, metavar="BYTES", help="Bytes per second and broker."),
    ] = None,
    additional: Annotated[
        bool, typer.Option("--additional", help="Although other replicas are on the move.")
    ] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Start moving replicas as planned."""
    from tidelog.cli.partition_files import read_json
    from tidelog.cli.reassign import execute as start
    from tidelog.cli.reassignment import parse_plan

    with reported():
        target = parse_plan(read_json(plan), plan)
        start(bootstrap_server, target, throttle=throttle, additional=additional, as_json=json)


@app.command()
def verify(
    plan: Plan,
    preserve_throttles: PreserveThrottles = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Say how far a plan is; ends with 0 when all is done, and takes the speed limit away."""
    from tidelog.cli.partition_files import read_json
    from tidelog.cli.reassign import verify as look
    from tidelog.cli.reassignment import parse_plan

    with reported():
        target = parse_plan(read_json(plan), plan)
        code = look(bootstrap_server, target, preserve_throttles=preserve_throttles, as_json=json)
        raise typer.Exit(code)


@app.command()
def cancel(
    plan: Plan,
    preserve_throttles: PreserveThrottles = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Stop what is not finished, and leave replicas where they were."""
    from tidelog.cli.partition_files import read_json
    from tidelog.cli.reassign import cancel as stop
    from tidelog.cli.reassignment import parse_plan

    with reported():
        target = parse_plan(read_json(plan), plan)
        stop(bootstrap_server, target, preserve_throttles=preserve_throttles, as_json=json)


@app.command("list")
def list_(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: AsJson = False) -> None:
    """Print what is on the move."""
    from tidelog.cli.reassign import print_ongoing

    with reported():
        print_ongoing(bootstrap_server, as_json=json)
