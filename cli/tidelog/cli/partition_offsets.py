"""Offsets of partitions, asked of their leaders: the first, the next, or that of a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.cli.brokers import Brokers, Place, by_leader, by_topic, error_text
from tidelog.cli.questions import question
from tidelog.wire.protocol.apis import ApiKey

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
READ_COMMITTED: Final = 1
UNKNOWN: Final = -1
"""The offset of a time after the last record."""


@dataclass(frozen=True, slots=True)
class Found:
    offset: int
    timestamp_ms: int = -1
    error: str | None = None


def list_offsets(
    brokers: Brokers,
    leaders: Mapping[Place, int],
    places: Iterable[Place],
    timestamp: int,
    *,
    isolation: int = 0,
) -> dict[Place, Found]:
    """One entry for every place; one without a leader has an error."""
    wanted = sorted(places)
    found: dict[Place, Found] = {}
    for leader, led in by_leader(leaders, wanted).items():
        found |= _ask(brokers, leader, led, timestamp, isolation)
    return {place: found.get(place, Found(UNKNOWN, error="has no leader")) for place in wanted}


def _ask(
    brokers: Brokers, leader: int, places: list[Place], timestamp: int, isolation: int
) -> dict[Place, Found]:
    topics = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": one, "current_leader_epoch": -1, "timestamp": timestamp}
                for one in partitions
            ],
        }
        for topic, partitions in by_topic(places).items()
    ]
    request = question(
        ApiKey.LIST_OFFSETS, 8, replica_id=-1, isolation_level=isolation, topics=topics
    )
    return {
        (str(topic.name), int(one.partition_index)): Found(
            int(one.offset), int(one.timestamp), error_text(one)
        )
        for topic in brokers.to(leader).ask(request).topics
        for one in topic.partitions
    }
