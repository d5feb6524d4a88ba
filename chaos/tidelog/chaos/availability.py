"""How well a cluster served while it was broken: gaps, throughput, the time to a full ISR. Pure.

A gap is a time in which a write of a partition waited and none was acknowledged; a workload that
rests makes none. The gap of a fault is the longest one, of any partition, that overlaps the time
in which the fault acted, from when the fault began: what one who writes there would have noticed
of it. What was waited for before had another cause, such as the start of the clients.

Writes in transactions have gaps of their own. They wait for coordinators too, and for their client,
which for its own reasons may wait much longer than for any leader, and over several faults.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tidelog.chaos.history import FaultBand, History, Operation, Outcome, Sample, Verb

Times = npt.NDArray[np.float64]

_AROUND_MS: Final = 5_000.0
"""How long before and after a fault throughput is looked at, unless another one is nearer."""
_LEAST_MS: Final = 100.0
"""Over less than that throughput says nothing."""


@dataclass(frozen=True, slots=True)
class FaultEffect:
    fault: FaultBand
    gap_ms: float | None
    """None: nothing waited or was acknowledged while it acted."""
    gap_at: str
    """The partition that had the gap."""
    transaction_gap_ms: float | None
    """The longest gap of writes in transactions."""
    cluster_gap_ms: float | None
    """The longest time in which no write of any partition was acknowledged."""
    before_per_s: float | None
    """Acknowledged writes; None if another fault is too near."""
    during_per_s: float | None
    after_per_s: float | None
    full_isr_ms: float | None
    """From its healing until all replicas were in sync; None: not before the next fault."""


@dataclass(frozen=True, slots=True)
class FaultSummary:
    """All faults of one name."""

    name: str
    count: int
    failed: int
    gap_p50_ms: float | None
    gap_p99_ms: float | None
    gap_max_ms: float | None
    transaction_gap_max_ms: float | None
    before_per_s: float | None
    during_per_s: float | None
    after_per_s: float | None
    full_isr_p50_ms: float | None
    full_isr_max_ms: float | None


@dataclass(frozen=True, slots=True)
class Availability:
    effects: tuple[FaultEffect, ...]
    summaries: tuple[FaultSummary, ...]
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    latency_max_ms: float | None
    acknowledged_per_s: float


def measure(history: History) -> Availability:
    appends = [one for one in history.operations if one.verb is Verb.APPEND]
    end_ms = run_end_ms(history)
    cluster = _Waits.of(appends, end_ms)
    partitions = _by_partition([one for one in appends if not one.transaction], end_ms)
    in_transactions = _by_partition([one for one in appends if one.transaction], end_ms)
    under_way_ms = _under_way_ms([*partitions.values(), *in_transactions.values()])
    faults = sorted(history.faults, key=lambda fault: fault.began_ms)
    effects = tuple(
        _effect(
            fault,
            _neighbours(faults, at, under_way_ms, end_ms),
            cluster,
            partitions,
            in_transactions,
            history.samples,
        )
        for at, fault in enumerate(faults)
    )
    names = dict.fromkeys(fault.name for fault in faults)
    latencies = cluster.acknowledged_ms - cluster.invoked_ms
    return Availability(
        effects,
        tuple(_summary(name, [one for one in effects if one.fault.name == name]) for name in names),
        percentile(latencies, 50),
        percentile(latencies, 99),
        percentile(latencies, 100),
        _busy_rate(cluster),
    )


def run_end_ms(history: History) -> float:
    """When the last thing happened, of a run that was cut off too."""
    if history.end is not None:
        return history.end.at_ms
    ends = [one.ended_ms or one.invoked_ms for one in history.operations[-1_000:]]
    return max([*ends, *(sample.at_ms for sample in history.samples[-1:])], default=0.0)


def percentile(values: Iterable[float] | Times, percent: float) -> float | None:
    """The least value that so many per cent do not exceed; None of none."""
    ordered = np.sort(np.asarray(list(values) if not isinstance(values, np.ndarray) else values))
    if len(ordered) == 0:
        return None
    return float(ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)])


def _by_partition(appends: Iterable[Operation], end_ms: float) -> dict[str, _Waits]:
    found: dict[str, list[Operation]] = defaultdict(list)
    for append in appends:
        if append.partition >= 0:
            found[f"{append.topic}-{append.partition}"].append(append)
    return {place: _Waits.of(written, end_ms) for place, written in found.items()}


@dataclass(frozen=True, slots=True)
class _Waits:
    """The stretches between acknowledgements; all three arrays rise."""

    acknowledged_ms: Times
    invoked_ms: Times
    """Of the same operations."""
    from_ms: Times
    """Each stretch ends with an acknowledgement, or at the end of the run without one."""
    to_ms: Times

    @staticmethod
    def of(appends: Sequence[Operation], end_ms: float) -> _Waits:
        good = [one for one in appends if one.outcome is Outcome.OK and one.ended_ms is not None]
        ended = np.fromiter((one.ended_ms for one in good), np.float64, len(good))
        invoked = np.fromiter((one.invoked_ms for one in good), np.float64, len(good))
        order = np.argsort(ended, kind="stable")
        ended, invoked = ended[order], invoked[order]
        to_ms, waiting = ended, invoked
        last_ms = float(ended[-1]) if len(ended) else 0.0
        in_vain = [
            one.invoked_ms
            for one in appends
            if one.outcome is not Outcome.OK and (one.ended_ms or end_ms) > last_ms
        ]
        if in_vain:
            to_ms, waiting = np.append(ended, end_ms), np.append(invoked, min(in_vain))
        # Something waits at a time if any of those that end later was invoked before.
        first_invoked = np.minimum.accumulate(waiting[::-1])[::-1]
        previous = np.concatenate(([0.0], to_ms[:-1])) if len(to_ms) else to_ms
        return _Waits(ended, invoked, np.maximum(previous, first_invoked), to_ms)

    def longest(self, began_ms: float, ended_ms: float) -> float | None:
        """Of the stretches that overlap a time, and what of them came before it taken off."""
        first = int(np.searchsorted(self.to_ms, began_ms, "right"))
        last = int(np.searchsorted(self.from_ms, ended_ms, "right"))
        if first >= last:
            return None
        from_ms = np.maximum(self.from_ms[first:last], began_ms)
        return float(np.max(self.to_ms[first:last] - from_ms))

    def per_s(self, from_ms: float, to_ms: float) -> float | None:
        if to_ms - from_ms < _LEAST_MS:
            return None
        first, last = np.searchsorted(self.acknowledged_ms, [from_ms, to_ms])
        return float(last - first) / (to_ms - from_ms) * 1000


def _under_way_ms(partitions: Iterable[_Waits]) -> float:
    """When every partition had acknowledged something: before, clients were still starting."""
    firsts = [float(one.acknowledged_ms[0]) for one in partitions if len(one.acknowledged_ms)]
    return max(firsts, default=0.0)


def _neighbours(
    faults: Sequence[FaultBand], at: int, under_way_ms: float, end_ms: float
) -> tuple[float, float]:
    """When the faults before had been healed, or all had begun; and when the next one began."""
    before = [one.ended_ms if one.ended_ms is not None else end_ms for one in faults[:at]]
    after = faults[at + 1].began_ms if at + 1 < len(faults) else end_ms
    return max(before, default=under_way_ms), after


def _effect(
    fault: FaultBand,
    neighbours: tuple[float, float],
    cluster: _Waits,
    partitions: dict[str, _Waits],
    in_transactions: dict[str, _Waits],
    samples: Sequence[Sample],
) -> FaultEffect:
    quiet_from_ms, next_ms = neighbours
    began_ms = fault.began_ms
    ended_ms = next_ms if fault.ended_ms is None else fault.ended_ms
    gap_ms, gap_at = _longest(partitions, began_ms, ended_ms)
    return FaultEffect(
        fault,
        gap_ms,
        gap_at,
        _longest(in_transactions, began_ms, ended_ms)[0],
        cluster.longest(began_ms, ended_ms),
        cluster.per_s(max(quiet_from_ms, began_ms - _AROUND_MS), began_ms),
        cluster.per_s(began_ms, ended_ms),
        cluster.per_s(ended_ms, min(next_ms, ended_ms + _AROUND_MS)),
        None if fault.ended_ms is None else _until_full_isr(samples, ended_ms, next_ms),
    )


def _longest(
    partitions: dict[str, _Waits], began_ms: float, ended_ms: float
) -> tuple[float | None, str]:
    """The longest gap, and the partition that has it."""
    gaps = [
        (gap, place)
        for place, waits in partitions.items()
        if (gap := waits.longest(began_ms, ended_ms)) is not None
    ]
    return max(gaps, default=(None, ""))


def _until_full_isr(samples: Sequence[Sample], healed_ms: float, until_ms: float) -> float | None:
    for sample in samples:
        if healed_ms <= sample.at_ms <= until_ms and has_full_isr(sample):
            return sample.at_ms - healed_ms
    return None


def has_full_isr(sample: Sample) -> bool:
    return all(
        one.leader is not None and set(one.isr) >= set(one.replicas) for one in sample.partitions
    )


def _summary(name: str, effects: Sequence[FaultEffect]) -> FaultSummary:
    gaps = [one.gap_ms for one in effects if one.gap_ms is not None]
    in_transactions = [e.transaction_gap_ms for e in effects if e.transaction_gap_ms is not None]
    isr = [one.full_isr_ms for one in effects if one.full_isr_ms is not None]
    return FaultSummary(
        name,
        len(effects),
        sum(1 for one in effects if one.fault.failure),
        percentile(gaps, 50),
        percentile(gaps, 99),
        percentile(gaps, 100),
        percentile(in_transactions, 100),
        percentile([one.before_per_s for one in effects if one.before_per_s is not None], 50),
        percentile([one.during_per_s for one in effects if one.during_per_s is not None], 50),
        percentile([one.after_per_s for one in effects if one.after_per_s is not None], 50),
        percentile(isr, 50),
        percentile(isr, 100),
    )


def _busy_rate(cluster: _Waits) -> float:
    """From the first write to the last acknowledgement."""
    if len(cluster.acknowledged_ms) == 0:
        return 0.0
    lasted_ms = float(cluster.acknowledged_ms[-1] - np.min(cluster.invoked_ms))
    return len(cluster.acknowledged_ms) / max(lasted_ms, 1.0) * 1000
