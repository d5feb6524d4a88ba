"""The records of ``__consumer_offsets`` as Kafka writes them, so that Kafka's tools read ours.

A key is a 16-bit type and its fields, a value a 16-bit version and its fields; no value at all is
a tombstone. Offsets are written in version 4 (with the topic's id where it is known), or in
version 1 where the client asked for a retention time of its own; classic groups in version 3.
Versions 0 to 4 of both are read.

Types that are unknown here are kept as ``UnsupportedRecord``: a loader skips them, and says so.
Records of the consumer protocol (KIP-848) are in ``consumer_records``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tidelog.coordinator import consumer_records as consumer
from tidelog.coordinator.record_fields import (
    FieldReader,
    MalformedRecord,
    as_record,
    legacy_bytes,
)
from tidelog.kernel.ids import ZERO_UUID, Uuid
from tidelog.wire.protocol import primitives as p

OFFSET_KEYS: Final = (0, 1)
GROUP_KEY: Final = 2
_NEWEST: Final = 4
_TOPIC_ID_TAG: Final = 0


@dataclass(frozen=True, slots=True, order=True)
class OffsetKey:
    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetValue:
    """A committed offset. ``expire_ms`` is set only where a client of old asked for it."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None = None
    topic_id: Uuid = ZERO_UUID


@dataclass(frozen=True, slots=True)
class GroupKey:
    group: str


@dataclass(frozen=True, slots=True)
class StoredMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupValue:
    """A classic group at the end of a rebalance; no members means that it is Empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_changed_ms: int
    members: tuple[StoredMember, ...]


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    key: OffsetKey
    value: OffsetValue | None


@dataclass(frozen=True, slots=True)
class GroupRecord:
    key: GroupKey
    value: GroupValue | None


@dataclass(frozen=True, slots=True)
class UnsupportedRecord:
    """A type this version does not know: to be skipped, never to be written."""

    key_type: int
    key: bytes
    value: bytes | None


CoordinatorRecord = OffsetRecord | GroupRecord | consumer.ConsumerRecord
Encoded = tuple[bytes, bytes | None]


def decode_record(key: bytes, value: bytes | None) -> CoordinatorRecord | UnsupportedRecord:
    with as_record("the key of a record of the offsets topic"):
        reader = FieldReader(key)
        key_type = reader.version
        if key_type in OFFSET_KEYS:
            offset_key = OffsetKey(reader.text(), reader.text(), reader.i32())
            return OffsetRecord(offset_key, None if value is None else decode_offset(value))
        if key_type == GROUP_KEY:
            group_key = GroupKey(reader.text())
            return GroupRecord(group_key, None if value is None else decode_group(value))
        if key_type in consumer.KEY_TYPES:
            return consumer.decode(key, value)
    return UnsupportedRecord(key_type, key, value)


def encode_record(record: CoordinatorRecord) -> Encoded:
    if isinstance(record, OffsetRecord):
        key = record.key
        place = p.string(key.group) + p.string(key.topic) + p.I32.pack(key.partition)
        value = None if record.value is None else encode_offset(record.value)
        return p.I16.pack(1) + place, value
    if isinstance(record, GroupRecord):
        value = None if record.value is None else encode_group(record.value)
        return p.I16.pack(GROUP_KEY) + p.string(record.key.group), value
    return consumer.encode(record)


def decode_offset(data: bytes) -> OffsetValue:
    with as_record("the value of an offset record"):
        reader = FieldReader(data, flexible_from=4)
        version = _known(reader.version, "an offset record")
        offset = reader.i64()
        leader_epoch = reader.i32() if version >= 3 else -1
        metadata = reader.text()
        commit_ms = reader.i64()
        # Kafka writes −1 for "no time of its own" where it re-writes such a record.
        expire_ms = reader.i64() if version == 1 else -1
        raw_id = reader.tags().get(_TOPIC_ID_TAG)
        topic_id = ZERO_UUID if raw_id is None else _uuid(raw_id)
    own_expiry = expire_ms if version == 1 else None
    return OffsetValue(offset, leader_epoch, metadata, commit_ms, own_expiry, topic_id)


def encode_offset(value: OffsetValue) -> bytes:
    offset, commit = p.I64.pack(value.offset), p.I64.pack(value.commit_ms)
    if value.expire_ms is not None:
        expiry = p.I64.pack(value.expire_ms)
        return p.I16.pack(1) + offset + p.string(value.metadata) + commit + expiry
    tags = [] if value.topic_id == ZERO_UUID else [(_TOPIC_ID_TAG, value.topic_id.raw)]
    head = p.I16.pack(_NEWEST) + offset + p.I32.pack(value.leader_epoch)
    return head + p.compact_string(value.metadata) + commit + p.tag_buffer(tags)


def decode_group(data: bytes) -> GroupValue:
    with as_record("the value of a group record"):
        reader = FieldReader(data, flexible_from=4)
        version = _known(reader.version, "a group record")
        value = GroupValue(
            protocol_type=reader.text(),
            generation=reader.i32(),
            protocol=reader.nullable_text(),
            leader=reader.nullable_text(),
            state_changed_ms=reader.i64() if version >= 2 else -1,
            members=reader.array(lambda: _member(reader)),
        )
        reader.tags()
    return value


def _member(reader: FieldReader) -> StoredMember:
    member_id = reader.text()
    instance_id = reader.nullable_text() if reader.version >= 3 else None
    client_id, client_host = reader.text(), reader.text()
    rebalance = reader.i32() if reader.version >= 1 else None
    session = reader.i32()
    subscription, assignment = reader.blob(), reader.blob()
    reader.tags()
    # Version 0 knew one time-out for both purposes.
    waits = session if rebalance is None else rebalance
    return StoredMember(
        member_id, instance_id, client_id, client_host, waits, session, subscription, assignment
    )


def encode_group(value: GroupValue) -> bytes:
    head = p.I16.pack(3) + p.string(value.protocol_type) + p.I32.pack(value.generation)
    names = p.string(value.protocol) + p.string(value.leader)
    counted = p.I64.pack(value.state_changed_ms) + p.I32.pack(len(value.members))
    return head + names + counted + b"".join(map(_encode_member, value.members))


def _encode_member(member: StoredMember) -> bytes:
    names = (member.member_id, member.instance_id, member.client_id, member.client_host)
    times = p.I32.pack(member.rebalance_timeout_ms) + p.I32.pack(member.session_timeout_ms)
    blobs = legacy_bytes(member.subscription) + legacy_bytes(member.assignment)
    return b"".join(map(p.string, names)) + times + blobs


def _known(version: int, what: str) -> int:
    if not 0 <= version <= _NEWEST:
        raise MalformedRecord(f"version {version} of {what}: 0 to {_NEWEST} are known")
    return version


def _uuid(raw: memoryview) -> Uuid:
    if len(raw) != 16:
        raise MalformedRecord(f"a topic id of {len(raw)} bytes: 16 are needed")
    return _shared_uuid(bytes(raw))


@lru_cache(maxsize=10_000)
def _shared_uuid(raw: bytes) -> Uuid:
    """One object for all offsets of a topic: there are many."""
    return Uuid(raw)
