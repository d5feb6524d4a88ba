"""Fetch requests, versions 4 to 18.

Sessions came with version 7 (KIP-227), flexible fields with 12, topic ids with 13 (KIP-516), the
replica's state as a tagged field with 15 (KIP-903), its directory with 17 (KIP-853) and its high
watermark with 18. A field that a version does not have holds the value the schema gives it.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from tidelog.kernel.ids import (
    NO_LEADER_EPOCH,
    NO_NODE,
    NO_OFFSET,
    ZERO_UUID,
    BrokerEpoch,
    DirectoryId,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    TopicId,
    Uuid,
)
from tidelog.wire.protocol.errors import MalformedRequest
from tidelog.wire.protocol.primitives import (
    I32,
    I64,
    MAX_ELEMENTS,
    UNREADABLE,
    checked_count,
    present,
    read_compact_string,
    read_i32,
    read_string,
    read_tags,
    read_uvarint,
    skip_tags,
    take,
)

UNKNOWN_HIGH_WATERMARK: Final = Offset(2**63 - 1)
NO_BROKER_EPOCH: Final = BrokerEpoch(-1)
FINAL_SESSION_EPOCH: Final = -1
"""The epoch of a fetch that neither has nor wants a session."""

_LIMITS: Final = struct.Struct(">iiib")
_SESSION: Final = struct.Struct(">ii")
_REPLICA_STATE: Final = struct.Struct(">iq")
_OLD_PARTITION: Final = struct.Struct(">iqi")
_PARTITION_WITH_LOG_START: Final = struct.Struct(">iqqi")
_PARTITION_WITH_EPOCH: Final = struct.Struct(">iiqqi")
_FLEXIBLE_PARTITION: Final = struct.Struct(">iiqiqi")
_NO_TOPIC_ID: Final = TopicId(ZERO_UUID)
_NO_DIRECTORY: Final = DirectoryId(ZERO_UUID)


class FetchPartition(NamedTuple):
    partition: PartitionIndex
    fetch_offset: Offset
    partition_max_bytes: int
    current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    last_fetched_epoch: LeaderEpoch = NO_LEADER_EPOCH
    log_start_offset: Offset = NO_OFFSET
    replica_directory_id: DirectoryId = _NO_DIRECTORY
    high_watermark: Offset = UNKNOWN_HIGH_WATERMARK


class FetchTopic(NamedTuple):
    name: str
    """Empty from version 13 on, which has ``topic_id``."""
    topic_id: TopicId
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions that leave the session."""

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionIndex, ...]


class FetchRequest(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    session_id: int = 0
    session_epoch: int = FINAL_SESSION_EPOCH
    rack_id: str = ""
    replica_id: NodeId = NO_NODE
    """−1 for a consumer."""
    replica_epoch: BrokerEpoch = NO_BROKER_EPOCH
    cluster_id: str | None = None


def decode_fetch_request(version: int, body: memoryview) -> FetchRequest:
    try:
        return _decode_flexible(version, body) if version >= 12 else _decode_legacy(version, body)
    except UNREADABLE as error:
        raise MalformedRequest(f"FetchRequest v{version}: {error}") from error


def _decode_legacy(version: int, body: memoryview) -> FetchRequest:
    (replica_id,) = read_i32(body, 0)
    max_wait_ms, min_bytes, max_bytes, isolation_level = _LIMITS.unpack_from(body, 4)
    position = 17
    session_id, session_epoch = 0, FINAL_SESSION_EPOCH
    if version >= 7:
        session_id, session_epoch = _SESSION.unpack_from(body, position)
        position += 8
    topics, left, position = _legacy_topics(version, body, position)
    forgotten: list[ForgottenTopic] = []
    if version >= 7:
        forgotten, position = _legacy_forgotten(body, position, left)
    rack_id = ""
    if version >= 11:
        text, position = read_string(body, position)
        rack_id = present(text, "rack id")
    return FetchRequest(
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        topics,
        forgotten,
        session_id,
        session_epoch,
        rack_id,
        NodeId(replica_id),
    )


def _legacy_topics(
    version: int, body: memoryview, position: int
) -> tuple[list[FetchTopic], int, int]:
    end = len(body)
    layout = _legacy_layout(version)
    (topic_count,) = read_i32(body, position)
    position += 4
    left = MAX_ELEMENTS - checked_count(topic_count, end - position, 6, MAX_ELEMENTS)
    topics = []
    for _ in range(topic_count):
        name, position = read_string(body, position)
        (count,) = read_i32(body, position)
        position += 4
        left -= checked_count(count, end - position, layout.size, left)
        raw = layout.iter_unpack(take(body, position, count * layout.size))
        position += count * layout.size
        partitions = [_legacy_partition(version, fields) for fields in raw]
        topics.append(FetchTopic(present(name, "topic name"), _NO_TOPIC_ID, partitions))
    return topics, left, position


def _legacy_layout(version: int) -> struct.Struct:
    if version >= 9:
        return _PARTITION_WITH_EPOCH
    return _PARTITION_WITH_LOG_START if version >= 5 else _OLD_PARTITION


def _legacy_partition(version: int, fields: tuple[int, ...]) -> FetchPartition:
    epoch, log_start = -1, -1
    if version >= 9:
        index, epoch, offset, log_start, max_bytes = fields
    elif version >= 5:
        index, offset, log_start, max_bytes = fields
    else:
        index, offset, max_bytes = fields
    return FetchPartition(
        PartitionIndex(index),
        Offset(offset),
        max_bytes,
        LeaderEpoch(epoch),
        NO_LEADER_EPOCH,
        Offset(log_start),
    )


def _legacy_forgotten(
    body: memoryview, position: int, left: int
) -> tuple[list[ForgottenTopic], int]:
    end = len(body)
    (topic_count,) = read_i32(body, position)
    position += 4
    left -= checked_count(topic_count, end - position, 6, left)
    forgotten = []
    for _ in range(topic_count):
        name, position = read_string(body, position)
        (count,) = read_i32(body, position)
        position += 4
        left -= checked_count(count, end - position, 4, left)
        partitions = struct.unpack_from(f">{count}i", body, position)
        position += 4 * count
        forgotten.append(ForgottenTopic(present(name, "topic name"), _NO_TOPIC_ID, partitions))
    return forgotten, position


def _decode_flexible(version: int, body: memoryview) -> FetchRequest:
    replica_id, position = -1, 0
    if version < 15:
        (replica_id,) = read_i32(body, 0)
        position = 4
    max_wait_ms, min_bytes, max_bytes, isolation_level = _LIMITS.unpack_from(body, position)
    session_id, session_epoch = _SESSION.unpack_from(body, position + 13)
    topics, left, position = _flexible_topics(version, body, position + 21)
    forgotten, position = _flexible_forgotten(version, body, position, left)
    rack_id, position = read_compact_string(body, position)
    request = FetchRequest(
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        topics,
        forgotten,
        session_id,
        session_epoch,
        present(rack_id, "rack id"),
        NodeId(replica_id),
    )
    return request if body[position] == 0 else _with_tags(version, request, body, position)


def _with_tags(
    version: int, request: FetchRequest, body: memoryview, position: int
) -> FetchRequest:
    tags, _, _ = read_tags(body, position, MAX_ELEMENTS)
    if (raw := tags.get(0)) is not None:
        request = request._replace(cluster_id=read_compact_string(raw, 0)[0])
    if (raw := tags.get(1)) is not None and version >= 15:
        replica_id, replica_epoch = _REPLICA_STATE.unpack_from(raw)
        skip_tags(raw, _REPLICA_STATE.size)
        request = request._replace(
            replica_id=NodeId(replica_id), replica_epoch=BrokerEpoch(replica_epoch)
        )
    return request


def _flexible_topics(
    version: int, body: memoryview, position: int
) -> tuple[list[FetchTopic], int, int]:
    end = len(body)
    topic_count, position = read_uvarint(body, position)
    left = MAX_ELEMENTS - checked_count(topic_count - 1, end - position, 3, MAX_ELEMENTS)
    topics = []
    for _ in range(topic_count - 1):
        name, topic_id, position = _topic(version, body, position)
        count, position = read_uvarint(body, position)
        left -= checked_count(count - 1, end - position, _FLEXIBLE_PARTITION.size + 1, left)
        partitions = []
        for _ in range(count - 1):
            index, epoch, offset, last_epoch, log_start, max_bytes = (
                _FLEXIBLE_PARTITION.unpack_from(body, position)
            )
            position += _FLEXIBLE_PARTITION.size
            partition = FetchPartition(index, offset, max_bytes, epoch, last_epoch, log_start)
            if body[position] == 0:
                position += 1
            else:
                tags, position, left = read_tags(body, position, left)
                partition = _with_partition_tags(version, partition, tags)
            partitions.append(partition)
        if body[position] == 0:
            position += 1
        else:
            _, position, left = read_tags(body, position, left)
        topics.append(FetchTopic(name, topic_id, partitions))
    return topics, left, position


def _topic(version: int, body: memoryview, position: int) -> tuple[str, TopicId, int]:
    if version >= 13:
        return "", TopicId(Uuid(bytes(take(body, position, 16)))), position + 16
    name, position = read_compact_string(body, position)
    return present(name, "topic name"), _NO_TOPIC_ID, position


def _with_partition_tags(
    version: int, partition: FetchPartition, tags: dict[int, memoryview]
) -> FetchPartition:
    if (raw := tags.get(0)) is not None and version >= 17:
        directory = DirectoryId(Uuid(bytes(take(raw, 0, 16))))
        partition = partition._replace(replica_directory_id=directory)
    if (raw := tags.get(1)) is not None and version >= 18:
        partition = partition._replace(high_watermark=Offset(I64.unpack_from(raw)[0]))
    return partition


def _flexible_forgotten(
    version: int, body: memoryview, position: int, left: int
) -> tuple[list[ForgottenTopic], int]:
    end = len(body)
    topic_count, position = read_uvarint(body, position)
    left -= checked_count(topic_count - 1, end - position, 3, left)
    forgotten = []
    for _ in range(topic_count - 1):
        name, topic_id, position = _topic(version, body, position)
        count, position = read_uvarint(body, position)
        left -= checked_count(count - 1, end - position, I32.size, left)
        partitions = struct.unpack_from(f">{count - 1}i", body, position)
        _, position, left = read_tags(body, position + 4 * (count - 1), left)
        forgotten.append(ForgottenTopic(name, topic_id, partitions))
    return forgotten, position
