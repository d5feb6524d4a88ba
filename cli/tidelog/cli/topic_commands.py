"""``tidelog topic …``: the arguments of the commands on topics.

Names are arguments. Kafka's ``--topic NAME`` works as well, for fingers that are used to it.
"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, reported

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

FAILED: Final = "Error while executing topic command : "

Patterns = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC", help="Names or regular expressions."),
]
Names = Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="Names of topics.")]
TopicOption = Annotated[
    list[str] | None, typer.Option("--topic", metavar="TOPIC", help="The same as the argument.")
]
Partitions = Annotated[
    int | None, typer.Option("--partitions", min=1, metavar="N", help="How many partitions.")
]
Assignment = Annotated[
    str | None,
    typer.Option(
        "--replica-assignment",
        metavar="1:2,2:3",
        help="Nodes of each partition: the first of each leads.",
    ),
]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="NAME=VALUE", help="A setting of the topic; repeatable."),
]
IfExists = Annotated[bool, typer.Option("--if-exists", help="No error if there is no such topic.")]
ExcludeInternal = Annotated[
    bool, typer.Option("--exclude-internal", help="Without internal topics.")
]


def _wanted(arguments: list[str] | None, options: list[str] | None, *, required: bool) -> list[str]:
    wanted = [*(arguments or ()), *(options or ())]
    if required and not wanted:
        raise typer.BadParameter("name a topic")
    return wanted


@app.command()
def create(
    topics: Names = None,
    topic: TopicOption = None,
    partitions: Partitions = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", min=1, max=32767, metavar="N", help="How many copies."
        ),
    ] = None,
    replica_assignment: Assignment = None,
    config: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="No error if the topic exists.")
    ] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Create topics; what is not said is the cluster's default."""
    from tidelog.cli.topic_actions import CreateOptions, create_topics

    wanted = _wanted(topics, topic, required=True)
    if replica_assignment is not None and (partitions or replication_factor):
        raise typer.BadParameter(
            "--replica-assignment says how many partitions and replicas there are; "
            "leave out --partitions and --replication-factor"
        )
    options = CreateOptions(
        partitions, replication_factor, replica_assignment, config or [], if_not_exists
    )
    with reported(FAILED):
        create_topics(bootstrap_server, wanted, options, as_json=json)


@app.command("list")
def list_(
    topics: Patterns = None,
    topic: TopicOption = None,
    exclude_internal: ExcludeInternal = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Print the names of topics."""
    from tidelog.cli.topic_actions import print_names

    wanted = _wanted(topics, topic, required=False)
    with reported(FAILED):
        print_names(bootstrap_server, wanted, exclude_internal=exclude_internal, as_json=json)


@app.command()
def describe(
    topics: Patterns = None,
    topic: TopicOption = None,
    exclude_internal: ExcludeInternal = False,
    if_exists: IfExists = False,
    under_replicated_partitions: Annotated[
        bool,
        typer.Option("--under-replicated-partitions", help="Only those some replica lags behind."),
    ] = False,
    unavailable_partitions: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Only those without a leader.")
    ] = False,
    under_min_isr_partitions: Annotated[
        bool,
        typer.Option("--under-min-isr-partitions", help="Only those that refuse acks=all."),
    ] = False,
    at_min_isr_partitions: Annotated[
        bool,
        typer.Option("--at-min-isr-partitions", help="Only those one failure away from that."),
    ] = False,
    topics_with_overrides: Annotated[
        bool,
        typer.Option("--topics-with-overrides", help="Only topics with settings, no partitions."),
    ] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Print partitions, leaders, replicas and settings of topics."""
    from tidelog.cli.topic_actions import print_descriptions
    from tidelog.cli.topic_text import Only

    asked = {
        Only.UNDER_REPLICATED: under_replicated_partitions,
        Only.UNAVAILABLE: unavailable_partitions,
        Only.UNDER_MIN_ISR: under_min_isr_partitions,
        Only.AT_MIN_ISR: at_min_isr_partitions,
    }
    with reported(FAILED):
        print_descriptions(
            bootstrap_server,
            _wanted(topics, topic, required=False),
            only=[which for which, is_asked in asked.items() if is_asked],
            with_overrides=topics_with_overrides,
            exclude_internal=exclude_internal,
            if_exists=if_exists,
            as_json=json,
        )


@app.command()
def alter(
    topics: Patterns = None,
    topic: TopicOption = None,
    partitions: Partitions = None,
    replica_assignment: Assignment = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="NAME", help="Back to the default; repeatable."),
    ] = None,
    if_exists: IfExists = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Add partitions to topics, or change their settings."""
    from tidelog.cli.topic_actions import AlterOptions, alter_topics

    wanted = _wanted(topics, topic, required=True)
    if partitions is None and not config and not delete_config:
        raise typer.BadParameter("say what to change: --partitions, --config or --delete-config")
    if replica_assignment is not None and partitions is None:
        raise typer.BadParameter("--replica-assignment goes with --partitions")
    options = AlterOptions(partitions, replica_assignment, config or [], delete_config or [])
    with reported(FAILED):
        alter_topics(bootstrap_server, wanted, options, if_exists=if_exists, as_json=json)


@app.command()
def delete(
    topics: Patterns = None,
    topic: TopicOption = None,
    if_exists: IfExists = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Delete topics and their data."""
    from tidelog.cli.topic_actions import delete_topics

    wanted = _wanted(topics, topic, required=True)
    with reported(FAILED):
        delete_topics(bootstrap_server, wanted, if_exists=if_exists, as_json=json)
