"""How a run is shown: a table that redraws itself on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

from tidelog.chaos.run_status import Progress, Status, status_line

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_LINE_EVERY_S: Final = 5.0
_BAR: Final = 30


class PlainProgress:
    """For logs: a line when the phase or the fault changes, and every few seconds."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last_s = -_LINE_EVERY_S
        self._known = ("", "")

    def show(self, status: Status) -> None:
        now = (status.phase, status.fault)
        if now == self._known and status.elapsed_s - self._last_s < _LINE_EVERY_S:
            return
        self._known, self._last_s = now, status.elapsed_s
        self.say(status_line(status))

    def say(self, line: str) -> None:
        print(line, file=self._out, flush=True)


class LiveProgress:
    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, status: Status) -> None:
        self._live.update(status_table(status))

    def say(self, line: str) -> None:
        self._live.console.print(line, markup=False, highlight=False)


@contextmanager
def progress_on(out: TextIO = sys.stderr) -> Iterator[Progress]:
    if not out.isatty():
        yield PlainProgress(out)
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(file=out), refresh_per_second=4, transient=True) as live:
        yield LiveProgress(live)


def status_table(status: Status) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    share = min(1.0, status.elapsed_s / status.duration_s)
    bar = "█" * int(share * _BAR) + "░" * (_BAR - int(share * _BAR))
    table.add_row(status.phase, f"{bar} {status.elapsed_s:.0f} of {status.duration_s:.0f} s")
    table.add_row("throughput", f"{status.per_s:,.0f} records/s acknowledged")
    totals = status.totals
    table.add_row(
        "records",
        f"{totals.acknowledged:,} acknowledged, {totals.failed:,} failed, "
        f"{totals.unknown:,} unknown, {totals.read:,} read",
    )
    fault = Text(status.fault, style="bold red") if status.fault else Text("calm", style="green")
    table.add_row("fault", fault)
    table.add_row("faults", f"{status.faults_done} of {status.faults_planned}")
    sample = status.sample
    if sample is not None:
        table.add_row("controller", "none" if sample.controller is None else str(sample.controller))
        for state in sample.partitions:
            is_whole = state.leader is not None and set(state.isr) == set(state.replicas)
            leader = "no leader" if state.leader is None else f"leader {state.leader}"
            isr = ",".join(map(str, sorted(state.isr)))
            style = "green" if is_whole else "yellow"
            table.add_row(
                f"{state.topic}-{state.partition}", Text(f"{leader}, in sync {isr}", style=style)
            )
    return table
