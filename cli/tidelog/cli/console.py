"""The console commands between their arguments and the client: formats, standard input, totals."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from tidelog.cli.consume import ConsumeOptions, consume_records
from tidelog.cli.failures import WrongUse
from tidelog.cli.produce import ProduceOptions, produce_lines
from tidelog.cli.properties import parse_pairs
from tidelog.cli.record_json import from_json, to_json
from tidelog.cli.record_lines import LineFormat
from tidelog.cli.record_text import TextFormat, parse_printed
from tidelog.cli.records import NewRecord, ReadRecord
from tidelog.cli.start_offset import parse_start


@dataclass(frozen=True, slots=True)
class InputOptions:
    is_json: bool
    properties: Mapping[str, str]
    key: str | None
    headers: Sequence[str]
    partition: int | None
    timestamp_ms: int | None
    is_synchronous: bool
    prints_json: bool


@dataclass(frozen=True, slots=True)
class OutputOptions:
    is_json: bool
    properties: Mapping[str, str]
    printed: Sequence[str]
    offset: str
    partitions: tuple[int, ...]
    group: str | None
    max_messages: int | None
    timeout_ms: int | None
    until_end: bool
    isolation_level: str


def run_produce(
    bootstrap: str, topic: str, options: InputOptions, settings: Mapping[str, str]
) -> None:
    headers = parse_pairs("--header", options.headers)
    produce_lines(
        ProduceOptions(
            bootstrap=bootstrap,
            topic=topic,
            parse=_parser(options),
            headers=tuple((name, value.encode()) for name, value in headers.items()),
            key=None if options.key is None else options.key.encode(),
            partition=options.partition,
            timestamp_ms=options.timestamp_ms,
            is_synchronous=options.is_synchronous,
            prints_json=options.prints_json,
            client_settings=settings,
        ),
        input_lines(sys.stdin.buffer, prompt=sys.stdin.isatty()),
    )


def _parser(options: InputOptions) -> Callable[[bytes, int], NewRecord]:
    return from_json if options.is_json else LineFormat.of(options.properties).parse


def input_lines(source: BinaryIO, *, prompt: bool) -> Iterator[bytes]:
    """Lines without their ends, \\n or \\r\\n; a prompt only where somebody types."""
    while True:
        if prompt:
            print(">", end="", flush=True)
        line = source.readline()
        if not line:
            return
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def run_consume(
    bootstrap: str,
    topic: str | None,
    include: str | None,
    options: OutputOptions,
    settings: Mapping[str, str],
) -> None:
    count = consume_records(
        ConsumeOptions(
            bootstrap=bootstrap,
            topic=topic,
            include=include,
            line=_formatter(options),
            start=parse_start(options.offset),
            partitions=options.partitions,
            group=options.group,
            max_messages=options.max_messages,
            timeout_ms=options.timeout_ms,
            until_end=options.until_end,
            isolation_level=options.isolation_level,
            client_settings=settings,
        ),
        sys.stdout.buffer,
    )
    print(f"Processed a total of {count} messages", file=sys.stderr)


def _formatter(options: OutputOptions) -> Callable[[ReadRecord], bytes]:
    if not options.is_json:
        return TextFormat.of({**options.properties, **parse_printed(list(options.printed))}).line
    if options.properties or options.printed:
        raise WrongUse("properties and --print are for --format text; JSON has every field")
    return lambda record: to_json(record).encode("utf-8") + b"\n"
