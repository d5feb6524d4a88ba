"""What consumers say inside the bytes of the classic protocol (protocol type "consumer").

A subscription has the topics a member wants and, from version 1 on, what it owns; an assignment
has what it gets. The coordinator only ever needs the topics; the rest is for the assignors.
Versions newer than the last known one are read as that one: fields are only ever added at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidelog.coordinator.record_fields import FieldReader, MalformedRecord, as_record, legacy_bytes
from tidelog.kernel.ids import PartitionIndex, TopicPartition
from tidelog.wire.protocol import primitives as p

CONSUMER: Final = "consumer"
"""The protocol type of consumers; others (Kafka Connect) put their own things into the bytes."""


@dataclass(frozen=True, slots=True)
class Subscription:
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None
    user_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def decode_subscription(data: bytes) -> Subscription:
    with as_record("a consumer's subscription"):
        reader = FieldReader(data)
        if reader.version < 0:
            raise MalformedRecord(f"version {reader.version} of a subscription: 0 is the first")
        topics = reader.array(reader.text)
        user_data = _nullable_bytes(reader)
        owned = _partitions(reader) if reader.version >= 1 else ()
        generation = reader.i32() if reader.version >= 2 else -1
        rack = reader.nullable_text() if reader.version >= 3 else None
    return Subscription(topics, owned, generation, rack, user_data)


def encode_subscription(subscription: Subscription) -> bytes:
    topics = b"".join(map(p.string, subscription.topics))
    return b"".join(
        (
            p.I16.pack(3),
            p.I32.pack(len(subscription.topics)) + topics,
            _encode_nullable(subscription.user_data),
            _encode_partitions(subscription.owned),
            p.I32.pack(subscription.generation),
            p.string(subscription.rack),
        )
    )


def decode_assignment(data: bytes) -> Assignment:
    with as_record("a consumer's assignment"):
        reader = FieldReader(data)
        return Assignment(_partitions(reader), _nullable_bytes(reader))


def encode_assignment(assignment: Assignment) -> bytes:
    parts = _encode_partitions(assignment.partitions)
    return p.I16.pack(3) + parts + _encode_nullable(assignment.user_data)


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members, or None if one of them cannot be read.

    None means: anything might be subscribed. Nothing may be removed because of it.
    """
    topics: set[str] = set()
    for data in subscriptions:
        try:
            topics.update(decode_subscription(data).topics)
        except MalformedRecord:
            return None
    return frozenset(topics)


def _nullable_bytes(reader: FieldReader) -> bytes | None:
    length = reader.i32()
    return None if length < 0 else reader.raw(length)


def _encode_nullable(data: bytes | None) -> bytes:
    return p.I32.pack(-1) if data is None else legacy_bytes(data)


def _partitions(reader: FieldReader) -> tuple[TopicPartition, ...]:
    groups = reader.array(lambda: (reader.text(), reader.array(reader.i32)))
    return tuple(
        TopicPartition(topic, PartitionIndex(index)) for topic, found in groups for index in found
    )


def _encode_partitions(partitions: tuple[TopicPartition, ...]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for each in partitions:
        by_topic.setdefault(each.topic, []).append(each.partition)
    pieces = [p.I32.pack(len(by_topic))]
    for topic, indexes in by_topic.items():
        pieces += (p.string(topic), p.I32.pack(len(indexes)), *map(p.I32.pack, indexes))
    return b"".join(pieces)
