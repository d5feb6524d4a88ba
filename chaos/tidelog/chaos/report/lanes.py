"""Who led what, and who was in sync, over time: a lane per node and per partition. Pure.

A lane is coloured by the node that leads. Below it a thin line tells of the ISR: nothing if it is
full, a line whose weight grows with the number of replicas that are missing. What is more than the
paper has columns for is summed up per column by its worst moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.chaos.history import FaultBand, PartitionState, Sample
from tidelog.chaos.report.drawing import (
    LEFT,
    PLOT,
    TimeScale,
    clock_time,
    drawing,
    label,
    rectangle,
)
from tidelog.chaos.report.timeline import bands

NODE_COLOURS: Final = 9
MOST_PARTITIONS: Final = 30
_LANE: Final = 13.0
_ISR: Final = 5.0
_BETWEEN: Final = 9.0
_TOP: Final = 22.0


@dataclass(frozen=True, slots=True)
class _Look:
    """How a lane looks for a while."""

    badness: int
    """Of those that fall into one column the worst is shown."""
    class_: str
    text: str
    missing: int = 0
    """Replicas that are not in sync."""


_Stretch = tuple[float, float, float, _Look]
"""Left, right, since when, and the look."""

_Reader = Callable[[Sample], _Look | None]
"""None: the sample says nothing about the lane."""


def node_classes(samples: Sequence[Sample]) -> dict[int, str]:
    nodes = {node for sample in samples for node in sample.alive}
    for sample in samples:
        for state in sample.partitions:
            nodes.update(state.replicas)
    return {node: f"n{at % NODE_COLOURS}" for at, node in enumerate(sorted(nodes))}


def partitions_of(samples: Sequence[Sample]) -> list[tuple[str, int]]:
    return sorted({(one.topic, one.partition) for sample in samples for one in sample.partitions})


def draw_lanes(samples: Sequence[Sample], faults: Sequence[FaultBand], end_ms: float) -> str:
    """Empty if there were no samples."""
    if not samples:
        return ""
    scale, colours = TimeScale(end_ms), node_classes(samples)
    lanes: list[tuple[str, _Reader, bool]] = [("controller", _controller(colours), False)]
    lanes += [(f"node {node}", _alive(node, colours[node]), False) for node in sorted(colours)]
    lanes += [
        (f"{topic}-{partition}", _partition(topic, partition, colours), True)
        for topic, partition in partitions_of(samples)[:MOST_PARTITIONS]
    ]
    top, parts = _TOP, []
    for name, read, has_isr in lanes:
        parts.append(label(LEFT - 8, top + _LANE - 2, _short(name), anchor="end"))
        parts += _lane(name, _stretches(samples, read, scale), top)
        top += _LANE + _BETWEEN + (_ISR if has_isr else 0.0)
    bottom = top - _BETWEEN + 4
    content = bands(faults, scale, 4.0, 8.0, bottom) + scale.axis(_TOP - 6, bottom)
    return drawing(
        bottom + 26, content + "".join(parts), "Leadership and ISR over time", "leadership"
    )


def _short(name: str) -> str:
    return name if len(name) <= 15 else "…" + name[-14:]


def _controller(colours: dict[int, str]) -> _Reader:
    def read(sample: Sample) -> _Look:
        if sample.controller is None:
            return _Look(2, "none", "nobody is active")
        return _Look(0, colours.get(sample.controller, "n0"), f"node {sample.controller}")

    return read


def _alive(node: int, class_: str) -> _Reader:
    def read(sample: Sample) -> _Look:
        if node in sample.alive:
            return _Look(0, f"{class_} faint", "up")
        return _Look(1, "down", "not up")

    return read


def _partition(topic: str, partition: int, colours: dict[int, str]) -> _Reader:
    def read(sample: Sample) -> _Look | None:
        for state in sample.partitions:
            if state.partition == partition and state.topic == topic:
                return _state(state, colours)
        return None

    return read


def _state(state: PartitionState, colours: dict[int, str]) -> _Look:
    missing = len(set(state.replicas) - set(state.isr))
    isr = ", ".join(map(str, state.isr))
    if state.leader is None:
        return _Look(100, "none", f"no leader; ISR {isr}", missing)
    return _Look(
        missing,
        colours.get(state.leader, "n0"),
        f"leader {state.leader} (epoch {state.leader_epoch}); ISR {isr}",
        missing,
    )


def _lane(name: str, stretches: Iterable[_Stretch], top: float) -> Iterator[str]:
    for left, right, began_ms, look in stretches:
        width = right - left
        title = f"{name}: {look.text}, from {clock_time(began_ms / 1000)}"
        yield rectangle(left, top, width, _LANE, f"lane {look.class_}", title)
        if look.missing:
            height = min(_ISR, 1.0 + 1.5 * look.missing)
            yield rectangle(left, top + _LANE + 1, width, height, "isr", title)


def _stretches(samples: Sequence[Sample], read: _Reader, scale: TimeScale) -> Iterator[_Stretch]:
    """Equal neighbours are one."""
    columns: dict[int, tuple[float, _Look]] = {}
    for sample in samples:
        look = read(sample)
        column = int(scale.x(sample.at_ms))
        if look is not None:
            known = columns.get(column)
            if known is None or look.badness > known[1].badness:
                columns[column] = (sample.at_ms, look)
    end = float(LEFT + PLOT)
    current: tuple[int, float, _Look] | None = None
    for column, (at_ms, look) in sorted(columns.items()):
        if current is not None and current[2] == look:
            continue
        if current is not None:
            yield float(current[0]), float(column), current[1], current[2]
        current = (column, at_ms, look)
    if current is not None:
        yield float(current[0]), max(end, current[0] + 1.0), current[1], current[2]
