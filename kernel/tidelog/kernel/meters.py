"""What rooms count for whoever watches a node: plain numbers, read when somebody asks.

Nothing here reports to anybody. A room keeps its meters beside its state and adds to them where
something happened, once per batch or request and never per record; the broker's HTTP side reads
them at each scrape. So they cost the same whether anyone looks or not, and take no part in what is
decided.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

LATENCY_BOUNDS_MS: Final = (
    0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 125.0, 250.0, 500.0,
    1_000.0, 2_000.0, 4_000.0, 8_000.0, 16_000.0, 32_000.0,
)  # fmt: skip
"""From a request answered out of memory to one that ran into every time-out there is."""


class Spread:
    """How many of the values seen were at most each of some bounds, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BOUNDS_MS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """One for each bound, of values above the bound before; the last is for all others."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)


def quantile(bounds: tuple[float, ...], counts: list[int], share: float) -> float:
    """The value below which this share lies, taken to be even between two bounds.

    What lies above the last bound is told as that bound; nothing at all as 0.
    """
    wanted = share * sum(counts)
    if not wanted:
        return 0.0
    below = 0
    lower = 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if below + count >= wanted:
            return lower + (bound - lower) * (wanted - below) / count
        below += count
        lower = bound
    return lower
