"""``tidelog consume``: its arguments.

The properties of Kafka's console tool work (``--property print.key=true``), next to options of
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


class Isolation(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


Include = Annotated[
    str | None,
    typer.Option("--include", metavar="REGEX", help="All topics whose names match."),
]
FromBeginning = Annotated[
    bool, typer.Option("--from-beginning", help="The same as --offset earliest.")
]
Offset = Annotated[
    str | None,
    typer.Option(
        "--offset",
        metavar="WHERE",
        help="earliest, latest, a number, a negative number (so many before the end), or "
        "@ and a time: milliseconds since 1970 or 2026-01-31T12:00:00 (UTC).",
    ),
]
Partition = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", min=0, metavar="N", help="Only this; repeatable."),
]
Group = Annotated[
    str | None, typer.Option("--group", metavar="NAME", help="Read as a member of a group.")
]
MaxMessages = Annotated[
    int | None, typer.Option("--max-messages", "-n", min=0, metavar="N", help="Then end.")
]
TimeoutMs = Annotated[
    int | None,
    typer.Option("--timeout-ms", min=0, metavar="MS", help="End if nothing comes for so long."),
]
UntilEnd = Annotated[bool, typer.Option("--until-end", help="End when all that is there was read.")]
IsolationLevel = Annotated[
    Isolation, typer.Option("--isolation-level", help="Whether open transactions are shown.")
]
OutputFormat = Annotated[Format, typer.Option("--format", help="How records are printed.")]
Print = Annotated[
    list[str] | None,
    typer.Option(
        "--print",
        metavar="WHAT,...",
        help="Besides values: timestamp, partition, offset, epoch, headers, key.",
    ),
]
FormatterProperty = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "--formatter-property",
        metavar="NAME=VALUE",
        help="print.key (and the like), key.separator, line.separator, headers.separator, "
        "null.literal, as in kafka-console-consumer.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="The same as --format json.")]


def consume(
    topic: TopicArgument = None,
    topic_option: TopicOption = None,
    include: Include = None,
    from_beginning: FromBeginning = False,
    offset: Offset = None,
    partition: Partition = None,
    group: Group = None,
    max_messages: MaxMessages = None,
    timeout_ms: TimeoutMs = None,
    until_end: UntilEnd = False,
    isolation_level: IsolationLevel = Isolation.READ_UNCOMMITTED,
    format_: OutputFormat = Format.TEXT,
    print_: Print = None,
    formatter_property: FormatterProperty = None,
    command_property: ClientProperties = None,
    command_config: ClientConfig = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Print records of a topic."""
    from tidelog.cli.console import OutputOptions, run_consume
    from tidelog.cli.properties import parse_pairs, read_file

    name = one_topic(topic, topic_option)
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
