"""One timer that is moved earlier at will and rings once: a wake-up for a task or callback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """Setting it costs nothing while it is already set for an earlier moment."""

    __slots__ = ("_at_s", "_handle", "_ring")

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._at_s = 0.0  # not every loop's handles can tell

    def set_in(self, delay_ms: float) -> None:
        """Ring in so long, or earlier if it was set for that."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + max(delay_ms, 0.0) / 1000
        if self._handle is not None:
            if self._at_s <= at_s:
                return
            self._handle.cancel()
        self._at_s = at_s
        self._handle = loop.call_at(at_s, self._on_time)

    def _on_time(self) -> None:
        self._handle = None
        self._ring()

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
