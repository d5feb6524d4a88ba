"""Entries of the quorum as record batches of the metadata log, and metadata records as batches.

An entry and a batch are the same thing in two places. What Raft carries as the opaque ``data`` of
a DATA entry is the batch *behind its first sixteen bytes*: base offset, length and leader epoch are
known from the entry and lie outside the checksum, so the leader's batch goes through the network
and onto every disk unchanged, checksum and timestamps included, and is byte for byte the same when
it is read back. Control entries are made into batches where they are written.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, assert_never

from tidelog.controller.metadata.codec import decode_record, encode_record
from tidelog.controller.metadata.records import MetadataRecord
from tidelog.controller.quorum.control_records import (
    leader_change_value,
    read_leader_change,
    read_voters,
    voters_value,
)
from tidelog.controller.raft.model import Entry, EntryKind, Term
from tidelog.kernel.ids import Offset, TimestampMs
from tidelog.kernel.ports import ByteView
from tidelog.wire.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MIN_BATCH_LENGTH,
    STAMP_SIZE,
    BatchHeader,
    check_batch,
)
from tidelog.wire.control import ControlType, control_key, read_control_type
from tidelog.wire.errors import CorruptBatch, InvalidRecord
from tidelog.wire.records import Record, build_batch, decode_records

_STAMP: Final = struct.Struct(">qii")
_MIN_DATA_BYTES: Final = HEADER_SIZE - STAMP_SIZE
_STAMPED_LENGTH_BYTES: Final = STAMP_SIZE - LOG_OVERHEAD


def records_to_data(records: Sequence[MetadataRecord], now_ms: TimestampMs) -> bytes:
    """The ``data`` of an entry that holds these records."""
    return build_batch(_as_records(records, 0, now_ms))[STAMP_SIZE:]


def records_to_batch(
    records: Sequence[MetadataRecord], *, base_offset: int, term: Term, now_ms: TimestampMs
) -> bytes:
    """A whole batch, for a snapshot."""
    return build_batch(
        _as_records(records, base_offset, now_ms), base_offset=base_offset, leader_epoch=term
    )


def _as_records(
    records: Sequence[MetadataRecord], base_offset: int, now_ms: TimestampMs
) -> list[Record]:
    return [
        Record(offset, now_ms, None, encode_record(record))
        for offset, record in enumerate(records, start=base_offset)
    ]


def batch_to_records(batch: ByteView, header: BatchHeader) -> tuple[MetadataRecord, ...]:
    """Raises ``InvalidRecord`` or ``UnreadableRecord``."""
    return tuple([decode_record(record.value or b"") for record in decode_records(batch, header)])


def entry_to_records(entry: Entry) -> tuple[MetadataRecord, ...]:
    batch = _data_batch(entry)
    return batch_to_records(batch, check_batch(batch))


def entry_to_batch(entry: Entry, now_ms: TimestampMs) -> bytes:
    """The bytes that go into the log; ``now_ms`` is for control entries only."""
    match entry.kind:
        case EntryKind.DATA:
            return _data_batch(entry)
        case EntryKind.LEADER_CHANGE:
            if entry.leader_id is None:
                raise ValueError(f"the leader change at {entry.base_offset} names no leader")
            record = (ControlType.LEADER_CHANGE, leader_change_value(entry.leader_id))
        case EntryKind.VOTERS:
            if entry.voters is None:
                raise ValueError(f"the voters entry at {entry.base_offset} names no voters")
            record = (ControlType.KRAFT_VOTERS, voters_value(entry.voters))
        case _:
            assert_never(entry.kind)
    return control_batch([record], base_offset=entry.base_offset, term=entry.term, now_ms=now_ms)


def control_batch(
    values: Sequence[tuple[ControlType, bytes]],
    *,
    base_offset: int,
    term: Term,
    now_ms: TimestampMs,
) -> bytes:
    records = [
        Record(offset, now_ms, control_key(control_type), value)
        for offset, (control_type, value) in enumerate(values, start=base_offset)
    ]
    return build_batch(records, base_offset=base_offset, leader_epoch=term, is_control=True)


def batch_to_entry(batch: bytes, header: BatchHeader) -> Entry:
    """The entry that a checked batch of the log holds; ``InvalidRecord`` if it holds none."""
    where = (header.base_offset, header.last_offset, Term(header.leader_epoch))
    if not header.is_control:
        return Entry(*where, EntryKind.DATA, bytes(batch[STAMP_SIZE:]))
    records = decode_records(batch, header)
    if len(records) != 1:
        raise InvalidRecord(f"{len(records)} control records in one batch at {where[0]}")
    control_type = read_control_type(records[0].key)
    if control_type is ControlType.LEADER_CHANGE:
        leader_id = read_leader_change(records[0].value)
        return Entry(*where, EntryKind.LEADER_CHANGE, leader_id=leader_id)
    if control_type is ControlType.KRAFT_VOTERS:
        return Entry(*where, EntryKind.VOTERS, voters=read_voters(records[0].value))
    raise InvalidRecord(f"a control record of type {control_type} at {where[0]}")


def check_data(data: bytes, record_count: int) -> None:
    """Refuse what another node sent as an entry's data and is no batch of so many records."""
    if len(data) < _MIN_DATA_BYTES:
        raise CorruptBatch(f"{len(data)} bytes are no batch")
    header = check_batch(_stamped(data, Offset(0), Term(0)))
    counted = (header.last_offset_delta + 1, header.records_count)
    if header.is_control or counted != (record_count, record_count):
        raise CorruptBatch(f"a batch of {header.records_count} records where {record_count} belong")


def _data_batch(entry: Entry) -> bytes:
    return _stamped(entry.data, entry.base_offset, entry.term)


def _stamped(data: bytes, base_offset: Offset, term: Term) -> bytes:
    length = max(MIN_BATCH_LENGTH, len(data) + _STAMPED_LENGTH_BYTES)
    return _STAMP.pack(base_offset, length, term) + data
