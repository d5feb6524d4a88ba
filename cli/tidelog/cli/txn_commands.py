"""``tidelog txn …``: the arguments of the commands on transactions."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, reported

app = typer.Typer(help="Look at transactions, and end lost ones.", no_args_is_help=True)

TopicOption = Annotated[str, typer.Option("--topic", metavar="TOPIC", help="The topic.")]
PartitionOption = Annotated[
    int, typer.Option("--partition", min=0, metavar="N", help="The partition.")
]


@app.command("list")
def list_(
    duration_filter: Annotated[
        int | None,
        typer.Option("--duration-filter", min=0, metavar="MS", help="Only those open so long."),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only in this state; repeatable."),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Print all transactional ids that coordinators know."""
    from tidelog.cli.txn import print_list

    with reported():
        print_list(bootstrap_server, state or [], duration_filter, as_json=json)


@app.command()
def describe(
    transactional_id: Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Print state, producer and partitions of a transactional id."""
    from tidelog.cli.txn import print_description

    with reported():
        print_description(bootstrap_server, transactional_id, as_json=json)


@app.command("describe-producers")
def describe_producers(
    topic: TopicOption,
    partition: PartitionOption,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Print the producers that a partition knows, and their open transactions."""
    from tidelog.cli.txn import print_producers

    with reported():
        print_producers(bootstrap_server, topic, partition, as_json=json)


@app.command("find-hanging")
def find_hanging(
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC[:0,1]", help="Only there; repeatable."),
    ] = None,
    broker_id: Annotated[
        int | None, typer.Option("--broker-id", metavar="ID", help="Only partitions it leads.")
    ] = None,
    max_transaction_timeout: Annotated[
        int,
        typer.Option(
            "--max-transaction-timeout", min=0, metavar="MINUTES", help="None may be open longer."
        ),
    ] = 15,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Print transactions that are open in partitions, and that no coordinator will end."""
    from tidelog.cli.brokers import parse_topic_partitions
    from tidelog.cli.txn import find_hanging as find

    with reported():
        wanted = parse_topic_partitions(topic) if topic else None
        find(bootstrap_server, wanted, broker_id, max_transaction_timeout, as_json=json)


@app.command()
def abort(
    topic: TopicOption,
    partition: PartitionOption,
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", min=0, metavar="N", help="Where the transaction began."),
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", metavar="N", help="Instead of an offset.")
    ] = None,
    producer_epoch: Annotated[
        int | None, typer.Option("--producer-epoch", metavar="N", help="With --producer-id.")
    ] = None,
    coordinator_epoch: Annotated[
        int | None, typer.Option("--coordinator-epoch", metavar="N", help="With --producer-id.")
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """End a transaction that find-hanging has found."""
    from tidelog.cli.txn import abort as end

    producer = (producer_id, producer_epoch, coordinator_epoch)
    given = [one for one in producer if one is not None]
    if (start_offset is None) != (len(given) == 3) or len(given) not in (0, 3):
        raise typer.BadParameter(
            "--start-offset, or --producer-id with --producer-epoch and --coordinator-epoch"
        )
    named = (given[0], given[1], given[2]) if given else None
    with reported():
        end(bootstrap_server, topic, partition, start_offset, named, as_json=json)
