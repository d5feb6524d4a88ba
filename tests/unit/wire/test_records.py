"""Both decoders on every malformation and on each other; both encoders likewise."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ports import ByteView
from tidelog.wire.batch import (
    Codec,
    TimestampType,
    assemble,
    check_batch,
    read_header,
    with_log_append_time,
)
from tidelog.wire.codecs import compress
from tidelog.wire.column_building import (
    BytesColumn,
    build_batch_from_columns,
    rebuild_batch_from_columns,
)
from tidelog.wire.columns import decode_columns
from tidelog.wire.errors import InvalidRecord, MalformedBatch
from tidelog.wire.records import (
    COLUMNS_PAY_FROM,
    Record,
    build_batch,
    decode_records,
    empty_batch,
    iterate,
    rebuild_batch,
    validate_records,
)
from tidelog.wire.varints import write_varint

Decoder = Callable[[ByteView], list[Record]]


def by_columns(batch: ByteView) -> list[Record]:
    columns = decode_columns(batch)
    return [columns.record(index) for index in range(len(columns))]


def by_iteration(batch: ByteView) -> list[Record]:
    return list(iterate(b"lead" + bytes(batch), 4))


DECODERS: list[Decoder] = [decode_records, by_columns, by_iteration]


def varint(value: int) -> bytes:
    output = bytearray()
    write_varint(output, value)
    return bytes(output)


def sized(body: bytes) -> bytes:
    return varint(len(body)) + body


def batch_of(section: bytes, count: int, **changes: int) -> bytes:
    """A batch whose checksum is right, whatever its records are."""
    template = build_batch([Record(0, 1_000, b"k", b"v")])
    header = read_header(template)._replace(
        records_count=count, last_offset_delta=max(count - 1, 0)
    )
    return assemble(header._replace(**changes), section)  # type: ignore[arg-type]


# attributes, timestamp delta 0, offset delta 0, then key, value and headers
HEAD = bytes([0, 0, 0])
KEY_VALUE = b"\x02k\x02v"
GOOD = sized(HEAD + KEY_VALUE + b"\x00")
ONE_HEADER = HEAD + KEY_VALUE + b"\x02"
LONG_INT32 = b"\xff\xff\xff\xff\xff\x01"
WIDE_INT32 = b"\xff\xff\xff\xff\x1f"
WIDE_INT64 = b"\xff" * 9 + b"\x02"

MALFORMED: list[tuple[str, bytes, int]] = [
    ("count negative", GOOD, -1),
    ("count negative and no bytes", b"", -1),
    ("count too small", GOOD + GOOD, 1),
    ("count too large", GOOD, 2),
    ("count enormous", GOOD, 2**31 - 1),
    ("no records at all", b"", 1),
    ("bytes but no records", GOOD, 0),
    ("bytes behind the last record", GOOD + b"\0", 1),
    ("length cut", GOOD + b"\x80", 2),
    ("last record cut", GOOD + GOOD[:-1], 2),
    ("length zero", bytes(8), 1),
    ("length negative", varint(-2) + GOOD[1:], 1),
    ("length negative by its sign bit alone", bytes([GOOD[0] | 1]) + GOOD[1:], 1),
    ("length very negative", varint(-70_000) + GOOD, 1),
    ("length over 5 bytes", LONG_INT32 + GOOD, 1),
    ("length over 32 bits", WIDE_INT32 + GOOD, 1),
    ("length too small", varint(len(GOOD) - 2) + GOOD[1:], 1),
    ("length too large", varint(len(GOOD)) + GOOD[1:] + b"\0", 1),
    ("fields run into the next record", varint(len(GOOD) - 2) + GOOD[1:] + GOOD, 2),
    ("timestamp over 64 bits", sized(b"\0" + WIDE_INT64 + b"\0" + KEY_VALUE + b"\0"), 1),
    ("timestamp endless", sized(b"\0" + b"\x80" * 12), 1),
    ("offset over 32 bits", sized(b"\0\0" + WIDE_INT32 + KEY_VALUE + b"\0"), 1),
    ("key length −2", sized(HEAD + varint(-2) + b"\x02v\0"), 1),
    ("key beyond the record", sized(HEAD + varint(40) + b"\x02v\0"), 1),
    ("key length enormous", sized(HEAD + varint(2**31 - 1) + b"\x02v\0"), 1),
    ("value length −2", sized(HEAD + b"\x01" + varint(-2) + b"\0"), 1),
    ("value beyond the record", sized(HEAD + b"\x01" + varint(5) + b"v\0"), 1),
    ("no header count", sized(HEAD + b"\x06key" + b"\x02v"), 1),
    ("header count negative", sized(HEAD + KEY_VALUE + varint(-1)), 1),
    ("header count too large", sized(HEAD + KEY_VALUE + varint(3) + b"\x02a\x02b"), 1),
    ("header count enormous", sized(HEAD + KEY_VALUE + varint(2**31 - 1) + b"\x02a\x02b"), 1),
    ("header count too small", sized(HEAD + KEY_VALUE + b"\0" + b"\x02a\x02b"), 1),
    ("header without a key", sized(ONE_HEADER + b"\x01\x02b"), 1),
    ("header without a key hides", sized(HEAD + KEY_VALUE + b"\x04\x01" + b"\x02a\x02b"), 1),
    ("header key length −2", sized(ONE_HEADER + varint(-2) + b"\x02b"), 1),
    ("header key beyond the record", sized(ONE_HEADER + varint(9) + b"a\x02b"), 1),
    ("header key not UTF-8", sized(ONE_HEADER + b"\x02\xff\x02b"), 1),
    ("header key an encoded surrogate", sized(ONE_HEADER + b"\x06\xed\xa0\x80\x02b"), 1),
    ("header value length −2", sized(ONE_HEADER + b"\x02a" + varint(-2)), 1),
    ("header value beyond the record", sized(ONE_HEADER + b"\x02a" + varint(2) + b"b"), 1),
    ("header value missing", sized(ONE_HEADER + b"\x04ab"), 1),
]


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize(
    ("section", "count"), [row[1:] for row in MALFORMED], ids=[row[0] for row in MALFORMED]
)
def test_malformed_records_are_refused(
    decode: Decoder, section: bytes, count: int, codec: Codec
) -> None:
    batch = batch_of(compress(codec, section), count, attributes=codec)
    check_batch(batch)
    with pytest.raises(InvalidRecord) as raised:
        decode(batch)
    assert raised.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "bad", [row[1] for row in MALFORMED if row[2] == 1], ids=[r[0] for r in MALFORMED if r[2] == 1]
)
def test_bad_records_among_many_are_found(bad: bytes) -> None:
    """Enough good records around it that the vectorised steps are the ones that see it."""
    good = sized(ONE_HEADER + b"\x02a\x02b")
    for section in (good * 40 + bad + good * 40, good * 40 + bad * 40 + good):
        batch = batch_of(section, 81)
        for decode in DECODERS:
            with pytest.raises(InvalidRecord):
                decode(batch)
        with pytest.raises(InvalidRecord):
            validate_records(batch, is_compacted=False)


@pytest.mark.parametrize("decode", DECODERS)
def test_many_enormous_header_counts_do_not_keep_us_busy(decode: Decoder) -> None:
    section = sized(HEAD + KEY_VALUE + varint(2**31 - 1) + b"\x02a\x02b")
    with pytest.raises(InvalidRecord, match="header"):
        decode(batch_of(section * 40, 40))


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("base_offset", [-1, -(2**63), 2**63 - 1])
def test_offsets_beyond_64_bits_are_refused(decode: Decoder, base_offset: int) -> None:
    with pytest.raises(InvalidRecord, match=f"base offset {base_offset}"):
        decode(batch_of(GOOD, 1, base_offset=base_offset))


@pytest.mark.parametrize("decode", DECODERS)
def test_what_is_unusual_but_allowed(decode: Decoder) -> None:
    padded_lengths = sized(
        b"\x07" + b"\x80\x00" * 2 + b"\x82\x00k" + b"\x82\x80\x00v" + b"\x80\x00"
    )
    empty_fields = sized(HEAD + b"\0\0" + b"\x02" + b"\0\x01")
    far_away = sized(b"\0" + varint(-(2**63)) + varint(-(2**31)) + KEY_VALUE + b"\0")
    batch = batch_of(padded_lengths + empty_fields + far_away, 3, base_offset=2**31)
    assert decode(batch) == [
        Record(2**31, 1_000, b"k", b"v"),
        Record(2**31, 1_000, b"", b"", (("", None),)),
        Record(0, 1_000 - 2**63, b"k", b"v"),
    ]


@pytest.mark.parametrize("decode", DECODERS)
def test_timestamps_wrap_in_64_bits(decode: Decoder) -> None:
    records = [Record(0, 2**63 - 1, b"", b""), Record(1, -(2**63), b"", b"")]
    batch = build_batch(records)
    assert decode(batch) == records


@pytest.mark.parametrize("decode", DECODERS)
def test_an_empty_batch_has_no_records(decode: Decoder) -> None:
    batch = empty_batch(base_offset=5, last_offset_delta=3, max_timestamp=77, producer_id=9)
    assert decode(batch) == []
    header = check_batch(batch)
    assert (header.size, header.next_offset, header.max_timestamp) == (61, 9, 77)
    assert (header.base_timestamp, header.records_count) == (-1, 0)


@pytest.mark.parametrize("decode", DECODERS)
def test_a_cut_batch_is_refused_by_the_decoders_too(decode: Decoder) -> None:
    batch = build_batch([Record(0, 1, b"k", b"v")])
    for cut in range(1, len(batch) + 1):
        with pytest.raises(MalformedBatch):
            decode(batch[:-cut])


def test_a_header_that_was_stamped_already_counts() -> None:
    batch = build_batch([Record(0, 1, b"k", b"v")])
    header = read_header(batch)._replace(base_offset=70)  # type: ignore[arg-type]
    assert decode_records(batch, header)[0].offset == 70
    assert decode_columns(batch, header).offsets.tolist() == [70]


def test_a_batch_is_never_built_of_nothing() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])
    none = np.zeros(0, np.int64)
    with pytest.raises(ValueError, match="at least one"):
        build_batch_from_columns(
            timestamps=none, keys=BytesColumn.of([]), values=BytesColumn.of([])
        )


def test_iterate_decodes_only_what_is_asked_for() -> None:
    records = iterate(batch_of(GOOD + GOOD[:-1], 2))
    assert next(records).key == b"k"
    with pytest.raises(InvalidRecord):
        next(records)


def test_decompression_is_limited() -> None:
    batch = build_batch([Record(0, 1, b"", bytes(100_000))], codec=Codec.ZSTD)
    for decode in (decode_records, decode_columns):
        with pytest.raises(MalformedBatch) as raised:
            decode(batch, limit_bytes=99_999)
        assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


SIZES = [3, COLUMNS_PAY_FROM + 3]


@pytest.mark.parametrize("count", SIZES)
def test_the_summary_for_the_leader(count: int) -> None:
    records = [Record(i, 1_000 + i % 5, b"k", b"v") for i in range(count)]
    records[1] = records[1]._replace(timestamp=-1, key=None)
    batch = build_batch(records)
    summary = validate_records(batch, is_compacted=True)
    assert summary.max_timestamp == max(record.timestamp for record in records)
    assert summary.min_timestamp == 1_000
    assert summary.offset_deltas_are_consecutive
    assert summary.null_keys == (1,)
    assert validate_records(batch, is_compacted=False).null_keys == ()


@pytest.mark.parametrize("count", SIZES)
def test_the_summary_shows_the_time_readers_see(count: int) -> None:
    records = [Record(i, 1_000 + i, b"k", b"v") for i in range(count)]
    summary = validate_records(with_log_append_time(build_batch(records), 9), is_compacted=False)
    assert (summary.min_timestamp, summary.max_timestamp) == (9, 9)


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("moved", [0, 1, 2])
@pytest.mark.parametrize("offset", [0, 1, 2, 9_999])
def test_offsets_out_of_order_are_reported(count: int, moved: int, offset: int) -> None:
    records = [Record(i, 1_000, b"k", b"v") for i in range(count)]
    records[moved] = records[moved]._replace(offset=offset)
    summary = validate_records(build_batch(records), is_compacted=True)
    assert summary.offset_deltas_are_consecutive is (moved == offset)


@pytest.mark.parametrize("count", SIZES)
def test_no_timestamp_at_all(count: int) -> None:
    records = [Record(i, -1, b"k", b"v") for i in range(count)]
    summary = validate_records(build_batch(records), is_compacted=False)
    assert (summary.min_timestamp, summary.max_timestamp) == (-1, -1)


FIELD = st.none() | st.binary(max_size=12) | st.sampled_from([b"", bytes(64), b"v" * 9_000])
HEADERS = st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=4
).map(tuple)
TIMES = st.integers(-1, 10**13) | st.integers(-1, 300) | st.integers(-(2**63), 2**63 - 1)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """One to a few records, or so many that the vectorised steps take over from the loops."""
    kinds = draw(st.lists(st.tuples(TIMES, FIELD, FIELD, HEADERS), min_size=1, max_size=6))
    repeats = draw(st.sampled_from([1, 1, 20]))
    return [Record(index, *kind) for index, kind in enumerate(kinds * repeats)]


@settings(derandomize=True, max_examples=120, deadline=None)
@given(record_lists(), st.sampled_from(list(Codec)), st.integers(0, 2**40))
def test_all_ways_there_and_back(records: list[Record], codec: Codec, base_offset: int) -> None:
    records = [record._replace(offset=record.offset + base_offset) for record in records]
    batch = build_batch(records, base_offset=base_offset, codec=codec)
    check_batch(batch)
    for decode in DECODERS:
        assert decode(batch) == records
    columns = decode_columns(batch)
    again = build_batch_from_columns(
        timestamps=columns.timestamps,
        keys=BytesColumn(columns.blob, columns.key_start, columns.key_length),
        values=BytesColumn(bytearray(columns.blob), columns.value_start, columns.value_length),
        headers=BytesColumn(
            columns.blob, columns.header_start, columns.headers_end - columns.header_start
        ),
        base_offset=base_offset,
        codec=codec,
    )
    assert again == batch


@settings(derandomize=True, max_examples=80, deadline=None)
@given(st.lists(st.tuples(TIMES, FIELD, FIELD), min_size=1, max_size=80))
def test_columns_of_single_values(rows: list[tuple[int, bytes | None, bytes | None]]) -> None:
    batch = build_batch_from_columns(
        timestamps=np.array([row[0] for row in rows], np.int64),
        keys=BytesColumn.of(row[1] for row in rows),
        values=BytesColumn.of(row[2] for row in rows),
        producer_id=1,
        producer_epoch=2,
        base_sequence=3,
        is_transactional=True,
    )
    assert batch == build_batch(
        [Record(index, *row) for index, row in enumerate(rows)],
        producer_id=1,
        producer_epoch=2,
        base_sequence=3,
        is_transactional=True,
    )


@settings(derandomize=True, max_examples=120, deadline=None)
@given(
    record_lists(),
    st.data(),
    st.none() | st.integers(0, 2**42),
    st.sampled_from(list(TimestampType)),
    st.sampled_from([Codec.NONE, Codec.GZIP]),
)
def test_some_records_kept_by_both_ways(
    records: list[Record],
    draw: st.DataObject,
    horizon_ms: int | None,
    timestamp_type: TimestampType,
    codec: Codec,
) -> None:
    mask = draw.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)))
    original = build_batch(records, timestamp_type=timestamp_type, codec=codec, producer_id=8)
    header, kept = read_header(original), decode_records(original)
    kept = [record for record, keep in zip(kept, mask, strict=True) if keep]
    plain = rebuild_batch(header, kept, delete_horizon_ms=horizon_ms)
    columns = decode_columns(original)
    vectorised = rebuild_batch_from_columns(columns, np.array(mask), delete_horizon_ms=horizon_ms)
    assert plain == vectorised
    rebuilt = check_batch(plain)
    assert decode_records(plain) == kept
    assert rebuilt.next_offset == header.next_offset
    assert rebuilt.producer_id == 8
    assert rebuilt.delete_horizon_ms == (horizon_ms if kept else None)


def test_a_delete_horizon_is_never_moved() -> None:
    first = rebuild_batch(
        read_header(build_batch([Record(0, 5, b"k", None)])),
        [Record(0, 5, b"k", None)],
        delete_horizon_ms=100,
    )
    header = check_batch(first)
    again = rebuild_batch(header, decode_records(first), delete_horizon_ms=200)
    assert again == first
    by_columns_again = rebuild_batch_from_columns(
        decode_columns(first), np.array([True]), delete_horizon_ms=200
    )
    assert by_columns_again == first


def test_recompression_keeps_the_records() -> None:
    records = [Record(i, i, b"k", b"v") for i in range(5)]
    batch = build_batch(records, codec=Codec.GZIP, producer_id=4, base_sequence=2)
    for codec in Codec:
        again = rebuild_batch(read_header(batch), decode_records(batch), codec=codec)
        assert check_batch(again).codec_id == codec
        assert decode_records(again) == records
    assert rebuild_batch(check_batch(again), records, codec=Codec.GZIP) == batch


def outcome(decode: Decoder, batch: bytes) -> list[Record] | None:
    with contextlib.suppress(MalformedBatch):
        return decode(batch)
    return None


@settings(derandomize=True, max_examples=400, deadline=None)
@given(record_lists(), st.sampled_from([Codec.NONE] * 5 + [Codec.LZ4, Codec.SNAPPY]), st.data())
def test_mutated_bytes_never_surprise_and_decoders_agree(
    records: list[Record], codec: Codec, draw: st.DataObject
) -> None:
    """Whatever the bytes, both decoders say the same, or both raise a ``MalformedBatch``."""
    batch = bytearray(build_batch(records, codec=codec))
    for _ in range(draw.draw(st.integers(1, 3))):
        position = draw.draw(st.integers(21, min(len(batch) - 1, 200)))
        batch[position] = draw.draw(st.integers(0, 255) | st.sampled_from([0x80, 0xFF, 1, 2]))
    batch[17:21] = struct.pack(">I", crc32c(batch[21:]))
    plain = outcome(lambda data: decode_records(data, limit_bytes=1 << 20), bytes(batch))
    assert outcome(by_columns, bytes(batch)) == plain
    with contextlib.suppress(MalformedBatch):
        validate_records(bytes(batch), is_compacted=True, limit_bytes=1 << 20)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.binary(max_size=150), st.integers(0, 12))
def test_random_sections_never_surprise(section: bytes, count: int) -> None:
    batch = batch_of(section, count)
    assert outcome(by_columns, batch) == outcome(decode_records, batch)
