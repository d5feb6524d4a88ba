"""A follower of one partition: what to fetch, and what to do with the answer. Pure.

Owner: the fetcher of the node, which sends `position`s to the leader and carries out what
`answered` decides. A machine lives for one leader epoch.

Theory. Two replicas that hold the same (offset, epoch) hold the same log up to there (KIP-101).
Every fetch says where this log ends and in which epoch; a leader whose history differs answers
with the point where it does instead of records (KIP-595), and this log is cut there, again and
again until the histories meet (KIP-279). It is never cut to its own high watermark, which is too
old to go by (hazard 1), and only by an answer to the question that is open (hazard 10), from a
leader of the same epoch (KIP-320, hazard 3).

How an answer finds its question: requests are numbered, and a partition that waits for an answer
remembers the number of the request that asked for it. An answer names the newest request its
leader had read. It counts for a partition that waits and asked no later than that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import LeaderEpoch, NodeId, Offset
from tidelog.storage.epoch_cache import UNDEFINED_END, EpochEnd

EndOf: TypeAlias = Callable[[LeaderEpoch], EpochEnd]
"""Where the local log ends an epoch, as ``EpochCache.end_offset_for`` answers it."""


@dataclass(frozen=True, slots=True)
class LocalLog:
    """Where this replica's log stands; ``last_epoch`` is None if it has no epochs."""

    log_start: Offset
    high_watermark: Offset
    flushed_end: Offset
    end: Offset
    last_epoch: LeaderEpoch | None
    clean_point: Offset = Offset(0)
    held_back_to: Offset = Offset(0)
    """Tombstones below it have outlived their time but for another replica; 0: none."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """One partition of an answer. ``size`` is that of the records, all chunks together."""

    code: ErrorCode
    leader_epoch: LeaderEpoch
    fetch_offset: Offset
    high_watermark: Offset
    log_start: Offset
    log_end: Offset
    diverging: EpochEnd | None = None
    size: int = 0
    min_clean_point: Offset = Offset(0)
    wanted_clean_point: Offset = Offset(0)


class Phase(Enum):
    READY = "ready"
    """Wants to ask, as soon as there is a stream."""
    WAITING = "waiting"
    """Has asked; an answer is due."""
    BACKING_OFF = "backing off"
    PARKED = "parked"
    """Does nothing until there is new metadata."""


# What an answer leads to. The shell carries it out on the log.


@dataclass(frozen=True, slots=True)
class Append:
    """Append the records, none beyond the leader's end and epoch, then move the high watermark to
    at most ``high_watermark``."""

    high_watermark: Offset
    log_start: Offset
    log_end: Offset
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class Note:
    """No records: only take over what the leader says about its log."""

    high_watermark: Offset
    log_start: Offset


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Also when it is the log's end: an epoch that began there without a record is forgotten.

    This replica may have led it for a moment; as long as it is the last epoch here, the leader
    answers every fetch with the same divergence.
    """

    offset: Offset
    is_below_high_watermark: bool = False
    """Legal only after an unclean election; worth a warning."""


@dataclass(frozen=True, slots=True)
class StartOverAt:
    """Nothing here connects with the leader's log any more: begin anew at its start."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class BackOff:
    until_ms: float
    code: ErrorCode


@dataclass(frozen=True, slots=True)
class AwaitMetadata:
    code: ErrorCode


@dataclass(frozen=True, slots=True)
class Ignore:
    why: str


Decision: TypeAlias = Append | Note | TruncateTo | StartOverAt | BackOff | AwaitMetadata | Ignore


class FollowerPartition:
    """See the module. Phases: READY → WAITING → READY, BACKING_OFF or PARKED."""

    __slots__ = (
        "_asked_at",
        "_asked_in",
        "_backoff_ms",
        "clean_floor",
        "leader",
        "leader_epoch",
        "phase",
        "retry_at_ms",
        "wanted_clean_point",
    )

    def __init__(self, leader: NodeId, leader_epoch: LeaderEpoch, backoff_ms: int) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.phase = Phase.READY
        self.retry_at_ms = 0.0
        self.clean_floor = Offset(0)
        """Below it every replica that counts is compacted; 0 until this leader has told."""
        self.wanted_clean_point = Offset(0)
        self._backoff_ms = backoff_ms
        self._asked_in = 0
        self._asked_at = Offset(0)

    def first_cut(self, log: LocalLog) -> TruncateTo | None:
        """Before the first fetch: without epochs, only what is committed can be trusted."""
        if log.last_epoch is None and log.end > log.high_watermark:
            return TruncateTo(log.high_watermark)
        return None

    # --- asking ------------------------------------------------------------------------

    def is_ready(self, now_ms: float) -> bool:
        if self.phase is Phase.BACKING_OFF and now_ms >= self.retry_at_ms:
            self.phase = Phase.READY
        return self.phase is Phase.READY

    def asked(self, correlation_id: int, fetch_offset: Offset) -> None:
        """A request that asks for this partition's records is on its way."""
        if self.phase is not Phase.READY:
            raise ValueError(f"a {self.phase.value} follower does not ask")
        self.phase = Phase.WAITING
        self._asked_in = correlation_id
        self._asked_at = fetch_offset

    def stream_lost(self) -> None:
        """What was asked will not be answered; ask again on the next stream."""
        if self.phase is Phase.WAITING:
            self.phase = Phase.READY

    # --- being answered ----------------------------------------------------------------

    def answered(
        self, now_ms: float, correlation_id: int, fetched: Fetched, log: LocalLog, end_of: EndOf
    ) -> Decision:
        if self.phase is not Phase.WAITING:
            return Ignore("nothing was asked")
        if correlation_id < self._asked_in:
            return Ignore("answers an earlier request")
        if fetched.code is not ErrorCode.NONE:
            return self._refused(now_ms, fetched, log)
        if fetched.leader_epoch != self.leader_epoch:
            return Ignore("another leader epoch")
        if fetched.diverging is not None:
            self.phase = Phase.READY
            return self._cut(fetched.diverging, log, end_of)
        self.clean_floor = fetched.min_clean_point
        self.wanted_clean_point = fetched.wanted_clean_point
        if fetched.size == 0:
            # News only, the fetch stays parked at the leader.
            return Note(fetched.high_watermark, fetched.log_start)
        self.phase = Phase.READY
        if fetched.fetch_offset != self._asked_at or log.end != self._asked_at:
            return Ignore("records for another place than the log's end")
        return Append(
            fetched.high_watermark, fetched.log_start, fetched.log_end, fetched.leader_epoch
        )

    def _cut(self, theirs: EpochEnd, log: LocalLog, end_of: EndOf) -> TruncateTo:
        """KIP-279: to the end of the last epoch both sides have."""
        ours = end_of(theirs.epoch)
        if ours == UNDEFINED_END:
            offset = min(theirs.end_offset, log.end)
        elif ours.epoch != theirs.epoch:
            # We lack that epoch; below ours the leader will be asked again.
            offset = min(ours.end_offset, log.end)
        else:
            offset = min(ours.end_offset, theirs.end_offset, log.end)
        return TruncateTo(offset, offset < log.high_watermark)

    def _refused(self, now_ms: float, fetched: Fetched, log: LocalLog) -> Decision:
        match fetched.code:
            case ErrorCode.OFFSET_OUT_OF_RANGE if fetched.leader_epoch == self.leader_epoch:
                return self._out_of_range(now_ms, fetched, log)
            case ErrorCode.FENCED_LEADER_EPOCH:
                # The leader is ahead of us; our metadata will say so soon.
                self.phase = Phase.PARKED
                return AwaitMetadata(fetched.code)
            case _:
                return self.back_off(now_ms, fetched.code)

    def _out_of_range(self, now_ms: float, fetched: Fetched, log: LocalLog) -> Decision:
        """The answer carries the leader's bounds, so no second question is needed."""
        self.phase = Phase.READY
        if fetched.log_end < log.end:
            return TruncateTo(fetched.log_end, fetched.log_end < log.high_watermark)
        if fetched.log_start > log.end:
            return StartOverAt(fetched.log_start)
        # The leader's log moved into range meanwhile, or never knew our epochs.
        return self.back_off(now_ms, fetched.code)

    def back_off(self, now_ms: float, code: ErrorCode) -> BackOff:
        """Ask again later; also after records that were damaged on their way or at the leader."""
        self.phase = Phase.BACKING_OFF
        self.retry_at_ms = now_ms + self._backoff_ms
        return BackOff(self.retry_at_ms, code)

    def park(self) -> None:
        """The log cannot be written any more: nothing is asked until this replica is reborn."""
        self.phase = Phase.PARKED


def high_watermark_after(told: Offset, log: LocalLog) -> Offset:
    """A follower's high watermark, which lags one round trip and never falls by itself.

    What it knew to be committed stays committed when a new leader, whose own high watermark
    lags, tells less.
    """
    return max(log.high_watermark, min(told, log.end))


def log_start_after(told: Offset, log: LocalLog) -> Offset:
    """Records that are gone at the leader go here too; beyond the end they are out of range."""
    return max(log.log_start, min(told, log.end))
