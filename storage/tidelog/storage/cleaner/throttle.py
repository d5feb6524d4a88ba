"""How long the cleaner rests so that it moves no more than so many bytes per second. Pure."""

from __future__ import annotations

import math
from typing import Final

_WINDOW_MS: Final = 300


class Throttle:
    """Work is cut into windows of at most ``window_bytes``; behind each comes a rest."""

    __slots__ = ("_bytes_per_ms", "window_bytes")

    def __init__(self, max_bytes_per_second: float) -> None:
        if max_bytes_per_second <= 0:
            raise ValueError(
                f"log.cleaner.io.max.bytes.per.second must be above 0, not {max_bytes_per_second}"
            )
        self._bytes_per_ms = max_bytes_per_second / 1000
        self.window_bytes = max(1.0, self._bytes_per_ms * _WINDOW_MS)

    @property
    def is_unlimited(self) -> bool:
        return math.isinf(self._bytes_per_ms)

    def rest_ms(self, moved_bytes: int, took_ms: float) -> float:
        """How long to rest after so many bytes were moved in so much time."""
        return max(0.0, moved_bytes / self._bytes_per_ms - took_ms)
