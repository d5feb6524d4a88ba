"""What was measured, kept over several runs and printed as ratios.

The file holds every sample of every round with the time of its run, so that a run of one experiment
replaces just what that experiment measured. Rows are made from the samples: Tidelog's median over
the peer's, and the goal where there is one. Both are of the same run, in which they took turns; so
Tidelog's samples are kept as long as a peer is measured against them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal

from rich.console import Console
from rich.table import Table

from bench.peers.experiments import Sample
from bench.peers.peer import Absence
from bench.table import Row, number_text

SELF: Final = "tidelog"

GOALS: Final[Mapping[str, float]] = {
    "produce 100 B, page cache": 1.5,
    "produce 1 KB, page cache": 1.3,
    "produce 10 KB, page cache": 1.3,
    "consume 100 B, page cache": 1.0,
    "consume 1 KB, page cache": 1.0,
    "consume 10 KB, page cache": 1.0,
    "produce 100 B, synced": 1.5,
    "produce 1 KB, synced": 1.5,
    "produce 10 KB, synced": 1.5,
    "produce latency p99, page cache": 0.25,
    "produce latency p99, synced": 0.25,
    "end to end latency p99, page cache": 0.25,
    "end to end latency p99, synced": 0.25,
    "start to first acknowledgement": 0.2,
    "idle memory, largest node": 0.2,
    "memory after load, page cache": 0.25,
    "memory after load, synced": 0.25,
    "failover gap": 0.08,
}
"""Ratios to Apache Kafka; whether they are least or most follows from the measure."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One measure of one peer, all rounds of one run."""

    experiment: str
    peer: str
    measure: str
    unit: str
    better: Literal["higher", "lower"]
    at: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)


def gather(experiment: str, at: str, samples: Iterable[Sample]) -> list[Measured]:
    """The samples of one run of one experiment, by peer and measure."""
    values: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        values.setdefault((sample.peer, sample.measure), []).append(sample)
    return [
        Measured(
            experiment,
            some[0].peer,
            some[0].measure,
            some[0].unit,
            some[0].better,
            at,
            tuple(sample.value for sample in some),
        )
        for some in values.values()
    ]


@dataclass(slots=True)
class Results:
    """The contents of the result file."""

    measured: list[Measured] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    """Machine, versions, settings, absences: told as they were at the newest run."""

    @classmethod
    def load(cls, path: Path) -> Results:
        if not path.exists():
            return cls()
        stored = json.loads(path.read_text(encoding="utf-8"))
        measured = [Measured(**{**one, "values": tuple(one["values"])}) for one in stored["raw"]]
        return cls(measured, stored["about"])

    def add(self, measured: Sequence[Measured]) -> None:
        """In place of what an older run said of the same, and behind all else."""
        newer = {(one.peer, one.measure) for one in measured}
        kept = [one for one in self.measured if (one.peer, one.measure) not in newer]
        older = [
            own
            for own in self.measured
            if own.peer == SELF
            and (SELF, own.measure) in newer
            and any(own.measure == one.measure and own.at == one.at for one in kept)
        ]
        self.measured = [*kept, *older, *measured]

    def peers(self) -> set[str]:
        return {one.peer for one in self.measured} - {SELF}

    def measures(self) -> dict[str, str]:
        """Names and units, in the order of the measurements."""
        return {one.measure: one.unit for one in self.measured}

    def of(self, peer: str, measure: str) -> Measured | None:
        """A peer's; of Tidelog, what it did beside Kafka or, without that, in its newest run."""
        found = [one for one in self.measured if (one.peer, one.measure) == (peer, measure)]
        if peer == SELF and (kafka := self.of("kafka", measure)) is not None:
            found = [one for one in found if one.at == kafka.at] or found
        return found[-1] if found else None

    def ratio(self, one: Measured) -> float | None:
        """What Tidelog did in the same run, divided by this."""
        for own in self.measured:
            is_beside = (own.peer, own.measure, own.at) == (SELF, one.measure, one.at)
            if is_beside and one.peer != SELF and one.median != 0:
                return own.median / one.median
        return None

    def tell(self, name: str, facts: Mapping[str, Any]) -> None:
        """Merged by key: a run of some peers says nothing about the others."""
        self.about[name] = {**self.about.get(name, {}), **facts}

    def tell_absence(self, peer: str, experiment: str, absence: Absence) -> None:
        self.tell("skipped", {f"{peer}: {experiment}": asdict(absence)})

    def rows(self) -> list[tuple[Row, str]]:
        """Ratios in the order of the measurements, each with the time of the peer's run."""
        found = []
        for one in self.measured:
            ratio = self.ratio(one)
            if ratio is None:
                continue
            goal = GOALS.get(one.measure) if one.peer == "kafka" else None
            name = f"{one.measure}: {SELF} / {one.peer}"
            row = Row(name, ratio, "×", goal, one.better)
            found.append((row, one.at))
        return found

    def save(self, path: Path) -> None:
        rows = [
            {
                "name": row.name,
                "value": row.value,
                "unit": row.unit,
                "goal": row.goal_text,
                "met": row.met,
                "at": at,
            }
            for row, at in self.rows()
        ]
        raw = [asdict(one) for one in self.measured]
        text = json.dumps(
            {"benchmark": "peers", "rows": rows, "about": self.about, "raw": raw},
            indent=1,
            ensure_ascii=False,
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")


def print_results(results: Results, peers: Sequence[str]) -> None:
    """A line per measure: every peer's median, and what Tidelog's is of it."""
    table = Table(title="peers (medians; in brackets Tidelog's divided by the peer's)")
    table.add_column("measure")
    table.add_column("unit")
    for peer in (SELF, *peers):
        table.add_column(peer, justify="right")
    table.add_column("goal")
    table.add_column("met")
    goals = {row.name: row for row, _ in results.rows() if row.goal is not None}
    for measure, unit in results.measures().items():
        if measure.startswith("double: "):
            continue
        row = goals.get(f"{measure}: {SELF} / kafka")
        table.add_row(
            measure,
            unit,
            *(_cell(results, peer, measure) for peer in (SELF, *peers)),
            "" if row is None else f"kafka {row.goal_text}",
            "" if row is None else "yes" if row.met else "NO",
        )
    Console(width=max(120, 60 + 22 * len(peers))).print(table)
    for one in results.measured:
        if one.peer.startswith("double: "):
            print(f"{one.peer}, {one.measure[8:]}: {number_text(one.median)} {one.unit}")
    for what, absence in results.about.get("skipped", {}).items():
        print(f"skipped {what}: {absence['reason']}; to have it: {absence['remedy']}")


def markdown(results: Results, peers: Sequence[str]) -> str:
    """The same lines for docs/PERFORMANCE.md."""
    columns = [SELF, *peers]
    goals = {row.name: row for row, _ in results.rows() if row.goal is not None}
    lines = [
        f"| measure | unit | {' | '.join(columns)} | goal | met |",
        f"|---|---|{'---:|' * len(columns)}---|---|",
    ]
    for measure, unit in results.measures().items():
        if measure.startswith("double: "):
            continue
        row = goals.get(f"{measure}: {SELF} / kafka")
        cells = " | ".join(_cell(results, peer, measure) for peer in columns)
        goal = "" if row is None else row.goal_text or ""
        met = "" if row is None else "yes" if row.met else "**no**"
        lines.append(f"| {measure} | {unit} | {cells} | {goal} | {met} |")
    return "\n".join(lines)


def _cell(results: Results, peer: str, measure: str) -> str:
    one = results.of(peer, measure)
    if one is None:
        return "–"
    ratio = results.ratio(one)
    text = number_text(one.median)
    return text if ratio is None else f"{text} ({number_text(ratio)}×)"
