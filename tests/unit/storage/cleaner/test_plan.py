"""What is cleaned, when, and what is said about the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from log_lab import TP, small_config

from tidelog.kernel.ids import Offset, PartitionIndex, TimestampMs, TopicPartition
from tidelog.storage.cleaner.plan import (
    CleaningPlan,
    Hold,
    LogFacts,
    Reason,
    SegmentFacts,
    choose,
    group_segments,
    plan_cleaning,
)

NOW = TimestampMs(1_000_000)
COMPACT = small_config(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.5)


def segments(*sizes: int, ages: dict[int, int] | None = None, step: int = 10) -> list[SegmentFacts]:
    """Segments of ten offsets each; ``ages`` in ms by index, the rest is very old."""
    last = len(sizes) - 1
    return [
        SegmentFacts(
            base_offset=Offset(i * step),
            end_offset=Offset((i + 1) * step),
            size=size,
            is_active=i == last,
            largest_timestamp=lambda i=i: TimestampMs(NOW - (ages or {}).get(i, 900_000)),  # type: ignore[misc]
            first_timestamp=lambda i=i: TimestampMs(NOW - (ages or {}).get(i, 900_000)),  # type: ignore[misc]
        )
        for i, size in enumerate(sizes)
    ]


def facts(*sizes: int, ages: dict[int, int] | None = None, **changes: Any) -> LogFacts:
    end = Offset(len(sizes) * 10)
    log = LogFacts(
        tp=TP,
        config=changes.pop("config", COMPACT),
        segments=segments(*sizes, ages=ages),
        log_start=Offset(0),
        high_watermark=end,
        last_stable_offset=end,
        flushed_end=end,
        end_offset=end,
        clean_point=None,
    )
    return replace(log, **changes)


def holds(plan: CleaningPlan) -> set[Hold]:
    return {reason.hold for reason in plan.reasons}


def lag(minimum: int = 0, maximum: int = 2**63 - 1) -> Any:
    return replace(COMPACT, min_compaction_lag_ms=minimum, max_compaction_lag_ms=maximum)


@pytest.mark.parametrize(
    ("log", "first_dirty", "first_uncleanable", "clean", "cleanable"),
    [
        # Nothing was ever cleaned: all but the active segment.
        (facts(100, 100, 100), 0, 20, 0, 200),
        (facts(100, 100, 100, clean_point=10), 10, 20, 100, 100),
        # A clean point inside a segment: that segment is both.
        (facts(100, 100, 100, clean_point=15), 15, 20, 200, 100),
        # Unfinished work rounds down to the segment that holds it.
        (facts(100, 100, 100, last_stable_offset=15), 0, 10, 0, 100),
        (facts(100, 100, 100, last_stable_offset=5), 0, 0, 0, 0),
        (facts(100, 100, 100, high_watermark=15, last_stable_offset=15), 0, 10, 0, 100),
        (facts(100, 100, 100, flushed_end=12), 0, 10, 0, 100),
        # Too young, and only if a lag is asked for.
        (facts(100, 100, 100, ages={1: 50}), 0, 20, 0, 200),
        (facts(100, 100, 100, ages={1: 50}, config=lag(100)), 0, 10, 0, 100),
        (facts(100, 100, 100, ages={0: 50}, config=lag(100)), 0, 0, 0, 0),
        # What is behind the clean point does not become younger.
        (facts(100, 100, 100, ages={0: 50}, config=lag(100), clean_point=10), 10, 20, 100, 100),
        # Only an active segment.
        (facts(100), 0, 0, 0, 0),
        # A checkpoint that does not fit the log.
        (facts(100, 100, 100, clean_point=99), 0, 20, 0, 200),
        (facts(100, 100, 100, clean_point=3, log_start=Offset(5)), 5, 20, 100, 200),
        # A clean point in the segment that is not to be touched.
        (facts(100, 100, 100, clean_point=15, last_stable_offset=17), 15, 10, 200, 0),
    ],
)
def test_ranges(
    log: LogFacts, first_dirty: int, first_uncleanable: int, clean: int, cleanable: int
) -> None:
    plan = plan_cleaning(log, NOW)
    assert (plan.first_dirty, plan.first_uncleanable) == (first_dirty, first_uncleanable)
    assert (plan.clean_bytes, plan.cleanable_bytes) == (clean, cleanable)


@pytest.mark.parametrize(
    ("log", "is_due", "expected"),
    [
        (facts(100, 100, 100), True, set()),
        # The ratio has to be above, not at, the threshold.
        (facts(100, 100, 50, clean_point=10), False, {Hold.BELOW_RATIO}),
        (facts(100, 101, 50, clean_point=10), True, set()),
        # Age makes it due in any case (KIP-354), but not if there is nothing to clean.
        (facts(100, 10, 50, clean_point=10, config=lag(0, 1_000)), True, set()),
        (facts(100, 10, 50, clean_point=10, ages={1: 500}, config=lag(0, 1_000)), False,
         {Hold.BELOW_RATIO}),
        (facts(100, 10, 50, clean_point=20, config=lag(0, 1_000)), False, {Hold.NOTHING_DIRTY}),
        # Another replica waits.
        (facts(100, 10, 50, clean_point=10, is_wanted=True), True, set()),
        (facts(100, 100, 50, is_paused=True), False, {Hold.PAUSED}),
        (facts(100, 100, 50, uncleanable="a bad batch"), False, {Hold.UNCLEANABLE}),
        (facts(100, 100, 50, config=small_config()), False, {Hold.NOT_COMPACTED}),
        (facts(50), False, {Hold.NOTHING_DIRTY}),
    ],
)  # fmt: skip
def test_due_or_not_and_why(log: LogFacts, is_due: bool, expected: set[Hold]) -> None:
    plan = plan_cleaning(log, NOW)
    assert plan.is_due is is_due
    assert holds(plan) - {Hold.ACTIVE_SEGMENT} == expected


def test_every_limit_is_told_the_lowest_first() -> None:
    log = facts(
        100, 100, 100, 100, 100,
        high_watermark=45, last_stable_offset=25, flushed_end=47, ages={3: 5}, config=lag(100),
    )  # fmt: skip
    plan = plan_cleaning(log, NOW)
    assert [(reason.hold, reason.offset) for reason in plan.reasons] == [
        (Hold.OPEN_TRANSACTION, 25),
        (Hold.TOO_YOUNG, 30),
        (Hold.ACTIVE_SEGMENT, 40),
        (Hold.NOT_REPLICATED, 45),
        (Hold.NOT_FLUSHED, 47),
    ]
    assert plan.first_uncleanable == 20


def test_a_reason_reads_as_a_sentence() -> None:
    young = Reason(Hold.TOO_YOUNG, Offset(7), "5 ms old, must be 100", "min.compaction.lag.ms")
    assert str(young) == (
        "too young from offset 7 (5 ms old, must be 100); see min.compaction.lag.ms"
    )
    assert str(Reason(Hold.PAUSED)) == "paused"


def test_the_dirtiest_log_is_next() -> None:
    def named(topic: str, *sizes: int, **changes: Any) -> CleaningPlan:
        tp = TopicPartition(topic, PartitionIndex(0))
        return plan_cleaning(facts(*sizes, tp=tp, **changes), NOW)

    half = named("half", 100, 101, 1, clean_point=10)
    all_of_it = named("all", 10, 10, 1)
    not_due = named("not-due", 100, 100, 1, is_paused=True)
    assert choose([half, all_of_it, not_due]) is all_of_it
    assert choose([not_due]) is None
    assert choose([named("b", 10, 1), named("a", 10, 1)]) == named("a", 10, 1)


@pytest.mark.parametrize(
    ("sizes", "changes", "expected"),
    [
        ((200, 200, 200, 200), {}, [(0, 3), (3, 4)]),
        ((600, 1, 599, 1), {}, [(0, 1), (1, 3), (3, 4)]),
        ((0, 0, 0), {}, [(0, 3)]),
        ((700, 10), {}, [(0, 1), (1, 2)]),
        ((), {}, []),
        ((10, 10, 10), {"index_bytes": 100}, [(0, 2), (2, 3)]),
        ((10, 10, 10), {"time_index_bytes": 130}, [(0, 1), (1, 2), (2, 3)]),
    ],
)
def test_neighbours_that_fit_one_segment_become_one(
    sizes: tuple[int, ...], changes: dict[str, int], expected: list[tuple[int, int]]
) -> None:
    given = [replace(segment, **changes) for segment in segments(*sizes)]  # type: ignore[arg-type]
    assert group_segments(given, COMPACT, Offset(len(sizes) * 10)) == expected


def test_a_segment_spans_no_more_offsets_than_its_index_can_hold() -> None:
    wide = segments(10, 10, 10, step=2**30)
    assert group_segments(wide, COMPACT, Offset(3 * 2**30)) == [(0, 2), (2, 3)]
    empty = segments(10, 10, 0, step=2**30)
    assert group_segments(empty, COMPACT, Offset(3 * 2**30)) == [(0, 3)]
