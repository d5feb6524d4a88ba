"""Time that does not pass while this process stood still (hazard 42).

A stalled event loop, a stopped VM or a long garbage collection looks to its owner as if all the
others had fallen silent. Deadlines are therefore kept in *running* time: real time minus what was
lost in stalls. A stall shows in two ways. Either nothing at all was stepped for longer than ticks
are apart, which is noticed at the first event after it, whatever that is; or a tick is handled
late because it waited behind other work. Time lost is never counted twice, also when a shell
delivers the ticks of a stall in one burst afterwards.
"""

from __future__ import annotations


class StallClock:
    def __init__(self, now_ms: float, tick_interval_ms: float) -> None:
        self._tick_interval_ms = tick_interval_ms
        self._tolerance_ms = 2 * tick_interval_ms
        self._now_ms = now_ms
        self._last_tick_ms = now_ms
        self._lost_ms = 0.0
        self._lost_at_last_tick_ms = 0.0

    @property
    def real_ms(self) -> float:
        return self._now_ms

    @property
    def running_ms(self) -> float:
        return self._now_ms - self._lost_ms

    @property
    def last_tick_ms(self) -> float:
        return self._last_tick_ms

    def observe(self, now_ms: float) -> None:
        """Called at every event, before it is judged."""
        gap_ms = now_ms - self._now_ms
        if gap_ms > self._tolerance_ms:
            self._lost_ms += gap_ms - self._tick_interval_ms
        self._now_ms = max(self._now_ms, now_ms)

    def tick(self, due_ms: float) -> None:
        """Called at a tick, after ``observe``."""
        late_ms = self._now_ms - max(due_ms, self._last_tick_ms)
        if late_ms > self._tolerance_ms:
            self._lost_ms = max(self._lost_ms, self._lost_at_last_tick_ms + late_ms)
        self._last_tick_ms = self._now_ms
        self._lost_at_last_tick_ms = self._lost_ms
