"""The options of ``format("tidelog-segments")``; docs/PIPELINE.md shows the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.pipeline.errors import WrongOptions
from tidelog.pipeline.option_table import (
    Option,
    flag,
    names,
    one_of,
    parse_options,
    pattern,
    whole,
)
from tidelog.pipeline.positions import Offsets, parse_offsets

_BATCH: Final = frozenset({"batch"})


@dataclass(frozen=True, slots=True)
class SegmentsOptions:
    paths: tuple[str, ...]
    topics: tuple[str, ...] | None
    topics_pattern: str | None
    start: Offsets
    end: Offsets
    start_ms: int | None
    end_ms: int | None
    read_committed: bool
    include_headers: bool
    include_value: bool
    fail_on_corrupt: bool
    bytes_per_task: int
    columns: tuple[str, ...] | None = None
    """Of a schema that was given; None: all."""


def _exact_offsets(text: str) -> Offsets:
    offsets = parse_offsets(text)
    if any(offset < 0 for offset in offsets.values()):
        raise ValueError("an offset is below 0")
    return offsets


_OFFSETS: Final = 'JSON `{"topic":{"0":17}}`'

TABLE: Final = (
    Option("path", "directories joined by commas", names, None,
           "log directories, or directories of single partitions; required", _BATCH),
    Option("topics", "topics joined by commas", names, None,
           "only these; without it all whose name does not begin with `__`", _BATCH),
    Option("topicsPattern", "regular expression (Python)", pattern, None,
           "only topics whose whole name matches", _BATCH),
    Option("startingOffsets", _OFFSETS, _exact_offsets, None,
           "where to start; partitions that are not named start at their beginning", _BATCH),
    Option("endingOffsets", _OFFSETS, _exact_offsets, None,
           "where to end (that offset is not read)", _BATCH),
    Option("startingTimestamp", "integer ≥ 0 (ms)", whole(0), None,
           "only records of this time or later", _BATCH),
    Option("endingTimestamp", "integer ≥ 0 (ms)", whole(0), None,
           "only records before this time", _BATCH),
    Option("isolationLevel", "`read_uncommitted` or `read_committed`",
           one_of("read_uncommitted", "read_committed"), "read_uncommitted",
           "`read_committed` looks at every batch header while planning", _BATCH),
    Option("includeHeaders", "`true` or `false`", flag, False, "add the column `headers`", _BATCH),
    Option("includeValue", "`true` or `false`", flag, True, "`false` leaves `value` null", _BATCH),
    Option("failOnCorrupt", "`true` or `false`", flag, True,
           "fail on damaged batches, or skip them and log how many", _BATCH),
    Option("maxBytesPerPartition", "integer ≥ 1", whole(1), 128 * 1024 * 1024,
           "cut larger segments into several tasks, where an index entry allows it", _BATCH),
)  # fmt: skip


def parse_segments_options(given: Mapping[str, str]) -> SegmentsOptions:
    values = parse_options(TABLE, given, "batch", {})
    if values["path"] is None:
        raise WrongOptions("path is required: a log directory, as in load('/var/lib/tidelog')")
    if values["topics"] is not None and values["topicsPattern"] is not None:
        raise WrongOptions("topics and topicsPattern exclude each other; both are given")
    start_ms, end_ms = values["startingTimestamp"], values["endingTimestamp"]
    if start_ms is not None and end_ms is not None and end_ms < start_ms:
        raise WrongOptions(f"endingTimestamp {end_ms} is before startingTimestamp {start_ms}")
    return SegmentsOptions(
        paths=values["path"],
        topics=values["topics"],
        topics_pattern=values["topicsPattern"],
        start=values["startingOffsets"] or {},
        end=values["endingOffsets"] or {},
        start_ms=start_ms,
        end_ms=end_ms,
        read_committed=values["isolationLevel"] == "read_committed",
        include_headers=values["includeHeaders"],
        include_value=values["includeValue"],
        fail_on_corrupt=values["failOnCorrupt"],
        bytes_per_task=values["maxBytesPerPartition"],
    )
