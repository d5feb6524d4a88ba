"""``tidelog perf …``: the arguments of the measuring commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.console_options import ClientConfig, ClientProperties
from tidelog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, reported

app = typer.Typer(help="Measure how fast records go in and come out.", no_args_is_help=True)

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
Interval = Annotated[
    int,
    typer.Option("--reporting-interval", min=1, metavar="MS", help="Between two reports."),
]


@app.command()
def produce(
    topic: TopicName,
    num_records: Annotated[
        int, typer.Option("--num-records", "-n", min=1, metavar="N", help="How many.")
    ] = 100_000,
    record_size: Annotated[
        int | None, typer.Option("--record-size", min=1, metavar="BYTES", help="100 by default.")
    ] = None,
    payload_file: Annotated[
        Path | None,
        typer.Option("--payload-file", metavar="FILE", help="Values, chosen from it at random."),
    ] = None,
    payload_delimiter: Annotated[
        str, typer.Option("--payload-delimiter", metavar="TEXT", help="Between two values.")
    ] = "\\n",
    throughput: Annotated[
        float, typer.Option("--throughput", metavar="N", help="Records per second; -1: no limit.")
    ] = -1,
    acks: Annotated[str, typer.Option("--acks", metavar="ACKS", help="all, 1 or 0.")] = "all",
    compression: Annotated[
        str, typer.Option("--compression", metavar="CODEC", help="none, gzip, snappy, lz4, zstd.")
    ] = "none",
    reporting_interval: Interval = 5000,
    command_property: ClientProperties = None,
    command_config: ClientConfig = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Send records as fast as they go, and print rates and latencies."""
    from tidelog.cli.perf import ProducePerf, measure_produce, payloads_of_file, payloads_of_size
    from tidelog.cli.properties import parse_pairs, read_file

    if record_size is not None and payload_file is not None:
        raise typer.BadParameter("one of --record-size and --payload-file")
    with reported():
        payloads = (
            payloads_of_size(record_size or 100)
            if payload_file is None
            else payloads_of_file(payload_file, payload_delimiter)
        )
        settings = {
            "acks": acks,
            "compression.type": compression,
            "linger.ms": "5",
            **read_file(command_config),
            **parse_pairs("--command-property", command_property or []),
        }
        measure_produce(
            ProducePerf(
                bootstrap_server,
                topic,
                num_records,
                payloads,
                throughput,
                reporting_interval,
                json,
                settings,
            )
        )


@app.command()
def consume(
    topic: TopicName,
    messages: Annotated[
        int, typer.Option("--messages", "-n", min=1, metavar="N", help="How many.")
    ] = 100_000,
    group: Annotated[
        str | None, typer.Option("--group", metavar="NAME", help="A new one by default.")
    ] = None,
    fetch_size: Annotated[
        int | None, typer.Option("--fetch-size", min=1, metavar="BYTES", help="Of one fetch.")
    ] = None,
    timeout: Annotated[
        int, typer.Option("--timeout", min=1, metavar="MS", help="End if nothing comes so long.")
    ] = 10_000,
    from_latest: Annotated[
        bool, typer.Option("--from-latest", help="Begin at the end, if the group is new.")
    ] = False,
    show_detailed_stats: Annotated[
        bool, typer.Option("--show-detailed-stats", help="A line per interval instead of one.")
    ] = False,
    hide_header: Annotated[bool, typer.Option("--hide-header", help="Only numbers.")] = False,
    reporting_interval: Interval = 5000,
    command_property: ClientProperties = None,
    command_config: ClientConfig = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Read records as fast as they come, and print rates, as kafka-consumer-perf-test does."""
    from uuid import uuid4

    from tidelog.cli.perf import ConsumePerf, measure_consume
    from tidelog.cli.properties import parse_pairs, read_file

    with reported():
        sizes = {} if fetch_size is None else {"fetch.message.max.bytes": str(fetch_size)}
        settings = {
            **sizes,
            **read_file(command_config),
            **parse_pairs("--command-property", command_property or []),
        }
        measure_consume(
            ConsumePerf(
                bootstrap_server,
                topic,
                messages,
                group or f"perf-consumer-{uuid4().hex[:8]}",
                timeout,
                from_latest,
                show_detailed_stats,
                hide_header,
                reporting_interval,
                json,
                settings,
            )
        )
