"""Which columns rows may have: those of Spark's Kafka connector, and the time of a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.pipeline.errors import WrongRows

_BYTES: Final = ("binary", "string")
_HEADERS: Final = "array<struct<key:string,value:binary>>"
ALLOWED: Final = {
    "key": _BYTES,
    "value": _BYTES,
    "headers": (_HEADERS,),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
PASSED_OVER: Final = frozenset({"offset", "timestampType"})
"""What the source of the same name has besides, so that what was read can be written."""


def check_columns(columns: Sequence[tuple[str, str]], topic: str | None) -> None:
    """Names and types as Spark writes them (``simpleString``); every problem is told at once."""
    problems = []
    seen: set[str] = set()
    for name, kind in columns:
        allowed = ALLOWED.get(name)
        if name in seen:
            problems.append(f"column {name} is there twice")
        elif allowed is not None and kind.split(" collate ")[0] not in allowed:
            problems.append(f"column {name} is of type {kind}, and must be {' or '.join(allowed)}")
        elif allowed is None and name not in PASSED_OVER:
            problems.append(f"column {name} is none that a record has ({', '.join(ALLOWED)})")
        seen.add(name)
    if "value" not in seen:
        problems.append("column value is missing")
    if topic is None and "topic" not in seen:
        problems.append("no topic is given, neither as an option nor as a column")
    if problems:
        raise WrongRows("; ".join(problems))
