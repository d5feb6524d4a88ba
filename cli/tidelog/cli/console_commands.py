"""``tidelog produce`` and ``tidelog consume``: their arguments.

Both take the properties of Kafka's console tools (``--property parse.key=true``) next to options
of their own that are shorter to write.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, reported


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


class Acks(StrEnum):
    ALL = "all"
    MINUS_ONE = "-1"
    ZERO = "0"
    ONE = "1"


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Isolation(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


TopicArgument = Annotated[str | None, typer.Argument(metavar="TOPIC", help="The topic's name.")]
TopicOption = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="The same as the argument.")
]
ClientProperties = Annotated[
    list[str] | None,
    typer.Option("--command-property", metavar="NAME=VALUE", help="A setting of librdkafka."),
]
ClientConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Settings of librdkafka, as a properties file.",
    ),
]


def _one_topic(argument: str | None, option: str | None) -> str | None:
    if argument is not None and option is not None and argument != option:
        raise typer.BadParameter(f"two topics were given: {argument} and {option}")
    return argument or option


def produce(
    topic: TopicArgument = None,
    topic_option: TopicOption = None,
    format_: Annotated[
        Format, typer.Option("--format", help="What is read: lines of text, or JSON objects.")
    ] = Format.TEXT,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="Lines are KEY TEXT VALUE."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="KEY", help="The key of all records.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Of all records; repeatable."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, metavar="N", help="The partition of all records."),
    ] = None,
    timestamp: Annotated[
        int | None,
        typer.Option("--timestamp", min=0, metavar="MS", help="The timestamp of all records."),
    ] = None,
    reader_property: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "--reader-property",
            metavar="NAME=VALUE",
            help="parse.key, key.separator, parse.headers, headers.delimiter, headers.separator, "
            "headers.key.separator, null.marker, ignore.error, as in kafka-console-producer.",
        ),
    ] = None,
    acks: Annotated[
        Acks, typer.Option("--acks", "--request-required-acks", help="Who must have a record.")
    ] = Acks.ALL,
    compression: Annotated[
        Compression, typer.Option("--compression", "--compression-codec", help="Of batches.")
    ] = Compression.NONE,
    linger_ms: Annotated[
        int, typer.Option("--linger-ms", min=0, metavar="MS", help="How long a batch may fill.")
    ] = 5,
    sync: Annotated[
        bool, typer.Option("--sync", help="Wait for each record before the next is read.")
    ] = False,
    command_property: ClientProperties = None,
    command_config: ClientConfig = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Annotated[
        bool, typer.Option("--json", help="Print where each record went, one JSON object a line.")
    ] = False,
) -> None:
    """Send the lines of standard input, one record each."""
    from tidelog.cli.console import InputOptions, run_produce
    from tidelog.cli.properties import parse_pairs, read_file

    name = _one_topic(topic, topic_option)
    if name is None:
        raise typer.BadParameter("name a topic")
    if format_ is Format.JSON and (reader_property or key_separator is not None):
        raise typer.BadParameter("properties and --key-separator are for --format text")
    with reported():
        properties = parse_pairs("--property", reader_property or [])
        if key_separator is not None:
            properties |= {"parse.key": "true", "key.separator": key_separator}
        settings = {
            "acks": "all" if acks is Acks.MINUS_ONE else acks.value,
            "enable.idempotence": "true" if acks in (Acks.ALL, Acks.MINUS_ONE) else "false",
            "compression.type": compression.value,
            "linger.ms": str(linger_ms),
            **read_file(command_config),
            **parse_pairs("--command-property", command_property or []),
        }
        options = InputOptions(
            is_json=format_ is Format.JSON,
            properties=properties,
            key=key,
            headers=header or [],
            partition=partition,
            timestamp_ms=timestamp,
            is_synchronous=sync,
            prints_json=json,
        )
        run_produce(bootstrap_server, name, options, settings)


def consume(
    topic: TopicArgument = None,
    topic_option: TopicOption = None,
    include: Annotated[
        str | None,
        typer.Option("--include", metavar="REGEX", help="All topics whose names match."),
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="The same as --offset earliest.")
    ] = False,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            metavar="WHERE",
            help="earliest, latest, a number, a negative number (so many before the end), or "
            "@ and a time: milliseconds since 1970 or 2026-01-31T12:00:00 (UTC).",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, metavar="N", help="Only this; repeatable."),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="NAME", help="Read as a member of a group.")
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=0, metavar="N", help="Then end.")
    ] = None,
    timeout_ms: Annotated[
        int | None,
        typer.Option("--timeout-ms", min=0, metavar="MS", help="End if nothing comes for so long."),
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="End when all that is there was read.")
    ] = False,
    isolation_level: Annotated[
        Isolation, typer.Option("--isolation-level", help="Whether open transactions are shown.")
    ] = Isolation.READ_UNCOMMITTED,
    format_: Annotated[
        Format, typer.Option("--format", help="How records are printed.")
    ] = Format.TEXT,
    print_: Annotated[
        list[str] | None,
        typer.Option(
            "--print",
            metavar="WHAT,...",
            help="Besides values: timestamp, partition, offset, epoch, headers, key.",
        ),
    ] = None,
    formatter_property: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "--formatter-property",
            metavar="NAME=VALUE",
            help="print.key (and the like), key.separator, line.separator, headers.separator, "
            "null.literal, as in kafka-console-consumer.",
        ),
    ] = None,
    command_property: ClientProperties = None,
    command_config: ClientConfig = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Print records of a topic."""
    from tidelog.cli.console import OutputOptions, run_consume
    from tidelog.cli.properties import parse_pairs, read_file

    name = _one_topic(topic, topic_option)
    if (name is None) == (include is None):
        raise typer.BadParameter("name a topic, or give --include")
    if from_beginning and offset is not None:
        raise typer.BadParameter("one of --from-beginning and --offset, not both")
    if group is not None and (partition or (offset or "latest") not in ("earliest", "latest")):
        raise typer.BadParameter("a group chooses partitions and offsets itself; leave them out")
    with reported():
        options = OutputOptions(
            is_json=json or format_ is Format.JSON,
            properties=parse_pairs("--property", formatter_property or []),
            printed=print_ or [],
            offset="earliest" if from_beginning else offset or "latest",
            partitions=tuple(partition or ()),
            group=group,
            max_messages=max_messages,
            timeout_ms=timeout_ms,
            until_end=until_end,
            isolation_level=isolation_level.value,
        )
        settings = {
            **read_file(command_config),
            **parse_pairs("--command-property", command_property or []),
        }
        run_consume(bootstrap_server, name, include, options, settings)
