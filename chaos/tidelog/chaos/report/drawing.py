"""Elements of SVG and HTML, scales and ticks. Pure.

All text of a report goes through ``escaped``; elements are put together by ``element``, which
escapes attributes. Colours are classes: the page's style gives them their values, in light and
in dark.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 1120
LEFT: Final = 108
RIGHT: Final = 12
PLOT: Final = WIDTH - LEFT - RIGHT
"""What is left for the data."""

_TIME_STEPS_S: Final = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400,
)  # fmt: skip
_MOST_TIME_TICKS: Final = 12


def escaped(text: str) -> str:
    """For the content of an element and for attributes; what is no text becomes a question mark."""
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"), quote=True)


def element(name: str, content: str = "", **attributes: object) -> str:
    """``content`` is markup; ``class_`` and ``stroke_width`` become ``class``, ``stroke-width``."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{content}</{name}>"


def _value(value: object) -> str:
    return number(value) if isinstance(value, float) else escaped(str(value))


def number(value: float) -> str:
    """With a tenth of a pixel, which is enough."""
    return f"{value:.1f}".removesuffix(".0")


def titled(text: str) -> str:
    """What a browser shows when the pointer rests on the element around it."""
    return element("title", escaped(text))


def rectangle(left: float, top: float, width: float, height: float, class_: str, title: str) -> str:
    return element(
        "rect", titled(title) if title else "",
        class_=class_, x=float(left), y=float(top), width=float(width), height=float(height),
    )  # fmt: skip


def label(x: float, y: float, text: str, class_: str = "label", anchor: str = "start") -> str:
    return element("text", escaped(text), class_=class_, x=float(x), y=float(y), text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    return element("line", class_=class_, x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2))


def drawing(height: float, content: str, title: str, id_: str) -> str:
    """An image of the whole width, in a box that scrolls where the screen is narrower."""
    svg = element(
        "svg",
        titled(title) + content,
        id=id_, viewBox=f"0 0 {WIDTH} {number(height)}", role="img", aria_label=title,
    )  # fmt: skip
    return element("div", svg, class_="scroll")


@dataclass(frozen=True, slots=True)
class TimeScale:
    """From milliseconds of the run to places on the paper."""

    end_ms: float

    def x(self, at_ms: float) -> float:
        share = at_ms / self.end_ms if self.end_ms > 0 else 0.0
        return LEFT + PLOT * min(max(share, 0.0), 1.0)

    def ticks_s(self) -> Iterator[int]:
        span_s = self.end_ms / 1000
        fitting = (step for step in _TIME_STEPS_S if span_s / step <= _MOST_TIME_TICKS)
        step = next(fitting, max(1, math.ceil(span_s / _MOST_TIME_TICKS)))
        return iter(range(0, math.floor(span_s) + 1, step))

    def axis(self, top: float, bottom: float) -> str:
        """Upright lines and the times below them."""
        parts = []
        for tick_s in self.ticks_s():
            x = self.x(tick_s * 1000)
            parts.append(line(x, top, x, bottom, "grid"))
            parts.append(label(x, bottom + 16, clock_time(tick_s), anchor="middle"))
        return "".join(parts)


def clock_time(at_s: float) -> str:
    """``1:05``, or ``2:01:05`` from an hour on."""
    whole = int(at_s)
    hours, minutes, seconds = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def round_steps(most: float, count: int = 4) -> list[float]:
    """Zero and up to ``count`` round values, the last not below ``most``."""
    if most <= 0:
        return [0.0, 1.0]
    raw = most / count
    magnitude = 10 ** math.floor(math.log10(raw))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= raw)
    return [step * at for at in range(math.ceil(most / step) + 1)]


def decades(least: float, most: float) -> list[float]:
    """Powers of ten around two values above zero."""
    first = math.floor(math.log10(least))
    last = max(first + 1, math.ceil(math.log10(most)))
    return [10.0**power for power in range(first, last + 1)]
