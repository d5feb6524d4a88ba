"""What a member of the metadata quorum counts for whoever watches it."""

from __future__ import annotations

from tidelog.kernel.ids import NodeId
from tidelog.kernel.meters import Spread


class QuorumMeters:
    """An election lasts, for each member, from when it knows of no leader until it knows one."""

    def __init__(self, now_ms: float) -> None:
        self.elections = 0
        self.election_durations_ms = Spread()
        self.commit_durations_ms = Spread()
        """From proposal to commit, on the leader."""
        self._leaderless_since_ms: float | None = now_ms

    def leader_changed(self, now_ms: float, leader_id: NodeId | None) -> None:
        if leader_id is None:
            if self._leaderless_since_ms is None:
                self._leaderless_since_ms = now_ms
            return
        self.elections += 1
        since_ms = now_ms if self._leaderless_since_ms is None else self._leaderless_since_ms
        self.election_durations_ms.observe(now_ms - since_ms)
        self._leaderless_since_ms = None

    def committed(self, began_ms: float, now_ms: float) -> None:
        self.commit_durations_ms.observe(now_ms - began_ms)
