"""The header view: every field, every refusal, and what stamping leaves alone."""

from __future__ import annotations

import struct
import subprocess
import sys

import pytest
from crc32c import crc32c

from tidelog.kernel.errors import ErrorCode
from tidelog.wire.batch import (
    HEADER_SIZE,
    MAX_SEQUENCE,
    BatchHeader,
    TimestampType,
    check_batch,
    crc_is_valid,
    headers,
    read_header,
    stamped_prefix,
    with_log_append_time,
    with_max_timestamp_and_create_time,
)
from tidelog.wire.errors import CorruptBatch, IncompleteBatch, MalformedBatch
from tidelog.wire.records import Record, build_batch, decode_records, empty_batch

RECORDS = [Record(0, 1000, b"k", b"v"), Record(1, 1007, None, b"w"), Record(2, 990, b"x", None)]
BATCH = build_batch(RECORDS, producer_id=7, producer_epoch=3, base_sequence=40)


def patched(position: int, data: bytes, batch: bytes = BATCH) -> bytes:
    return batch[:position] + data + batch[position + len(data) :]


def resealed(position: int, data: bytes, batch: bytes = BATCH) -> bytes:
    """Patched, and with the checksum that goes with it."""
    changed = patched(position, data, batch)
    return patched(17, struct.pack(">I", crc32c(changed[21:])), changed)


def test_every_field_is_read_from_its_place() -> None:
    body = bytes(range(40))
    raw = struct.pack(
        ">qiibIhiqqqhii", 11, 49 + 40, 12, 2, 0, 0b101_1011, 13, 14, 15, 16, 17, 18, 19
    )
    header = read_header(b"??" + raw + body, 2)
    assert header == BatchHeader(11, 89, 12, 2, 0, 0b101_1011, 13, 14, 15, 16, 17, 18, 19)  # type: ignore[arg-type]
    assert header.size == 101
    assert header.last_offset == 24
    assert header.next_offset == 25
    assert header.codec_id == 3
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.is_transactional
    assert not header.is_control
    assert header.has_delete_horizon
    assert header.delete_horizon_ms == 14
    assert header.has_producer_id
    assert header.last_sequence == 31


@pytest.mark.parametrize(
    ("attributes", "transactional", "control", "horizon", "timestamp_type"),
    [
        (0b000_0000, False, False, False, TimestampType.CREATE_TIME),
        (0b000_1000, False, False, False, TimestampType.LOG_APPEND_TIME),
        (0b001_0000, True, False, False, TimestampType.CREATE_TIME),
        (0b010_0000, False, True, False, TimestampType.CREATE_TIME),
        (0b100_0000, False, False, True, TimestampType.CREATE_TIME),
    ],
)
def test_each_attribute_bit_has_one_meaning(
    attributes: int,
    transactional: bool,
    control: bool,
    horizon: bool,
    timestamp_type: TimestampType,
) -> None:
    header = read_header(BATCH)._replace(attributes=attributes)
    assert header.codec_id == 0
    assert header.is_transactional is transactional
    assert header.is_control is control
    assert header.has_delete_horizon is horizon
    assert header.delete_horizon_ms == (1000 if horizon else None)
    assert header.timestamp_type is timestamp_type


@pytest.mark.parametrize(
    ("base_sequence", "delta", "last_sequence"),
    [(-1, 2, -1), (0, 2, 2), (MAX_SEQUENCE - 2, 2, MAX_SEQUENCE), (MAX_SEQUENCE - 1, 2, 0)],
)
def test_sequences_wrap(base_sequence: int, delta: int, last_sequence: int) -> None:
    header = read_header(BATCH)._replace(base_sequence=base_sequence, last_offset_delta=delta)  # type: ignore[arg-type]
    assert header.last_sequence == last_sequence


MALFORMED = [
    ("nothing", b"", IncompleteBatch, ErrorCode.INVALID_RECORD, "0 bytes left"),
    ("cut in the header", BATCH[:60], IncompleteBatch, ErrorCode.INVALID_RECORD, "60 bytes left"),
    ("cut in a record", BATCH[:-1], IncompleteBatch, ErrorCode.INVALID_RECORD, "only"),
    ("length 48", patched(8, struct.pack(">i", 48)), CorruptBatch, ErrorCode.CORRUPT_MESSAGE, "48"),
    ("length −1", patched(8, b"\xff" * 4), CorruptBatch, ErrorCode.CORRUPT_MESSAGE, "-1"),
    ("short", patched(8, bytes(4))[:40], CorruptBatch, ErrorCode.CORRUPT_MESSAGE, "field is 0"),
    ("magic 0", patched(16, b"\x00"), CorruptBatch, ErrorCode.INVALID_RECORD, "format 0"),
    ("magic 1", patched(16, b"\x01"), CorruptBatch, ErrorCode.INVALID_RECORD, "format 1"),
    ("small magic 1", patched(16, b"\1")[:34], CorruptBatch, ErrorCode.INVALID_RECORD, "format 1"),
    ("magic 3", patched(16, b"\x03"), CorruptBatch, ErrorCode.CORRUPT_MESSAGE, "magic is 3"),
    ("crc", patched(17, b"\0\0\0\0"), CorruptBatch, ErrorCode.CORRUPT_MESSAGE, "0x00000000"),
    ("data", BATCH[:-1] + b"!", CorruptBatch, ErrorCode.CORRUPT_MESSAGE, "computed"),
    ("zeros", bytes(200), CorruptBatch, ErrorCode.CORRUPT_MESSAGE, "its length field is 0"),
]


@pytest.mark.parametrize("lead", [0, 5], ids=["at the start", "further in"])
@pytest.mark.parametrize(
    ("data", "error", "code", "message"),
    [row[1:] for row in MALFORMED],
    ids=[row[0] for row in MALFORMED],
)
def test_a_malformed_batch_is_refused(
    data: bytes, error: type[MalformedBatch], code: ErrorCode, message: str, lead: int
) -> None:
    with pytest.raises(error) as raised:
        check_batch(bytes(lead) + data, lead)
    assert raised.value.code is code
    assert f"batch at {lead}" in str(raised.value)
    assert message in str(raised.value)


def test_every_flipped_bit_the_checksum_covers_is_noticed() -> None:
    check_batch(BATCH)
    for position in range(17, len(BATCH)):
        for bit in range(8):
            with pytest.raises(CorruptBatch):
                check_batch(patched(position, bytes([BATCH[position] ^ 1 << bit])))


def test_read_header_needs_61_bytes_and_nothing_else() -> None:
    assert read_header(bytes(61)).magic == 0
    with pytest.raises(IncompleteBatch, match="60 bytes left"):
        read_header(bytes(61), 1)


def test_bytes_behind_the_batch_do_not_matter() -> None:
    assert check_batch(memoryview(BATCH + b"x")) == check_batch(bytearray(BATCH))


def test_headers_walk_whole_batches_only() -> None:
    two = empty_batch(base_offset=3, last_offset_delta=4, max_timestamp=-1)
    data = BATCH + two + BATCH
    positions = [0, len(BATCH), len(BATCH) + HEADER_SIZE]
    assert [at for at, _ in headers(data)] == positions
    for cut in range(1, len(BATCH) + 1):
        assert [at for at, _ in headers(data[:-cut])] == positions[:2]
    assert list(headers(b"")) == []


def test_headers_stop_loudly_at_a_length_that_cannot_be() -> None:
    walk = headers(BATCH + bytes(100))
    assert next(walk)[0] == 0
    with pytest.raises(CorruptBatch, match=f"batch at {len(BATCH)}: its length field is 0"):
        next(walk)


def test_a_stamped_batch_keeps_its_checksum() -> None:
    header = read_header(BATCH)
    stamped = stamped_prefix(header, 1 << 40, 9) + BATCH[16:]
    again = check_batch(stamped)
    assert again == header._replace(base_offset=1 << 40, leader_epoch=9)  # type: ignore[arg-type]
    assert [record.offset for record in decode_records(stamped)] == [1 << 40, 2**40 + 1, 2**40 + 2]


def test_log_append_time_and_back() -> None:
    stamped = with_log_append_time(BATCH, 5_000)
    header = check_batch(stamped)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.base_timestamp == 1000
    assert {record.timestamp for record in decode_records(stamped)} == {5_000}
    assert with_max_timestamp_and_create_time(stamped, 1007) == BATCH


def test_times_are_changed_in_no_other_byte() -> None:
    stamped = with_log_append_time(memoryview(BATCH), 5_000)
    differing = {at for at in range(len(BATCH)) if stamped[at] != BATCH[at]}
    assert differing <= {*range(17, 23), *range(35, 43)}
    assert crc_is_valid(stamped, 0, read_header(stamped))


def test_the_hot_path_loads_neither_numpy_nor_codecs() -> None:
    program = (
        "import sys, tidelog.wire.batch, tidelog.wire.records, tidelog.wire.control\n"
        "print(sorted({'numpy', 'cramjam', 'zstandard'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert result.stdout.decode().strip() == "[]"
