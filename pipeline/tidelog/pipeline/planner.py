"""What a query reads: from which offset to which, in how many tasks. Nothing here does anything.

What has to be asked of brokers is asked through a function that is handed in: partitions and
times in, offsets out, in the words of ListOffsets (−2 earliest, −1 latest, else milliseconds).

Invariants: the tasks of a plan cover every range exactly once; a micro-batch never ends below its
start; the same question has the same answer, because Spark plans a batch again after a crash.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

from tidelog.pipeline.errors import DataLoss, WrongOptions
from tidelog.pipeline.positions import EARLIEST, LATEST, Offsets, Place
from tidelog.pipeline.source_options import Bound, ByOffset, ByTimestamp

Ask: TypeAlias = Callable[[Mapping[Place, int]], dict[Place, int]]
"""ListOffsets; −1 as an answer: no record is that young."""

NONE_SO_YOUNG: Final = -1


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``[start, end)`` of a partition; there may be fewer records than offsets."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def dashed(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


# --- where to start and to end -------------------------------------------------------------


def resolve(bound: Bound, places: Collection[Place], ask: Ask, side: str) -> dict[Place, int]:
    """An offset for each partition; ``side`` (starting, ending) is for messages."""
    if isinstance(bound, ByTimestamp):
        return _resolve_times(bound, places, ask, side)
    return _resolve_offsets(bound, places, ask, side)


def _resolve_offsets(
    bound: ByOffset, places: Collection[Place], ask: Ask, side: str
) -> dict[Place, int]:
    wanted = _for_each(bound.offsets, bound.everywhere, places, f"{side}Offsets")
    open_ones = {place: offset for place, offset in wanted.items() if offset in (EARLIEST, LATEST)}
    return wanted | (ask(open_ones) if open_ones else {})


def _resolve_times(
    bound: ByTimestamp, places: Collection[Place], ask: Ask, side: str
) -> dict[Place, int]:
    wanted = _for_each(bound.timestamps, bound.everywhere, places, f"{side}OffsetsByTimestamp")
    found = ask(wanted) if wanted else {}
    missing = [place for place, offset in sorted(found.items()) if offset == NONE_SO_YOUNG]
    if not missing:
        return found
    if not bound.latest_if_none:
        raise WrongOptions(
            f"{dashed(missing[0])} has no record of the time {wanted[missing[0]]} or later; "
            f"{side}OffsetsByTimestampStrategy=latest would start behind the last one"
        )
    return found | ask(dict.fromkeys(missing, LATEST))


def _for_each(
    named: Offsets, everywhere: int | None, places: Collection[Place], option: str
) -> dict[Place, int]:
    if everywhere is not None:
        return dict.fromkeys(sorted(places), everywhere)
    if left_out := sorted(set(places) - named.keys()):
        raise WrongOptions(
            f"{option} must name every partition that is read, and leaves out "
            f"{', '.join(map(dashed, left_out))}"
        )
    if unknown := sorted(named.keys() - set(places)):
        raise WrongOptions(f"{option} names {', '.join(map(dashed, unknown))}, which is not there")
    return {place: named[place] for place in sorted(places)}


# --- micro-batches --------------------------------------------------------------------------


def losses(start: Offsets, latest: Offsets) -> list[str]:
    """What a stream that has read up to ``start`` cannot read any more."""
    problems = []
    for place, offset in sorted(start.items()):
        if place not in latest:
            problems.append(f"{dashed(place)} is gone; it was read up to offset {offset}")
        elif latest[place] < offset:
            problems.append(
                f"{dashed(place)} ends at offset {latest[place]}, "
                f"but was read up to {offset} already; was the topic made anew?"
            )
    return problems


def late_starts(new: Offsets) -> list[str]:
    """Of partitions that appeared while the stream ran: what was lost before they were seen."""
    return [
        f"{dashed(place)} is new and begins at offset {offset}, not at 0"
        for place, offset in sorted(new.items())
        if offset > 0
    ]


def backlog(start: Offsets, latest: Offsets) -> int:
    return sum(max(0, end - start.get(place, 0)) for place, end in latest.items())


def should_wait(
    waiting: int, least: int | None, now_ms: int, last_batch_ms: int | None, max_delay_ms: int
) -> bool:
    """Whether a micro-batch is put off until ``least`` offsets wait. The first one never is."""
    if least is None or waiting >= least or last_batch_ms is None:
        return False
    return now_ms - last_batch_ms < max_delay_ms


def limited_end(begin: Offsets, latest: Offsets, limit: int | None) -> dict[Place, int]:
    """Where a micro-batch of about ``limit`` offsets ends, each by its share of the backlog.

    A share below one offset counts as one, so that a small partition beside a large one goes on;
    that is how a batch may exceed the limit by less than the number of partitions.
    """
    total = backlog(begin, latest)
    if limit is None or total <= limit:
        return dict(sorted(latest.items()))
    ends = {}
    for place, end in sorted(latest.items()):
        start = begin.get(place, 0)
        waiting = max(0, end - start)
        share = waiting * limit // total
        ends[place] = end if end < start else start + min(waiting, max(1, share))
    return ends


# --- tasks ----------------------------------------------------------------------------------


def ranges_between(begin: Offsets, end: Offsets) -> tuple[list[OffsetRange], list[str]]:
    """What lies between, and what should but cannot (the data was lost)."""
    ranges, problems = [], []
    for place, stop in sorted(end.items()):
        start = begin[place]
        if stop > start:
            ranges.append(OffsetRange(*place, start, stop))
        elif stop < start:
            problems.append(f"{dashed(place)} is to be read from offset {start} to {stop}")
    return ranges, problems


def split(
    ranges: Iterable[OffsetRange], least_tasks: int | None, most_offsets: int | None
) -> list[OffsetRange]:
    """Tasks: none larger than ``most_offsets``, and ``least_tasks`` if there are offsets enough."""
    kept = [one for one in ranges if one.size > 0]
    parts = [1 if most_offsets is None else -(-one.size // most_offsets) for one in kept]
    _add_parts(kept, parts, least_tasks or 0)
    return [piece for one, count in zip(kept, parts, strict=True) for piece in _cut(one, count)]


def _add_parts(ranges: list[OffsetRange], parts: list[int], least: int) -> None:
    """Cut where the pieces are largest, one cut at a time."""
    missing = min(least, sum(one.size for one in ranges)) - sum(parts)
    largest = [(-one.size / parts[index], index) for index, one in enumerate(ranges)]
    heapq.heapify(largest)
    for _ in range(missing):
        _, index = largest[0]
        parts[index] += 1
        heapq.heapreplace(largest, (-ranges[index].size / parts[index], index))


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    edges = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [
        OffsetRange(whole.topic, whole.partition, start, end)
        for start, end in pairwise(edges)
        if end > start
    ]


def raise_if_lost(problems: list[str], *, fail_on_data_loss: bool) -> None:
    if problems and fail_on_data_loss:
        raise DataLoss(
            f"{'; '.join(problems)}. Records may have been lost; to go on without them, "
            "set failOnDataLoss to false"
        )
