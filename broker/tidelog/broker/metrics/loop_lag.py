"""How late the event loop is, and how busy: one timer, four times a second.

Whatever else was due was as late as this timer. The loop's thread is busy as long as it uses a
processor; what it waits for is not counted.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from tidelog.kernel.meters import Spread

_INTERVAL_S: Final = 0.25
_WINDOW_S: Final = 60.0
_BOUNDS_MS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 5_000.0)


class LoopLag:
    """``start`` on the loop that is watched; ``stop`` ends it."""

    def __init__(self) -> None:
        self.lateness_ms = Spread(_BOUNDS_MS)
        self.idle_share = 1.0
        """Of the last full window."""
        self._max_ms = [0.0, 0.0]
        self._window_began_s = 0.0
        self._busy_before_s = 0.0
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def max_ms(self) -> float:
        """Of this window and the one before."""
        return max(self._max_ms)

    def start(self) -> None:
        self._window_began_s = asyncio.get_running_loop().time()
        self._busy_before_s = time.thread_time()
        self._set()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set(self) -> None:
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + _INTERVAL_S
        self._timer = loop.call_at(self._due_s, self._look)

    def _look(self) -> None:
        now_s = asyncio.get_running_loop().time()
        # Timers of uvloop may be early by less than a millisecond.
        late_ms = max(0.0, (now_s - self._due_s) * 1000)
        self.lateness_ms.observe(late_ms)
        self._max_ms[0] = max(self._max_ms[0], late_ms)
        elapsed_s = now_s - self._window_began_s
        if elapsed_s >= _WINDOW_S:
            busy_s = time.thread_time()
            self.idle_share = min(1.0, max(0.0, 1 - (busy_s - self._busy_before_s) / elapsed_s))
            self._window_began_s, self._busy_before_s = now_s, busy_s
            self._max_ms = [0.0, self._max_ms[0]]
        self._set()
