"""The 61-byte header of a record batch (magic 2), read and stamped without touching records.

Theory: a batch is opaque on the hot path. A broker reads the header, checks the CRC-32C,
stamps base offset and leader epoch and hands the same bytes on, so the cost is per batch and
not per record. ``baseOffset`` and ``partitionLeaderEpoch`` lie outside the checksum on
purpose: stamping them needs no second pass over the data (KIP-98).

Invariants: nothing here copies records except the two functions that change what the checksum
covers; nothing here imports numpy or a codec; malformed bytes raise ``CorruptBatch`` only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from crc32c import crc32c

from tidelog.kernel.ids import (
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TimestampMs,
)
from tidelog.kernel.ports import ByteView
from tidelog.wire.errors import CorruptBatch, IncompleteBatch, ObsoleteMagic

HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12
"""Base offset and batch length: what ``batch_length`` does not count."""

MAGIC: Final = 2
CRC_START: Final = 21
"""The checksum covers everything from the attributes to the end of the batch."""

STAMP_SIZE: Final = 16
"""Base offset, batch length and leader epoch: the part a leader rewrites."""

MIN_BATCH_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD

MIN_OBSOLETE_LENGTH: Final = 14
"""No format ever had a smaller one: it is not a batch, whatever its magic looks like."""
MAX_SEQUENCE: Final = 2**31 - 1

CODEC_MASK: Final = 0b0000111
LOG_APPEND_TIME_BIT: Final = 0b0001000
TRANSACTIONAL_BIT: Final = 0b0010000
CONTROL_BIT: Final = 0b0100000
DELETE_HORIZON_BIT: Final = 0b1000000

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_STAMP: Final = struct.Struct(">qii")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """All fields of the header, in the order they are stored."""

    base_offset: Offset
    batch_length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: TimestampMs
    max_timestamp: TimestampMs
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: Sequence
    records_count: int

    @property
    def size(self) -> int:
        """The whole batch in bytes, header included."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def codec_id(self) -> int:
        """0 to 7; only 0 to 4 name a ``Codec``."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & LOG_APPEND_TIME_BIT:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def delete_horizon_ms(self) -> TimestampMs | None:
        """When tombstones of this batch may go; kept in the base timestamp's place (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> Sequence:
        """The last record's sequence number; after 2^31−1 comes 0."""
        if self.base_sequence < 0:
            return Sequence(-1)
        return Sequence((self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE)


def read_header(buffer: ByteView, position: int = 0) -> BatchHeader:
    """The header at ``position``, unchecked."""
    try:
        return BatchHeader._make(_HEADER.unpack_from(buffer, position))
    except struct.error:
        raise IncompleteBatch(
            f"batch at {position}: {len(buffer) - position} bytes left, a header has {HEADER_SIZE}"
        ) from None


def is_transactional(batch: ByteView) -> bool:
    """Whether the header says so; for the hot path, which need not read all of it."""
    return len(batch) >= HEADER_SIZE and batch[_ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT != 0


def assemble(header: BatchHeader, records: ByteView) -> bytes:
    """The batch of this header and records section; length and checksum are worked out here."""
    length = MIN_BATCH_LENGTH + len(records)
    front = _HEADER.pack(*header._replace(batch_length=length, magic=MAGIC, crc=0))
    crc = crc32c(records, crc32c(front[CRC_START:]))
    return b"".join((front[:_CRC_AT], _CRC.pack(crc), front[CRC_START:], records))


def computed_crc(buffer: ByteView, position: int, size: int) -> int:
    """The CRC-32C that a batch of ``size`` bytes at ``position`` should carry."""
    return crc32c(memoryview(buffer)[position + CRC_START : position + size])


def crc_is_valid(buffer: ByteView, position: int, header: BatchHeader) -> bool:
    return computed_crc(buffer, position, header.size) == header.crc


def check_structure(buffer: ByteView, position: int = 0) -> BatchHeader:
    """The header of a batch that is all there; its checksum is not looked at."""
    available = len(buffer) - position
    if available < HEADER_SIZE:
        raise _too_short(buffer, position, available)
    header = BatchHeader(*_HEADER.unpack_from(buffer, position))
    length = header.batch_length
    if header.magic != MAGIC and length >= MIN_OBSOLETE_LENGTH:
        raise _wrong_magic(header.magic, position)
    if length < MIN_BATCH_LENGTH:
        raise _wrong_length(length, position)
    if length + LOG_OVERHEAD > available:
        raise IncompleteBatch(
            f"batch at {position}: its size is {header.size} bytes, only {available} are there"
        )
    return header


def check_batch(buffer: ByteView, position: int = 0) -> BatchHeader:
    """The header of a batch that is all there and whose checksum holds."""
    header = check_structure(buffer, position)
    end = position + LOG_OVERHEAD + header.batch_length
    crc = crc32c(memoryview(buffer)[position + CRC_START : end])
    if crc != header.crc:
        raise CorruptBatch(
            f"batch at {position} (base offset {header.base_offset}): "
            f"stored CRC is {header.crc:#010x}, computed {crc:#010x}"
        )
    return header


def _too_short(buffer: ByteView, position: int, available: int) -> CorruptBatch:
    """Of fewer bytes than a header: an old format may be this small, so look at the magic."""
    if available > _MAGIC_AT:
        length, magic = _STAMP.unpack_from(buffer, position)[1], buffer[position + _MAGIC_AT]
        if magic != MAGIC and length >= MIN_OBSOLETE_LENGTH:
            return _wrong_magic(magic, position)
        if length < MIN_BATCH_LENGTH:
            return _wrong_length(length, position)
    return IncompleteBatch(f"batch at {position}: {available} bytes left, a header has 61")


def _wrong_magic(magic: int, position: int) -> CorruptBatch:
    if magic in (0, 1):
        return ObsoleteMagic(
            f"batch at {position}: message format {magic} is obsolete, use {MAGIC}"
        )
    return CorruptBatch(f"batch at {position}: magic is {magic}, only {MAGIC} is allowed")


def _wrong_length(batch_length: int, position: int) -> CorruptBatch:
    return CorruptBatch(
        f"batch at {position}: its length field is {batch_length}, the least is {MIN_BATCH_LENGTH}"
    )


def headers(buffer: ByteView) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch; an incomplete one at the end is left out.

    Only the length is checked, because a walk cannot go on past a wrong one.
    """
    position, end = 0, len(buffer)
    while end - position >= HEADER_SIZE:
        header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
        if header.batch_length < MIN_BATCH_LENGTH:
            raise _wrong_length(header.batch_length, position)
        next_position = position + LOG_OVERHEAD + header.batch_length
        if next_position > end:
            return
        yield position, header
        position = next_position


def stamped_prefix(header: BatchHeader, base_offset: int, leader_epoch: int) -> bytes:
    """The first 16 bytes of the batch with another base offset and leader epoch.

    The checksum covers neither, so ``[prefix, batch[16:]]`` is the stamped batch.
    """
    return _STAMP.pack(base_offset, header.batch_length, leader_epoch)


def with_log_append_time(batch: ByteView, now_ms: int) -> bytes:
    """The batch as of ``now_ms``: records keep their deltas, readers take the max timestamp."""
    attributes = read_header(batch).attributes | LOG_APPEND_TIME_BIT
    return _with_times(batch, attributes, now_ms)


def with_max_timestamp_and_create_time(batch: ByteView, max_timestamp: int) -> bytes:
    """The batch with each record's own time, and the maximum that was found among them."""
    attributes = read_header(batch).attributes & ~LOG_APPEND_TIME_BIT
    return _with_times(batch, attributes, max_timestamp)


def _with_times(batch: ByteView, attributes: int, max_timestamp: int) -> bytes:
    changed = bytearray(batch)
    _ATTRIBUTES.pack_into(changed, _ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(changed, _MAX_TIMESTAMP_AT, max_timestamp)
    _CRC.pack_into(changed, _CRC_AT, crc32c(memoryview(changed)[CRC_START:]))
    return bytes(changed)
