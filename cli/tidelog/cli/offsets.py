"""The ends of partitions, looked at (``offsets``) and moved (``delete-records``)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.cli.brokers import (
    NO_LEADER,
    Brokers,
    Place,
    by_leader,
    by_topic,
    chosen_places,
    error_text,
)
from tidelog.cli.failures import CommandFailed, WrongUse
from tidelog.cli.offset_reset import parse_datetime_ms
from tidelog.cli.partition_files import dashed
from tidelog.cli.partition_offsets import EARLIEST, LATEST, MAX_TIMESTAMP, list_offsets
from tidelog.cli.questions import question
from tidelog.cli.topics import list_topics, select
from tidelog.wire.protocol.apis import ApiKey

TIMES: Final = {"earliest": EARLIEST, "latest": LATEST, "max-timestamp": MAX_TIMESTAMP}
DELETE_EXAMPLE: Final = '{"partitions": [{"topic": "orders", "partition": 0, "offset": 42}]}'
_TIMEOUT_MS: Final = 30_000


def parse_time(text: str) -> int:
    """A word, Kafka's negative numbers for them, milliseconds since 1970, or a time in words."""
    if text in TIMES:
        return TIMES[text]
    number = text[1:] if text.startswith("-") else text
    if number.isascii() and number.isdigit():
        if int(text) < MAX_TIMESTAMP or int(text) >= 1 << 63:
            raise WrongUse(
                f"--time {text}: -1 (latest), -2 (earliest), -3 (max-timestamp) or later"
            )
        return int(text)
    try:
        return parse_datetime_ms(text)
    except WrongUse:
        raise WrongUse(
            f"--time {text}: earliest, latest, max-timestamp, milliseconds since 1970, or "
            "2026-01-31T12:00:00"
        ) from None


def print_offsets(
    bootstrap: str,
    patterns: Sequence[str],
    partitions: Sequence[int],
    timestamp: int,
    *,
    exclude_internal: bool,
    isolation: int,
    as_json: bool,
) -> None:
    with Brokers(bootstrap) as brokers:
        there = list_topics(brokers.any)
        names = select(there, patterns, exclude_internal=exclude_internal)
        if patterns and not names:
            raise CommandFailed(f"no topic matches {', '.join(patterns)}; tidelog topic list")
        leaders = chosen_places(brokers, {name: [] for name in names}) if names else {}
        places = [place for place in leaders if not partitions or place[1] in partitions]
        found = list_offsets(brokers, leaders, places, timestamp, isolation=isolation)
    if as_json:
        rows = [
            {
                "topic": topic,
                "partition": partition,
                "offset": one.offset if one.error is None and one.offset >= 0 else None,
                "timestamp": one.timestamp_ms if one.timestamp_ms >= 0 else None,
                "error": one.error,
            }
            for (topic, partition), one in found.items()
        ]
        print(json.dumps(rows))
    else:
        for (topic, partition), one in found.items():
            if one.error is None:
                print(f"{topic}:{partition}:{one.offset if one.offset >= 0 else ''}")
    if problems := [f"{dashed(place)}: {one.error}" for place, one in found.items() if one.error]:
        raise CommandFailed("\n".join(problems))


def delete_records(bootstrap: str, offsets: Mapping[Place, int], *, as_json: bool) -> None:
    """Everything before these offsets; −1 stands for the end."""
    results: dict[Place, tuple[int, str | None]] = {}
    with Brokers(bootstrap) as brokers:
        leaders = chosen_places(brokers, by_topic(offsets))
        for place, leader in leaders.items():
            if leader == NO_LEADER:
                results[place] = -1, "has no leader"
        for leader, places in by_leader(leaders, leaders).items():
            results |= _delete(brokers, leader, {place: offsets[place] for place in places})
    failed = {place: text for place, (_, text) in results.items() if text is not None}
    if as_json:
        rows = [
            {"topic": topic, "partition": index, "low_watermark": low, "error": text}
            for (topic, index), (low, text) in sorted(results.items())
        ]
        print(json.dumps(rows))
    else:
        print("Executing records delete operation")
        print("Records delete operation completed:")
        for place, (low, text) in sorted(results.items()):
            outcome = f"low_watermark: {low}" if text is None else f"error: {text}"
            print(f"partition: {dashed(place)}\t{outcome}")
    if failed:
        raise CommandFailed(f"records of {len(failed)} partitions were not deleted")


def _delete(
    brokers: Brokers, leader: int, offsets: Mapping[Place, int]
) -> dict[Place, tuple[int, str | None]]:
    topics = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": index, "offset": offsets[topic, index]} for index in indexes
            ],
        }
        for topic, indexes in by_topic(offsets).items()
    ]
    request = question(ApiKey.DELETE_RECORDS, 2, topics=topics, timeout=_TIMEOUT_MS)
    return {
        (str(topic.name), int(one.partition_index)): (int(one.low_watermark), error_text(one))
        for topic in brokers.to(leader).ask(request).topics
        for one in topic.partitions
    }
