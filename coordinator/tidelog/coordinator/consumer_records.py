"""Records of groups that speak the consumer protocol (KIP-848): key types 3 to 8, and 16.

All values are version 0 and flexible. Type 4 (partition metadata) is only ever deleted by brokers
of today, and its value kept as it is: the hash in the group's own record took its place.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from tidelog.coordinator.record_fields import FieldReader, MalformedRecord, as_record, i32_array
from tidelog.kernel.ids import Uuid
from tidelog.wire.protocol import primitives as p

EPOCH_KEY: Final = 3
PARTITION_METADATA_KEY: Final = 4
MEMBER_KEY: Final = 5
TARGET_EPOCH_KEY: Final = 6
TARGET_KEY: Final = 7
CURRENT_KEY: Final = 8
REGEX_KEY: Final = 16
KEY_TYPES: Final = (
    EPOCH_KEY,
    PARTITION_METADATA_KEY,
    MEMBER_KEY,
    TARGET_EPOCH_KEY,
    TARGET_KEY,
    CURRENT_KEY,
    REGEX_KEY,
)
_OF_A_MEMBER: Final = (MEMBER_KEY, TARGET_KEY, CURRENT_KEY)


@dataclass(frozen=True, slots=True)
class ConsumerKey:
    """``member_id`` and ``regex`` are None for the types that speak of the group as a whole."""

    key_type: int
    group: str
    member_id: str | None = None
    regex: str | None = None


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class ClassicProtocol:
    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class ClassicMemberMetadata:
    """Of a member that still speaks the classic protocol in a group that was upgraded."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMemberMetadata | None = None


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    epoch: int
    assigned_ms: int = 0


@dataclass(frozen=True, slots=True)
class AssignedTopic:
    """``epochs`` says since which member epoch each partition is held; None where not written."""

    topic_id: Uuid
    partitions: tuple[int, ...]
    epochs: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TargetAssignment:
    topics: tuple[AssignedTopic, ...]


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: tuple[AssignedTopic, ...]
    pending_revocation: tuple[AssignedTopic, ...]


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics an expression matched, at which version of the metadata, and when."""

    topics: tuple[str, ...]
    version: int
    resolved_ms: int


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Of brokers before the hash: not looked into."""

    raw: bytes


_Written = (
    GroupEpoch | ConsumerMember | TargetEpoch | TargetAssignment | CurrentAssignment | ResolvedRegex
)
ConsumerValue = _Written | PartitionMetadata


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    key: ConsumerKey
    value: ConsumerValue | None


def decode(key: bytes, value: bytes | None) -> ConsumerRecord:
    reader = FieldReader(key)
    group = reader.text()
    member = reader.text() if reader.version in _OF_A_MEMBER else None
    regex = reader.text() if reader.version == REGEX_KEY else None
    known = ConsumerKey(reader.version, group, member, regex)
    if value is None:
        return ConsumerRecord(known, None)
    with as_record(f"the value of a record of type {known.key_type}"):
        return ConsumerRecord(known, _decode_value(known.key_type, value))


def encode(record: ConsumerRecord) -> tuple[bytes, bytes | None]:
    key = p.I16.pack(record.key.key_type) + p.string(record.key.group)
    for part in (record.key.member_id, record.key.regex):
        key += b"" if part is None else p.string(part)
    match record.value:
        case None:
            return key, None
        case PartitionMetadata(raw):
            return key, raw
        case value:
            return key, p.I16.pack(0) + _encode_value(value)


def _decode_value(key_type: int, data: bytes) -> ConsumerValue:
    if key_type == PARTITION_METADATA_KEY:
        return PartitionMetadata(data)
    reader = FieldReader(data, flexible_from=0)
    if reader.version != 0:
        raise MalformedRecord(
            f"version {reader.version} of a record of type {key_type}: 0 is known"
        )
    if key_type == EPOCH_KEY:
        return GroupEpoch(reader.i32(), _i64(reader.tags().get(0)))
    if key_type == TARGET_EPOCH_KEY:
        return TargetEpoch(reader.i32(), _i64(reader.tags().get(0)))
    if key_type == MEMBER_KEY:
        return _decode_member(reader)
    if key_type == REGEX_KEY:
        return ResolvedRegex(reader.array(reader.text), reader.i64(), reader.i64())
    if key_type == TARGET_KEY:
        return TargetAssignment(reader.array(lambda: _topic(reader)))
    epochs = (reader.i32(), reader.i32(), reader.i8())
    return CurrentAssignment(
        *epochs, reader.array(lambda: _topic(reader)), reader.array(lambda: _topic(reader))
    )


def _decode_member(reader: FieldReader) -> ConsumerMember:
    instance, rack = reader.nullable_text(), reader.nullable_text()
    client, host = reader.text(), reader.text()
    topics = reader.array(reader.text)
    regex, timeout_ms, assignor = reader.nullable_text(), reader.i32(), reader.nullable_text()
    raw = reader.tags().get(0)
    classic = None if raw is None else _decode_classic(raw)
    return ConsumerMember(
        instance, rack, client, host, topics, regex, timeout_ms, assignor, classic
    )


def _decode_classic(raw: memoryview) -> ClassicMemberMetadata | None:
    """A nullable struct inside a tag: its first byte says whether it is there (1) or null (0)."""
    reader = FieldReader(b"\0\0" + raw.tobytes(), flexible_from=0)
    if reader.i8() == 0:
        return None
    session = reader.i32()

    def protocol() -> ClassicProtocol:
        found = ClassicProtocol(reader.text(), reader.blob())
        reader.tags()
        return found

    return ClassicMemberMetadata(session, reader.array(protocol))


def _topic(reader: FieldReader) -> AssignedTopic:
    topic_id, partitions = reader.uuid(), reader.array(reader.i32)
    raw = reader.tags().get(0)
    if raw is None:
        return AssignedTopic(topic_id, partitions)
    epochs = FieldReader(b"\0\0" + raw.tobytes(), flexible_from=0)
    return AssignedTopic(topic_id, partitions, epochs.array(epochs.i32))


def _i64(raw: memoryview | None) -> int:
    if raw is None:
        return 0
    (value,) = struct.unpack(">q", raw)
    return int(value)


def _encode_value(value: _Written) -> bytes:
    match value:
        case ResolvedRegex(topics, version, resolved_ms):
            names = p.uvarint(len(topics) + 1) + b"".join(map(p.compact_string, topics))
            return names + struct.pack(">qq", version, resolved_ms) + b"\0"
        case GroupEpoch(epoch, number) | TargetEpoch(epoch, number):
            tags = [(0, p.I64.pack(number))] if number else []
            return p.I32.pack(epoch) + p.tag_buffer(tags)
        case TargetAssignment(topics):
            return _encode_topics(topics) + b"\0"
        case CurrentAssignment():
            epochs = (value.member_epoch, value.previous_member_epoch, value.state)
            lists = _encode_topics(value.assigned) + _encode_topics(value.pending_revocation)
            return struct.pack(">iib", *epochs) + lists + b"\0"
        case ConsumerMember():
            return _encode_member(value)


def _encode_member(member: ConsumerMember) -> bytes:
    names = (member.instance_id, member.rack_id, member.client_id, member.client_host)
    topics = p.uvarint(len(member.topic_names) + 1)
    topics += b"".join(map(p.compact_string, member.topic_names))
    # Kafka writes this tag always, a null included.
    classic = b"\0" if member.classic is None else _encode_classic(member.classic)
    return b"".join(
        (
            b"".join(map(p.compact_string, names)),
            topics,
            p.compact_string(member.topic_regex),
            p.I32.pack(member.rebalance_timeout_ms),
            p.compact_string(member.server_assignor),
            p.tag_buffer([(0, classic)]),
        )
    )


def _encode_classic(classic: ClassicMemberMetadata) -> bytes:
    protocols = b"".join(
        p.compact_string(each.name) + p.uvarint(len(each.metadata) + 1) + each.metadata + b"\0"
        for each in classic.protocols
    )
    head = b"\1" + p.I32.pack(classic.session_timeout_ms)
    return head + p.uvarint(len(classic.protocols) + 1) + protocols + b"\0"


def _encode_topics(topics: tuple[AssignedTopic, ...]) -> bytes:
    return p.uvarint(len(topics) + 1) + b"".join(map(_encode_topic, topics))


def _encode_topic(topic: AssignedTopic) -> bytes:
    tags = [] if topic.epochs is None else [(0, i32_array(topic.epochs))]
    return topic.topic_id.raw + i32_array(topic.partitions) + p.tag_buffer(tags)
