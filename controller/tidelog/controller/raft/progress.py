"""What a leader knows about one replica, and how fast it may send.

Three paces, as in etcd/raft. *Probe*: the place where the logs agree is not known, so one append
is out at a time. *Replicate*: appends are pipelined, ``next_offset`` runs ahead of the answers, and
the number in flight is bounded. *Snapshot*: the entries that the replica needs are gone.

Invariant: ``match_end`` is on the replica's stable storage and agrees with the leader's log; it
never goes back while the leader's term lasts. ``match_end <= next_offset`` always.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from tidelog.controller.raft.model import LOG_BEGIN, ReplicaKey, SnapshotId, Voters
from tidelog.kernel.ids import Offset


class Pace(Enum):
    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


@dataclass(slots=True)
class OutgoingSnapshot:
    snapshot: SnapshotId
    voters: Voters
    position: int
    sent_ms: float


@dataclass(slots=True)
class Progress:
    key: ReplicaKey
    next_offset: Offset
    last_contact_ms: float
    """When it last answered; until it has, when the leader began to wait for it."""
    has_answered: bool = False
    match_end: Offset = LOG_BEGIN
    pace: Pace = Pace.PROBE
    is_probe_out: bool = False
    probe_end: Offset = LOG_BEGIN
    inflight_ends: deque[Offset] = field(default_factory=deque)
    outgoing: OutgoingSnapshot | None = None

    def probe_from(self, offset: Offset) -> None:
        """Feel for the place where the logs agree, never below what is known to agree."""
        self.pace = Pace.PROBE
        self.next_offset = self.probe_end = max(offset, self.match_end)
        self.is_probe_out = False
        self.inflight_ends.clear()
        self.outgoing = None

    def send_snapshot(self, outgoing: OutgoingSnapshot) -> None:
        self.pace = Pace.SNAPSHOT
        self.is_probe_out = False
        self.inflight_ends.clear()
        self.outgoing = outgoing

    def has_sent(self, end: Offset) -> None:
        if self.pace is Pace.REPLICATE:
            self.inflight_ends.append(end)
            self.next_offset = end
        else:
            self.is_probe_out = True
            self.probe_end = end

    def was_accepted(self, match_end: Offset) -> bool:
        """True if this tells something new, so that the commit may move or more may be sent."""
        self._free_inflight(match_end)
        moved = match_end > self.match_end
        self.match_end = max(self.match_end, match_end)
        if self.pace is Pace.PROBE:
            # It may lack what the probe carried, if the answer is an older one or the replica's
            # disk is slow; the next heartbeat would then be rejected.
            self.pace = Pace.REPLICATE
            self.is_probe_out = False
            self.next_offset = max(self.match_end, self.probe_end)
            return True
        self.next_offset = max(self.next_offset, self.match_end)
        return moved

    def is_stale_rejection(self, prev_end: Offset) -> bool:
        match self.pace:
            case Pace.REPLICATE:
                return prev_end <= self.match_end
            case Pace.PROBE:
                return prev_end != self.next_offset
            case Pace.SNAPSHOT:
                return True

    def may_send(self, max_inflight: int) -> bool:
        match self.pace:
            case Pace.REPLICATE:
                return len(self.inflight_ends) < max_inflight
            case Pace.PROBE:
                return not self.is_probe_out
            case Pace.SNAPSHOT:
                return False

    def _free_inflight(self, match_end: Offset) -> None:
        while self.inflight_ends and self.inflight_ends[0] <= match_end:
            self.inflight_ends.popleft()
