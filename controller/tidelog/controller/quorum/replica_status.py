"""What DescribeQuorum tells about the replicas; only a leader knows them.

When a replica was last caught up is noted at ticks: it had then all that was committed.
"""

from __future__ import annotations

from typing import Final

from tidelog.controller.quorum.interface import QuorumStatus, ReplicaStatus
from tidelog.controller.raft.model import ReplicaKey
from tidelog.controller.raft.node import QuorumStatus as NodeStatus
from tidelog.controller.raft.roles import Role
from tidelog.kernel.ports import Clock

_NEVER: Final = -1
"""What Kafka tells of a replica that the leader has not heard from since it was elected."""


class ReplicaTable:
    def __init__(self, key: ReplicaKey, clock: Clock) -> None:
        self._key = key
        self._clock = clock
        self._caught_up_ms: dict[ReplicaKey, int] = {}

    def note(self, status: NodeStatus) -> None:
        now_ms = self._clock.wall_ms()
        for replica in status.replicas:
            if replica.silent_ms is not None and replica.match_end >= status.high_watermark:
                self._caught_up_ms[replica.key] = int(now_ms - replica.silent_ms)

    def clear(self) -> None:
        self._caught_up_ms.clear()

    def describe(self, status: NodeStatus) -> QuorumStatus:
        leader = (status.leader_id, status.term, status.high_watermark)
        if status.role is not Role.LEADER:
            return QuorumStatus(*leader, ())
        self.note(status)
        now_ms = self._clock.wall_ms()
        own = ReplicaStatus(
            self._key, self._key in status.voters, status.log_end, 0, now_ms, now_ms
        )
        others = [
            ReplicaStatus(
                replica.key,
                replica.is_voter,
                replica.match_end,
                max(0, status.log_end - replica.match_end),
                _NEVER if replica.silent_ms is None else int(now_ms - replica.silent_ms),
                self._caught_up_ms.get(replica.key, _NEVER),
            )
            for replica in status.replicas
        ]
        rows = sorted([own, *others], key=lambda row: row.replica)
        return QuorumStatus(*leader, tuple(rows))
