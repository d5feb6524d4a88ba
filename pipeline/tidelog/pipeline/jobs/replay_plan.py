"""A replay in chunks that are the same whenever it is planned again. Pure.

The extent is kept when a replay begins, so a source that grows does not change it; chunk ``n`` is
the ``n``-th step of every partition. A chunk is one batch of the sink, numbered so that a second
try of it writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.pipeline.jobs.failures import WrongJob

_SECONDS_PER_CHUNK = 5


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    source: str
    target: str
    extent: Mapping[int, tuple[int, int]]
    step: int
    """Offsets of each partition in a chunk."""

    @property
    def chunks(self) -> int:
        longest = max((end - start for start, end in self.extent.values()), default=0)
        return -(-longest // self.step)

    @property
    def offsets(self) -> int:
        return sum(end - start for start, end in self.extent.values())

    def chunk(self, number: int) -> dict[int, tuple[int, int]]:
        """Only partitions that are not at their end yet."""
        found = {}
        for partition, (start, end) in self.extent.items():
            begin = start + number * self.step
            if begin < end:
                found[partition] = begin, min(end, begin + self.step)
        return found


def plan_replay(
    source: str,
    target: str,
    extent: Mapping[int, tuple[int, int]],
    chunk_records: int,
    records_per_second: float | None,
) -> ReplayPlan:
    """A limited rate makes small chunks, because within one there is no limit."""
    most = chunk_records
    if records_per_second is not None:
        most = min(most, max(1, int(records_per_second * _SECONDS_PER_CHUNK)))
    return ReplayPlan(source, target, dict(extent), max(1, most // max(1, len(extent))))


def write_plan(plan: ReplayPlan) -> str:
    extent = {str(partition): list(of) for partition, of in sorted(plan.extent.items())}
    document = {
        "source": plan.source, "target": plan.target, "extent": extent, "step": plan.step,
    }  # fmt: skip
    return json.dumps(document, indent=1)


def read_plan(text: str, name: str, source: str, target: str) -> ReplayPlan:
    """What was begun under this name; it must be the same job."""
    try:
        found = json.loads(text)
        extent = {int(one): (int(a), int(b)) for one, (a, b) in found["extent"].items()}
        plan = ReplayPlan(found["source"], found["target"], extent, int(found["step"]))
    except (ValueError, KeyError, TypeError) as error:
        raise WrongJob(f"the plan of replay {name!r} cannot be read: {error!r}") from None
    if (plan.source, plan.target) != (source, target):
        raise WrongJob(
            f"replay {name!r} was begun from {plan.source} to {plan.target}, "
            f"not from {source} to {target}; give this one another name"
        )
    return plan


def pause_s(sent: int, records_per_second: float | None, elapsed_s: float) -> float:
    """How long to wait so that the rate is kept."""
    if records_per_second is None:
        return 0.0
    return max(0.0, sent / records_per_second - elapsed_s)
