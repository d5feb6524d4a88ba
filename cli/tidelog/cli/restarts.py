"""When to start a node again that ended: at once, and ever later if it keeps ending."""

from __future__ import annotations

from typing import Final

FIRST_DELAY_S: Final = 1.0
LONGEST_DELAY_S: Final = 30.0
LONG_LIFE_S: Final = 10.0
"""Whoever lived this long starts over with the first delay."""


class Restarts:
    def __init__(self) -> None:
        self._delays_s: dict[int, float] = {}
        self._started_s: dict[int, float] = {}
        self._due_s: dict[int, float] = {}

    def ended(self, node_id: int, now_s: float) -> float:
        """A node ended; in how many seconds it is due."""
        lived_s = now_s - self._started_s.get(node_id, float("-inf"))
        before_s = self._delays_s.get(node_id, 0.0) if lived_s < LONG_LIFE_S else 0.0
        delay_s = min(LONGEST_DELAY_S, before_s * 2 or FIRST_DELAY_S)
        self._delays_s[node_id] = delay_s
        self._due_s[node_id] = now_s + delay_s
        return delay_s

    def due(self, now_s: float) -> list[int]:
        """The nodes to start now; each is named once."""
        due = sorted(node_id for node_id, due_s in self._due_s.items() if due_s <= now_s)
        for node_id in due:
            del self._due_s[node_id]
            self._started_s[node_id] = now_s
        return due
