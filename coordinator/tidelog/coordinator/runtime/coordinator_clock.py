"""The time that coordinators run on.

It starts as the time of day and then follows the stop watch, so that a calendar that jumps ends
nobody's session. Time in which this process stood still does not count either: members could not
be heard then (DESIGN 2.3). Alarms that ring late tell of it.
"""

from __future__ import annotations

from typing import Final

from tidelog.kernel.ids import TimestampMs
from tidelog.kernel.ports import Clock

_TOLERATED_MS: Final = 50.0
"""An alarm may be so late without anybody calling it a stall."""


class CoordinatorClock:
    __slots__ = ("_clock", "_judged_ms", "_offset_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._judged_ms = clock.monotonic_ms()
        self._offset_ms = clock.wall_ms() - self._judged_ms

    def now_ms(self) -> int:
        return int(self._clock.monotonic_ms() + self._offset_ms)

    def wall_ms(self) -> TimestampMs:
        """For timestamps of records."""
        return self._clock.wall_ms()

    def monotonic_ms(self) -> float:
        return self._clock.monotonic_ms()

    def rang(self, due_ms: float) -> None:
        """An alarm for ``due_ms`` of the stop watch rings now; what it is late counts once."""
        now_ms = self._clock.monotonic_ms()
        late_ms = now_ms - max(due_ms, self._judged_ms)
        if late_ms > _TOLERATED_MS:
            self._offset_ms -= late_ms
            self._judged_ms = now_ms
