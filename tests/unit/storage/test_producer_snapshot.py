"""Producer snapshots: all of Kafka's read back byte for byte, every flipped bit is noticed."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from tidelog.kernel.ids import (
    CoordinatorEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TimestampMs,
)
from tidelog.storage.producer_snapshot import (
    CorruptSnapshot,
    ProducerSnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)

GOLDEN = Path(__file__).parents[2] / "data" / "golden"

ENTRY = ProducerSnapshotEntry(
    ProducerId(4000),
    ProducerEpoch(3),
    Sequence(19),
    Offset(24),
    2,
    TimestampMs(1794797793403),
    CoordinatorEpoch(0),
    Offset(-1),
)


def test_every_golden_snapshot_reads_back() -> None:
    files = sorted(GOLDEN.rglob("*.snapshot"))
    assert len(files) == 887
    producers = 0
    for file in files:
        data = file.read_bytes()
        entries = decode_snapshot(data)
        assert encode_snapshot(entries) == data, file
        producers += len(entries)
    assert producers > 500


def test_fields_are_where_kafka_has_them() -> None:
    file = GOLDEN / "segments/txn-abort-v1/files/00000000000000000026.snapshot"
    assert decode_snapshot(file.read_bytes()) == [
        ENTRY._replace(producer_id=ProducerId(1), epoch=ProducerEpoch(0))
    ]


def test_no_producers() -> None:
    data = encode_snapshot([])
    assert len(data) == 10
    assert decode_snapshot(data) == []


def test_every_flipped_bit_is_noticed() -> None:
    data = encode_snapshot([ENTRY, ENTRY])
    for position in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(bytes(damaged))


def with_crc(body: bytes) -> bytes:
    return struct.pack(">hI", 1, crc32c(body)) + body


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes"),
        (b"\0\1" + b"\0" * 7, "9 bytes"),
        (b"\0\2" + encode_snapshot([])[2:], "version is 2"),
        (b"\0" * 56, "version is 0"),
        (encode_snapshot([ENTRY])[:-1], "CRC"),
        (encode_snapshot([ENTRY]) + b"\0", "CRC"),
        (with_crc(struct.pack(">i", 2) + bytes(46)), "cannot hold 2"),
        (with_crc(struct.pack(">i", -1)), "cannot hold -1"),
        (with_crc(struct.pack(">i", 0) + bytes(46)), "cannot hold 0"),
    ],
)
def test_damage_is_named(data: bytes, message: str) -> None:
    with pytest.raises(CorruptSnapshot, match=message):
        decode_snapshot(data)
