"""Tables and lists of a report: gaps, faults, anomalies with their operations. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tidelog.chaos.availability import FaultEffect, FaultSummary
from tidelog.chaos.checkers import Anomaly, Kind
from tidelog.chaos.checkers.anomaly import named, seconds
from tidelog.chaos.history import Note, Operation, Record, Verb
from tidelog.chaos.report.drawing import clock_time, element, escaped
from tidelog.chaos.verdict import Verdict
from tidelog.chaos.verdict_text import fault_cells, milliseconds, rate

SHOWN_PER_KIND: Final = 100
NAMED_PER_KIND: Final = 5_000
"""Of those that are not shown whole, the records are at least named."""
SHOWN_OPERATIONS: Final = 12
SHOWN_FAULTS: Final = 1_000
SHOWN_NOTES: Final = 200


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: frozenset[int]) -> str:
    """``rows`` are markup; the columns in ``right`` hold numbers."""

    def cells(name: str, row: Sequence[str]) -> str:
        return element(
            "tr",
            "".join(
                cell
                if cell.startswith("<td")
                else element(name, cell, class_="n" if at in right else None)
                for at, cell in enumerate(row)
            ),
        )

    head = element("thead", cells("th", [escaped(text) for text in header]))
    body = element("tbody", "".join(cells("td", row) for row in rows))
    return element("div", element("table", head + body), class_="table")


def wide(text: str) -> str:
    """A cell that may break into lines."""
    return element("td", escaped(text), class_="wide")


def key(class_: str) -> str:
    return element("i", class_=f"key {class_}")


# --- faults ----------------------------------------------------------------------------


def fault_summaries(summaries: Sequence[FaultSummary], colours: Mapping[str, str]) -> str:
    header = ["fault", "times", "gap p50", "gap p99", "gap max", "max in transactions"]
    header += ["before/s", "during/s", "after/s", "full ISR p50", "full ISR max"]
    rows = []
    for one in summaries:
        name, *figures = fault_cells(one)
        figures.append(milliseconds(one.full_isr_max_ms))
        rows.append([key(colours[one.name]) + escaped(name), *map(escaped, figures)])
    return table(header, rows, frozenset(range(1, len(header))))


def fault_effects(effects: Sequence[FaultEffect], colours: Mapping[str, str]) -> str:
    header = ["#", "at", "fault", "what", "lasted", "gap", "in", "in transactions", "cluster gap"]
    header += ["during/s", "full ISR"]
    rows = [_effect_row(one, colours) for one in effects[:SHOWN_FAULTS]]
    return _left_out(len(effects) - SHOWN_FAULTS) + table(
        header, rows, frozenset({0, 1, 4, 5, 7, 8, 9, 10})
    )


def _effect_row(one: FaultEffect, colours: Mapping[str, str]) -> list[str]:
    fault = one.fault
    lasted = None if fault.ended_ms is None else fault.ended_ms - fault.began_ms
    what = f"{fault.detail} – failed: {fault.failure}" if fault.failure else fault.detail
    return [
        str(fault.number),
        clock_time(fault.began_ms / 1000),
        key(colours[fault.name]) + escaped(fault.name),
        wide(what),
        "not healed" if lasted is None else milliseconds(lasted),
        milliseconds(one.gap_ms),
        escaped(one.gap_at),
        milliseconds(one.transaction_gap_ms),
        milliseconds(one.cluster_gap_ms),
        rate(one.during_per_s),
        milliseconds(one.full_isr_ms),
    ]


# --- anomalies -------------------------------------------------------------------------


def anomaly_counts(verdict: Verdict) -> str:
    """Every kind that was looked for, so that a zero is a statement."""
    rows = []
    for kind, count in verdict.counts().items():
        cell = element("td", f"{count:,}", class_="n hit" if count else "n")
        rows.append([escaped(kind.value), cell])
    half = (len(rows) + 1) // 2
    paired = [
        [*left, *(rows[at + half] if at + half < len(rows) else ["", ""])]
        for at, left in enumerate(rows[:half])
    ]
    return table(["looked for", "found", "looked for", "found"], paired, frozenset({1, 3}))


def anomalies_of_kind(kind: Kind, anomalies: Sequence[Anomaly]) -> str:
    parts = [element("h3", f"{escaped(kind.value.capitalize())} ({len(anomalies):,})")]
    parts += [_anomaly(anomaly) for anomaly in anomalies[:SHOWN_PER_KIND]]
    rest = anomalies[SHOWN_PER_KIND:]
    if rest:
        names = [element("li", escaped(_name(anomaly))) for anomaly in rest[:NAMED_PER_KIND]]
        said = f"{len(rest):,} more, by name"
        if len(rest) > NAMED_PER_KIND:
            said += f" (the first {NAMED_PER_KIND:,})"
        listed = element("ul", "".join(names), class_="names")
        parts.append(element("details", element("summary", said) + listed))
    return "".join(parts)


def _name(anomaly: Anomaly) -> str:
    appends = [one for one in anomaly.operations if one.verb is Verb.APPEND]
    if not appends:
        return anomaly.text
    at = "" if anomaly.offset is None else f" @{anomaly.offset}"
    return f"{named(appends[0])} {anomaly.topic}-{anomaly.partition}{at}"


def _anomaly(anomaly: Anomaly) -> str:
    said = element("p", escaped(anomaly.text))
    if not anomaly.operations:
        return element("div", said, class_="anomaly")
    shown = anomaly.operations[:SHOWN_OPERATIONS]
    header = ["operation", "client", "began", "ended", "what", "outcome"]
    rows = [_operation_row(operation) for operation in shown]
    left = len(anomaly.operations) - len(shown)
    more = f", of which {len(shown)} are shown" if left > 0 else ""
    count = f"{len(anomaly.operations)} operations{more}"
    inner = element("summary", count) + table(header, rows, frozenset({0, 2, 3}))
    return element("div", said + element("details", inner), class_="anomaly")


def _operation_row(operation: Operation) -> list[str]:
    outcome = operation.outcome.value
    return [
        str(operation.number),
        escaped(operation.client),
        seconds(operation.invoked_ms),
        "–" if operation.ended_ms is None else seconds(operation.ended_ms),
        wide(described(operation)),
        escaped(f"{outcome}: {operation.error}" if operation.error else outcome),
    ]


def described(operation: Operation) -> str:
    """What an operation was, in a few words."""
    place = f"{operation.topic}-{operation.partition}"
    at = "" if operation.offset is None else f" at {operation.offset}"
    match operation.verb:
        case Verb.APPEND:
            within = f" in transaction {operation.transaction}" if operation.transaction else ""
            return f"append {named(operation)} to {place}{at}{within}"
        case Verb.POLL:
            return f"poll: {_spans(operation.seen)}"
        case Verb.READ_TO_END:
            return f"read {place} from its start to its end{at}"
        case Verb.END_TRANSACTION:
            how = "commit" if operation.is_commit else "abort"
            return f"{how} transaction {operation.transaction}"
        case Verb.COMMIT_OFFSET:
            return f"commit {operation.offset} for group {operation.group} in {place}"
        case Verb.FETCH_OFFSET:
            return f"fetch the offset of group {operation.group} in {place}: {operation.offset}"


def _spans(seen: Sequence[Record]) -> str:
    """The offsets per partition, from the least to the greatest."""
    spans: dict[str, list[int]] = {}
    for record in seen:
        place = f"{record.topic}-{record.partition}"
        span = spans.setdefault(place, [record.offset, record.offset, 0])
        span[0], span[1] = min(span[0], record.offset), max(span[1], record.offset)
        span[2] += 1
    said = [f"{count} of {place}, {low}–{high}" for place, (low, high, count) in spans.items()]
    return "; ".join(said) or "nothing"


def notes(found: Sequence[Note]) -> str:
    rows = [[clock_time(note.at_ms / 1000), wide(note.text)] for note in found[:SHOWN_NOTES]]
    return _left_out(len(found) - SHOWN_NOTES) + table(["at", "note"], rows, frozenset({0}))


def _left_out(count: int) -> str:
    return element("p", f"{count:,} more are not shown.", class_="soft") if count > 0 else ""
