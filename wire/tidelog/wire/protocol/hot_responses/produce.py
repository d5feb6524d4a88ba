"""Produce responses, versions 3 to 13.

Log start offsets came with version 5, errors of single records with 8 (KIP-467), flexible fields
with 9, the new leader with 10 (KIP-951) and topic ids instead of names with 13 (KIP-516).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    NO_OFFSET,
    NO_TIMESTAMP,
    ZERO_UUID,
    Offset,
    PartitionIndex,
    TimestampMs,
    TopicId,
)
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import ResponseFrame, frame_response
from tidelog.wire.protocol.hot_responses.leaders import (
    UNKNOWN_LEADER,
    CurrentLeader,
    NodeEndpoint,
    encode_endpoints_tags,
    encode_leader,
)
from tidelog.wire.protocol.primitives import compact_string, string, tag_buffer, uvarint

_API: Final = APIS[ApiKey.PRODUCE]
_I32: Final = struct.Struct(">i")
_OLD_PARTITION: Final = struct.Struct(">ihqq")
_PARTITION: Final = struct.Struct(">ihqqq")
_PLAIN_FLEXIBLE_PARTITION: Final = struct.Struct(">ihqqqBBB")
"""With no record errors, a null message and no tags: what nearly every answer is."""


class RecordError(NamedTuple):
    batch_index: int
    message: str | None = None


class ProducePartitionResponse(NamedTuple):
    partition: PartitionIndex
    error_code: ErrorCode
    base_offset: Offset = NO_OFFSET
    log_append_time: TimestampMs = NO_TIMESTAMP
    log_start_offset: Offset = NO_OFFSET
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: CurrentLeader = UNKNOWN_LEADER


class ProduceTopicResponse(NamedTuple):
    name: str
    topic_id: TopicId
    partitions: Sequence[ProducePartitionResponse]


class ProduceResponse(NamedTuple):
    topics: Sequence[ProduceTopicResponse]
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


NO_TOPIC_ID: Final = TopicId(ZERO_UUID)


def encode_produce(version: int, correlation_id: int, response: ProduceResponse) -> ResponseFrame:
    pieces: list[bytes] = []
    if version >= 9:
        _write_flexible(version, response, pieces)
    else:
        _write_legacy(version, response, pieces)
    return frame_response(_API, version, correlation_id, b"".join(pieces))


def _write_legacy(version: int, response: ProduceResponse, pieces: list[bytes]) -> None:
    pieces.append(_I32.pack(len(response.topics)))
    for topic in response.topics:
        pieces += (string(topic.name), _I32.pack(len(topic.partitions)))
        for partition in topic.partitions:
            if version < 5:
                pieces.append(_OLD_PARTITION.pack(*partition[:4]))
                continue
            pieces.append(_PARTITION.pack(*partition[:5]))
            if version >= 8:
                pieces.append(_I32.pack(len(partition.record_errors)))
                for error in partition.record_errors:
                    pieces += (_I32.pack(error.batch_index), string(error.message))
                pieces.append(string(partition.error_message))
    pieces.append(_I32.pack(response.throttle_time_ms))


def _write_flexible(version: int, response: ProduceResponse, pieces: list[bytes]) -> None:
    pieces.append(uvarint(len(response.topics) + 1))
    for topic in response.topics:
        pieces.append(topic.topic_id.raw if version >= 13 else compact_string(topic.name))
        pieces.append(uvarint(len(topic.partitions) + 1))
        for partition in topic.partitions:
            if partition[5:] == _PLAIN:
                pieces.append(_PLAIN_FLEXIBLE_PARTITION.pack(*partition[:5], 1, 0, 0))
            else:
                _write_flexible_partition(version, partition, pieces)
        pieces.append(b"\0")
    pieces.append(_I32.pack(response.throttle_time_ms))
    pieces.append(encode_endpoints_tags(response.node_endpoints) if version >= 10 else b"\0")


_PLAIN: Final = ((), None, UNKNOWN_LEADER)


def _write_flexible_partition(
    version: int, partition: ProducePartitionResponse, pieces: list[bytes]
) -> None:
    pieces.append(_PARTITION.pack(*partition[:5]))
    pieces.append(uvarint(len(partition.record_errors) + 1))
    for error in partition.record_errors:
        pieces += (_I32.pack(error.batch_index), compact_string(error.message), b"\0")
    pieces.append(compact_string(partition.error_message))
    if version >= 10 and partition.current_leader != UNKNOWN_LEADER:
        pieces.append(tag_buffer([(0, encode_leader(partition.current_leader))]))
    else:
        pieces.append(b"\0")
