"""The leader's side of fetch streams: one `FollowerStream` for each follower that is connected.

A stream has two tasks: the handler, which reads requests and judges them at once, and a writer,
which sends what there is to say and sleeps otherwise. An append wakes the writers of the followers
that wait at the end of that partition; a move of the high watermark rides along with the next
message, or goes alone after a little while. If nothing was said for the request's ``max_wait_ms``
an empty answer goes out, and the follower answers that: so both know that the other is there.

A fetch that this node cannot judge yet, because the follower has seen newer metadata, is held for
as long and judged again when the metadata is here. Right after an election that saves a back-off.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final, Protocol

from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import BrokerEpoch, NodeId
from tidelog.kernel.peers import CallContext, PeerRefused, PeerStream, StreamReset
from tidelog.kernel.ports import Offload, Steps
from tidelog.replication.alarm import Alarm
from tidelog.replication.cluster_view import ClusterView
from tidelog.replication.fetch_answer import AnsweredPartition, FetchAnswer
from tidelog.replication.fetch_messages import (
    MalformedMessage,
    forgotten_refs,
    in_chunks,
    partition_fetches,
    ref_of,
    set_divergence,
    whole_batches,
)
from tidelog.replication.fetch_session import FetchSession, PartitionFetch, SessionPartition
from tidelog.replication.leader import Accepted, Diverged, FetchVerdict, Refused
from tidelog.replication.partition import Partition
from tidelog.replication.settings import MAX_CHUNK_BYTES
from tidelog.replication.throttle import ReplicationQuota, is_throttled
from tidelog.storage.log import Log
from tidelog.storage.read import FileSlice, LogRead
from tidelog.v1 import common_pb2
from tidelog.v1.replication_pb2 import (
    EpochAnswer,
    FetchedPartition,
    FetchRequest,
    OffsetsForEpochRequest,
    OffsetsForEpochResponse,
)

_NEWS_DELAY_MS: Final = 50.0
"""How long a moved high watermark waits for company; a failover does not depend on it."""

_HOT_BYTES: Final = 8 << 20
"""What was appended last is read on the loop: it is in the page cache. The rest is not trusted
to be, and a disk must not hold up everybody else."""

_MAY_BE_EARLY: Final = frozenset(
    {
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


class FetchHost(Protocol):
    """What the service needs of its node."""

    node_id: NodeId
    cluster: ClusterView
    heard_ms: dict[NodeId, float]
    leader_quota: ReplicationQuota

    @property
    def partitions(self) -> Mapping[PartitionRef, Partition]: ...

    def now_ms(self) -> float: ...

    def log_failed(self, log: Log, reason: str) -> None: ...


class FetchService:
    """Register `serve` for the ``Replication.Fetch`` stream."""

    def __init__(self, host: FetchHost, offload: Offload) -> None:
        self.host = host
        self.offload = offload
        self.streams: dict[NodeId, FollowerStream] = {}

    async def serve(
        self, context: CallContext, stream: PeerStream[FetchAnswer, FetchRequest]
    ) -> None:
        follower = context.caller.node_id
        served = FollowerStream(self, stream, follower)
        before = self.streams.get(follower)
        if before is not None:
            # What still lies in its queue is older than anything on the new stream.
            before.end()
        self.streams[follower] = served
        try:
            await served.run()
        finally:
            served.end()
            if self.streams.get(follower) is served:
                del self.streams[follower]

    def role_changed(self, ref: PartitionRef) -> None:
        """A partition here leads, follows, appeared or vanished."""
        for stream in self.streams.values():
            stream.role_changed(ref)

    async def offsets_for_epoch(
        self, context: CallContext, request: OffsetsForEpochRequest
    ) -> OffsetsForEpochResponse:
        """Register for ``Replication.OffsetsForEpoch``."""
        response = OffsetsForEpochResponse()
        for question in request.partitions:
            try:
                ref = ref_of(question.topic_id, question.partition)
            except MalformedMessage as error:
                raise PeerRefused("INVALID_REQUEST", str(error)) from error
            partition = self.host.partitions.get(ref)
            answer = EpochAnswer(topic_id=question.topic_id, partition=question.partition)
            if partition is None:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                found = partition.end_of_epoch(
                    question.epoch, current_leader_epoch=question.current_leader_epoch
                )
                answer.error_code = found.code
                if found.end.epoch >= 0:
                    end = common_pb2.EpochEnd(
                        epoch=found.end.epoch, end_offset=found.end.end_offset
                    )
                    answer.end.CopyFrom(end)
            response.partitions.append(answer)
        return response


class FollowerStream:
    """One connected follower; see the module."""

    def __init__(
        self,
        service: FetchService,
        stream: PeerStream[FetchAnswer, FetchRequest],
        follower: NodeId,
    ) -> None:
        self._host = service.host
        self._offload = service.offload
        self._stream = stream
        self._session = FetchSession(follower)
        self._verdicts: dict[PartitionRef, FetchVerdict] = {}
        self._unsettled: dict[PartitionRef, float] = {}
        self._news_since_ms: float | None = None
        self._said_ms = 0.0
        self._wake = asyncio.Event()
        self._alarm = Alarm(self._wake.set)
        self._is_over = False

    def end(self) -> None:
        """Another stream has taken its place, or the follower is gone."""
        if self._is_over:
            return
        self._is_over = True
        self._alarm.cancel()
        self._stream.close()
        for ref in self._session.partitions:
            self._unwatch(ref)

    # --- reading -----------------------------------------------------------------------

    async def run(self) -> None:
        self._said_ms = self._host.now_ms()
        writer = asyncio.get_running_loop().create_task(
            self._write(), name=f"serve fetches of {self._session.follower}"
        )
        writer.add_done_callback(lambda _: self.end())
        try:
            while not self._is_over:
                self._take(await self._stream.receive())
        except StreamReset:
            pass
        except MalformedMessage as error:
            raise PeerRefused("INVALID_REQUEST", str(error)) from error
        finally:
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError, StreamReset):
                await writer

    def _take(self, message: FetchRequest) -> None:
        session, host = self._session, self._host
        if self._is_over:
            return
        broker_epoch = BrokerEpoch(message.broker_epoch)
        if not session.requested(
            message.correlation_id, broker_epoch, message.max_wait_ms, message.max_bytes
        ):
            raise MalformedMessage(f"request {message.correlation_id} is out of order")
        host.heard_ms[session.follower] = host.now_ms()
        asked = partition_fetches(message, session.follower)
        gone = forgotten_refs(message)
        if message.is_full:
            gone += session.replace(one.ref for one in asked)
        for ref in gone:
            session.forget(ref)
            self._unwatch(ref)
        for one in asked:
            self._judge(session.take(one), one)
        if session.has_ready:
            self._wake.set()
        self._alarm.set_in(message.max_wait_ms)

    def _judge(self, entry: SessionPartition, asked: PartitionFetch | None = None) -> None:
        """Take a fetch into account, and decide whether there is something to answer."""
        ref = entry.ref
        partition = self._host.partitions.get(ref)
        if partition is None:
            verdict: FetchVerdict = Refused(ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            partition.watches[self] = None
            verdict = partition.follower_fetched(entry.fetch)
        if asked is not None and not asked.opens:
            return
        self._unsettled.pop(ref, None)
        self._verdicts.pop(ref, None)
        entry.is_unsettled = False
        match verdict:
            case Accepted():
                assert partition is not None
                if partition.log.end_offset > entry.fetch.fetch_offset or self._has_log_news(
                    entry, partition
                ):
                    self._session.mark_ready(ref)
                else:
                    self._mark_untold(entry, partition)
            case Refused(code=code) if code in _MAY_BE_EARLY:
                entry.is_unsettled = True
                self._verdicts[ref] = verdict
                self._unsettled[ref] = self._host.now_ms() + self._session.max_wait_ms
                self._alarm.set_in(self._session.max_wait_ms)
            case _:
                self._verdicts[ref] = verdict
                self._session.mark_ready(ref)

    def _mark_untold(self, entry: SessionPartition, partition: Partition) -> None:
        """Something may have moved while nobody was listening."""
        if (
            partition.log.high_watermark > max(entry.told_high_watermark, 0)
            or partition.told_cleaning() != entry.told_cleaning
        ):
            self.watermark_moved(entry.ref)

    @staticmethod
    def _has_log_news(entry: SessionPartition, partition: Partition) -> bool:
        return partition.log.log_start > entry.fetch.log_start

    def _unwatch(self, ref: PartitionRef) -> None:
        self._verdicts.pop(ref, None)
        self._unsettled.pop(ref, None)
        partition = self._host.partitions.get(ref)
        if partition is not None:
            partition.watches.pop(self, None)

    # --- what partitions tell ----------------------------------------------------------

    def records_ready(self, ref: PartitionRef) -> None:
        if self._session.mark_ready(ref):
            self._wake.set()

    def watermark_moved(self, ref: PartitionRef) -> None:
        if self._session.mark_news(ref) and self._news_since_ms is None:
            self._news_since_ms = self._host.now_ms()
            self._alarm.set_in(_NEWS_DELAY_MS)

    def role_changed(self, ref: PartitionRef) -> None:
        entry = self._session.partitions.get(ref)
        if entry is not None and entry.is_open:
            self._judge(entry)
            self._wake.set()

    # --- writing -----------------------------------------------------------------------

    async def _write(self) -> None:
        session = self._session
        while not self._is_over:
            await self._wake.wait()
            self._wake.clear()
            self._give_up_unsettled()
            while session.has_ready:
                response = await self._next_response()
                if not response.partitions:
                    break
                for message in in_chunks(response):
                    await self._stream.send(message)
                self._said_ms = self._host.now_ms()
            await self._say_small_things()

    async def _say_small_things(self) -> None:
        """News that waited long enough, and a sign of life when there is nothing else."""
        session, now_ms = self._session, self._host.now_ms()
        response = FetchAnswer(session.correlation_id)
        if self._news_since_ms is not None:
            due_in_ms = self._news_since_ms + _NEWS_DELAY_MS - now_ms
            if due_in_ms <= 0:
                self._add_news(response)
            else:
                self._alarm.set_in(due_in_ms)
        quiet_left_ms = self._said_ms + session.max_wait_ms - now_ms
        if response.partitions or (quiet_left_ms <= 0 and session.correlation_id > 0):
            await self._stream.send(response)
            self._said_ms = now_ms
            quiet_left_ms = session.max_wait_ms
        if session.correlation_id > 0:
            self._alarm.set_in(max(quiet_left_ms, 1.0))

    def _give_up_unsettled(self) -> None:
        """The metadata that would settle these fetches did not come: say so."""
        now_ms = self._host.now_ms()
        for ref, until_ms in list(self._unsettled.items()):
            if until_ms <= now_ms:
                del self._unsettled[ref]
                self._session.partitions[ref].is_unsettled = False
                self._session.mark_ready(ref)
            else:
                self._alarm.set_in(until_ms - now_ms)

    async def _next_response(self) -> FetchAnswer:
        """One message's worth of answers: up to a chunk of records, from several partitions."""
        session = self._session
        response = FetchAnswer(session.correlation_id)
        size = 0
        while size < MAX_CHUNK_BYTES:
            entry = session.next_ready()
            if entry is None:
                break
            verdict = self._verdicts.pop(entry.ref, None)
            partition = self._host.partitions.get(entry.ref)
            if verdict is not None or partition is None or partition.leader is None:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                self._add_refusal(response, entry, verdict or Refused(code), partition)
                continue
            read = self._read(entry, partition, MAX_CHUNK_BYTES - size)
            if read is None:
                # Being ready took the place of its news, which still have to be told.
                self._mark_untold(entry, partition)
                continue
            if size > 0 and read.first_batch_size > MAX_CHUNK_BYTES - size:
                session.mark_ready(entry.ref)  # it begins the next message
                break
            one = self._head(response, entry, partition)
            self._note_told(entry, partition)
            if read.records is None:
                continue
            session.sent(entry, read.records.length)
            is_hot, leader = self._is_hot(partition, read.records), partition.leader
            try:
                data = read.records.read() if is_hot else await self._read_cold(read.records)
            except OSError as error:
                self._host.log_failed(partition.log, f"reading failed: {error}")
                one.head.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                return response
            if partition.leader is not leader:
                one.head.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                return response
            one.records = whole_batches(data)
            self._count(entry, partition, len(one.records))
            size += len(one.records)
            if not is_hot:
                # Requests may have come meanwhile, which this answer does not name.
                return response
        if self._news_since_ms is not None and response.partitions:
            self._add_news(response)
        return response

    def _read(self, entry: SessionPartition, partition: Partition, room: int) -> LogRead | None:
        """What to send of a partition; None if it is nothing, or not now."""
        log = partition.log
        limit = min(entry.max_bytes, room, self._session.budget_bytes)
        if self._is_held_back(entry, partition):
            self._alarm.set_in(1000)
            asyncio.get_running_loop().call_later(1.0, self.records_ready, entry.ref)
            return None
        try:
            found = log.read(entry.fetch.fetch_offset, log.end_offset, limit)
        except OSError as error:
            self._host.log_failed(log, f"reading failed: {error}")
            found = ErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(found, ErrorCode):
            self._verdicts[entry.ref] = Refused(found)
            self._session.mark_ready(entry.ref)
            return None
        if found.records is None and not self._has_log_news(entry, partition):
            return None
        return found

    def _is_held_back(self, entry: SessionPartition, partition: Partition) -> bool:
        """KIP-73: a throttled follower that is not in sync waits while the rate is used up."""
        follower = self._session.follower
        entries = partition.log.config.leader_replication_throttled_replicas
        return (
            is_throttled(entries, entry.ref.partition, follower)
            and partition.leader is not None
            and follower not in partition.leader.maximal_isr
            and self._host.leader_quota.is_exceeded(self._host.now_ms())
        )

    def _count(self, entry: SessionPartition, partition: Partition, size: int) -> None:
        partition.meter.replication_bytes_out += size
        entries = partition.log.config.leader_replication_throttled_replicas
        if is_throttled(entries, entry.ref.partition, self._session.follower):
            self._host.leader_quota.record(self._host.now_ms(), size)

    @staticmethod
    def _is_hot(partition: Partition, records: FileSlice) -> bool:
        active = partition.log.segments.active
        return records.file is active.file and records.position >= active.size - _HOT_BYTES

    async def _read_cold(self, records: FileSlice) -> bytes:
        return await self._offload.run(_reading(records))

    def _head(
        self, response: FetchAnswer, entry: SessionPartition, partition: Partition | None
    ) -> AnsweredPartition:
        head = FetchedPartition(
            topic_id=entry.ref.topic_id.raw,
            partition=entry.ref.partition,
            fetch_offset=entry.fetch.fetch_offset,
        )
        if partition is not None:
            head.leader_epoch = partition.leader_epoch
            head.high_watermark = partition.log.high_watermark
            head.log_start_offset = partition.log.log_start
            head.log_end_offset = partition.log.end_offset
            least, wanted = partition.told_cleaning()
            if least:
                head.min_clean_point = least
            if wanted:
                head.wanted_clean_point = wanted
        one = AnsweredPartition(head)
        response.partitions.append(one)
        return one

    @staticmethod
    def _note_told(entry: SessionPartition, partition: Partition) -> None:
        entry.told_high_watermark = partition.log.high_watermark
        entry.told_cleaning = partition.told_cleaning()

    def _add_refusal(
        self,
        response: FetchAnswer,
        entry: SessionPartition,
        verdict: FetchVerdict,
        partition: Partition | None,
    ) -> None:
        head = self._head(response, entry, partition).head
        match verdict:
            case Diverged(end=end):
                set_divergence(head, end)
            case Refused(code=code):
                head.error_code = code
                if partition is not None and partition.state is not None:
                    head.leader_id = partition.state.leader
            case Accepted():
                raise AssertionError("an accepted fetch is answered with records")
        self._session.sent(entry, 0)

    def _add_news(self, response: FetchAnswer) -> None:
        """High watermarks and clean points that moved, for followers whose fetch stays open."""
        self._news_since_ms = None
        for entry in self._session.take_news():
            partition = self._host.partitions.get(entry.ref)
            if (
                partition is not None
                and partition.leader is not None
                and not entry.is_unsettled
                and partition.leader_epoch == entry.fetch.leader_epoch
                and (
                    partition.log.high_watermark > entry.told_high_watermark
                    or partition.told_cleaning() != entry.told_cleaning
                )
            ):
                self._head(response, entry, partition)
                self._note_told(entry, partition)


def _reading(records: FileSlice) -> Steps[bytes]:
    yield
    return records.read()
