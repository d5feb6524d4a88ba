"""When a new segment is begun. Pure."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from tidelog.kernel.ids import Offset, TimestampMs
from tidelog.kernel.settings import TopicConfig


class SegmentFacts(Protocol):
    """The active segment, as far as rolling cares."""

    base_offset: Offset
    size: int
    created_ms: TimestampMs
    roll_jitter_ms: int

    @property
    def first_batch_timestamp(self) -> TimestampMs | None: ...

    @property
    def offset_index_is_full(self) -> bool: ...

    @property
    def time_index_is_full(self) -> bool: ...


class Incoming(NamedTuple):
    size: int
    max_timestamp: TimestampMs
    last_offset: Offset


def roll_reason(
    segment: SegmentFacts, incoming: Incoming, config: TopicConfig, now_ms: TimestampMs
) -> str | None:
    """Why ``incoming`` must go to a new segment; None if it fits the active one."""
    if segment.size + incoming.size > config.effective_segment_bytes:
        return "size"
    if segment.size > 0 and _is_too_old(segment, incoming, config, now_ms):
        return "time"
    if segment.offset_index_is_full:
        return "offset index full"
    if segment.time_index_is_full:
        return "time index full"
    if incoming.last_offset - segment.base_offset > 2**31 - 1:
        return "offset range"
    return None


def _is_too_old(
    segment: SegmentFacts, incoming: Incoming, config: TopicConfig, now_ms: TimestampMs
) -> bool:
    """Age is measured in the records' own time, so that replicas roll at the same place."""
    first = segment.first_batch_timestamp
    if first is not None and first >= 0:
        waited_ms = incoming.max_timestamp - first
    else:
        waited_ms = now_ms - segment.created_ms
    return waited_ms > roll_after_ms(config) - segment.roll_jitter_ms


def roll_after_ms(config: TopicConfig) -> int:
    """A compacted topic rolls in time for ``max.compaction.lag.ms`` (KIP-354)."""
    if config.is_compacted:
        return min(config.segment_ms, config.max_compaction_lag_ms)
    return config.segment_ms
