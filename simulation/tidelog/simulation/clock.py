"""A clock that moves only when it is told to, or when the virtual event loop does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.kernel.ids import TimestampMs

EPOCH_START_MS: Final = TimestampMs(1_767_225_600_000)
"""The calendar of a simulation starts at 2026-01-01T00:00:00Z."""


def _stands_still() -> float:
    return 0.0


class SimClock:
    """One node's clocks. ``elapsed_ms`` is where time comes from, such as a virtual loop.

    ``skew_ms`` is how far this node's calendar is off; changing it makes the calendar jump
    while the stop watch goes on evenly, as when a real clock is corrected.
    """

    __slots__ = ("_advanced_ms", "_elapsed_ms", "_start_wall_ms", "skew_ms")

    def __init__(
        self,
        start_wall_ms: int = EPOCH_START_MS,
        *,
        skew_ms: int = 0,
        elapsed_ms: Callable[[], float] = _stands_still,
    ) -> None:
        self._start_wall_ms = start_wall_ms
        self._elapsed_ms = elapsed_ms
        self._advanced_ms = 0.0
        self.skew_ms = skew_ms

    def wall_ms(self) -> TimestampMs:
        return TimestampMs(self._start_wall_ms + self.skew_ms + int(self.monotonic_ms()))

    def monotonic_ms(self) -> float:
        return self._elapsed_ms() + self._advanced_ms

    def advance(self, by_ms: float) -> None:
        """Move both clocks of this node ahead, on top of what ``elapsed_ms`` says."""
        if by_ms < 0:
            raise ValueError(f"time never goes back, so it cannot advance by {by_ms} ms")
        self._advanced_ms += by_ms
