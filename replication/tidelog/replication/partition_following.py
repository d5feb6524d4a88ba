"""The following half of a partition: what its leader sends is carried out on the log here.

`FollowerPartition` decides, this does: append, cut, start over, take over the leader's high
watermark and log start. Nothing awaits between a decision and its effect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, assert_never

from tidelog.controller.decisions.alter_partition import PartitionReport
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import LeaderEpoch, NodeId, Offset
from tidelog.kernel.ports import ByteView, Clock
from tidelog.replication import follower as f
from tidelog.replication.cluster_view import ClusterView
from tidelog.replication.follower import LocalLog
from tidelog.replication.partition_reads import PartitionReads
from tidelog.replication.settings import ReplicationSettings
from tidelog.storage.epoch_cache import EpochEnd
from tidelog.storage.flush_policy import flush_is_due
from tidelog.storage.leader_bounds import LeaderBounds
from tidelog.storage.log import Log, LogFailed, OffsetsNotContiguous
from tidelog.wire.errors import MalformedBatch

_log = logging.getLogger(__name__)


class PartitionHost(Protocol):
    """What a partition needs of its node."""

    node_id: NodeId
    clock: Clock
    cluster: ClusterView
    settings: ReplicationSettings

    def now_ms(self) -> float:
        """Running time, which stands still while this process does."""
        ...

    def request_flush(self, log: Log) -> None: ...

    def log_failed(self, log: Log, reason: str) -> None: ...

    def send_report(self, partition: FollowingPartition, report: PartitionReport) -> None: ...

    def role_changed(self, partition: FollowingPartition) -> None:
        """Another leader epoch, leader or failure."""
        ...

    def progressed(self, partition: FollowingPartition) -> None:
        """A follower's flushed end, log start or clean point moved."""
        ...


class FollowingPartition(PartitionReads):
    """See the module; ``Partition`` is the only heir."""

    def __init__(self, host: PartitionHost, ref: PartitionRef, log: Log) -> None:
        super().__init__(ref, log, host.cluster)
        self._host = host
        self.read_clean_point: Callable[[], Offset | None] = lambda: None
        self.held_back_to = Offset(0)
        """Behind the first tombstone or marker that the last pass kept for other replicas."""

    def __str__(self) -> str:
        return str(self.log.tp)

    def reading_failed(self, error: OSError) -> None:
        """Somebody who reads slices of the log by himself could not."""
        self._lost(error)

    def _lost(self, error: Exception) -> ErrorCode:
        """The disk failed under the log: the node takes its directory offline."""
        self._host.log_failed(self.log, str(error))
        return ErrorCode.KAFKA_STORAGE_ERROR

    def _end_of(self, epoch: LeaderEpoch) -> EpochEnd:
        return self.log.epochs.end_offset_for(epoch, self.log.end_offset)

    def _request_flush(self) -> None:
        if flush_is_due(self.log, self._host.clock.wall_ms()):
            self._host.request_flush(self.log)

    def local(self) -> LocalLog:
        log = self.log
        return LocalLog(
            log.log_start,
            log.high_watermark,
            log.flushed_end,
            log.end_offset,
            log.epochs.latest_epoch,
            self.clean_point,
            self.held_back_to,
        )

    @property
    def clean_point(self) -> Offset:
        """Up to where the log is compacted; what is gone is clean as well."""
        log = self.log
        if not log.config.is_compacted:
            return Offset(0)
        known = self.read_clean_point()
        if known is None or not log.log_start <= known <= log.end_offset:
            return log.log_start
        return known

    def take_answer(
        self, correlation_id: int, fetched: f.Fetched, records: ByteView
    ) -> f.Decision | None:
        """The leader's answer to this replica's fetch, carried out; None if nobody follows."""
        machine = self.follower
        if machine is None:
            return None
        decision = machine.answered(
            self._host.now_ms(), correlation_id, fetched, self.local(), self._end_of
        )
        try:
            return self._carry_out(decision, records)
        except (LogFailed, OSError) as error:
            machine.park()
            self._lost(error)
            return None

    def _carry_out(self, decision: f.Decision, records: ByteView) -> f.Decision:
        match decision:
            case f.Append():
                return self._append_fetched(decision, records)
            case f.Note(high_watermark=high_watermark, log_start=log_start):
                self._note(high_watermark, log_start)
            case f.TruncateTo(offset=offset, is_below_high_watermark=is_below):
                self._truncate(offset, is_below)
            case f.StartOverAt(offset=offset):
                _log.warning("%s starts over at %d: its leader's log begins there", self, offset)
                self.log.truncate_fully_and_start_at(offset, self._host.clock.wall_ms())
                self._request_flush()
                self._wake_waiters()
            case f.BackOff(code=code) | f.AwaitMetadata(code=code):
                _log.info("%s: its leader answered %s", self, code.name)
            case f.Ignore():
                pass
            case _:
                assert_never(decision)
        return decision

    def _append_fetched(self, decision: f.Append, records: ByteView) -> f.Decision:
        assert self.follower is not None
        before = self.log.end_offset
        code = ErrorCode.NONE
        try:
            bounds = LeaderBounds(decision.log_end, decision.leader_epoch)
            full = self.log.append_as_follower(records, self._host.clock.wall_ms(), bounds)
            if full is not None:
                _log.warning("%s: %s", self, full.message)
                code = full.code
            elif self.log.end_offset == before:
                code = ErrorCode.CORRUPT_MESSAGE
        except (MalformedBatch, OffsetsNotContiguous) as error:
            # Damaged on the way or at the leader. What was sound is kept, the rest is asked for
            # again; the log never takes in a batch whose checksum is wrong (hazard 14).
            _log.warning("%s: records from its leader are damaged: %s", self, error)
            code = ErrorCode.CORRUPT_MESSAGE
        if self.log.end_offset > before:
            self.meter.replication_bytes_in += len(records)
            self._request_flush()
        if code is not ErrorCode.NONE:
            return self.follower.back_off(self._host.now_ms(), code)
        self._note(decision.high_watermark, decision.log_start)
        return decision

    def _note(self, high_watermark: Offset, log_start: Offset) -> None:
        log, local = self.log, self.local()
        moved = f.high_watermark_after(high_watermark, local)
        if moved > log.high_watermark:
            log.advance_high_watermark(moved)
            self._tell_waiters()
        if log.raise_log_start(f.log_start_after(log_start, local)):
            self._host.progressed(self)

    def _truncate(self, offset: Offset, is_below_high_watermark: bool) -> None:
        log = self.log
        if is_below_high_watermark:
            _log.warning(
                "%s is cut to %d, below its high watermark %d: an unclean election",
                self, offset, log.high_watermark,
            )  # fmt: skip
        else:
            _log.info("%s is cut from %d to %d", self, log.end_offset, offset)
        if not log.truncate_to(offset, self._host.clock.wall_ms()) and (
            # An epoch this replica led without a record would make every fetch diverge.
            log.epochs.truncate_from_end(log.end_offset)
        ):
            log.epochs_are_dirty = True
        self._request_flush()
        self._wake_waiters()
