"""Offsets of partitions, and the JSON in which options and checkpoints write them.

The form is that of Spark's Kafka connector: ``{"topic": {"0": 17}}``. Spark compares offsets as
text, so what is written here is always in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Place: TypeAlias = tuple[str, int]
"""A topic and a partition of it."""
Offsets: TypeAlias = Mapping[Place, int]

LATEST: Final = -1
EARLIEST: Final = -2

FIRST_START: Final = "#start"
"""The key under which the end of the first batch says where that batch starts.

No topic can have this name. Spark asks for the initial offset again when it repeats the first
batch; with ``latest`` the answer would be another one, and records would be lost.
"""


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(document: Mapping[str, Any]) -> dict[Place, int]:
    """``ValueError`` says what is wrong; the key of the first start is passed over."""
    found: dict[Place, int] = {}
    for topic, partitions in document.items():
        if topic == FIRST_START:
            continue
        if not isinstance(partitions, dict) or not partitions:
            raise ValueError(f"{topic!r} has no partitions")
        for partition, offset in partitions.items():
            if not _is_index(partition) or type(offset) is not int:
                raise ValueError(f"{topic!r} has {partition!r}: {offset!r}")
            found[topic, int(partition)] = offset
    return found


def with_first_start(end: dict[str, Any], start: Mapping[str, Any]) -> dict[str, Any]:
    return {**end, FIRST_START: to_json(from_json(start))}


def planned_start(start: Mapping[str, Any], end: Mapping[str, Any]) -> dict[Place, int]:
    """Where a batch starts: what its end remembers wins over what Spark was told just now."""
    if FIRST_START in end and FIRST_START not in start:
        return from_json(end[FIRST_START])
    return from_json(start)


def parse_offsets(text: str) -> dict[Place, int]:
    """JSON of offsets; −2 is the earliest and −1 the latest."""
    found = _parse_numbers(text)
    if any(offset < EARLIEST for offset in found.values()):
        raise ValueError("an offset is below -2")
    return found


def parse_timestamps(text: str) -> dict[Place, int]:
    """JSON of timestamps in milliseconds."""
    found = _parse_numbers(text)
    if any(timestamp < 0 for timestamp in found.values()):
        raise ValueError("a timestamp is below 0")
    return found


def _parse_numbers(text: str) -> dict[Place, int]:
    document = _parse_object(text)
    if FIRST_START in document:
        raise ValueError(f"{FIRST_START!r} is no topic")
    found = from_json(document)
    if not found:
        raise ValueError("it names no partition")
    return found


def parse_assignment(text: str) -> frozenset[Place]:
    """``{"topic": [0, 1]}``."""
    found: set[Place] = set()
    for topic, partitions in _parse_object(text).items():
        if not isinstance(partitions, list) or not partitions:
            raise ValueError(f"{topic!r} has no list of partitions")
        for partition in partitions:
            if type(partition) is not int or partition < 0:
                raise ValueError(f"{topic!r} has partition {partition!r}")
            found.add((topic, partition))
    if not found:
        raise ValueError("it names no partition")
    return frozenset(found)


def _parse_object(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    return document


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10
