"""What a pipeline says while it runs and when it is done. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Step:
    """How far a job is."""

    what: str
    done: int = 0
    total: int | None = None
    """None: nobody knows."""


Progress: TypeAlias = Callable[[Step], None]


def silently(step: Step) -> None:
    """The progress of those who do not want to know."""


@dataclass(frozen=True, slots=True)
class Summary:
    job: str
    records: int
    """How many it read or compared."""
    seconds: float
    facts: Mapping[str, int | float | str | None] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """Not empty: the job ran, and what it looked at is not as it should be."""

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds > 0 else 0.0

    def as_object(self) -> dict[str, object]:
        return {
            "job": self.job,
            "records": self.records,
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.records_per_second, 1),
            **self.facts,
            "problems": list(self.problems),
        }

    def text(self) -> str:
        """For people: one thing a line."""
        lines = [
            f"{self.job}: {self.records:,} records in {self.seconds:.1f} s "
            f"({self.records_per_second:,.0f}/s)"
        ]
        lines += [
            f"  {name.replace('_', ' ')}: {_shown(value)}"
            for name, value in self.facts.items()
            if value is not None
        ]
        return "\n".join([*lines, *(f"  PROBLEM: {problem}" for problem in self.problems)])

    def metrics(self, labels: Mapping[str, str]) -> str:
        """For Prometheus' textfile collector; only what is a number."""
        pairs = {"job": self.job, **labels}
        inner = ",".join(f'{name}="{_escaped(text)}"' for name, text in pairs.items())
        numbers = {
            "records": self.records,
            "seconds": self.seconds,
            **{k: v for k, v in self.facts.items() if isinstance(v, int | float)},
            "problems": len(self.problems),
        }
        lines = []
        for name, value in numbers.items():
            full = "tidelog_pipeline_" + re.sub(r"[^a-zA-Z0-9_]", "_", name)
            lines += [f"# TYPE {full} gauge", f"{full}{{{inner}}} {value}"]
        return "\n".join(lines) + "\n"


def _shown(value: int | float | str | None) -> str:
    match value:
        case bool() | str() | None:
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.3f}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
