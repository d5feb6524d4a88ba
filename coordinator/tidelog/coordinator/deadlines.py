"""Which of many groups has to hear of the time next."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field


@dataclass(slots=True)
class Deadlines:
    """One deadline per name. A name that moves leaves an entry behind, which is passed over."""

    _queue: list[tuple[int, str]] = field(default_factory=list)
    _queued: dict[str, int] = field(default_factory=dict)

    def set(self, name: str, deadline_ms: int | None) -> None:
        if deadline_ms is None:
            self._queued.pop(name, None)
        elif self._queued.get(name) != deadline_ms:
            self._queued[name] = deadline_ms
            heapq.heappush(self._queue, (deadline_ms, name))

    def next_ms(self) -> int | None:
        while self._queue and self._queued.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def pop_due(self, now_ms: int) -> str | None:
        """A name whose deadline is reached; it has none until it is set again."""
        deadline_ms = self.next_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return None
        _, name = heapq.heappop(self._queue)
        del self._queued[name]
        return name
