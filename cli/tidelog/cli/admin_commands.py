"""Commands of one word on brokers and partitions: log-dirs, leader-election, offsets,
delete-records."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, reported


class Election(StrEnum):
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


class Isolation(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


Topic = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC[:0,1]", help="A topic, or some of its partitions."),
]
Partition = Annotated[
    list[int] | None,
    typer.Option("--partition", metavar="N", min=0, help="Of the one topic; repeatable."),
]


def log_dirs(
    broker_list: Annotated[
        str | None, typer.Option("--broker-list", metavar="1,2", help="Only these brokers.")
    ] = None,
    topic_list: Annotated[
        str | None, typer.Option("--topic-list", metavar="A,B", help="Only these topics.")
    ] = None,
    partitions: Annotated[bool, typer.Option("--partitions", help="A line per replica.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Print what lies in the brokers' directories; --json as kafka-log-dirs does."""
    from tidelog.cli.log_dirs import print_directories
    from tidelog.cli.partition_files import parse_numbers

    with reported():
        nodes = None if broker_list is None else parse_numbers("--broker-list", broker_list)
        topics = None if topic_list is None else [t for t in topic_list.split(",") if t]
        print_directories(bootstrap_server, nodes, topics, with_partitions=partitions, as_json=json)


def leader_election(
    election_type: Annotated[
        Election,
        typer.Option("--election-type", help="Unclean may lose records: any replica may lead."),
    ] = Election.PREFERRED,
    all_topic_partitions: Annotated[
        bool, typer.Option("--all-topic-partitions", help="Wherever it is needed.")
    ] = False,
    topic: Topic = None,
    partition: Partition = None,
    path_to_json_file: Annotated[
        Path | None,
        typer.Option("--path-to-json-file", metavar="FILE", help="A list of partitions."),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Elect leaders, as kafka-leader-election does."""
    from tidelog.cli.brokers import Brokers, chosen_places
    from tidelog.cli.leader_election import EXAMPLE, elect_leaders
    from tidelog.cli.partition_files import partitions_of, read_json

    if bool(topic) + all_topic_partitions + (path_to_json_file is not None) != 1:
        raise typer.BadParameter("one of --topic, --path-to-json-file and --all-topic-partitions")
    with reported():
        places = None
        if path_to_json_file is not None:
            document = read_json(path_to_json_file)
            places = list(partitions_of(document, path_to_json_file, EXAMPLE, lambda entry: None))
        elif topic:
            wanted = _wanted(topic, partition)
            with Brokers(bootstrap_server) as brokers:
                places = list(chosen_places(brokers, wanted))
        elect_leaders(bootstrap_server, election_type.value, places, as_json=json)


def _wanted(topics: list[str], partitions: list[int] | None) -> dict[str, list[int]]:
    from tidelog.cli.brokers import parse_topic_partitions

    wanted = parse_topic_partitions(topics)
    if partitions:
        if len(wanted) != 1 or any(wanted.values()):
            raise typer.BadParameter("--partition goes with one --topic")
        return {topic: partitions for topic in wanted}
    return wanted


def offsets(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="Names or regular expressions; all without any."),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="The same.")
    ] = None,
    partitions: Annotated[
        str | None, typer.Option("--partitions", metavar="0,1", help="Only these.")
    ] = None,
    time: Annotated[
        str,
        typer.Option(
            "--time",
            metavar="WHEN",
            help="latest (-1), earliest (-2), max-timestamp (-3), milliseconds since 1970, or "
            "2026-01-31T12:00:00 (UTC).",
        ),
    ] = "latest",
    isolation_level: Annotated[
        Isolation, typer.Option("--isolation-level", help="What latest means.")
    ] = Isolation.READ_UNCOMMITTED,
    exclude_internal: Annotated[
        bool, typer.Option("--exclude-internal", help="Without internal topics.")
    ] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Print offsets as topic:partition:offset, as kafka-get-offsets does."""
    from tidelog.cli.offsets import parse_time, print_offsets
    from tidelog.cli.partition_files import parse_numbers

    with reported():
        chosen = [] if partitions is None else parse_numbers("--partitions", partitions)
        print_offsets(
            bootstrap_server,
            [*(topics or ()), *(topic or ())],
            chosen,
            parse_time(time),
            exclude_internal=exclude_internal,
            isolation=int(isolation_level is Isolation.READ_COMMITTED),
            as_json=json,
        )


def delete_records(
    topic: Topic = None,
    partition: Partition = None,
    before: Annotated[
        str | None,
        typer.Option(
            "--before", metavar="OFFSET", help="Delete what is before it, or latest: all."
        ),
    ] = None,
    offset_json_file: Annotated[
        Path | None,
        typer.Option("--offset-json-file", metavar="FILE", help="As in kafka-delete-records."),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Delete the oldest records of partitions, for good."""
    from tidelog.cli.brokers import Brokers, chosen_places
    from tidelog.cli.offsets import DELETE_EXAMPLE
    from tidelog.cli.offsets import delete_records as delete
    from tidelog.cli.partition_files import partitions_of, read_json

    if (topic is None) == (offset_json_file is None):
        raise typer.BadParameter("--topic with --before, or --offset-json-file")
    if (topic is None) != (before is None):
        raise typer.BadParameter("--before goes with --topic")
    with reported():
        if offset_json_file is not None:
            document = read_json(offset_json_file)
            wanted = partitions_of(
                document, offset_json_file, DELETE_EXAMPLE, lambda entry: int(entry["offset"])
            )
        else:
            limit = _limit(before or "")
            with Brokers(bootstrap_server) as brokers:
                places = chosen_places(brokers, _wanted(topic or [], partition))
            wanted = dict.fromkeys(places, limit)
        delete(bootstrap_server, wanted, as_json=json)


def _limit(text: str) -> int:
    if text in ("latest", "-1"):
        return -1
    if not text.isascii() or not text.isdigit():
        raise typer.BadParameter(f"--before {text}: an offset, or latest")
    return int(text)
