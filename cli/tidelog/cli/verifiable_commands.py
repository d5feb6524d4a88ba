"""``tidelog verifiable-producer`` and ``verifiable-consumer``: their arguments."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tidelog.cli.console_options import ClientConfig, ClientProperties
from tidelog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, reported

TopicOption = Annotated[str, typer.Option("--topic", metavar="TOPIC", help="The topic.")]
MaxMessages = Annotated[
    int, typer.Option("--max-messages", min=-1, metavar="N", help="Then end; -1: until stopped.")
]
Json = Annotated[bool, typer.Option("--json", help="Changes nothing: all output is JSON.")]


class GroupProtocol(StrEnum):
    CLASSIC = "classic"
    CONSUMER = "consumer"


class ResetPolicy(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


def verifiable_producer(
    topic: TopicOption,
    max_messages: MaxMessages = -1,
    throughput: Annotated[
        float, typer.Option("--throughput", metavar="N", help="Records per second; -1: no limit.")
    ] = -1,
    acks: Annotated[str, typer.Option("--acks", metavar="ACKS", help="-1, 1 or 0.")] = "-1",
    value_prefix: Annotated[
        int | None, typer.Option("--value-prefix", metavar="N", help="Values are N.0, N.1, ...")
    ] = None,
    repeating_keys: Annotated[
        int | None,
        typer.Option("--repeating-keys", min=1, metavar="N", help="Keys are 0 to N-1, in turn."),
    ] = None,
    command_property: ClientProperties = None,
    command_config: ClientConfig = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Send increasing numbers and print what came of each, one JSON object a line."""
    from tidelog.cli.properties import parse_pairs, read_file
    from tidelog.cli.verifiable import VerifiableProduce, run_producer

    with reported():
        settings = {
            "acks": acks,
            "partitioner": "murmur2_random",
            **read_file(command_config),
            **parse_pairs("--command-property", command_property or []),
        }
        run_producer(
            VerifiableProduce(
                bootstrap_server,
                topic,
                max_messages,
                throughput,
                value_prefix,
                repeating_keys,
                settings,
            )
        )


def verifiable_consumer(
    topic: TopicOption,
    group_id: Annotated[str, typer.Option("--group-id", metavar="NAME", help="The group.")],
    max_messages: MaxMessages = -1,
    session_timeout: Annotated[
        int | None, typer.Option("--session-timeout", min=1, metavar="MS", help="Of the member.")
    ] = None,
    enable_autocommit: Annotated[
        bool, typer.Option("--enable-autocommit", help="Instead of a commit after each batch.")
    ] = False,
    reset_policy: Annotated[
        ResetPolicy, typer.Option("--reset-policy", help="Where a new group begins.")
    ] = ResetPolicy.EARLIEST,
    assignment_strategy: Annotated[
        str | None,
        typer.Option(
            "--assignment-strategy", metavar="NAME", help="range, roundrobin, cooperative-sticky."
        ),
    ] = None,
    group_protocol: Annotated[
        GroupProtocol, typer.Option("--group-protocol", help="Of the group.")
    ] = GroupProtocol.CLASSIC,
    group_instance_id: Annotated[
        str | None, typer.Option("--group-instance-id", metavar="ID", help="A static member.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="A line for each record.")] = False,
    command_property: ClientProperties = None,
    command_config: ClientConfig = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Read as a member of a group and print what happens, one JSON object a line."""
    from tidelog.cli.properties import parse_pairs, read_file
    from tidelog.cli.verifiable import VerifiableConsume, run_consumer

    given = {
        "session.timeout.ms": session_timeout,
        "partition.assignment.strategy": assignment_strategy,
        "group.instance.id": group_instance_id,
    }
    resets = "error" if reset_policy is ResetPolicy.NONE else reset_policy.value
    with reported():
        settings = {
            "group.protocol": group_protocol.value,
            "auto.offset.reset": resets,
            **{name: str(value) for name, value in given.items() if value is not None},
            **read_file(command_config),
            **parse_pairs("--command-property", command_property or []),
        }
        run_consumer(
            VerifiableConsume(
                bootstrap_server,
                topic,
                group_id,
                max_messages,
                enable_autocommit,
                verbose,
                settings,
            )
        )
