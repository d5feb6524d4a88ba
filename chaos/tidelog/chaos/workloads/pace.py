"""How many records are due. Pure."""

from __future__ import annotations


class Pace:
    """So many per second; what could not be done within a second is not caught up with."""

    def __init__(self, per_s: float, now_s: float) -> None:
        self._per_s = per_s
        self._from_s = now_s

    def due(self, now_s: float) -> int:
        """How many may be done now; they count as done."""
        if now_s - self._from_s > 1.0:
            self._from_s = now_s - 1.0
        number = int((now_s - self._from_s) * self._per_s)
        self._from_s += number / self._per_s
        return number
