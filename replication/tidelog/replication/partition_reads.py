"""The reading half of a partition: fetches, offsets by time, ends of epochs.

Every answer takes the high watermark and the log's bounds once (hazard 17: a response never shows
a record at or above the watermark it states).
"""

from __future__ import annotations

from collections.abc import Collection

from tidelog.controller.metadata.partitions import PartitionRef, PartitionState
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_LEADER_EPOCH, LeaderEpoch, NodeId, Offset, TimestampMs
from tidelog.replication import outcomes as o
from tidelog.replication.cluster_view import ClusterView
from tidelog.replication.follower import FollowerPartition
from tidelog.replication.leader import LeaderPartition
from tidelog.replication.meters import TopicMeter
from tidelog.replication.outcomes import IsolationLevel
from tidelog.replication.read_replica import nearest_replica
from tidelog.replication.waiting import FetchWaiter, Want
from tidelog.storage.epoch_cache import UNDEFINED_END, EpochEnd
from tidelog.storage.log import Log
from tidelog.storage.read import FoundByTime
from tidelog.wire.errors import MalformedBatch


class PartitionReads:
    """See the module; ``Partition`` is the only heir."""

    def __init__(self, ref: PartitionRef, log: Log, cluster: ClusterView) -> None:
        self.ref = ref
        self.log = log
        self.state: PartitionState | None = None
        self.leader: LeaderPartition | None = None
        self.follower: FollowerPartition | None = None
        self.failure: str | None = None
        """Why the replica is offline, for good."""
        self.meter = TopicMeter()
        """Of its topic; the owner gives all partitions of a topic the same one."""
        self._cluster = cluster
        self._waiters: dict[FetchWaiter, Want] = {}

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return NO_LEADER_EPOCH if self.state is None else self.state.leader_epoch

    @property
    def waiting_fetches(self) -> Collection[FetchWaiter]:
        """One that waits for several partitions is seen in each of them."""
        return self._waiters.keys()

    def fence(self, current_leader_epoch: int, *, leader_only: bool) -> ErrorCode:
        """Whether a request that knows this leader epoch (−1: any) may be served here."""
        if self.failure is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if self.leader is None and (leader_only or self.follower is None):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    # --- fetching ----------------------------------------------------------------------

    def read_for_consumer(
        self,
        offset: Offset,
        max_bytes: int,
        isolation: IsolationLevel,
        *,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        client: o.ClientMetadata | None = None,
        is_rack_aware: bool = False,
        whole_first: bool = True,
    ) -> o.ConsumerRead:
        """Records from ``offset`` on, below the high watermark or the last stable offset.

        Only a client that tells about itself may read from a follower (KIP-392); a leader may
        send it to a nearer replica instead. ``whole_first``: the first batch in full, however
        large (KIP-74).
        """
        self.meter.fetch_requests += 1
        code = self.fence(current_leader_epoch, leader_only=client is None)
        if code is not ErrorCode.NONE:
            self.meter.failed_fetch_requests += 1
            return o.ConsumerRead(code)
        log = self.log
        if last_fetched_epoch >= 0:
            ours = log.epochs.end_offset_for(last_fetched_epoch, log.end_offset)
            if ours == UNDEFINED_END or offset < log.log_start:
                return self._empty_read(ErrorCode.OFFSET_OUT_OF_RANGE)
            if ours.epoch < last_fetched_epoch or ours.end_offset < offset:
                return self._empty_read(ErrorCode.NONE, diverging=ours)
        if client is not None and client.rack and is_rack_aware and self.leader is not None:
            nearest = nearest_replica(self.leader, self._cluster, client.rack, offset)
            if nearest != self.leader.me:
                return self._empty_read(ErrorCode.NONE, preferred=nearest)
        try:
            return self._read(offset, max_bytes, isolation, whole_first)
        except OSError as error:
            return o.ConsumerRead(self._lost(error))

    def _lost(self, error: Exception) -> ErrorCode:
        """The disk could not be read; the heir, which has a node, reports it."""
        raise error

    def _read(
        self, offset: Offset, max_bytes: int, isolation: IsolationLevel, whole_first: bool
    ) -> o.ConsumerRead:
        log = self.log
        high_watermark = log.high_watermark
        stable = log.last_stable_offset
        is_committed = isolation is IsolationLevel.READ_COMMITTED
        found = log.read(
            offset, stable if is_committed else high_watermark, max_bytes, whole_first=whole_first
        )
        if isinstance(found, ErrorCode):
            return self._empty_read(found)
        aborted = tuple(log.aborted_transactions(offset, found)) if is_committed else ()
        # The beginning of a batch alone is of no use, and takes room from others.
        is_useless = not whole_first and found.length < found.first_batch_size
        records = None if is_useless else found.records
        return o.ConsumerRead(
            ErrorCode.NONE, high_watermark, stable, log.log_start, records, aborted
        )

    def _empty_read(
        self, code: ErrorCode, *, diverging: EpochEnd | None = None, preferred: int = -1
    ) -> o.ConsumerRead:
        log = self.log
        return o.ConsumerRead(
            code,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start,
            diverging=diverging,
            preferred_read_replica=NodeId(preferred),
        )

    # --- waiting for more --------------------------------------------------------------

    def attach(self, waiter: FetchWaiter, want: Want) -> None:
        self._waiters[waiter] = want

    def detach(self, waiter: FetchWaiter) -> None:
        self._waiters.pop(waiter, None)

    def _tell_waiters(self) -> None:
        """The high watermark moved, and perhaps the last stable offset."""
        if not self._waiters:
            return
        log = self.log
        stable = None
        for waiter, want in list(self._waiters.items()):
            limit = log.high_watermark
            if want.isolation is IsolationLevel.READ_COMMITTED:
                stable = log.last_stable_offset if stable is None else stable
                limit = stable
            if limit <= want.offset:
                continue
            if waiter.min_bytes <= 1:
                waiter.wake()
                continue
            try:
                found = log.read(want.offset, limit, want.max_bytes)
            except OSError:
                waiter.wake()  # its own read meets the error, and reports it
                continue
            if isinstance(found, ErrorCode):
                waiter.wake()
            else:
                waiter.grew(want, found.length)

    def _wake_waiters(self) -> None:
        """Leadership, log or epoch changed: every fetch looks again."""
        for waiter in list(self._waiters):
            waiter.wake()

    # --- offsets -----------------------------------------------------------------------

    def list_offset(
        self, timestamp: int, isolation: IsolationLevel | None, *, current_leader_epoch: int = -1
    ) -> o.ListedOffset:
        """ListOffsets; no isolation level means a replica that asks for the log's end."""
        code = self.fence(current_leader_epoch, leader_only=True)
        if code is not ErrorCode.NONE or self.leader is None:
            return o.ListedOffset(code)
        log = self.log
        last = self._last_fetchable(isolation)
        # The former leader may have told clients more than we know to be committed (hazard 8).
        is_known = isolation is None or self.leader.is_established
        match timestamp:
            case o.LATEST:
                if not is_known:
                    return o.ListedOffset(ErrorCode.OFFSET_NOT_AVAILABLE)
                return o.ListedOffset(
                    ErrorCode.NONE, last, TimestampMs(-1), self.leader.leader_epoch
                )
            case o.EARLIEST | o.EARLIEST_LOCAL:
                epoch = log.epochs.epoch_for_offset(log.log_start)
                return o.ListedOffset(
                    ErrorCode.NONE,
                    log.log_start,
                    leader_epoch=NO_LEADER_EPOCH if epoch is None else epoch,
                )
            case o.LATEST_TIERED | o.EARLIEST_PENDING_UPLOAD:
                return o.ListedOffset(ErrorCode.NONE)
            case _:
                try:
                    found = self._find(timestamp)
                except OSError as error:
                    return o.ListedOffset(self._lost(error))
                except MalformedBatch:
                    return o.ListedOffset(ErrorCode.CORRUPT_MESSAGE)
        if found is not None and found.offset < last:
            return o.ListedOffset(ErrorCode.NONE, found.offset, found.timestamp, found.leader_epoch)
        return o.ListedOffset(ErrorCode.NONE if is_known else ErrorCode.OFFSET_NOT_AVAILABLE)

    def _find(self, timestamp: int) -> FoundByTime | None:
        if timestamp == o.MAX_TIMESTAMP:
            return self.log.find_max_timestamp()
        return self.log.find_by_time(TimestampMs(timestamp))

    def _last_fetchable(self, isolation: IsolationLevel | None) -> Offset:
        match isolation:
            case IsolationLevel.READ_COMMITTED:
                return self.log.last_stable_offset
            case IsolationLevel.READ_UNCOMMITTED:
                return self.log.high_watermark
            case None:
                return self.log.end_offset

    def end_of_epoch(self, epoch: int, *, current_leader_epoch: int = -1) -> o.EpochAnswer:
        """OffsetForLeaderEpoch; the answer counts only in the epoch the asker named (KIP-320)."""
        code = self.fence(current_leader_epoch, leader_only=True)
        if code is not ErrorCode.NONE:
            return o.EpochAnswer(code, UNDEFINED_END)
        return o.EpochAnswer(
            ErrorCode.NONE, self.log.epochs.end_offset_for(epoch, self.log.end_offset)
        )
