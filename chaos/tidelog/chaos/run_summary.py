"""What remains of a run when its history is gone, and how several runs add up. Pure.

A campaign is many runs: each leaves its counts, its anomalies and the gap of every fault, so that
percentiles over all of them are those of one long run. Figures that cannot be added up, such as
throughput, are left to the report of each run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from tidelog.chaos.availability import percentile
from tidelog.chaos.history import RunHeader
from tidelog.chaos.verdict import Verdict


class BadSummary(ValueError):
    """It is no summary of a run; the text says why."""


@dataclass(frozen=True, slots=True)
class FaultGaps:
    """All faults of one name."""

    name: str
    count: int
    failed: int
    gaps_ms: tuple[float, ...]
    """Of each fault while which something was written, in the order of the run."""
    transaction_gaps_ms: tuple[float, ...]
    """Of writes in transactions."""
    full_isr_ms: tuple[float, ...]
    """From the healing of each until all replicas were in sync, where that was seen."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    command: str
    """What repeats the run; of several runs, how many."""
    lasted_s: float
    acknowledged: int
    failed: int
    unknown: int
    read: int
    transactions: int
    anomalies: Mapping[str, int]
    """How many of each kind; every kind is named, found or not."""
    problems: tuple[str, ...]
    """Why a run is not what it should be, whatever the checkers say."""
    faults: tuple[FaultGaps, ...]

    @property
    def is_good(self) -> bool:
        return not any(self.anomalies.values()) and not self.problems


def summarize(header: RunHeader, verdict: Verdict, problems: Sequence[str]) -> RunSummary:
    totals = verdict.totals
    effects = verdict.availability.effects
    return RunSummary(
        header.command,
        totals.lasted_s,
        totals.acknowledged,
        totals.failed,
        totals.unknown,
        totals.read,
        totals.transactions,
        {kind.value: count for kind, count in verdict.counts().items()},
        tuple(problems),
        tuple(
            FaultGaps(
                one.name,
                one.count,
                one.failed,
                _known(e.gap_ms for e in effects if e.fault.name == one.name),
                _known(e.transaction_gap_ms for e in effects if e.fault.name == one.name),
                _known(e.full_isr_ms for e in effects if e.fault.name == one.name),
            )
            for one in verdict.availability.summaries
        ),
    )


def _known(values: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(round(value, 3) for value in values if value is not None)


def add_up(summaries: Sequence[RunSummary]) -> RunSummary:
    """As if all had been one run."""
    if len(summaries) == 1:
        return summaries[0]
    anomalies: Counter[str] = Counter()
    faults: dict[str, FaultGaps] = {}
    for summary in summaries:
        anomalies.update(summary.anomalies)  # keeps the zeros
        for one in summary.faults:
            faults[one.name] = _both(faults.get(one.name), one)
    return RunSummary(
        f"{len(summaries)} runs",
        sum(one.lasted_s for one in summaries),
        sum(one.acknowledged for one in summaries),
        sum(one.failed for one in summaries),
        sum(one.unknown for one in summaries),
        sum(one.read for one in summaries),
        sum(one.transactions for one in summaries),
        dict(anomalies),
        tuple(problem for one in summaries for problem in one.problems),
        tuple(faults.values()),
    )


def _both(before: FaultGaps | None, more: FaultGaps) -> FaultGaps:
    if before is None:
        return more
    return FaultGaps(
        more.name,
        before.count + more.count,
        before.failed + more.failed,
        before.gaps_ms + more.gaps_ms,
        before.transaction_gaps_ms + more.transaction_gaps_ms,
        before.full_isr_ms + more.full_isr_ms,
    )


# --- as JSON ---------------------------------------------------------------------------


def encode_summary(summary: RunSummary) -> str:
    written = asdict(summary)
    for fault in written["faults"]:
        fault["gap_ms"] = _percentiles(fault["gaps_ms"])
    return json.dumps({"ok": summary.is_good, **written}, indent=1, ensure_ascii=False) + "\n"


def _percentiles(values: Sequence[float]) -> dict[str, float | None]:
    """For those who read the file; whoever reads it back counts again."""
    return {name: percentile(values, at) for name, at in (("p50", 50), ("p99", 99), ("max", 100))}


def decode_summary(text: str) -> RunSummary:
    """Raises BadSummary."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadSummary(f"it is not JSON: {error}") from None
    given = _fields_of(RunSummary, found, "a summary")
    given["problems"] = tuple(given["problems"])
    given["faults"] = tuple(_decode_gaps(one) for one in given["faults"])
    return RunSummary(**given)


def _decode_gaps(found: object) -> FaultGaps:
    given = _fields_of(FaultGaps, found, "a fault")
    for name in ("gaps_ms", "transaction_gaps_ms", "full_isr_ms"):
        if not all(isinstance(value, int | float) for value in given[name]):
            raise BadSummary(f"a fault has times in {name}, and here is something else")
        given[name] = tuple(given[name])
    return FaultGaps(**given)


def _fields_of(kind: type[RunSummary | FaultGaps], found: object, what: str) -> dict[str, Any]:
    """Those of the kind, and nothing that was added for readers."""
    if not isinstance(found, dict):
        raise BadSummary(f"{what} is an object, and this is {type(found).__name__}")
    given = {}
    for field in fields(kind):
        value = found.get(field.name)
        if not isinstance(value, _SHAPES[str(field.type)]) or isinstance(value, bool):
            raise BadSummary(f"{what} has {field.name}: {field.type}, and here it is {value!r:.60}")
        given[field.name] = value
    return given


_SHAPES: Mapping[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "Mapping[str, int]": dict,
    "tuple[str, ...]": list,
    "tuple[float, ...]": list,
    "tuple[FaultGaps, ...]": list,
}
