"""What every benchmark reports: rows of a measured value and the goal it was held against.

A benchmark measures, makes ``Row``s and calls ``report(name, rows)``, which prints them and keeps
them in ``bench/results/NAME.json`` for ``make bench-report``. Whether a goal is met is derived
from the row and stored with it, so that a result file can be read without this module.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. ``goal`` bounds ``value``; None where there is only something to tell."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    better: Literal["higher", "lower"] = "higher"

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.value >= self.goal if self.better == "higher" else self.value <= self.goal

    @property
    def goal_text(self) -> str | None:
        if self.goal is None:
            return None
        return f"{'≥' if self.better == 'higher' else '≤'} {number_text(self.goal)}"


def report(
    name: str, rows: Sequence[Row], results: Path = RESULTS, *, is_kept: bool = True
) -> None:
    """Print the rows and write them to ``results/NAME.json``, unless they are only a part."""
    stored: list[dict[str, object]] = [
        {
            "name": row.name,
            "value": row.value,
            "unit": row.unit,
            "goal": row.goal_text,
            "met": row.met,
        }
        for row in rows
    ]
    if is_kept:
        results.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"benchmark": name, "rows": stored}, indent=2, ensure_ascii=False)
        (results / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    print_rows(name, stored)


def print_rows(name: str, rows: Iterable[dict[str, object]]) -> None:
    """Print rows in the form they have in a result file."""
    table = Table(title=name, title_justify="left")
    table.add_column("name")
    table.add_column("value", justify="right")
    for column in ("unit", "goal", "met"):
        table.add_column(column)
    for row in rows:
        value = row["value"]
        table.add_row(
            str(row["name"]),
            number_text(value) if isinstance(value, int | float) else str(value),
            str(row["unit"]),
            str(row["goal"] or ""),
            "" if row["met"] is None else "yes" if row["met"] else "NO",
        )
    Console().print(table)


def number_text(value: float) -> str:
    """Three significant digits, without an exponent, and with thousands kept apart."""
    if value == 0:
        return "0"
    magnitude = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    return f"{value:,.{max(0, 3 - magnitude)}f}"
