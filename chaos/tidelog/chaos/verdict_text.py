"""A verdict as a terminal shows it. Pure."""

from __future__ import annotations

from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidelog.chaos.availability import FaultSummary
from tidelog.chaos.verdict import Verdict

_SHOWN_ANOMALIES: Final = 20
_COLUMNS: Final = (
    "count", "gap p50", "p99", "max", "in transactions", "before/s", "during/s", "after/s",
    "full ISR",
)  # fmt: skip


def summary(verdict: Verdict) -> Group:
    """For a rich console; plain text if it is written to a file."""
    parts: list[RenderableType] = [_totals(verdict)]
    if verdict.availability.summaries:
        parts.append(_faults(verdict))
    parts += [Text(f"note: {caveat}", style="yellow") for caveat in verdict.caveats]
    for anomaly in verdict.anomalies[:_SHOWN_ANOMALIES]:
        parts.append(Text(f"{anomaly.kind.value}: {anomaly.text}", style="red"))
    left = len(verdict.anomalies) - _SHOWN_ANOMALIES
    if left > 0:
        parts.append(Text(f"and {left} more", style="red"))
    parts.append(headline(verdict))
    return Group(*parts)


def headline(verdict: Verdict) -> Text:
    if verdict.is_good:
        return Text("OK: no anomaly", style="bold green")
    counts = ", ".join(f"{count} {kind.value}" for kind, count in verdict.counts().items() if count)
    return Text(f"ANOMALIES: {counts}", style="bold red")


def _totals(verdict: Verdict) -> Text:
    totals, availability = verdict.totals, verdict.availability
    return Text(
        f"{totals.acknowledged:,} records acknowledged, {totals.unknown:,} unknown, "
        f"{totals.failed:,} failed, {totals.read:,} read in {totals.lasted_s:,.1f} s; "
        f"{availability.acknowledged_per_s:,.0f}/s, latency p50 "
        f"{milliseconds(availability.latency_p50_ms)}, "
        f"p99 {milliseconds(availability.latency_p99_ms)}, "
        f"max {milliseconds(availability.latency_max_ms)}"
    )


def _faults(verdict: Verdict) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("fault", no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for one in verdict.availability.summaries:
        table.add_row(*fault_cells(one))
    return table


def fault_cells(one: FaultSummary) -> list[str]:
    """Name, count, gaps (the longest of a transaction last), throughput, time to a full ISR."""
    count = f"{one.count} ({one.failed} failed)" if one.failed else str(one.count)
    return [
        one.name,
        count,
        milliseconds(one.gap_p50_ms),
        milliseconds(one.gap_p99_ms),
        milliseconds(one.gap_max_ms),
        milliseconds(one.transaction_gap_max_ms),
        rate(one.before_per_s),
        rate(one.during_per_s),
        rate(one.after_per_s),
        milliseconds(one.full_isr_p50_ms),
    ]


def milliseconds(value: float | None) -> str:
    """In the unit a person would use."""
    if value is None:
        return "–"
    if value >= 1000:
        return f"{value / 1000:.2f} s"
    return f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"


def rate(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"
