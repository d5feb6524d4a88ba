"""The follower's end of a fetch stream: which partitions the next request names, and how. Pure.

One instance serves all partitions that are followed from one leader, over one stream after the
other. It keeps three things to do: partitions that want to ask for records, partitions whose
progress (flushed end, log start, clean point) has moved while their fetch waits at the leader, and
partitions the leader may forget. The next request takes as much as there is in one message, so what
happens at once costs one message.

Partitions that ask go to the end of the line each time. Throttled ones are left out while the
rate is used up (KIP-73), and those that back off until their time has come.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Final

from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.ids import Offset
from tidelog.replication.follower import FollowerPartition, LocalLog, Phase
from tidelog.replication.throttle import ReplicationQuota

_SILENT: Final = frozenset({Phase.WAITING, Phase.BACKING_OFF})
"""Nothing is about to be asked that would carry the progress along."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One partition of a request; without ``wants_records`` it only reports progress."""

    ref: PartitionRef
    machine: FollowerPartition
    log: LocalLog
    wants_records: bool


@dataclass(frozen=True, slots=True)
class RequestPlan:
    correlation_id: int
    is_full: bool
    asks: tuple[Ask, ...]
    forgotten: tuple[PartitionRef, ...] = ()


@dataclass(slots=True)
class Followed:
    """A partition as the fetcher holds it; ``log`` is where its log stands now."""

    ref: PartitionRef
    machine: FollowerPartition
    log: LocalLog
    is_throttled: bool = False
    reported_flushed_end: Offset = Offset(-1)
    reported_log_start: Offset = Offset(-1)
    reported_cleaning: tuple[Offset, Offset] = (Offset(-1), Offset(-1))
    leader_end: Offset = Offset(0)
    """As last told; a partition that lags is the one a throttle is for."""

    @property
    def lags(self) -> bool:
        return self.log.end < self.leader_end


@dataclass(slots=True)
class FetchRequests:
    quota: ReplicationQuota
    followed: dict[PartitionRef, Followed] = field(default_factory=dict)
    _correlation_id: int = 0
    _needs_full: bool = True
    _asking: dict[PartitionRef, None] = field(default_factory=dict)
    _progressed: dict[PartitionRef, None] = field(default_factory=dict)
    _forgotten: dict[PartitionRef, None] = field(default_factory=dict)
    _delayed: list[tuple[float, PartitionRef]] = field(default_factory=list)
    _owes_sign_of_life: bool = False

    # --- what is followed --------------------------------------------------------------

    def follow(self, partition: Followed) -> None:
        self.followed[partition.ref] = partition
        self._forgotten.pop(partition.ref, None)
        self._asking[partition.ref] = None

    def unfollow(self, ref: PartitionRef) -> None:
        if self.followed.pop(ref, None) is not None:
            self._asking.pop(ref, None)
            self._progressed.pop(ref, None)
            if not self._needs_full:
                self._forgotten[ref] = None

    def stream_opened(self) -> None:
        """A new stream knows nothing: everybody asks again."""
        self._needs_full = True
        self._forgotten.clear()
        self._progressed.clear()
        for ref, partition in self.followed.items():
            partition.machine.stream_lost()
            self._asking[ref] = None

    # --- what wants to be said ---------------------------------------------------------

    def ask_again(self, ref: PartitionRef) -> None:
        """The partition's answer was dealt with, one way or another."""
        partition = self.followed.get(ref)
        if partition is None:
            return
        if partition.machine.phase is Phase.BACKING_OFF:
            heapq.heappush(self._delayed, (partition.machine.retry_at_ms, ref))
        elif partition.machine.phase is Phase.READY:
            self._asking.pop(ref, None)
            self._asking[ref] = None

    def progressed(self, ref: PartitionRef, log: LocalLog) -> bool:
        """The log was flushed, cut at the front or cleaned; True if the leader is to hear of it."""
        partition = self.followed.get(ref)
        if partition is None:
            return False
        partition.log = log
        if _is_told(partition):
            return False
        if partition.machine.phase in _SILENT:
            self._progressed[ref] = None
        return True

    def owe_sign_of_life(self) -> None:
        """The leader had nothing to say for a while; it wants to hear that we are there."""
        self._owes_sign_of_life = True

    # --- the next request --------------------------------------------------------------

    def asking(self) -> list[PartitionRef]:
        """Who will ask for records; their logs are looked at before the request is made."""
        return list(self._asking)

    def next_request(self, now_ms: float) -> RequestPlan | None:
        """Everything there is to say now; None if that is nothing."""
        self._wake_delayed(now_ms)
        asks = [
            self._ask(partition, wants_records=True)
            for ref in list(self._asking)
            if (partition := self._take_asking(ref, now_ms)) is not None
        ]
        asks += [
            self._ask(self.followed[ref], wants_records=False)
            for ref in self._progressed
            if ref not in self._asking
            and self.followed[ref].machine.phase in _SILENT
            and not _is_told(self.followed[ref])
        ]
        self._progressed.clear()
        if not (asks or self._forgotten or self._owes_sign_of_life):
            return None
        self._correlation_id += 1
        for ask in asks:
            if ask.wants_records:
                ask.machine.asked(self._correlation_id, ask.log.end)
        forgotten, self._forgotten = tuple(self._forgotten), {}
        is_full, self._needs_full = self._needs_full, False
        self._owes_sign_of_life = False
        return RequestPlan(self._correlation_id, is_full, tuple(asks), forgotten)

    def next_due_ms(self, now_ms: float) -> float | None:
        """When to look again although nothing happens: a back-off or a throttle ends."""
        due = [self._delayed[0][0]] if self._delayed else []
        if self._asking:
            due.append(self.quota.next_look_ms(now_ms))
        return min(due, default=None)

    def _wake_delayed(self, now_ms: float) -> None:
        while self._delayed and self._delayed[0][0] <= now_ms:
            _, ref = heapq.heappop(self._delayed)
            if ref in self.followed:
                self._asking[ref] = None

    def _take_asking(self, ref: PartitionRef, now_ms: float) -> Followed | None:
        partition = self.followed[ref]
        if not partition.machine.is_ready(now_ms):
            del self._asking[ref]
            return None
        if partition.is_throttled and partition.lags and self.quota.is_exceeded(now_ms):
            return None
        del self._asking[ref]
        return partition

    def _ask(self, partition: Followed, *, wants_records: bool) -> Ask:
        log = partition.log
        partition.reported_flushed_end = log.flushed_end
        partition.reported_log_start = log.log_start
        partition.reported_cleaning = (log.clean_point, log.held_back_to)
        return Ask(partition.ref, partition.machine, log, wants_records)


def _is_told(partition: Followed) -> bool:
    log = partition.log
    told = (partition.reported_flushed_end, partition.reported_log_start)
    return told == (log.flushed_end, log.log_start) and (
        partition.reported_cleaning == (log.clean_point, log.held_back_to)
    )
