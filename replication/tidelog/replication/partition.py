"""One replica of a partition on this node: its log, and the machine that says what it may do.

Owner: ``ReplicaSet``. Everything here runs on the event loop and none of it awaits, so that no
other event falls between a machine's decision and its effect on the log.

A replica leads, follows, or does neither (no leader is elected, or its directory failed). What
follows from an append, a flush, a fetch or metadata goes through `_settle`: the high watermark is
carried over to the log, producers, consumers and followers that wait for it are told, and a change
of the ISR that was decided is sent to the controller.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Protocol, TypeVar

from tidelog.controller.decisions.alter_partition import PartitionReport
from tidelog.controller.metadata.partitions import PartitionRef, PartitionState
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    LeaderEpoch,
    NodeId,
    Offset,
    ProducerEpoch,
    ProducerId,
    Sequence,
)
from tidelog.kernel.ports import ByteView
from tidelog.kernel.settings import TopicConfig
from tidelog.replication.follower import FollowerPartition
from tidelog.replication.leader import (
    ALL,
    Answer,
    FetchVerdict,
    LeaderPartition,
    LeaderStart,
    Refused,
)
from tidelog.replication.outcomes import DeletedRecords, Produced
from tidelog.replication.partition_following import FollowingPartition, PartitionHost
from tidelog.replication.produce_waits import ProduceWaits
from tidelog.replication.remote_replica import FollowerFetch
from tidelog.storage.epoch_cache import UNDEFINED_END
from tidelog.storage.log import Appended, Log, LogFailed
from tidelog.storage.txn_verification import Verification
from tidelog.storage.validation import Origin, Rejected
from tidelog.wire.batch import is_transactional, read_header
from tidelog.wire.control import EndTxnMarker

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class FollowerWatch(Protocol):
    """A follower's stream, as a partition it fetches sees it."""

    def records_ready(self, ref: PartitionRef) -> None:
        """There are records behind the follower's end, or the log's start moved."""
        ...

    def watermark_moved(self, ref: PartitionRef) -> None: ...


class _ProduceWait:
    """A producer under acks=all, from its append to the answer."""

    __slots__ = ("future", "produced", "required_end", "timer")

    def __init__(
        self,
        future: asyncio.Future[Produced],
        produced: Produced,
        required_end: Offset,
        timer: asyncio.TimerHandle,
    ) -> None:
        self.future = future
        self.produced = produced
        self.required_end = required_end
        self.timer = timer

    def finish(self, code: ErrorCode) -> None:
        self.timer.cancel()
        if not self.future.done():
            is_ok = code is ErrorCode.NONE
            self.future.set_result(self.produced if is_ok else Produced(code))


def _expire(future: asyncio.Future[Produced], produced: Produced) -> None:
    """The batch is there and may still be committed, so its offset is told (as Kafka does)."""
    if not future.done():
        future.set_result(replace(produced, code=ErrorCode.REQUEST_TIMED_OUT))


class Partition(FollowingPartition):
    """See the module."""

    def __init__(self, host: PartitionHost, ref: PartitionRef, log: Log) -> None:
        super().__init__(host, ref, log)
        self.watches: dict[FollowerWatch, None] = {}
        self._waits: ProduceWaits[_ProduceWait] = ProduceWaits()
        self._deletions: list[tuple[Offset, asyncio.Future[DeletedRecords]]] = []

    @property
    def waiting_produces(self) -> int:
        return len(self._waits)

    # --- roles -------------------------------------------------------------------------

    def assume(self, state: PartitionState) -> None:
        """The partition as metadata has it now."""
        old = self.state
        if self.failure is not None or (
            old is not None and state.partition_epoch < old.partition_epoch
        ):
            return
        self.state = state
        is_same_role = old is not None and (old.leader, old.leader_epoch) == (
            state.leader,
            state.leader_epoch,
        )
        if is_same_role:
            if self.leader is not None:
                self.leader.updated(self._host.now_ms(), state)
                self._settle()
            return
        if state.leader == self._host.node_id:
            self._lead(state)
        else:
            self._follow(state)
        self._wake_waiters()
        self._host.role_changed(self)
        self._request_flush()

    def _lead(self, state: PartitionState) -> None:
        log = self.log
        self.follower = None
        # The epoch is on record before anything is appended in it (KIP-101).
        log.begin_epoch(state.leader_epoch)
        self.leader = LeaderPartition(
            self._host.node_id,
            self.ref,
            state,
            self._host.cluster,
            self._host.settings,
            log.config.min_insync_replicas,
            LeaderStart(self._host.now_ms(), log.end_offset, log.flushed_end, log.high_watermark),
        )
        self._settle()

    def _follow(self, state: PartitionState) -> None:
        self.leader = None
        self._end_waits(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.follower = None
        if not state.has_leader:
            return
        machine = FollowerPartition(
            state.leader, state.leader_epoch, self._host.settings.fetch_backoff_ms
        )
        cut = machine.first_cut(self.local())
        self.follower = machine
        if cut is not None:
            try:
                self._carry_out(cut, b"")
            except (LogFailed, OSError) as error:
                self._lost(error)

    def go_offline(self, reason: str) -> None:
        """Its directory failed: nothing is served from here until the node starts again."""
        if self.failure is None:
            self.failure = reason
            self.leader = self.follower = None
            self._end_waits(ErrorCode.KAFKA_STORAGE_ERROR)
            self._wake_waiters()
            self._host.role_changed(self)

    def close(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """The replica leaves this node: whoever waits is told."""
        self.leader = self.follower = self.state = None
        self._end_waits(code)
        self._wake_waiters()

    def _end_waits(self, code: ErrorCode) -> None:
        for wait in self._waits.all():
            wait.finish(code)
        deletions, self._deletions = self._deletions, []
        for _, future in deletions:
            if not future.done():
                future.set_result(DeletedRecords(code))

    def update_config(self, config: TopicConfig) -> None:
        if config == self.log.config:
            return
        self.log.update_config(config)
        if self.leader is not None:
            now_ms = self._host.now_ms()
            self.leader.configured(now_ms, self._host.settings, config.min_insync_replicas)
            self.leader.flushed(now_ms, self.log.flushed_end)
            self._settle()
        self._request_flush()

    # --- producing ---------------------------------------------------------------------

    def append(
        self,
        data: ByteView,
        *,
        acks: int,
        timeout_ms: float,
        origin: Origin = Origin.CLIENT,
        verification: Verification | None = None,
    ) -> asyncio.Future[Produced]:
        """Append one batch. The future is done at once unless acks is −1 (all).

        A batch that opens a transaction needs the verification that was begun for it.
        """
        leader = self.leader
        self.meter.produce_requests += 1
        if leader is None:
            return self._refused(Produced(self.fence(-1, leader_only=True)))
        code = leader.refusal_of_append(acks)
        if code is not ErrorCode.NONE:
            return self._refused(Produced(code))
        log = self.log
        if is_transactional(data):
            states = log.producers.states
            refused = states.refusal_of_first_write(read_header(data), verification)
            if refused is not None:
                return self._refused(Produced(refused, log_start=log.log_start))
        try:
            result = log.append_as_leader(
                data,
                leader_epoch=leader.leader_epoch,
                now_ms=self._host.clock.wall_ms(),
                origin=origin,
            )
        except (LogFailed, OSError) as error:
            return self._refused(Produced(self._lost(error), message=str(error)))
        self._count(result, len(data))
        return self._appended(leader, result, acks, timeout_ms)

    def _refused(self, produced: Produced) -> asyncio.Future[Produced]:
        self.meter.failed_produce_requests += 1
        return _done(produced)

    def _count(self, result: Appended | Rejected, size: int) -> None:
        if isinstance(result, Rejected):
            self.meter.failed_produce_requests += 1
            self.meter.bytes_rejected += size
        elif not result.is_duplicate:
            self.meter.messages_in += result.last_offset - result.base_offset + 1
            self.meter.bytes_in += size

    def begin_verification(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        sequence: Sequence,
        *,
        begins_epoch: bool,
    ) -> Verification | ErrorCode | None:
        """Before the coordinator is asked about a transactional batch; None: it need not be.

        ``begins_epoch``: every transaction of the client has an epoch of its own (KIP-890).
        """
        if self.leader is None:
            return self.fence(-1, leader_only=True)
        states = self.log.producers.states
        if states.has_open_transaction(producer_id, producer_epoch):
            return None
        return states.verifications.begin(
            producer_id,
            producer_epoch,
            sequence,
            self._host.clock.wall_ms(),
            begins_epoch=begins_epoch,
        )

    def append_marker(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        marker: EndTxnMarker,
        *,
        timeout_ms: float,
        begins_epoch: bool = False,
    ) -> asyncio.Future[Produced]:
        """End a transaction here; answered when the marker is replicated (acks=all)."""
        leader = self.leader
        if leader is None:
            return _done(Produced(self.fence(-1, leader_only=True)))
        code = leader.refusal_of_append(ALL)
        if code is not ErrorCode.NONE:
            return _done(Produced(code))
        try:
            result = self.log.append_marker(
                producer_id,
                producer_epoch,
                marker,
                leader_epoch=leader.leader_epoch,
                now_ms=self._host.clock.wall_ms(),
                begins_epoch=begins_epoch,
            )
        except (LogFailed, OSError) as error:
            return _done(Produced(self._lost(error), message=str(error)))
        return self._appended(leader, result, ALL, timeout_ms)

    def _appended(
        self, leader: LeaderPartition, result: Appended | Rejected, acks: int, timeout_ms: float
    ) -> asyncio.Future[Produced]:
        if isinstance(result, Rejected):
            return _done(
                Produced(result.code, message=result.message, bad_records=result.bad_records)
            )
        log = self.log
        if not result.is_duplicate:
            moved = leader.appended(self._host.now_ms(), log.end_offset, log.flushed_end)
            for watch in self.watches:
                watch.records_ready(self.ref)
            if moved:
                self._settle()
            self._request_flush()
        produced = Produced(
            ErrorCode.NONE, result.base_offset, result.log_append_time_ms, log.log_start
        )
        if acks != ALL:
            return _done(produced)
        return self._wait(leader, produced, Offset(result.last_offset + 1), timeout_ms)

    def _wait(
        self, leader: LeaderPartition, produced: Produced, required_end: Offset, timeout_ms: float
    ) -> asyncio.Future[Produced]:
        outcome = leader.outcome_of_append(required_end)
        if outcome is not None:
            return _done(produced if outcome is ErrorCode.NONE else Produced(outcome))
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Produced] = loop.create_future()
        timer = loop.call_later(timeout_ms / 1000, _expire, future, produced)
        self._waits.add(required_end, _ProduceWait(future, produced, required_end, timer))
        return future

    # --- what moved --------------------------------------------------------------------

    def _settle(self) -> None:
        """Carry over what the leader machine decided."""
        leader = self.leader
        if leader is None:
            return
        if leader.high_watermark > self.log.high_watermark:
            self.log.advance_high_watermark(leader.high_watermark)
            for wait in self._waits.reached(leader.high_watermark):
                wait.finish(leader.outcome_of_append(wait.required_end) or ErrorCode.NONE)
            self._tell_waiters()
            for watch in self.watches:
                watch.watermark_moved(self.ref)
        report = leader.take_report()
        if report is not None:
            self._host.send_report(self, report)
        if self._deletions:
            self._finish_deletions(leader)

    def flushed(self) -> None:
        """The flusher reports that the log's flushed end may have moved."""
        if self.leader is not None:
            if self.leader.flushed(self._host.now_ms(), self.log.flushed_end):
                self._settle()
        elif self.follower is not None:
            self._host.progressed(self)

    def flush_if_due(self) -> None:
        """On a tick: ``flush.ms`` of topics that rely on the page cache."""
        if self.failure is None:
            self._request_flush()

    def log_start_moved(self) -> None:
        """Retention or DeleteRecords may have raised the log's start: the other replicas hear."""
        if self.leader is not None:
            for watch in self.watches:
                watch.records_ready(self.ref)
        elif self.follower is not None:
            self._host.progressed(self)

    # --- the ISR -----------------------------------------------------------------------

    def check_isr(self, now_ms: float, heard_ms: dict[NodeId, float]) -> None:
        if self.leader is None:
            return
        if self.leader.check_isr(now_ms, heard_ms) or self._deletions:
            self._settle()

    def brokers_changed(self) -> None:
        if self.leader is not None:
            self.leader.brokers_changed(self._host.now_ms())
            self._settle()

    def is_open_report(self, report: PartitionReport) -> bool:
        return self.leader is not None and self.leader.pending_report is report

    def report_answered(
        self, report: PartitionReport, code: ErrorCode, state: PartitionState | None
    ) -> Answer:
        if self.leader is None:
            return Answer.STALE
        answer = self.leader.answered(self._host.now_ms(), report, code, state)
        if answer is Answer.ADOPTED:
            self.state = self.leader.state
        elif answer is Answer.REVERTED:
            self.meter.failed_isr_updates += 1
        self._settle()
        return answer

    # --- followers ---------------------------------------------------------------------

    def follower_fetched(self, fetch: FollowerFetch) -> FetchVerdict:
        """A fetch of another replica; its progress counts if it is accepted."""
        leader = self.leader
        if leader is None:
            code = self.fence(fetch.leader_epoch, leader_only=True)
            return Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER if code is ErrorCode.NONE else code)
        ours = UNDEFINED_END
        if fetch.last_fetched_epoch is not None:
            ours = self._end_of(LeaderEpoch(fetch.last_fetched_epoch))
        told = self.told_cleaning()
        verdict = leader.fetched(self._host.now_ms(), fetch, ours, self.log.log_start)
        self._settle()
        if self.told_cleaning() != told:
            self.cleaned()
        return verdict

    # --- compaction (DESIGN 2.4) -------------------------------------------------------

    def told_cleaning(self) -> tuple[Offset, Offset]:
        """What a leader tells of compaction: the least clean point, and the one that is wanted."""
        leader = self.leader
        if leader is None or not self.log.config.is_compacted:
            return Offset(0), Offset(0)
        least = leader.min_clean_point(self.clean_point)
        return least, leader.wanted_clean_point(self.held_back_to)

    def clean_floor(self) -> Offset:
        """Below it every replica is compacted: tombstones and markers may go.

        This one too, though a pass drops what a tombstone is for together with it: whoever
        begins to fetch from here in the middle of the pass may have got the one already, and
        would never see the other.
        """
        if self.leader is not None:
            return self.leader.min_clean_point(self.clean_point)
        return Offset(0) if self.follower is None else self.follower.clean_floor

    @property
    def is_cleaning_wanted(self) -> bool:
        """Another replica waits for this one to compact, or this one need not wait any more."""
        if self.leader is not None:
            wanted = self.leader.wanted_clean_point(Offset(0))
        else:
            wanted = Offset(0) if self.follower is None else self.follower.wanted_clean_point
        return wanted > self.clean_point or 0 < self.held_back_to <= self.clean_floor()

    def cleaned(self) -> None:
        """A clean point moved, here or on a follower: the other replicas hear."""
        for watch in self.watches:
            watch.watermark_moved(self.ref)
        if self.follower is not None:
            self._host.progressed(self)

    # --- deleting records --------------------------------------------------------------

    def delete_records(
        self, offset: Offset, *, timeout_ms: float
    ) -> asyncio.Future[DeletedRecords]:
        """Let go of everything below ``offset`` (−1: all that is committed), on all replicas."""
        leader, log = self.leader, self.log
        if leader is None:
            return _done(DeletedRecords(self.fence(-1, leader_only=True)))
        if not log.config.is_deleted:
            return _done(DeletedRecords(ErrorCode.POLICY_VIOLATION))
        target = log.high_watermark if offset == -1 else offset
        if not 0 <= target <= log.high_watermark:
            return _done(DeletedRecords(ErrorCode.OFFSET_OUT_OF_RANGE))
        if log.raise_log_start(target):
            self.log_start_moved()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[DeletedRecords] = loop.create_future()
        self._deletions.append((target, future))
        self._finish_deletions(leader)
        if not future.done():
            timer = loop.call_later(timeout_ms / 1000, self._expire_deletion, future)
            future.add_done_callback(lambda _: timer.cancel())
        return future

    def _finish_deletions(self, leader: LeaderPartition) -> None:
        lowest = leader.low_watermark(self.log.log_start)
        for target, future in self._deletions:
            if target <= lowest and not future.done():
                future.set_result(DeletedRecords(ErrorCode.NONE, lowest))
        self._deletions = [(t, future) for t, future in self._deletions if not future.done()]

    def _expire_deletion(self, future: asyncio.Future[DeletedRecords]) -> None:
        if not future.done():
            future.set_result(DeletedRecords(ErrorCode.REQUEST_TIMED_OUT))
            self._deletions = [(t, other) for t, other in self._deletions if other is not future]


def _done(result: _T) -> asyncio.Future[_T]:
    future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
    future.set_result(result)
    return future
