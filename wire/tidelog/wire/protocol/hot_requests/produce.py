"""Produce requests, versions 3 to 13. The records stay views into the frame: nothing is copied.

Version 9 is the first flexible one, version 13 names topics by id (KIP-516). A field that a
version does not have holds the value that the schema gives it.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from tidelog.kernel.ids import ZERO_UUID, PartitionIndex, TopicId, Uuid
from tidelog.wire.protocol.errors import MalformedRequest
from tidelog.wire.protocol.primitives import (
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

_ACKS_TIMEOUT_COUNT: Final = struct.Struct(">hii")
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INDEX_LENGTH: Final = struct.Struct(">ii")
_NO_TOPIC_ID: Final = TopicId(ZERO_UUID)


class ProducePartition(NamedTuple):
    partition: PartitionIndex
    records: memoryview | None


class ProduceTopic(NamedTuple):
    name: str
    """Empty from version 13 on, which has ``topic_id``."""
    topic_id: TopicId
    partitions: list[ProducePartition]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


def decode_produce_request(version: int, body: memoryview) -> ProduceRequest:
    try:
        return _decode_flexible(version, body) if version >= 9 else _decode_legacy(body)
    except UNREADABLE as error:
        raise MalformedRequest(f"ProduceRequest v{version}: {error}") from error


def _decode_legacy(body: memoryview) -> ProduceRequest:
    end = len(body)
    left = MAX_ELEMENTS
    transactional_id, position = read_string(body, 0)
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(body, position)
    position += 10
    left -= checked_count(topic_count, end - position, 6, left)
    topics = []
    for _ in range(topic_count):
        name, position = read_string(body, position)
        (count,) = read_i32(body, position)
        position += 4
        left -= checked_count(count, end - position, 8, left)
        partitions = []
        for _ in range(count):
            index, length = _INDEX_LENGTH.unpack_from(body, position)
            position += 8
            records = None
            if length >= 0:
                records = take(body, position, length)
                position += length
            partitions.append(ProducePartition(index, records))
        topics.append(ProduceTopic(present(name, "topic name"), _NO_TOPIC_ID, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decode_flexible(version: int, body: memoryview) -> ProduceRequest:
    end = len(body)
    left = MAX_ELEMENTS
    transactional_id, position = read_compact_string(body, 0)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, position)
    topic_count, position = read_uvarint(body, position + 6)
    left -= checked_count(topic_count - 1, end - position, 3, left)
    topics = []
    for _ in range(topic_count - 1):
        if version >= 13:
            name, topic_id = "", TopicId(Uuid(bytes(take(body, position, 16))))
            position += 16
        else:
            text, position = read_compact_string(body, position)
            name, topic_id = present(text, "topic name"), _NO_TOPIC_ID
        count, position = read_uvarint(body, position)
        left -= checked_count(count - 1, end - position, 6, left)
        partitions = []
        for _ in range(count - 1):
            (index,) = read_i32(body, position)
            length, position = read_uvarint(body, position + 4)
            records = None
            if length:
                records = take(body, position, length - 1)
                position += length - 1
            if body[position] == 0:
                position += 1
            else:
                _, position, left = read_tags(body, position, left)
            partitions.append(ProducePartition(index, records))
        if body[position] == 0:
            position += 1
        else:
            _, position, left = read_tags(body, position, left)
        topics.append(ProduceTopic(name, topic_id, partitions))
    skip_tags(body, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)
