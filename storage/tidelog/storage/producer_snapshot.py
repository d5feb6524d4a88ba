"""The ``.snapshot`` file: producer state as of an offset, one entry of 46 bytes per producer.

Of a producer's window of five batches only the last is kept; the rest comes back from the log.
The checksum is CRC-32C of everything behind it. A file that does not check is worth nothing,
and its reader falls back on an older one and a longer replay.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from crc32c import crc32c

from tidelog.kernel.ids import (
    CoordinatorEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TimestampMs,
)

VERSION: Final = 1
_HEADER: Final = struct.Struct(">hIi")
_CRC_END: Final = 6
_ENTRY: Final = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(Exception):
    """A producer snapshot that is not what was written."""


class ProducerSnapshotEntry(NamedTuple):
    """In the order they are stored. Without a batch: sequence −1, offset −1, delta 0."""

    producer_id: ProducerId
    epoch: ProducerEpoch
    last_sequence: Sequence
    last_offset: Offset
    offset_delta: int
    timestamp: TimestampMs
    coordinator_epoch: CoordinatorEpoch
    current_txn_first_offset: Offset
    """−1 if no transaction is open."""


def encode_snapshot(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    packed = [_ENTRY.pack(*entry) for entry in entries]
    body = b"".join([struct.pack(">i", len(packed)), *packed])
    return struct.pack(">hI", VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerSnapshotEntry]:
    if len(data) < _HEADER.size:
        raise CorruptSnapshot(f"{len(data)} bytes are fewer than the header's {_HEADER.size}")
    version, crc, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"version is {version}, only {VERSION} is known")
    computed = crc32c(memoryview(data)[_CRC_END:])
    if crc != computed:
        raise CorruptSnapshot(f"stored CRC is {crc:#010x}, computed {computed:#010x}")
    if len(data) != _HEADER.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{len(data)} bytes cannot hold {count} entries of {_ENTRY.size}")
    body = memoryview(data)[_HEADER.size :]
    return [ProducerSnapshotEntry._make(fields) for fields in _ENTRY.iter_unpack(body)]
