"""What a run comes to: the anomalies, the figures, and what could not be judged. Pure.

A run is good if it shows no anomaly. One whose writes nobody looked for at the end shows none
either, so that is said beside the verdict, and a person decides what it is worth.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass

from tidelog.chaos.availability import Availability, FaultEffect, measure, run_end_ms
from tidelog.chaos.checkers import Anomaly, Facts, Kind, check_facts, unjudged_writes
from tidelog.chaos.history import History, Operation, Outcome, Verb


@dataclass(frozen=True, slots=True)
class Totals:
    operations: int
    acknowledged: int
    """Records that were appended."""
    failed: int
    unknown: int
    read: int
    """Records that consumers got, each as often as it was given."""
    transactions: int
    lasted_s: float


@dataclass(frozen=True, slots=True)
class Verdict:
    anomalies: tuple[Anomaly, ...]
    availability: Availability
    totals: Totals
    caveats: tuple[str, ...] = ()
    """What a reader must know before trusting the verdict: what was not judged, what went wrong
    in the run itself."""
    is_whole: bool = True
    """False: the run was cut off or interrupted before it had done what it was asked to."""

    @property
    def is_good(self) -> bool:
        return not self.anomalies

    def counts(self) -> dict[Kind, int]:
        """Of every kind, found or not."""
        found = Counter(anomaly.kind for anomaly in self.anomalies)
        return {kind: found[kind] for kind in Kind}


def judge(history: History) -> Verdict:
    facts = Facts(history)
    return Verdict(
        tuple(check_facts(facts)),
        measure(history),
        _totals(history),
        tuple(_caveats(facts)),
        history.end is not None and not history.end.was_interrupted,
    )


def _totals(history: History) -> Totals:
    outcomes = Counter(one.outcome for one in history.operations if one.verb is Verb.APPEND)
    return Totals(
        len(history.operations),
        outcomes[Outcome.OK],
        outcomes[Outcome.FAILED],
        outcomes[Outcome.UNKNOWN],
        sum(len(one.seen) for one in history.operations),
        sum(1 for one in history.operations if one.verb is Verb.END_TRANSACTION),
        run_end_ms(history) / 1000,
    )


def _caveats(facts: Facts) -> list[str]:
    history = facts.history
    found = []
    if history.end is None:
        found.append("The run was cut off: what happened after the last line is not known.")
    elif history.end.was_interrupted:
        found.append("The run was interrupted before its time was over.")
    if history.header.faults and not history.faults:
        found.append("No fault acted, though some were asked for.")
    for (topic, partition), count in sorted(unjudged_writes(facts).items()):
        found.append(
            f"{count} acknowledged writes of {topic}-{partition} were not looked for: nobody read "
            "it to its end after them."
        )
    found += [
        f"Fault {fault.number} ({fault.name}) failed: {fault.failure}"
        for fault in history.faults
        if fault.failure
    ]
    return found


def as_json(verdict: Verdict) -> dict[str, object]:
    """For programs: plain values all through."""
    availability = verdict.availability
    return {
        "ok": verdict.is_good,
        "anomaly_counts": {kind.value: count for kind, count in verdict.counts().items()},
        "anomalies": [_anomaly_json(anomaly) for anomaly in verdict.anomalies],
        "caveats": list(verdict.caveats),
        "totals": asdict(verdict.totals),
        "latency_ms": {
            "p50": availability.latency_p50_ms,
            "p99": availability.latency_p99_ms,
            "max": availability.latency_max_ms,
        },
        "acknowledged_per_s": availability.acknowledged_per_s,
        "faults": [asdict(summary) for summary in availability.summaries],
        "effects": [_effect_json(effect) for effect in availability.effects],
    }


def _anomaly_json(anomaly: Anomaly) -> dict[str, object]:
    return {
        "kind": anomaly.kind.value,
        "text": anomaly.text,
        "topic": anomaly.topic,
        "partition": anomaly.partition,
        "offset": anomaly.offset,
        "operations": [_operation_json(operation) for operation in anomaly.operations],
    }


def _operation_json(operation: Operation) -> dict[str, object]:
    return {
        "number": operation.number,
        "client": operation.client,
        "verb": operation.verb.value,
        "outcome": operation.outcome.value,
        "invoked_ms": operation.invoked_ms,
        "ended_ms": operation.ended_ms,
        "topic": operation.topic,
        "partition": operation.partition,
        "offset": operation.offset,
        "key": operation.key,
        "sequence": operation.sequence,
        "group": operation.group,
        "transaction": operation.transaction,
        "seen": len(operation.seen),
        "error": operation.error,
    }


def _effect_json(effect: FaultEffect) -> dict[str, object]:
    return {
        "number": effect.fault.number,
        "name": effect.fault.name,
        "detail": effect.fault.detail,
        "began_ms": effect.fault.began_ms,
        "ended_ms": effect.fault.ended_ms,
        "failure": effect.fault.failure,
        "gap_ms": effect.gap_ms,
        "gap_at": effect.gap_at,
        "transaction_gap_ms": effect.transaction_gap_ms,
        "cluster_gap_ms": effect.cluster_gap_ms,
        "before_per_s": effect.before_per_s,
        "during_per_s": effect.during_per_s,
        "after_per_s": effect.after_per_s,
        "full_isr_ms": effect.full_isr_ms,
    }
