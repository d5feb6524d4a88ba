"""What the next batch of an archive is: from where each partition goes on, and how far. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.pipeline.planner import (
    OffsetRange,
    backlog,
    dashed,
    limited_end,
    losses,
    raise_if_lost,
)
from tidelog.pipeline.positions import Offsets, Place


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """Only of partitions that have something to archive."""

    begin: dict[Place, int]
    end: dict[Place, int]
    lost: tuple[OffsetRange, ...] = ()
    waiting: int = 0
    """Offsets that this batch and those after it have to archive."""

    @property
    def size(self) -> int:
        return backlog(self.begin, self.end)


def plan_batch(
    archived: Offsets, earliest: Offsets, latest: Offsets, limit: int, *, fail_on_data_loss: bool
) -> PlannedBatch:
    """``archived``: the ends of the lake; ``earliest`` and ``latest``: what the topics have."""
    topics = {topic for topic, _ in latest}
    known = {place: end for place, end in archived.items() if place[0] in topics}
    raise_if_lost(losses(known, latest), fail_on_data_loss=fail_on_data_loss)
    lost = tuple(
        OffsetRange(*place, end, earliest[place])
        for place, end in sorted(known.items())
        if end < earliest.get(place, end)
    )
    raise_if_lost(
        [
            f"{dashed((one.topic, one.partition))}: offsets {one.start} to {one.end - 1} were "
            "removed from the topic before they were archived"
            for one in lost
        ],
        fail_on_data_loss=fail_on_data_loss,
    )
    begin = {place: max(known.get(place, 0), earliest[place]) for place in sorted(latest)}
    # A log that became shorter is not archived again: the same offsets would be there twice.
    until = {place: max(latest[place], start) for place, start in begin.items()}
    end = limited_end(begin, until, limit)
    moving = [place for place in begin if end[place] > begin[place]]
    return PlannedBatch(
        {place: begin[place] for place in moving},
        {place: end[place] for place in moving},
        tuple(one for one in lost if (one.topic, one.partition) in moving),
        backlog(begin, until),
    )
