"""Fetch in version 11, the last one before flexible fields and topic ids: every broker serves it.

Written and read by hand so that records stay a view into the answer: nothing is copied before it
is decompressed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.errors import MalformedRequest
from tidelog.wire.protocol.primitives import I32, UNREADABLE, checked_count, string, take

VERSION: Final = 11
_CONSUMER: Final = -1
_NO_EPOCH: Final = -1
_MAX_ABORTED: Final = 10_000_000

_FRONT: Final = struct.Struct(">iiiibii")
_PARTITION: Final = struct.Struct(">iiqqi")
_ANSWER: Final = struct.Struct(">ihii")
_PARTITION_ANSWER: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a fetch of one partition brought."""

    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    """Producer id and first offset."""
    records: memoryview


def fetch_body(
    topic: str,
    partition: int,
    offset: int,
    *,
    read_committed: bool,
    max_bytes: int,
    max_wait_ms: int,
) -> bytes:
    """Of one partition, outside any session."""
    return b"".join(
        (
            _FRONT.pack(_CONSUMER, max_wait_ms, 1, max_bytes, read_committed, 0, -1),
            I32.pack(1),
            string(topic),
            I32.pack(1),
            _PARTITION.pack(partition, _NO_EPOCH, offset, -1, max_bytes),
            I32.pack(0),
            string(""),
        )
    )


def read_fetched(body: memoryview) -> Fetched:
    """The answer to ``fetch_body``; ``MalformedRequest`` if it is none."""
    try:
        return _read(body)
    except (*UNREADABLE, ValueError) as error:  # ValueError: a code that is no error
        raise MalformedRequest(f"FetchResponse v{VERSION}: {error}") from error


def _read(body: memoryview) -> Fetched:
    _, code, _, topics = _ANSWER.unpack_from(body, 0)
    position = _ANSWER.size
    if code or topics != 1:
        error = ErrorCode(code) if code else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return Fetched(error, -1, -1, -1, (), body[:0])
    (name_length,) = struct.unpack_from(">h", body, position)
    position += 2 + name_length + 4
    _, code, high_watermark, stable, log_start = _PARTITION_ANSWER.unpack_from(body, position)
    position += _PARTITION_ANSWER.size
    aborted, position = _read_aborted(body, position)
    position += I32.size  # the preferred replica: none is asked for without a rack
    (length,) = I32.unpack_from(body, position)
    records = take(body, position + I32.size, max(0, length))
    return Fetched(ErrorCode(code), high_watermark, stable, log_start, aborted, records)


def _read_aborted(body: memoryview, position: int) -> tuple[tuple[tuple[int, int], ...], int]:
    (count,) = I32.unpack_from(body, position)
    position += I32.size
    if count <= 0:
        return (), position
    checked_count(count, len(body) - position, _ABORTED.size, _MAX_ABORTED)
    end = position + count * _ABORTED.size
    return tuple(_ABORTED.iter_unpack(body[position:end])), end
