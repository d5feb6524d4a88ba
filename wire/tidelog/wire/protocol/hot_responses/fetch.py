"""Fetch responses, versions 4 to 18, as a list of segments: records are not touched, only placed.

The records of a partition are bytes or a ``RecordsSlice``, of which only the length is read here;
the listener sends the file's bytes where the slice stands. The frame's size counts them, so fewer
bytes than announced leave no way but to close the connection.

Log start offsets came with version 5, sessions with 7 (KIP-227), preferred read replicas with 11
(KIP-392), flexible fields, diverging epochs, leaders and snapshots with 12 (KIP-595), topic ids
with 13 (KIP-516), the leaders' addresses with 16 (KIP-951).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    NO_LEADER_EPOCH,
    NO_NODE,
    NO_OFFSET,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicId,
)
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import ResponseFrame, Segment, response_prefix
from tidelog.wire.protocol.hot_responses.leaders import (
    UNKNOWN_LEADER,
    CurrentLeader,
    NodeEndpoint,
    encode_endpoints_tags,
    encode_leader,
)
from tidelog.wire.protocol.primitives import compact_string, string, tag_buffer, uvarint

_API: Final = APIS[ApiKey.FETCH]
_I32: Final = struct.Struct(">i")
_SESSION: Final = struct.Struct(">ihi")
_OLD_PARTITION: Final = struct.Struct(">ihqq")
_PARTITION: Final = struct.Struct(">ihqqq")
_PLAIN_FLEXIBLE_PARTITION: Final = struct.Struct(">ihqqqBi")
_ABORTED: Final = struct.Struct(">qq")
_ABORTED_TAGS: Final = struct.Struct(">qqB")
_DIVERGING: Final = struct.Struct(">iqB")
_SNAPSHOT: Final = struct.Struct(">qiB")


class AbortedTransaction(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset


class DivergingEpoch(NamedTuple):
    """The largest epoch of the leader not above the fetcher's, and where it ends (KIP-595)."""

    epoch: LeaderEpoch
    end_offset: Offset


class SnapshotId(NamedTuple):
    end_offset: Offset
    epoch: LeaderEpoch


NO_DIVERGENCE: Final = DivergingEpoch(NO_LEADER_EPOCH, NO_OFFSET)
NO_SNAPSHOT: Final = SnapshotId(NO_OFFSET, NO_LEADER_EPOCH)


class FetchPartitionResponse(NamedTuple):
    partition: PartitionIndex
    error_code: ErrorCode
    high_watermark: Offset = NO_OFFSET
    last_stable_offset: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    preferred_read_replica: NodeId = NO_NODE
    records: Segment | None = b""
    """None is null on the wire; Kafka sends no bytes instead, also with errors."""
    diverging_epoch: DivergingEpoch = NO_DIVERGENCE
    current_leader: CurrentLeader = UNKNOWN_LEADER
    snapshot_id: SnapshotId = NO_SNAPSHOT


class FetchTopicResponse(NamedTuple):
    name: str
    topic_id: TopicId
    partitions: Sequence[FetchPartitionResponse]


class FetchResponse(NamedTuple):
    topics: Sequence[FetchTopicResponse]
    error_code: ErrorCode = ErrorCode.NONE
    session_id: int = 0
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


class _Segments:
    """Bytes gather in ``pending`` until records come between."""

    __slots__ = ("pending", "placed", "placed_size")

    def __init__(self) -> None:
        self.pending = bytearray()
        self.placed: list[Segment] = []
        self.placed_size = 0

    def place(self, records: Segment, length: int) -> None:
        self.placed += (self.pending, records)
        self.placed_size += len(self.pending) + length
        self.pending = bytearray()


def encode_fetch(version: int, correlation_id: int, response: FetchResponse) -> ResponseFrame:
    out = _Segments()
    if version >= 12:
        _write_flexible(version, response, out)
    else:
        _write_legacy(version, response, out)
    body_size = out.placed_size + len(out.pending)
    prefix = response_prefix(_API, version, correlation_id, body_size)
    return ResponseFrame([prefix, *out.placed, out.pending], len(prefix) + body_size)


def _length(records: Segment) -> int:
    return len(records) if isinstance(records, bytes | bytearray | memoryview) else records.length


def _write_legacy(version: int, response: FetchResponse, out: _Segments) -> None:
    if version >= 7:
        out.pending += _SESSION.pack(
            response.throttle_time_ms, response.error_code, response.session_id
        )
    else:
        out.pending += _I32.pack(response.throttle_time_ms)
    out.pending += _I32.pack(len(response.topics))
    for topic in response.topics:
        out.pending += string(topic.name) + _I32.pack(len(topic.partitions))
        for partition in topic.partitions:
            _write_legacy_partition(version, partition, out)


def _write_legacy_partition(
    version: int, partition: FetchPartitionResponse, out: _Segments
) -> None:
    if version >= 5:
        out.pending += _PARTITION.pack(*partition[:5])
    else:
        out.pending += _OLD_PARTITION.pack(*partition[:4])
    aborted = partition.aborted_transactions
    out.pending += _I32.pack(-1 if aborted is None else len(aborted))
    for transaction in aborted or ():
        out.pending += _ABORTED.pack(*transaction)
    if version >= 11:
        out.pending += _I32.pack(partition.preferred_read_replica)
    if partition.records is None:
        out.pending += _I32.pack(-1)
        return
    length = _length(partition.records)
    out.pending += _I32.pack(length)
    if length:
        out.place(partition.records, length)


def _write_flexible(version: int, response: FetchResponse, out: _Segments) -> None:
    out.pending += _SESSION.pack(
        response.throttle_time_ms, response.error_code, response.session_id
    )
    out.pending += uvarint(len(response.topics) + 1)
    for topic in response.topics:
        out.pending += topic.topic_id.raw if version >= 13 else compact_string(topic.name)
        out.pending += uvarint(len(topic.partitions) + 1)
        for partition in topic.partitions:
            _write_flexible_partition(partition, out)
        out.pending += b"\0"
    out.pending += encode_endpoints_tags(response.node_endpoints) if version >= 16 else b"\0"


def _write_flexible_partition(partition: FetchPartitionResponse, out: _Segments) -> None:
    pending = out.pending
    aborted = partition.aborted_transactions
    if not aborted:
        pending += _PLAIN_FLEXIBLE_PARTITION.pack(
            *partition[:5], 0 if aborted is None else 1, partition.preferred_read_replica
        )
    else:
        pending += _PARTITION.pack(*partition[:5]) + uvarint(len(aborted) + 1)
        for transaction in aborted:
            pending += _ABORTED_TAGS.pack(*transaction, 0)
        pending += _I32.pack(partition.preferred_read_replica)
    if partition.records is None:
        pending += b"\0"
    else:
        length = _length(partition.records)
        pending += uvarint(length + 1)
        if length:
            out.place(partition.records, length)
    # Tags end the struct, so they stand behind the records.
    out.pending += b"\0" if partition[8:] == _NO_TAGS else _partition_tags(partition)


_NO_TAGS: Final = (NO_DIVERGENCE, UNKNOWN_LEADER, NO_SNAPSHOT)


def _partition_tags(partition: FetchPartitionResponse) -> bytes:
    tags: list[tuple[int, bytes]] = []
    if partition.diverging_epoch != NO_DIVERGENCE:
        tags.append((0, _DIVERGING.pack(*partition.diverging_epoch, 0)))
    if partition.current_leader != UNKNOWN_LEADER:
        tags.append((1, encode_leader(partition.current_leader)))
    if partition.snapshot_id != NO_SNAPSHOT:
        tags.append((2, _SNAPSHOT.pack(*partition.snapshot_id, 0)))
    return tag_buffer(tags)
