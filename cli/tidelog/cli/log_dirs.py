"""What lies in the directories of brokers, and how much room is left there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.cli.brokers import Brokers, error_text, fail_on
from tidelog.cli.partition_files import dashed
from tidelog.cli.questions import question
from tidelog.cli.tables import or_dash, table
from tidelog.wire.protocol.apis import ApiKey


@dataclass(frozen=True, slots=True)
class Stored:
    partition: str
    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class Directory:
    broker: int
    path: str
    error: str | None
    total_bytes: int | None
    free_bytes: int | None
    partitions: tuple[Stored, ...]

    @property
    def used_bytes(self) -> int:
        return sum(one.size for one in self.partitions)


def describe_directories(
    brokers: Brokers, nodes: Sequence[int], topics: Sequence[str] | None = None
) -> list[Directory]:
    """Each broker tells of its own."""
    asked = None
    if topics is not None:
        places = brokers.leaders(topics)
        asked = [
            {"topic": name, "partitions": [index for topic, index in places if topic == name]}
            for name in topics
        ]
    request = question(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=asked)
    found = []
    for node in nodes:
        answer = brokers.to(node).ask(request)
        fail_on(answer, f"the directories of broker {node}")
        for one in answer.results:
            stored = tuple(
                Stored(
                    dashed((str(topic.name), int(part.partition_index))),
                    int(part.partition_size),
                    int(part.offset_lag),
                    bool(part.is_future_key),
                )
                for topic in one.topics
                for part in topic.partitions
            )
            found.append(
                Directory(
                    node,
                    str(one.log_dir),
                    error_text(one),
                    _bytes(int(one.total_bytes)),
                    _bytes(int(one.usable_bytes)),
                    stored,
                )
            )
    return found


def _bytes(number: int) -> int | None:
    return None if number < 0 else number


def print_directories(
    bootstrap: str,
    nodes: Sequence[int] | None,
    topics: Sequence[str] | None,
    *,
    with_partitions: bool,
    as_json: bool,
) -> None:
    with Brokers(bootstrap) as brokers:
        chosen = list(brokers.describe().live) if nodes is None else list(nodes)
        directories = describe_directories(brokers, chosen, topics)
    if as_json:
        print(json.dumps(kafka_document(directories)))
    elif with_partitions:
        rows = [
            (one.broker, one.path, part.partition, part.size, part.offset_lag)
            for one in directories
            for part in one.partitions
        ]
        print(table(("BROKER", "LOG-DIR", "PARTITION", "SIZE", "OFFSET-LAG"), rows))
    else:
        header = ("BROKER", "LOG-DIR", "PARTITIONS", "SIZE", "FREE", "TOTAL", "ERROR")
        print(
            table(
                header,
                [
                    (
                        one.broker, one.path, len(one.partitions), one.used_bytes,
                        or_dash(one.free_bytes), or_dash(one.total_bytes), or_dash(one.error),
                    )
                    for one in directories
                ],
            )
        )  # fmt: skip


def kafka_document(directories: Sequence[Directory]) -> dict[str, object]:
    """As kafka-log-dirs prints it, and two numbers more."""
    brokers: dict[int, list[object]] = {}
    for one in directories:
        brokers.setdefault(one.broker, []).append(
            {
                "logDir": one.path,
                "error": one.error,
                "totalBytes": one.total_bytes,
                "usableBytes": one.free_bytes,
                "partitions": [
                    {
                        "partition": part.partition,
                        "size": part.size,
                        "offsetLag": part.offset_lag,
                        "isFuture": part.is_future,
                    }
                    for part in one.partitions
                ],
            }
        )
    listed = [{"broker": node, "logDirs": dirs} for node, dirs in sorted(brokers.items())]
    return {"version": 1, "brokers": listed}
