"""Records one by one: the plain decoder and encoder, and the checks a leader makes.

Theory: the records section is one blob (compressed as a whole) of ``records_count`` records,
each ``length, attributes, timestampDelta, offsetDelta, key, value, headers``. The section is
valid only if exactly that many records consume exactly all of it, and each record exactly its
length. Whoever wrote the bytes also wrote the checksum, so a section that breaks a rule is
``InvalidRecord`` and not ``CorruptBatch``; only data that does not decompress is corrupt.

``tidelog.wire.columns`` does the same for all records at once with numpy; property tests keep
the two in step. This one is faster for small batches and needs no numpy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tidelog.kernel.ids import (
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from tidelog.kernel.ids import (
    Sequence as SequenceNumber,
)
from tidelog.kernel.ports import ByteView
from tidelog.wire.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    TimestampType,
    assemble,
    check_structure,
)
from tidelog.wire.codecs import DEFAULT_LIMIT_BYTES, compress, decompress
from tidelog.wire.errors import InvalidRecord
from tidelog.wire.varints import (
    ONE_BYTE_VALUES,
    read_varint,
    read_varlong,
    wrapped_int64,
    write_varint,
)

Headers = tuple[tuple[str, bytes | None], ...]

MIN_RECORD_SIZE: Final = 7
"""Length, attributes, two deltas, two null lengths and a header count of one byte each."""

COLUMNS_PAY_FROM: Final = 50
"""From about this many records on the columnar decoder is the faster one."""

_MAX_BASE_OFFSET: Final = (1 << 63) - (1 << 32)


class Record(NamedTuple):
    """A record as a reader sees it: absolute offset and time."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class RecordsSummary(NamedTuple):
    """What the leader's validation asks of a batch's records."""

    max_timestamp: TimestampMs
    min_timestamp: TimestampMs
    """The least that is not −1 (none); −1 if there is no other."""
    offset_deltas_are_consecutive: bool
    """0, 1, 2 … as every client must send them."""
    null_keys: tuple[int, ...]
    """Indices of records without a key; only looked for where the topic is compacted."""


def records_blob(
    batch: ByteView, header: BatchHeader | None = None, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> bytes | memoryview:
    """The records section, decompressed; a view into the batch if it was not compressed.

    Checks what can be said before the first record: the batch is all there, its offsets fit
    64 bits, and so many bytes can hold so many records.
    """
    header = known_header(batch, header)
    section = memoryview(batch)[HEADER_SIZE : header.size]
    blob = decompress(header.codec_id, section, limit_bytes=limit_bytes)
    if not 0 <= header.base_offset <= _MAX_BASE_OFFSET:
        raise InvalidRecord(f"base offset {header.base_offset} is out of range")
    count = header.records_count
    if count < 0 or count * MIN_RECORD_SIZE > len(blob):
        raise InvalidRecord(f"records count is {count}, the records have {len(blob)} bytes")
    return blob


def known_header(batch: ByteView, header: BatchHeader | None) -> BatchHeader:
    """The header the caller has read already, if it fits these bytes; else what they say."""
    if header is not None and HEADER_SIZE <= header.size <= len(batch) and header.magic == MAGIC:
        return header
    return check_structure(batch)


def decode_records(
    batch: ByteView, header: BatchHeader | None = None, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> list[Record]:
    """All records of the batch that starts at the first byte."""
    header = known_header(batch, header)
    return list(_decode(records_blob(batch, header, limit_bytes), header))


def iterate(batch: ByteView, position: int = 0) -> Iterator[Record]:
    """The records of the batch at ``position``, decoded as they are asked for.

    A fault in the last record, or behind it, is only found by whoever gets that far.
    """
    view = memoryview(batch)[position:]
    header = check_structure(view)
    yield from _decode(records_blob(view, header), header)


def _decode(blob: bytes | memoryview, header: BatchHeader) -> Iterator[Record]:
    data = bytes(blob)  # slices of bytes become keys and values without another step
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    has_log_append_time = header.attributes & LOG_APPEND_TIME_BIT
    position = 0
    for index in range(header.records_count):
        length, start = read_varint(data, position)
        position = start + length
        if length < 0 or position > len(data):
            raise InvalidRecord(f"record {index}: length {length}, {len(data) - start} bytes left")
        timestamp_delta, at = read_varlong(data, start + 1)
        offset_delta, at = read_varint(data, at)
        key, at = _read_nullable(data, at, position)
        value, at = _read_nullable(data, at, position)
        headers, at = _read_headers(data, at, position)
        if at != position:
            raise InvalidRecord(
                f"record {index}: length is {length}, its fields take {at - start} bytes"
            )
        if has_log_append_time:
            timestamp: int = header.max_timestamp
        else:
            timestamp = wrapped_int64(base_timestamp + timestamp_delta)
        yield Record(base_offset + offset_delta, timestamp, key, value, headers)
    if position != len(data):
        raise InvalidRecord(
            f"{len(data) - position} bytes left behind the {header.records_count} records declared"
        )


def _read_nullable(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    if position < end and (byte := data[position]) < 0x80:
        length, start = ONE_BYTE_VALUES[byte], position + 1
    else:
        length, start = read_varint(data, position)
    if length == -1:
        return None, start
    stop = start + length
    if length < 0 or stop > end:
        raise InvalidRecord(
            f"length at byte {position} of the records is {length}, the record ends at {end}"
        )
    return data[start:stop], stop


def _read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    if position < end and data[position] == 0:
        return (), position + 1
    count, position = read_varint(data, position)
    if count < 0 or 2 * count > end - position:
        raise InvalidRecord(f"header count is {count}, the record has {end - position} bytes left")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        raw_key, position = _read_nullable(data, position, end)
        if raw_key is None:
            raise InvalidRecord(f"a header before byte {position} of the records has no key")
        value, position = _read_nullable(data, position, end)
        headers.append((decode_header_key(raw_key), value))
    return tuple(headers), position


def decode_header_key(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRecord(f"header key {raw[:64]!r} is not UTF-8: {error.reason}") from None


def read_raw_headers(blob: bytes, start: int, end: int) -> Headers:
    """The headers of one record from its header count on."""
    headers, position = _read_headers(blob, start, end)
    if position != end:
        raise InvalidRecord(f"headers end at byte {position} of the records instead of {end}")
    return headers


def encode_record(output: bytearray, record: Record, *, offset_delta: int, time_delta: int) -> None:
    """Append one record to a records section."""
    body = bytearray(1)  # attributes: none are defined
    write_varint(body, time_delta)
    write_varint(body, offset_delta)
    for field in (record.key, record.value):
        _write_nullable(body, field)
    write_varint(body, len(record.headers))
    for key, value in record.headers:
        _write_nullable(body, key.encode("utf-8"))
        _write_nullable(body, value)
    write_varint(output, len(body))
    output += body


def _write_nullable(output: bytearray, field: bytes | None) -> None:
    if field is None:
        output.append(1)
    else:
        write_varint(output, len(field))
        output += field


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    leader_epoch: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    delete_horizon_ms: int | None = None,
    last_offset_delta: int | None = None,
    max_timestamp: int | None = None,
    level: int | None = None,
) -> bytes:
    """A batch of at least one record.

    ``last_offset_delta`` and ``max_timestamp`` follow from the records unless given.
    """
    if not records:
        raise ValueError("a batch is built of at least one record; see empty_batch")
    base_timestamp = records[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    section = bytearray()
    for record in records:
        encode_record(
            section,
            record,
            offset_delta=record.offset - base_offset,
            time_delta=wrapped_int64(record.timestamp - base_timestamp),
        )
    if last_offset_delta is None:
        last_offset_delta = records[-1].offset - base_offset
    if max_timestamp is None:
        max_timestamp = max(record.timestamp for record in records)
    header = header_of(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        codec=codec,
        timestamp_type=timestamp_type,
        is_transactional=is_transactional,
        is_control=is_control,
        has_delete_horizon=delete_horizon_ms is not None,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(records),
    )
    return assemble(header, compress(codec, section, level))


def rebuild_batch(
    header: BatchHeader,
    records: Sequence[Record],
    *,
    codec: Codec | None = None,
    level: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """The batch of ``header`` with these of its records, for recompression and compaction.

    It spans the same offsets and sequences as before. A delete horizon, once set, is never
    moved (KIP-534). With no record left, only the header stays.
    """
    if not records:
        return emptied_batch(header)
    return build_batch(
        records,
        base_offset=header.base_offset,
        codec=Codec(header.codec_id) if codec is None else codec,
        leader_epoch=header.leader_epoch,
        timestamp_type=header.timestamp_type,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        delete_horizon_ms=header.delete_horizon_ms
        if header.has_delete_horizon
        else delete_horizon_ms,
        last_offset_delta=header.last_offset_delta,
        max_timestamp=header.max_timestamp
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME
        else None,
        level=level,
    )


def empty_batch(
    *,
    base_offset: int,
    last_offset_delta: int,
    max_timestamp: int,
    leader_epoch: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """A header without records: compaction keeps it for the offsets and sequences it spans."""
    header = header_of(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        codec=Codec.NONE,
        timestamp_type=timestamp_type,
        is_transactional=is_transactional,
        is_control=is_control,
        has_delete_horizon=False,
        last_offset_delta=last_offset_delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=0,
    )
    return assemble(header, b"")


def emptied_batch(header: BatchHeader) -> bytes:
    """What is left of a batch when all its records are gone: no codec and no delete horizon."""
    emptied = header._replace(
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
        base_timestamp=NO_TIMESTAMP,
        records_count=0,
    )
    return assemble(emptied, b"")


def header_of(
    *,
    base_offset: int,
    leader_epoch: int,
    codec: Codec,
    timestamp_type: TimestampType,
    is_transactional: bool,
    is_control: bool,
    has_delete_horizon: bool,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    records_count: int,
) -> BatchHeader:
    """A header to give to ``assemble``, which fills in length and checksum."""
    attributes = (
        codec
        | (LOG_APPEND_TIME_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if is_transactional else 0)
        | (CONTROL_BIT if is_control else 0)
        | (DELETE_HORIZON_BIT if has_delete_horizon else 0)
    )
    return BatchHeader(
        base_offset=Offset(base_offset),
        batch_length=0,
        leader_epoch=LeaderEpoch(leader_epoch),
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=TimestampMs(base_timestamp),
        max_timestamp=TimestampMs(max_timestamp),
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(producer_epoch),
        base_sequence=SequenceNumber(base_sequence),
        records_count=records_count,
    )


def validate_records(
    batch: ByteView,
    header: BatchHeader | None = None,
    *,
    is_compacted: bool,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> RecordsSummary:
    """Look at every record; raises what is malformed, returns what the topic's rules need."""
    header = known_header(batch, header)
    if header.records_count >= COLUMNS_PAY_FROM:
        from tidelog.wire.columns import decode_columns  # numpy is loaded when it pays

        return decode_columns(batch, header, limit_bytes=limit_bytes).summary(
            is_compacted=is_compacted
        )
    records = decode_records(batch, header, limit_bytes=limit_bytes)
    timed = [record.timestamp for record in records if record.timestamp != NO_TIMESTAMP]
    base = header.base_offset
    return RecordsSummary(
        max_timestamp=TimestampMs(max((r.timestamp for r in records), default=NO_TIMESTAMP)),
        min_timestamp=TimestampMs(min(timed, default=NO_TIMESTAMP)),
        offset_deltas_are_consecutive=all(
            record.offset == base + index for index, record in enumerate(records)
        ),
        null_keys=tuple(
            index for index, record in enumerate(records) if is_compacted and record.key is None
        ),
    )
