"""Throughput and latency over time, with the faults as bands behind them. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tidelog.chaos.history import FaultBand, History
from tidelog.chaos.report.drawing import (
    LEFT,
    PLOT,
    TimeScale,
    clock_time,
    decades,
    drawing,
    element,
    label,
    line,
    number,
    rectangle,
    round_steps,
)
from tidelog.chaos.report.series import Series, Writes, per_second, percentiles

FAULT_COLOURS: Final = 8
_LANE_TOP: Final = 4.0
_LANE: Final = 10.0
_THROUGHPUT_TOP: Final = 40.0
_THROUGHPUT: Final = 170.0
_LATENCY_TOP: Final = 244.0
_LATENCY: Final = 140.0
_BOTTOM: Final = _LATENCY_TOP + _LATENCY
_LEAST_BAND: Final = 1.5


def draw_timeline(history: History, end_ms: float) -> str:
    scale = TimeScale(end_ms)
    writes = Writes.of(history.operations)
    rate = per_second(writes.acknowledged_ms, end_ms)
    in_vain = per_second(writes.in_vain_ms, end_ms)
    middle, high = percentiles(writes.acknowledged_ms, writes.latency_ms, end_ms, [50, 99])
    content = (
        bands(history.faults, scale, _LANE_TOP, _LANE, _BOTTOM)
        + scale.axis(_THROUGHPUT_TOP, _BOTTOM)
        + _throughput(scale, rate, in_vain)
        + _latency(scale, middle, high)
    )
    return drawing(_BOTTOM + 28, content, "Throughput and latency over time", "timeline")


def fault_colours(faults: Sequence[FaultBand]) -> Mapping[str, str]:
    """A class per name of a fault; they repeat if there are many."""
    names = dict.fromkeys(fault.name for fault in faults)
    return {name: f"f{at % FAULT_COLOURS}" for at, name in enumerate(names)}


def bands(
    faults: Sequence[FaultBand], scale: TimeScale, top: float, lane: float, bottom: float
) -> str:
    """A lane of marks, and a tint behind everything below it."""
    colours = fault_colours(faults)
    tints, marks = [], []
    for fault in faults:
        left = scale.x(fault.began_ms)
        right = scale.x(scale.end_ms if fault.ended_ms is None else fault.ended_ms)
        width = max(right - left, _LEAST_BAND)
        colour, title = colours[fault.name], _title(fault)
        tints.append(rectangle(left, top + lane, width, bottom - top - lane, f"tint {colour}", ""))
        failed = " failed" if fault.failure else ""
        marks.append(rectangle(left, top, width, lane, f"mark {colour}{failed}", title))
    return element("g", "".join(tints), class_="tints") + element(
        "g", "".join(marks), class_="faults"
    )


def _title(fault: FaultBand) -> str:
    until = "the end" if fault.ended_ms is None else clock_time(fault.ended_ms / 1000)
    text = f"{fault.number}. {fault.name}: {fault.detail}, {clock_time(fault.began_ms / 1000)}"
    return f"{text} to {until}" + (f" – failed: {fault.failure}" if fault.failure else "")


def _throughput(scale: TimeScale, rate: Series, in_vain: Series) -> str:
    most = max((value or 0.0 for value in (*rate.values, *in_vain.values)), default=0.0)
    steps = round_steps(most)
    bottom = _THROUGHPUT_TOP + _THROUGHPUT

    def y(value: float) -> float:
        return bottom - _THROUGHPUT * value / steps[-1]

    parts = [label(LEFT - 10, _THROUGHPUT_TOP - 10, "acknowledged per second", "caption")]
    for step in steps:
        parts.append(line(LEFT, y(step), LEFT + PLOT, y(step), "grid"))
        parts.append(label(LEFT - 10, y(step) + 4, f"{step:,.0f}", anchor="end"))
    outline = _steps(rate, scale, y)
    area = f"M{number(LEFT)} {number(bottom)}{outline.replace('M', 'L', 1)}"
    area += f"L{number(_last_x(rate, scale))} {number(bottom)}Z"
    parts.append(element("path", d=area, class_="area"))
    parts.append(element("path", d=outline, class_="curve throughput", id="throughput"))
    if any(in_vain.values):
        some = Series(in_vain.step_ms, [value or None for value in in_vain.values])
        parts.append(element("path", d=_steps(some, scale, y), class_="curve in-vain"))
    return "".join(parts)


def _latency(scale: TimeScale, middle: Series, high: Series) -> str:
    values = [value for value in (*middle.values, *high.values) if value is not None]
    levels = decades(max(min(values, default=1.0), 0.1), max(max(values, default=1.0), 1.0))
    bottom = _LATENCY_TOP + _LATENCY
    first, last = math.log10(levels[0]), math.log10(levels[-1])

    def y(value: float) -> float:
        share = (math.log10(max(value, levels[0])) - first) / (last - first)
        return bottom - _LATENCY * share

    parts = [label(LEFT - 10, _LATENCY_TOP - 10, "latency of a write, p50 and p99", "caption")]
    for level in levels:
        text = f"{level / 1000:g} s" if level >= 1000 else f"{level:g} ms"
        parts.append(line(LEFT, y(level), LEFT + PLOT, y(level), "grid"))
        parts.append(label(LEFT - 10, y(level) + 4, text, anchor="end"))
    for series, class_ in ((high, "p99"), (middle, "p50")):
        path = _steps(series, scale, y)
        parts.append(element("path", d=path or None, class_=f"curve {class_}", id=class_))
    return "".join(parts)


def _steps(series: Series, scale: TimeScale, y: Callable[[float], float]) -> str:
    """A level per step, broken where there is no value."""
    parts: list[str] = []
    is_broken = True
    for at, value in enumerate(series.values):
        if value is None:
            is_broken = True
            continue
        left, right = scale.x(at * series.step_ms), scale.x((at + 1) * series.step_ms)
        parts.append(f"{'M' if is_broken else 'L'}{number(left)} {number(y(value))}")
        parts.append(f"H{number(right)}")
        is_broken = False
    return "".join(parts)


def _last_x(series: Series, scale: TimeScale) -> float:
    return scale.x(len(series.values) * series.step_ms)
