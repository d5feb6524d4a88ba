"""The records of ``__transaction_state`` as Kafka writes them, so that Kafka's tools read ours.

A key is the number 0 and a transactional id; a value says where that id's producer and its
transaction stand; no value is a tombstone. Version 1 of the value is flexible (KIP-482) and is
written once ``transaction.version`` is 1 or more; both versions are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidelog.coordinator.record_fields import (
    FieldReader,
    as_record,
    i32_array,
)
from tidelog.coordinator.transactions.states import BY_NUMBER, TransactionState
from tidelog.kernel.ids import (
    NO_PRODUCER_ID,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from tidelog.wire.protocol import primitives as p
from tidelog.wire.protocol.errors import MalformedRequest

FLEXIBLE_FROM: Final = 1
_KEY_TYPE: Final = 0
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION = 0, 1, 2
_NEVER_STORED: Final = frozenset({TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE})

TopicPartitions = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class TransactionValue:
    """Where a transactional id stands; ``partitions`` is None only while it is Empty."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: int
    state: TransactionState
    partitions: tuple[TopicPartitions, ...] | None
    last_update_ms: int
    start_ms: int = -1
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """The producer id before this record; Kafka repeats the present one when it is the same."""
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """The id that takes over when the transaction completes: the epochs are used up."""
    client_version: int = 0
    """The transaction.version under which the client works (KIP-890)."""

    def places(self) -> frozenset[TopicPartition]:
        return frozenset(
            TopicPartition(topic, PartitionIndex(index))
            for topic, indexes in self.partitions or ()
            for index in indexes
        )


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    transactional_id: str
    value: TransactionValue | None
    version: int = FLEXIBLE_FROM
    """In which version the value is, or is to be, stored."""


def by_topic(places: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    """Partitions the way a record lists them: by topic, in order."""
    indexes: dict[str, list[int]] = {}
    for place in sorted(places):
        indexes.setdefault(place.topic, []).append(place.partition)
    return tuple((topic, tuple(found)) for topic, found in indexes.items())


def decode_transaction(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """The record, or None if its key is of a type that is unknown here and to be skipped."""
    with as_record("the key of a record of the transaction topic"):
        reader = FieldReader(key)
        if reader.version != _KEY_TYPE:
            return None
        transactional_id = reader.text()
    if value is None:
        return TransactionRecord(transactional_id, None)
    with as_record(f"the value of transactional id {transactional_id!r}"):
        reader = FieldReader(value, flexible_from=FLEXIBLE_FROM)
        if not 0 <= reader.version <= FLEXIBLE_FROM:
            raise MalformedRequest(f"version {reader.version} of a transaction: 0 and 1 are known")
        return TransactionRecord(transactional_id, _read_value(reader), reader.version)


def _read_value(reader: FieldReader) -> TransactionValue:
    producer_id, epoch = ProducerId(reader.i64()), ProducerEpoch(reader.i16())
    timeout_ms, number = reader.i32(), reader.i8()
    state = BY_NUMBER.get(number)
    if state is None or state in _NEVER_STORED:
        raise MalformedRequest(f"the state of a transaction cannot be {number}")
    partitions = reader.nullable_array(lambda: _read_topic(reader))
    last_update_ms, start_ms = reader.i64(), reader.i64()
    tags = reader.tags()
    return TransactionValue(
        producer_id,
        epoch,
        timeout_ms,
        state,
        partitions,
        last_update_ms,
        start_ms,
        ProducerId(_tagged(tags, _PREVIOUS_PRODUCER_ID, NO_PRODUCER_ID)),
        ProducerId(_tagged(tags, _NEXT_PRODUCER_ID, NO_PRODUCER_ID)),
        _tagged(tags, _CLIENT_VERSION, 0),
    )


def _read_topic(reader: FieldReader) -> TopicPartitions:
    topic = reader.text()
    indexes = reader.array(reader.i32)
    reader.tags()
    return topic, indexes


def _tagged(tags: dict[int, memoryview], tag: int, default: int) -> int:
    raw = tags.get(tag)
    return default if raw is None else int.from_bytes(raw, "big", signed=True)


def encode_transaction(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    key = p.I16.pack(_KEY_TYPE) + p.string(record.transactional_id)
    if record.value is None:
        return key, None
    return key, _encode_value(record.value, record.version)


def _encode_value(value: TransactionValue, version: int) -> bytes:
    flexible = version >= FLEXIBLE_FROM
    head = (
        p.I16.pack(version)
        + p.I64.pack(value.producer_id)
        + p.I16.pack(value.producer_epoch)
        + p.I32.pack(value.timeout_ms)
        + value.state.number.to_bytes(1, "big")
    )
    listed = _encode_flexible(value.partitions) if flexible else _encode_legacy(value.partitions)
    times = p.I64.pack(value.last_update_ms) + p.I64.pack(value.start_ms)
    return head + listed + times + (p.tag_buffer(_tags(value)) if flexible else b"")


def _encode_flexible(partitions: tuple[TopicPartitions, ...] | None) -> bytes:
    if partitions is None:
        return p.uvarint(0)
    rows = (
        p.compact_string(topic) + i32_array(indexes) + p.tag_buffer([])
        for topic, indexes in partitions
    )
    return p.uvarint(len(partitions) + 1) + b"".join(rows)


def _encode_legacy(partitions: tuple[TopicPartitions, ...] | None) -> bytes:
    if partitions is None:
        return p.I32.pack(-1)
    rows = (
        p.string(topic) + p.I32.pack(len(indexes)) + b"".join(map(p.I32.pack, indexes))
        for topic, indexes in partitions
    )
    return p.I32.pack(len(partitions)) + b"".join(rows)


def _tags(value: TransactionValue) -> list[tuple[int, bytes]]:
    tags: list[tuple[int, bytes]] = []
    if value.previous_producer_id != NO_PRODUCER_ID:
        tags.append((_PREVIOUS_PRODUCER_ID, p.I64.pack(value.previous_producer_id)))
    if value.next_producer_id != NO_PRODUCER_ID:
        tags.append((_NEXT_PRODUCER_ID, p.I64.pack(value.next_producer_id)))
    if value.client_version:
        tags.append((_CLIENT_VERSION, p.I16.pack(value.client_version)))
    return tags
