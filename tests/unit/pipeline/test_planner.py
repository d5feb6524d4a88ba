"""Ranges, limits and tasks, without Spark and without a broker."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.pipeline.errors import DataLoss, WrongOptions
from tidelog.pipeline.planner import (
    OffsetRange,
    backlog,
    late_starts,
    limited_end,
    losses,
    raise_if_lost,
    ranges_between,
    resolve,
    should_wait,
    split,
)
from tidelog.pipeline.positions import (
    EARLIEST,
    LATEST,
    Place,
    from_json,
    planned_start,
    to_json,
    with_first_start,
)
from tidelog.pipeline.source_options import ByOffset, ByTimestamp

A, B = ("t", 0), ("t", 1)


def ask(wanted: Mapping[Place, int]) -> dict[Place, int]:
    """A log of offsets 10 to 99 with offset n at time 1000 n."""
    answers = {}
    for place, moment in wanted.items():
        if moment == EARLIEST:
            answers[place] = 10
        elif moment == LATEST:
            answers[place] = 100
        else:
            offset = max(10, -(-moment // 1000))
            answers[place] = offset if offset < 100 else -1
    return answers


@pytest.mark.parametrize(
    ("bound", "found"),
    [
        (ByOffset({}, EARLIEST), {A: 10, B: 10}),
        (ByOffset({}, LATEST), {A: 100, B: 100}),
        (ByOffset({A: 17, B: LATEST}, None), {A: 17, B: 100}),
        (ByOffset({A: EARLIEST, B: 30}, None), {A: 10, B: 30}),
        (ByTimestamp({}, 20_500, False), {A: 21, B: 21}),
        (ByTimestamp({A: 0, B: 99_000}, None, False), {A: 10, B: 99}),
        (ByTimestamp({A: 0, B: 99_001}, None, True), {A: 10, B: 100}),
    ],
)
def test_where_a_query_starts(bound: ByOffset | ByTimestamp, found: dict[Place, int]) -> None:
    assert resolve(bound, [A, B], ask, "starting") == found


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        (ByOffset({A: 1}, None), "startingOffsets must name every partition.*leaves out t-1"),
        (ByOffset({A: 1, B: 1, ("t", 2): 1}, None), "startingOffsets names t-2"),
        (ByTimestamp({A: 1}, None, True), "startingOffsetsByTimestamp .* leaves out t-1"),
        (ByTimestamp({}, 99_001, False), "t-0 has no record of the time 99001"),
    ],
)
def test_starts_that_cannot_be(bound: ByOffset | ByTimestamp, message: str) -> None:
    with pytest.raises(WrongOptions, match=message):
        resolve(bound, [A, B], ask, "starting")


# --- micro-batches ---


@pytest.mark.parametrize(
    ("begin", "latest", "limit", "end"),
    [
        ({A: 0, B: 0}, {A: 900, B: 100}, None, {A: 900, B: 100}),
        ({A: 0, B: 0}, {A: 900, B: 100}, 1000, {A: 900, B: 100}),
        ({A: 0, B: 0}, {A: 900, B: 100}, 400, {A: 360, B: 40}),
        ({A: 5, B: 7}, {A: 5, B: 107}, 10, {A: 5, B: 17}),
        ({A: 0, B: 0}, {A: 100_000, B: 3}, 10, {A: 9, B: 1}),
    ],
)
def test_a_limit_is_shared_out_by_backlog(
    begin: dict[Place, int], latest: dict[Place, int], limit: int | None, end: dict[Place, int]
) -> None:
    assert limited_end(begin, latest, limit) == end


offsets = st.dictionaries(
    st.tuples(st.just("t"), st.integers(0, 5)), st.integers(0, 10_000), min_size=1
)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(begin=offsets, more=st.lists(st.integers(0, 5000), min_size=6, max_size=6),
       limit=st.integers(1, 3000))  # fmt: skip
def test_limited_batches_reach_the_end_and_never_go_back(
    begin: dict[Place, int], more: list[int], limit: int
) -> None:
    latest = {place: start + more[place[1]] for place, start in begin.items()}
    at, steps = begin, 0
    while at != latest:
        end = limited_end(at, latest, limit)
        assert all(at[place] <= end[place] <= latest[place] for place in latest)
        taken = backlog(at, end)
        assert 0 < taken < limit + len(latest)
        at, steps = end, steps + 1
        if steps > 100:
            return
    assert limited_end(at, latest, limit) == at


@pytest.mark.parametrize(
    ("waiting", "least", "now", "last", "waits"),
    [
        (5, None, 0, 0, False),
        (5, 10, 1000, None, False),  # the first batch
        (5, 10, 1000, 500, True),
        (10, 10, 1000, 500, False),
        (5, 10, 1500, 500, False),  # waited long enough
    ],
)
def test_a_batch_may_wait_for_more(
    waiting: int, least: int | None, now: int, last: int | None, waits: bool
) -> None:
    assert should_wait(waiting, least, now, last, 1000) is waits


def test_losses_are_named() -> None:
    assert losses({A: 5, B: 5}, {A: 5, B: 9, ("t", 2): 1}) == []
    [gone, shorter] = losses({A: 5, B: 5}, {B: 4})
    assert "t-0 is gone" in gone and "t-1 ends at offset 4" in shorter
    assert late_starts({A: 0}) == []
    [late] = late_starts({A: 0, B: 3})
    assert "t-1 is new and begins at offset 3" in late
    raise_if_lost([gone], fail_on_data_loss=False)
    with pytest.raises(DataLoss, match="t-0 is gone"):
        raise_if_lost([gone], fail_on_data_loss=True)


# --- tasks ---


def test_ranges_lie_between_the_offsets() -> None:
    ranges, problems = ranges_between({A: 1, B: 5, ("u", 0): 9}, {A: 4, B: 5, ("u", 0): 7})
    assert ranges == [OffsetRange("t", 0, 1, 4)]
    assert problems == ["u-0 is to be read from offset 9 to 7"]


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    sizes=st.lists(st.integers(0, 400), max_size=6),
    least=st.none() | st.integers(1, 50),
    most=st.none() | st.integers(1, 90),
)
def test_tasks_cover_every_offset_once(
    sizes: list[int], least: int | None, most: int | None
) -> None:
    ranges = [OffsetRange("t", index, 7, 7 + size) for index, size in enumerate(sizes)]
    tasks = split(ranges, least, most)
    covered = [(task.partition, offset) for task in tasks for offset in range(task.start, task.end)]
    assert covered == [(index, 7 + n) for index, size in enumerate(sizes) for n in range(size)]
    assert all(task.size > 0 for task in tasks)
    assert most is None or all(task.size <= most for task in tasks)
    assert len(tasks) >= min(least or 0, sum(sizes))
    if least is None and most is None:
        assert len(tasks) == sum(size > 0 for size in sizes)


def test_a_large_range_is_cut_before_a_small_one() -> None:
    tasks = split([OffsetRange("t", 0, 0, 90), OffsetRange("t", 1, 0, 10)], 4, None)
    assert [(task.partition, task.start, task.end) for task in tasks] == [
        (0, 0, 30), (0, 30, 60), (0, 60, 90), (1, 0, 10),
    ]  # fmt: skip


# --- offsets in checkpoints ---


def test_offsets_are_written_in_one_order() -> None:
    written = to_json({("b", 0): 1, ("a", 10): 2, ("a", 9): 3})
    assert list(written) == ["a", "b"] and list(written["a"]) == ["9", "10"]
    assert from_json(written) == {("a", 9): 3, ("a", 10): 2, ("b", 0): 1}


def test_the_end_of_the_first_batch_remembers_its_start() -> None:
    start, end = to_json({A: 5}), to_json({A: 9})
    first_end = with_first_start(end, start)
    assert from_json(first_end) == {A: 9}
    assert planned_start(to_json({A: 7}), first_end) == {A: 5}, "a restart said 7"
    assert planned_start(first_end, to_json({A: 12})) == {A: 9}, "the second batch"
    assert planned_start(first_end, first_end) == {A: 9}, "nothing new"
