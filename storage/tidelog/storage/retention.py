"""Which old segments go. Pure: facts about segments in, a plan out.

Order and rules are Kafka's: what lies below the log start offset goes under any policy; then,
with ``delete`` in ``cleanup.policy``, by size and then by time. Each rule looks from the oldest
segment on and stops at the first that must stay. Nothing goes that is not below the high
watermark, and nothing after a segment that stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidelog.kernel.ids import Offset, TimestampMs
from tidelog.kernel.settings import TopicConfig


@dataclass(frozen=True, slots=True)
class RetentionFacts:
    """One segment, as far as retention cares."""

    end_offset: Offset
    """The next segment's base, or the log end."""
    size: int
    timestamp: Callable[[], TimestampMs]
    """The largest timestamp, asked for only when time decides: it may need a read."""


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """Delete the first ``count`` segments; ``reason`` is for the log."""

    count: int
    reason: str


def plan_retention(
    segments: Sequence[RetentionFacts],
    config: TopicConfig,
    *,
    log_start: Offset,
    high_watermark: Offset,
    now_ms: TimestampMs,
) -> RetentionPlan | None:
    """What the first applicable rule removes; called again until nothing is left to do."""
    rules: list[tuple[str, Callable[[], int]]] = [
        ("log start offset", lambda: _count_below_start(segments, log_start))
    ]
    if config.is_deleted:
        rules.append(("size", lambda: _count_over_size(segments, config)))
        rules.append(("time", lambda: _count_over_age(segments, config, now_ms)))
    replicated = _count_while(segments, lambda s: s.end_offset <= high_watermark)
    for reason, count in rules:
        deletable = min(count(), replicated)
        if deletable > 0 and not _is_empty_tail(segments, deletable):
            return RetentionPlan(deletable, reason)
    return None


def _is_empty_tail(segments: Sequence[RetentionFacts], count: int) -> bool:
    """Would nothing but an empty last segment go? Deleting it would only make it anew."""
    return count == 1 == len(segments) and segments[0].size == 0


def _count_while(segments: Sequence[RetentionFacts], goes: Callable[[RetentionFacts], bool]) -> int:
    count = 0
    for index, segment in enumerate(segments):
        is_empty_last = index == len(segments) - 1 and segment.size == 0
        if is_empty_last or not goes(segment):
            break
        count += 1
    return count


def _count_below_start(segments: Sequence[RetentionFacts], log_start: Offset) -> int:
    # Only a segment with a successor can lie wholly below the start.
    return min(_count_while(segments, lambda s: s.end_offset <= log_start), len(segments) - 1)


def _count_over_size(segments: Sequence[RetentionFacts], config: TopicConfig) -> int:
    surplus = sum(s.size for s in segments) - config.retention_bytes
    if config.retention_bytes < 0 or surplus < 0:
        return 0
    count = 0
    for segment in segments:
        surplus -= segment.size
        if surplus < 0 or segment.size == 0:
            break
        count += 1
    return count


def _count_over_age(
    segments: Sequence[RetentionFacts], config: TopicConfig, now_ms: TimestampMs
) -> int:
    if config.retention_ms < 0:
        return 0
    return _count_while(segments, lambda s: now_ms - s.timestamp() > config.retention_ms)
