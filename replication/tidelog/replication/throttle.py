"""Throttles for the replicas that a reassignment moves (KIP-73). Pure.

Two topic settings name the throttled replicas, two broker settings their rates. Only what lags
is ever held back: the leader leaves a throttled follower that is *not in sync* without records
while the rate is used up, and a follower leaves throttled partitions out of its fetches. A
replica in sync is never throttled, since an acknowledgement would wait for it.
"""

from __future__ import annotations

from typing import Final

from tidelog.kernel.ids import NodeId, PartitionIndex

_WINDOWS: Final = 11
_WINDOW_MS: Final = 1000


def is_throttled(entries: tuple[str, ...], partition: PartitionIndex, broker: NodeId) -> bool:
    """Whether a list such as ``0:1,0:2`` or ``*`` names this replica."""
    return bool(entries) and ("*" in entries or f"{partition}:{broker}" in entries)


class ReplicationQuota:
    """Bytes per second over a sliding window of eleven seconds."""

    __slots__ = ("_counts", "rate")

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._counts: dict[int, int] = {}

    def record(self, now_ms: float, size: int) -> None:
        window = int(now_ms // _WINDOW_MS)
        self._counts[window] = self._counts.get(window, 0) + size
        if len(self._counts) > _WINDOWS:
            oldest = window - _WINDOWS
            self._counts = {w: n for w, n in self._counts.items() if w > oldest}

    def is_exceeded(self, now_ms: float) -> bool:
        oldest = int(now_ms // _WINDOW_MS) - _WINDOWS
        recent = {window: n for window, n in self._counts.items() if window > oldest}
        if not recent:
            return False
        elapsed_ms = max(now_ms - min(recent) * _WINDOW_MS, (_WINDOWS - 1) * _WINDOW_MS)
        return sum(recent.values()) * 1000 / elapsed_ms > self.rate

    @staticmethod
    def next_look_ms(now_ms: float) -> float:
        """When the oldest second drops out, and a quota that is exceeded may be free again."""
        return (now_ms // _WINDOW_MS + 1) * _WINDOW_MS
