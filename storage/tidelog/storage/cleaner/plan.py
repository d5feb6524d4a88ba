"""What of a log is to be cleaned, and why the rest is not. Pure: facts in, a plan out.

Theory: a log is clean below its *clean point* and dirty behind it. The dirty part may be cleaned
up to the first segment that holds something unfinished: an open transaction, records that are
not replicated or not flushed (KAFKA-13194), records too young, the active segment. Whether it is
worth the work is told by the share of the dirty part, or by its age (KIP-354).

Whatever holds a part back is a value (``Reason``), with the setting that would change it, so that
the cleaner and whoever explains it to an operator cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidelog.kernel.ids import Offset, TimestampMs, TopicPartition
from tidelog.kernel.settings import TopicConfig

MAX_OFFSET_RANGE: Final = 2**31 - 1
"""What the relative offsets of one segment's indexes can span."""


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """One segment, as far as the cleaner's plan cares."""

    base_offset: Offset
    end_offset: Offset
    """The next segment's base, or the log end."""
    size: int
    is_active: bool
    largest_timestamp: Callable[[], TimestampMs]
    """Asked for only where a lag is set: it may need a read. So is the next."""
    first_timestamp: Callable[[], TimestampMs | None]
    index_bytes: int = 0
    time_index_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LogFacts:
    """One log, as far as the cleaner's plan cares."""

    tp: TopicPartition
    config: TopicConfig
    segments: Sequence[SegmentFacts]
    """In order; the last one is the active one."""
    log_start: Offset
    high_watermark: Offset
    last_stable_offset: Offset
    flushed_end: Offset
    end_offset: Offset
    clean_point: Offset | None
    """What the checkpoint says; None if it says nothing."""
    uncleanable: str | None = None
    """Why an earlier pass gave the log up."""
    is_paused: bool = False
    is_wanted: bool = False
    """Another replica waits for this one before it may drop tombstones."""


class Hold(Enum):
    """Why a part of a log is not cleaned. The first six limit the range, the rest the pass."""

    ACTIVE_SEGMENT = "active segment"
    OPEN_TRANSACTION = "open transaction"
    NOT_REPLICATED = "not replicated"
    NOT_FLUSHED = "not flushed"
    TOO_YOUNG = "too young"
    REPLICA_BEHIND = "replica behind"
    """Tombstones and markers only: another replica has not cleaned as far."""
    NOT_COMPACTED = "not compacted"
    UNCLEANABLE = "uncleanable"
    PAUSED = "paused"
    NOTHING_DIRTY = "nothing dirty"
    BELOW_RATIO = "ratio below threshold"


@dataclass(frozen=True, slots=True)
class Reason:
    hold: Hold
    offset: Offset | None = None
    """From where on it holds; None if it holds the whole log."""
    detail: str = ""
    setting: str | None = None
    """The topic setting that would change it."""

    def __str__(self) -> str:
        where = "" if self.offset is None else f" from offset {self.offset}"
        detail = f" ({self.detail})" if self.detail else ""
        setting = "" if self.setting is None else f"; see {self.setting}"
        return f"{self.hold.value}{where}{detail}{setting}"


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """What a pass would do; ``is_due`` says whether one should be made."""

    tp: TopicPartition
    first_dirty: Offset
    first_uncleanable: Offset
    """A segment's base; cleaning ends before it."""
    clean_bytes: int
    cleanable_bytes: int
    must_clean_now: bool
    is_due: bool
    clean_point_is_reset: bool
    """The checkpoint did not fit the log and is to be written anew."""
    reasons: tuple[Reason, ...]

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


def plan_cleaning(log: LogFacts, now_ms: TimestampMs) -> CleaningPlan:
    """What a pass at ``now_ms`` would cover, whether it is due, and what holds the rest."""
    first_dirty, is_reset = _first_dirty(log)
    limits = sorted(_limits(log, first_dirty, now_ms), key=_offset_of)
    lowest = _offset_of(limits[0]) if limits else log.end_offset
    first_uncleanable = _base_of_segment_at(log, max(first_dirty, lowest))
    clean = sum(s.size for s in log.segments if s.base_offset < first_dirty)
    cleanable = sum(
        s.size
        for s in log.segments
        if s.end_offset > first_dirty and s.base_offset < first_uncleanable
    )
    must = log.is_wanted or _is_overdue(log, first_dirty, now_ms)
    total = clean + cleanable
    ratio = cleanable / total if total else 0.0
    objections = _objections(log, cleanable, ratio, must)
    return CleaningPlan(
        tp=log.tp,
        first_dirty=first_dirty,
        first_uncleanable=first_uncleanable,
        clean_bytes=clean,
        cleanable_bytes=cleanable,
        must_clean_now=must,
        is_due=not objections,
        clean_point_is_reset=is_reset,
        reasons=(*objections, *limits),
    )


def choose(plans: Iterable[CleaningPlan]) -> CleaningPlan | None:
    """The log to clean next: of those that are due, the dirtiest."""
    due = [plan for plan in plans if plan.is_due]
    return min(due, key=lambda plan: (-plan.dirty_ratio, plan.tp), default=None)


def _first_dirty(log: LogFacts) -> tuple[Offset, bool]:
    point = log.clean_point
    if point is None:
        return log.log_start, False
    if log.log_start <= point <= log.end_offset:
        return point, False
    return log.log_start, True


def _offset_of(reason: Reason) -> Offset:
    return Offset(0) if reason.offset is None else reason.offset


def _limits(log: LogFacts, first_dirty: Offset, now_ms: TimestampMs) -> list[Reason]:
    """Everything that keeps the pass from going on to the log's end."""
    active = log.segments[-1]
    limits = [Reason(Hold.ACTIVE_SEGMENT, active.base_offset, f"{active.size} bytes", "segment.ms")]
    if log.high_watermark < log.end_offset:
        limits.append(Reason(Hold.NOT_REPLICATED, log.high_watermark))
    if log.last_stable_offset < log.high_watermark:
        limits.append(Reason(Hold.OPEN_TRANSACTION, log.last_stable_offset))
    if log.flushed_end < log.end_offset:
        limits.append(Reason(Hold.NOT_FLUSHED, log.flushed_end))
    young = _first_too_young(log, first_dirty, now_ms)
    if young is not None:
        limits.append(young)
    return limits


def _first_too_young(log: LogFacts, first_dirty: Offset, now_ms: TimestampMs) -> Reason | None:
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms <= 0:
        return None
    for segment in _dirty_and_closed(log, first_dirty):
        if segment.largest_timestamp() > now_ms - lag_ms:
            age_ms = now_ms - segment.largest_timestamp()
            return Reason(
                Hold.TOO_YOUNG,
                segment.base_offset,
                f"{age_ms} ms old, must be {lag_ms}",
                "min.compaction.lag.ms",
            )
    return None


def _dirty_and_closed(log: LogFacts, first_dirty: Offset) -> list[SegmentFacts]:
    return [s for s in log.segments if not s.is_active and s.end_offset > first_dirty]


def _base_of_segment_at(log: LogFacts, offset: Offset) -> Offset:
    """The base of the closed segment that holds ``offset``, else of the active one."""
    for segment in log.segments:
        if not segment.is_active and offset < segment.end_offset:
            return segment.base_offset
    return log.segments[-1].base_offset


def _is_overdue(log: LogFacts, first_dirty: Offset, now_ms: TimestampMs) -> bool:
    """Is a dirty record older than ``max.compaction.lag.ms``? (KIP-354)"""
    horizon_ms = now_ms - log.config.max_compaction_lag_ms
    if horizon_ms <= 0:
        return False
    firsts = (s.first_timestamp() for s in _dirty_and_closed(log, first_dirty))
    known = [first for first in firsts if first is not None and first > 0]
    return min(known, default=horizon_ms) < horizon_ms


def _objections(log: LogFacts, cleanable: int, ratio: float, must: bool) -> list[Reason]:
    """Why no pass is to be made at all."""
    found: list[Reason] = []
    if not log.config.is_compacted:
        found.append(Reason(Hold.NOT_COMPACTED, setting="cleanup.policy"))
    if log.uncleanable is not None:
        found.append(Reason(Hold.UNCLEANABLE, detail=log.uncleanable))
    if log.is_paused:
        found.append(Reason(Hold.PAUSED))
    least = log.config.min_cleanable_dirty_ratio
    if cleanable == 0:
        found.append(Reason(Hold.NOTHING_DIRTY))
    elif not must and not ratio > least:
        detail = f"{ratio:.2f}, must be above {least:.2f}"
        found.append(Reason(Hold.BELOW_RATIO, None, detail, "min.cleanable.dirty.ratio"))
    return found


def group_segments(
    segments: Sequence[SegmentFacts], config: TopicConfig, first_uncleanable: Offset
) -> list[tuple[int, int]]:
    """Ranges ``[first, last)`` of neighbours that fit one segment when taken together."""
    groups: list[tuple[int, int]] = []
    start = 0
    while start < len(segments):
        stop = start + 1
        while stop < len(segments) and _fits(segments, start, stop, config, first_uncleanable):
            stop += 1
        groups.append((start, stop))
        start = stop
    return groups


def _fits(
    segments: Sequence[SegmentFacts],
    start: int,
    candidate: int,
    config: TopicConfig,
    first_uncleanable: Offset,
) -> bool:
    together = segments[start : candidate + 1]
    if sum(s.size for s in together) > config.effective_segment_bytes:
        return False
    if sum(s.index_bytes for s in together) > config.segment_index_bytes:
        return False
    if sum(s.time_index_bytes for s in together) > config.segment_index_bytes:
        return False
    if segments[candidate].size == 0:
        return True  # else empty segments would stay for ever, one for every 2^31 offsets
    following = segments[candidate + 1 :]
    end = following[0].base_offset if following else first_uncleanable
    return end - 1 - segments[start].base_offset <= MAX_OFFSET_RANGE
