"""The gap of every fault as a dot, a row per kind of fault. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from tidelog.chaos.availability import Availability, FaultEffect, FaultSummary
from tidelog.chaos.report.drawing import (
    WIDTH,
    clock_time,
    decades,
    drawing,
    element,
    label,
    line,
    titled,
)
from tidelog.chaos.verdict_text import milliseconds

_LEFT: Final = 190.0
_RIGHT: Final = 24.0
_ROW: Final = 34.0
_TOP: Final = 12.0
_LEAST_MS: Final = 1.0
_FEW_LEVELS: Final = 4


def draw_gaps(availability: Availability, colours: Mapping[str, str]) -> str:
    """Empty if no fault has a gap."""
    effects = [effect for effect in availability.effects if effect.gap_ms is not None]
    if not effects:
        return ""
    gaps_ms = [effect.gap_ms or 0.0 for effect in effects]
    least_ms = max(min(gaps_ms), _LEAST_MS)
    levels = decades(least_ms, max(*gaps_ms, least_ms))
    span = math.log10(levels[-1] / levels[0])

    def x(gap_ms: float) -> float:
        share = math.log10(max(gap_ms, levels[0]) / levels[0]) / span
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * share

    rows = [one for one in availability.summaries if one.gap_max_ms is not None]
    bottom = _TOP + _ROW * len(rows)
    parts = []
    for level in _ticks(levels):
        parts.append(line(x(level), _TOP, x(level), bottom, "grid"))
        parts.append(label(x(level), bottom + 16, _level(level), anchor="middle"))
    for at, row in enumerate(rows):
        middle = _TOP + _ROW * (at + 0.5)
        parts.append(label(_LEFT - 14, middle + 4, row.name, "label strong", "end"))
        parts.append(line(_LEFT, middle, WIDTH - _RIGHT, middle, "grid"))
        for effect in effects:
            if effect.fault.name == row.name:
                parts.append(_dot(effect, x(effect.gap_ms or 0.0), middle, colours[row.name]))
        parts.append(_marks(row, x, middle))
    return drawing(bottom + 26, "".join(parts), "Gap of every fault", "gaps")


def _ticks(levels: list[float]) -> list[float]:
    """Powers of ten, and steps between them where there is room."""
    if len(levels) > _FEW_LEVELS:
        return levels
    return [level * step for level in levels for step in (1, 2, 5) if level * step <= levels[-1]]


def _level(level_ms: float) -> str:
    return f"{level_ms / 1000:g} s" if level_ms >= 1000 else f"{level_ms:g} ms"


def _dot(effect: FaultEffect, x: float, y: float, colour: str) -> str:
    fault = effect.fault
    title = (
        f"{fault.number}. {fault.name} at {clock_time(fault.began_ms / 1000)}: "
        f"{milliseconds(effect.gap_ms)} in {effect.gap_at}"
    )
    return element("circle", titled(title), class_=f"dot {colour}", cx=x, cy=y, r=5)


def _marks(row: FaultSummary, x: Callable[[float], float], middle: float) -> str:
    """p50 and p99 as upright strokes."""
    parts = []
    for value, class_, name in ((row.gap_p50_ms, "p50", "p50"), (row.gap_p99_ms, "p99", "p99")):
        if value is not None:
            stroke = element(
                "line",
                titled(f"{name} of {row.name}: {milliseconds(value)}"),
                class_=f"stroke {class_}", x1=x(value), x2=x(value), y1=middle - 11, y2=middle + 11,
            )  # fmt: skip
            parts.append(stroke)
    return "".join(parts)
