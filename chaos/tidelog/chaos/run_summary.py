"""What remains of a run when its history is gone, and how several runs add up. Pure.

A campaign is many runs: each leaves its counts, its anomalies and the gap of every fault, so that
percentiles over all of them are those of one long run. Figures that cannot be added up, such as
throughput, are left to the report of each run.

A run that was cut short is no piece of a campaign: it has not done what it was asked to, and its
end was hurried. It is left out when runs are added up, and that is said.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
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
    is_whole: bool = True
    """False: it was cut short, so it does not count."""
    left_out: tuple[str, ...] = ()
    """Of several runs: those that were cut short, by what repeats them."""

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
        verdict.is_whole,
    )


def _known(values: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(round(value, 3) for value in values if value is not None)


def add_up(summaries: Sequence[RunSummary]) -> RunSummary:
    """As if all had been one run; those that were cut short are only named."""
    whole = [one for one in summaries if one.is_whole]
    cut_short = [one for one in summaries if not one.is_whole]
    if len(whole) == 1 and not cut_short:
        return whole[0]
    total = _sum(whole)
    return replace(
        total,
        problems=(*total.problems, *_problems(cut_short, is_all=not whole)),
        left_out=(*total.left_out, *(one.command for one in cut_short)),
    )


def _problems(cut_short: Sequence[RunSummary], *, is_all: bool) -> Iterator[str]:
    """An anomaly is one, however short the run was that shows it."""
    for one in cut_short:
        found = ", ".join(f"{count:,} {kind}" for kind, count in one.anomalies.items() if count)
        if found:
            yield f"{one.command}, cut short and left out, found {found}"
    if is_all:
        yield "there is nothing to add up: no run came to its end"


def _sum(summaries: Sequence[RunSummary]) -> RunSummary:
    anomalies: Counter[str] = Counter()
    faults: dict[str, FaultGaps] = {}
    for summary in summaries:
        anomalies.update(summary.anomalies)  # keeps the zeros
        for one in summary.faults:
            faults[one.name] = _both(faults.get(one.name), one)
    return RunSummary(
        "1 run" if len(summaries) == 1 else f"{len(summaries)} runs",
        sum(one.lasted_s for one in summaries),
        sum(one.acknowledged for one in summaries),
        sum(one.failed for one in summaries),
        sum(one.unknown for one in summaries),
        sum(one.read for one in summaries),
        sum(one.transactions for one in summaries),
        dict(anomalies),
        tuple(problem for one in summaries for problem in one.problems),
        tuple(faults.values()),
        left_out=tuple(text for one in summaries for text in one.left_out),
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
    for name in ("problems", "left_out"):
        given[name] = tuple(given[name])
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
        is_flag = isinstance(value, bool)  # which is an int, too
        if not isinstance(value, _SHAPES[str(field.type)]) or is_flag != (field.type == "bool"):
            raise BadSummary(f"{what} has {field.name}: {field.type}, and here it is {value!r:.60}")
        given[field.name] = value
    return given


_SHAPES: Mapping[str, type | tuple[type, ...]] = {
    "str": str,
    "bool": bool,
    "int": int,
    "float": (int, float),
    "Mapping[str, int]": dict,
    "tuple[str, ...]": list,
    "tuple[float, ...]": list,
    "tuple[FaultGaps, ...]": list,
}
