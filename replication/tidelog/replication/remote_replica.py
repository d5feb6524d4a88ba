"""What a leader knows of one follower, all of it from the follower's fetches. Pure.

Two ends are kept apart (DESIGN 2.1): ``fetch_offset`` says what to send next, ``flushed_end``
what the follower will still have after a power failure. Everything that counts (high watermark,
admission to the ISR, being caught up) counts the flushed end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidelog.kernel.ids import NO_OFFSET, BrokerEpoch, NodeId, Offset

NEVER_MS = float("-inf")
NOBODY_HEARD: Mapping[NodeId, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class FollowerFetch:
    """One partition of a follower's fetch; ``last_fetched_epoch`` is None for an empty log."""

    follower: NodeId
    broker_epoch: BrokerEpoch
    leader_epoch: int
    fetch_offset: Offset
    flushed_end: Offset
    last_fetched_epoch: int | None
    log_start: Offset
    clean_point: Offset = Offset(0)
    held_back_to: Offset = Offset(0)


@dataclass(slots=True)
class RemoteReplica:
    """Offsets are −1 until the follower has fetched from this leader in this epoch."""

    broker: NodeId
    heard_ms: float
    last_caught_up_ms: float
    milestone_ms: float
    """When the leader's log ended at ``milestone_end``."""
    milestone_end: Offset
    flushed_end: Offset = NO_OFFSET
    fetch_offset: Offset = NO_OFFSET
    log_start: Offset = NO_OFFSET
    broker_epoch: BrokerEpoch | None = None
    clean_point: Offset = Offset(0)
    """Unknown counts as 0: then nothing may be dropped on the others (DESIGN 2.4)."""
    held_back_to: Offset = Offset(0)
    is_following: bool = True
    """False while it is silent: its ends may be those of a broker that is gone."""

    def fetched(self, now_ms: float, fetch: FollowerFetch, leader_end: Offset) -> None:
        """Take over a fetch that passed every check."""
        self.heard_ms = now_ms
        self.is_following = True
        self.broker_epoch = fetch.broker_epoch
        self.fetch_offset = fetch.fetch_offset
        self.flushed_end = min(fetch.flushed_end, fetch.fetch_offset)
        self.log_start = fetch.log_start
        self.clean_point = fetch.clean_point
        self.held_back_to = fetch.held_back_to
        if self.flushed_end >= leader_end:
            self.last_caught_up_ms = now_ms
        elif self.flushed_end >= self.milestone_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.milestone_ms)
        else:
            # The milestone stays until it is reached. Moving it with every message would leave
            # a follower behind for ever whose messages come faster than its disk is.
            return
        self.milestone_ms, self.milestone_end = now_ms, leader_end

    def leader_appended(self, now_ms: float, old_end: Offset) -> None:
        """A follower that waits at the end is up to date until the moment the end moves."""
        if self.flushed_end >= old_end and self.is_following:
            self.last_caught_up_ms = now_ms

    def is_caught_up(self, now_ms: float, leader_end: Offset, lag_time_max_ms: int) -> bool:
        if not self.is_following:
            return False
        if self.flushed_end >= leader_end:
            return True
        return now_ms - self.last_caught_up_ms <= lag_time_max_ms
