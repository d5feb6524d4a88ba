"""Whether a broker can reach the quorum, and when that is worth a line in the log (pure)."""

from __future__ import annotations

from typing import Final

REPEAT_MS: Final = 10_000.0


class QuorumReach:
    """Silence for longer than a session is told once, and then every ten seconds."""

    def __init__(self, now_ms: float, session_ms: float) -> None:
        self._heard_ms = now_ms
        self._session_ms = session_ms
        self._told_ms: float | None = None

    def heard(self, now_ms: float) -> bool:
        """An active controller answered; whether its absence had been told."""
        self._heard_ms = now_ms
        was_told, self._told_ms = self._told_ms is not None, None
        return was_told

    def since_ms(self, now_ms: float) -> float:
        """How long ago an active controller answered last."""
        return now_ms - self._heard_ms

    def silence_ms(self, now_ms: float) -> float | None:
        silent_ms = self.since_ms(now_ms)
        return None if silent_ms < self._session_ms else silent_ms

    def check(self, now_ms: float) -> float | None:
        """How long it has been silent, if that is to be told now."""
        silent_ms = self.silence_ms(now_ms)
        if silent_ms is None:
            return None
        if self._told_ms is not None and now_ms - self._told_ms < REPEAT_MS:
            return None
        self._told_ms = now_ms
        return silent_ms
