"""The machine's clocks."""

from __future__ import annotations

import time

from tidelog.kernel.ids import TimestampMs


class SystemClock:
    """The ``Clock`` of the operating system; its stop watch is the one asyncio's loop uses."""

    __slots__ = ()

    def wall_ms(self) -> TimestampMs:
        return TimestampMs(time.time_ns() // 1_000_000)

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0
