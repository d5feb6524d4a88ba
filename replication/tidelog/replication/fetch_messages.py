"""The fetch stream's messages: from and to protobuf, and records cut into chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    TopicId,
    Uuid,
)
from tidelog.kernel.peers import Lane, Stream, Unary
from tidelog.kernel.ports import ByteView
from tidelog.replication.fetch_answer import AnsweredPartition, FetchAnswer
from tidelog.replication.fetch_requests import RequestPlan
from tidelog.replication.fetch_session import PartitionFetch
from tidelog.replication.follower import Fetched
from tidelog.replication.remote_replica import FollowerFetch
from tidelog.replication.settings import MAX_CHUNK_BYTES, ReplicationSettings
from tidelog.storage.epoch_cache import EpochEnd
from tidelog.v1 import common_pb2, replication_pb2
from tidelog.wire.batch import LOG_OVERHEAD

FETCH: Final = Stream(
    "/tidelog.v1.Replication/Fetch",
    replication_pb2.FetchRequest,
    FetchAnswer,
    Lane.BULK,
)
OFFSETS_FOR_EPOCH: Final = Unary(
    "/tidelog.v1.Replication/OffsetsForEpoch",
    replication_pb2.OffsetsForEpochRequest,
    replication_pb2.OffsetsForEpochResponse,
)


class MalformedMessage(ValueError):
    """A peer sent fields that make no sense; its stream is not worth going on with."""


def ref_of(topic_id: bytes, partition: int) -> PartitionRef:
    if len(topic_id) != 16 or partition < 0:
        raise MalformedMessage(f"no partition: topic id {topic_id.hex()}, index {partition}")
    return PartitionRef(TopicId(Uuid(topic_id)), PartitionIndex(partition))


# --- requests ------------------------------------------------------------------------------------


def request_message(
    plan: RequestPlan, broker_epoch: BrokerEpoch, settings: ReplicationSettings
) -> replication_pb2.FetchRequest:
    message = replication_pb2.FetchRequest(
        correlation_id=plan.correlation_id,
        broker_epoch=broker_epoch,
        max_wait_ms=settings.fetch_wait_max_ms,
        min_bytes=1,
        max_bytes=settings.fetch_response_max_bytes,
        is_full=plan.is_full,
    )
    for ask in plan.asks:
        log = ask.log
        message.partitions.add(
            topic_id=ask.ref.topic_id.raw,
            partition=ask.ref.partition,
            current_leader_epoch=ask.machine.leader_epoch,
            fetch_offset=log.end,
            flushed_end=log.flushed_end,
            last_fetched_epoch=log.last_epoch,
            log_start_offset=log.log_start,
            max_bytes=settings.fetch_max_bytes if ask.wants_records else 0,
            clean_point=log.clean_point or None,
            held_back_to=log.held_back_to or None,
        )
    for ref in plan.forgotten:
        message.forgotten.add(topic_id=ref.topic_id.raw, partition=ref.partition)
    return message


def partition_fetches(
    message: replication_pb2.FetchRequest, follower: NodeId
) -> list[PartitionFetch]:
    broker_epoch = BrokerEpoch(message.broker_epoch)
    return [_partition_fetch(one, follower, broker_epoch) for one in message.partitions]


def _partition_fetch(
    one: replication_pb2.FetchPartition, follower: NodeId, broker_epoch: BrokerEpoch
) -> PartitionFetch:
    if min(one.fetch_offset, one.flushed_end, one.log_start_offset, one.clean_point) < 0:
        raise MalformedMessage(f"negative offsets: {one}")
    last = one.last_fetched_epoch if one.HasField("last_fetched_epoch") else None
    fetch = FollowerFetch(
        follower,
        broker_epoch,
        one.current_leader_epoch,
        Offset(one.fetch_offset),
        Offset(one.flushed_end),
        last,
        Offset(one.log_start_offset),
        Offset(one.clean_point),  # absent reads as 0, which is what unknown means
        Offset(one.held_back_to),
    )
    return PartitionFetch(ref_of(one.topic_id, one.partition), fetch, one.max_bytes)


def forgotten_refs(message: replication_pb2.FetchRequest) -> list[PartitionRef]:
    return [ref_of(key.topic_id, key.partition) for key in message.forgotten]


# --- answers -------------------------------------------------------------------------------------


def fetched_of(one: replication_pb2.FetchedPartition, size: int) -> Fetched:
    diverging = None
    if one.HasField("diverging_epoch"):
        theirs = one.diverging_epoch
        diverging = EpochEnd(LeaderEpoch(theirs.epoch), Offset(theirs.end_offset))
    return Fetched(
        _error_code(one.error_code),
        LeaderEpoch(one.leader_epoch),
        Offset(one.fetch_offset),
        Offset(one.high_watermark),
        Offset(one.log_start_offset),
        Offset(one.log_end_offset),
        diverging,
        size,
        Offset(one.min_clean_point),
        Offset(one.wanted_clean_point),
    )


def _error_code(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def set_divergence(one: replication_pb2.FetchedPartition, end: EpochEnd) -> None:
    one.diverging_epoch.CopyFrom(common_pb2.EpochEnd(epoch=end.epoch, end_offset=end.end_offset))


def whole_batches(data: bytes) -> ByteView:
    """Without the batch at the end that a byte limit cut, unless it is the only one."""
    position, end = 0, len(data)
    while position + LOG_OVERHEAD <= end:
        size = LOG_OVERHEAD + int.from_bytes(data[position + 8 : position + 12], "big")
        if size <= LOG_OVERHEAD or position + size > end:
            break
        position += size
    return data if position in (0, end) else memoryview(data)[:position]


def in_chunks(answer: FetchAnswer) -> Iterator[FetchAnswer]:
    """The answer as messages of at most ``MAX_CHUNK_BYTES`` of records each.

    Only a single batch can be larger; it is alone in its answer then.
    """
    if len(answer.partitions) != 1 or len(answer.partitions[0].records) <= MAX_CHUNK_BYTES:
        yield answer
        return
    [whole] = answer.partitions
    records, head = memoryview(whole.records), whole.head
    while records:
        chunk, records = records[:MAX_CHUNK_BYTES], records[MAX_CHUNK_BYTES:]
        head.records_remaining = len(records)
        part = AnsweredPartition(head, chunk)
        yield FetchAnswer(answer.correlation_id, 0, [part], has_more=len(records) > 0)
        head = replication_pb2.FetchedPartition(
            topic_id=whole.head.topic_id, partition=whole.head.partition
        )


class ChunkJoiner:
    """Puts the chunks of an answer together again; one partition at a time is unfinished."""

    def __init__(self) -> None:
        self._head: replication_pb2.FetchedPartition | None = None
        self._records = bytearray()

    def take(self, one: AnsweredPartition) -> AnsweredPartition | None:
        """The answer with all its records, or None while more is to come."""
        remaining = one.head.records_remaining
        if self._head is None and not remaining:
            return one
        if self._head is None:
            self._head = one.head
        elif _key(one.head) != _key(self._head):
            raise MalformedMessage("chunks of two partitions are mixed")
        self._records += one.records
        if remaining:
            return None
        joined = AnsweredPartition(self._head, self._records)
        self._head, self._records = None, bytearray()
        return joined


def _key(head: replication_pb2.FetchedPartition) -> tuple[bytes, int]:
    return head.topic_id, head.partition
