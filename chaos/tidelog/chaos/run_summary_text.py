"""A summary of runs as a terminal shows it. Pure."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tidelog.chaos.availability import percentile
from tidelog.chaos.run_summary import FaultGaps, RunSummary
from tidelog.chaos.verdict_text import milliseconds


def summary_text(summary: RunSummary) -> Group:
    totals = Text(
        f"{summary.command}: {summary.acknowledged:,} records acknowledged, "
        f"{summary.unknown:,} unknown, {summary.failed:,} failed, {summary.read:,} read, "
        f"{summary.transactions:,} transactions in {summary.lasted_s:,.0f} s"
    )
    problems = [Text(f"a run went wrong: {text}", style="red") for text in summary.problems]
    left_out = [Text(f"left out, because it was cut short: {text}") for text in summary.left_out]
    return Group(totals, _faults(summary), *left_out, *problems, _headline(summary))


def _faults(summary: RunSummary) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("fault", no_wrap=True)
    for column in ("count", "gap p50", "p99", "max", "in transactions", "full ISR p50", "max"):
        table.add_column(column, justify="right", no_wrap=True)
    for one in summary.faults:
        table.add_row(*_cells(one))
    count = sum(one.count for one in summary.faults)
    table.add_row("all", f"{count:,}", style="bold")
    return table


def _cells(one: FaultGaps) -> list[str]:
    count = f"{one.count:,} ({one.failed:,} failed)" if one.failed else f"{one.count:,}"
    gaps = [percentile(one.gaps_ms, at) for at in (50, 99, 100)]
    in_transactions = percentile(one.transaction_gaps_ms, 100)
    until_isr = [percentile(one.full_isr_ms, at) for at in (50, 100)]
    return [one.name, count, *map(milliseconds, [*gaps, in_transactions, *until_isr])]


def _headline(summary: RunSummary) -> Text:
    found = ", ".join(f"{count:,} {kind}" for kind, count in summary.anomalies.items() if count)
    if found:
        return Text(f"ANOMALIES: {found}", style="bold red")
    if not summary.anomalies:
        return Text("NOTHING JUDGED", style="bold red")
    looked_for = ", ".join(f"0 {kind}" for kind in summary.anomalies)
    return Text(f"OK: no anomaly ({looked_for})", style="bold green")
