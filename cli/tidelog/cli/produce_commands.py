"""``tidelog produce``: its arguments.

The properties of Kafka's console tool work (``--property parse.key=true``), next to options of
its own that are shorter to write.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tidelog.cli.console_options import (
    ClientConfig,
    ClientProperties,
    Format,
    TopicArgument,
    TopicOption,
    one_topic,
)
from tidelog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, reported


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


InputFormat = Annotated[
    Format, typer.Option("--format", help="What is read: lines of text, or JSON objects.")
]
KeySeparator = Annotated[
    str | None,
    typer.Option("--key-separator", "-K", metavar="TEXT", help="Lines are KEY TEXT VALUE."),
]
Key = Annotated[
    str | None, typer.Option("--key", "-k", metavar="KEY", help="The key of all records.")
]
Header = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="Of all records; repeatable."),
]
Partition = Annotated[
    int | None,
    typer.Option("--partition", "-p", min=0, metavar="N", help="The partition of all records."),
]
Timestamp = Annotated[
    int | None,
    typer.Option("--timestamp", min=0, metavar="MS", help="The timestamp of all records."),
]
ReaderProperty = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "--reader-property",
        metavar="NAME=VALUE",
        help="parse.key, key.separator, parse.headers, headers.delimiter, headers.separator, "
        "headers.key.separator, null.marker, ignore.error, as in kafka-console-producer.",
    ),
]
AcksOption = Annotated[
    Acks, typer.Option("--acks", "--request-required-acks", help="Who must have a record.")
]
CompressionOption = Annotated[
    Compression, typer.Option("--compression", "--compression-codec", help="Of batches.")
]
LingerMs = Annotated[
    int, typer.Option("--linger-ms", min=0, metavar="MS", help="How long a batch may fill.")
]
Sync = Annotated[bool, typer.Option("--sync", help="Wait for each record before the next is read.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print where each record went, one JSON object a line.")
]


def produce(
    topic: TopicArgument = None,
    topic_option: TopicOption = None,
    format_: InputFormat = Format.TEXT,
    key_separator: KeySeparator = None,
    key: Key = None,
    header: Header = None,
    partition: Partition = None,
    timestamp: Timestamp = None,
    reader_property: ReaderProperty = None,
    acks: AcksOption = Acks.ALL,
    compression: CompressionOption = Compression.NONE,
    linger_ms: LingerMs = 5,
    sync: Sync = False,
    command_property: ClientProperties = None,
    command_config: ClientConfig = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Send the lines of standard input, one record each."""
    from tidelog.cli.console import InputOptions, run_produce
    from tidelog.cli.properties import parse_pairs, read_file

    name = one_topic(topic, topic_option)
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
