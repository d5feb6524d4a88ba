"""Where to put a group's offsets: one of Kafka's ways, worked out from what the partitions have.

Pure: ``plan_reset`` gets every number it needs and returns the new offsets, with a warning for each
that had to be moved into what the partition still has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias, assert_never

from tidelog.cli.brokers import Place
from tidelog.cli.failures import CommandFailed, WrongUse

_DURATION: Final = re.compile(
    r"(?P<sign>-)?P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_UNITS_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


@dataclass(frozen=True, slots=True)
class ToEarliest:
    pass


@dataclass(frozen=True, slots=True)
class ToLatest:
    pass


@dataclass(frozen=True, slots=True)
class ToCurrent:
    pass


@dataclass(frozen=True, slots=True)
class ToOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    by: int


@dataclass(frozen=True, slots=True)
class ToTime:
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ToGiven:
    """Offsets of a file."""

    offsets: Mapping[Place, int]


Way: TypeAlias = ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy | ToTime | ToGiven


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one partition."""

    earliest: int
    latest: int
    committed: int | None
    of_time: int | None = None
    """The first offset that is not older than the time asked for; None if all are older."""


@dataclass(frozen=True, slots=True)
class Plan:
    offsets: Mapping[Place, int]
    warnings: tuple[str, ...] = ()


def plan_reset(way: Way, known: Mapping[Place, Known]) -> Plan:
    offsets, warnings = {}, []
    for place in sorted(known):
        wanted = _wanted(way, place, known[place])
        offset = min(max(wanted, known[place].earliest), known[place].latest)
        if offset != wanted:
            side = "lower than earliest" if wanted < offset else "higher than latest"
            warnings.append(
                f"New offset ({wanted}) is {side} offset for topic partition {_name(place)}. "
                f"Value will be set to {offset}"
            )
        offsets[place] = offset
    return Plan(offsets, tuple(warnings))


def _wanted(way: Way, place: Place, known: Known) -> int:
    match way:
        case ToEarliest():
            return known.earliest
        case ToLatest():
            return known.latest
        case ToCurrent():
            return known.latest if known.committed is None else known.committed
        case ToOffset(offset):
            return offset
        case ShiftBy(by):
            if known.committed is None:
                raise CommandFailed(
                    f"Cannot shift offset for partition {_name(place)} since there is no current "
                    "committed offset; choose another way for it"
                )
            return known.committed + by
        case ToTime():
            return known.latest if known.of_time is None else known.of_time
        case ToGiven(offsets):
            return offsets[place]
        case _:
            assert_never(way)


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def parse_datetime_ms(text: str) -> int:
    """``2026-01-31T12:00:00.000``, UTC unless it says otherwise."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUse(
            f"--to-datetime {text}: a time such as 2026-01-31T12:00:00.000 (UTC unless it says "
            "otherwise)"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def parse_duration_ms(text: str) -> int:
    """ISO 8601, as Java reads it: ``P1DT2H30M``, ``PT90S``."""
    match = _DURATION.fullmatch(text.strip().upper())
    found = {} if match is None else {unit: match[unit] for unit in _UNITS_MS if match[unit]}
    if match is None or not found or text.strip().upper().endswith("T"):
        raise WrongUse(f"--by-duration {text}: a duration such as P7D, PT1H30M or P1DT12H")
    total = sum(round(float(number) * _UNITS_MS[unit]) for unit, number in found.items())
    return -total if match["sign"] else total


def parse_csv(lines: Sequence[str], group: str) -> dict[Place, int]:
    """``topic,partition,offset`` or ``group,topic,partition,offset``; other groups' are skipped."""
    offsets: dict[Place, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        cells = [cell.strip().strip('"') for cell in line.split(",")]
        if len(cells) == 4:
            owner, *cells = cells
            if owner != group:
                continue
        if len(cells) != 3 or not all(cell.isascii() and cell.isdigit() for cell in cells[1:]):
            raise WrongUse(
                f"line {number}: {line.strip()!r} is not topic,partition,offset "
                "(or group,topic,partition,offset)"
            )
        offsets[cells[0], int(cells[1])] = int(cells[2])
    return offsets


def as_csv(offsets: Mapping[Place, int]) -> str:
    return "\n".join(
        f"{topic},{partition},{offset}" for (topic, partition), offset in sorted(offsets.items())
    )
