"""All records of a batch at once: columns of positions into one blob, made with numpy.

Theory: a record's fields follow one another, so field k of *all* records can be read in one
vectorised step once field k−1 is known. Only the starts of the records form a chain; they are
found by a small loop over the lengths, which beats every vectorised search that was tried
(each looks at all bytes instead of one or two per record). Keys and values stay where they
are: a column holds their starts and lengths, −1 for null.

Invariants: accepts and refuses exactly the same bytes as ``tidelog.wire.records``; a position
in a column never points outside ``blob``. Importing this module imports numpy, so nothing on
the hot path imports it at the top.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidelog.kernel.ids import NO_TIMESTAMP, TimestampMs
from tidelog.kernel.ports import ByteView
from tidelog.wire.batch import BatchHeader, TimestampType
from tidelog.wire.codecs import DEFAULT_LIMIT_BYTES
from tidelog.wire.errors import InvalidRecord
from tidelog.wire.records import (
    Headers,
    Record,
    RecordsSummary,
    decode_header_key,
    known_header,
    read_raw_headers,
    records_blob,
)
from tidelog.wire.varint_columns import Bytes, Int64s, read_varints, read_varlongs
from tidelog.wire.varints import read_varint

_FEW_ROWS = 16
"""Below this a loop over the rows is faster than a vectorised step, and cannot be abused."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordColumns:
    """The records of one batch. All arrays are int64 and have one element per record."""

    header: BatchHeader
    blob: bytes
    """The records section, decompressed; all positions below count from its start."""
    offsets: Int64s
    timestamps: Int64s
    record_start: Int64s
    key_start: Int64s
    key_length: Int64s
    value_start: Int64s
    value_length: Int64s
    header_count: Int64s
    header_start: Int64s
    """Where the header count stands: ``[header_start, headers_end)`` can be copied as it is."""
    headers_end: Int64s
    """Also the end of the record."""

    def __len__(self) -> int:
        return len(self.offsets)

    def key(self, index: int) -> bytes | None:
        return self._slice(self.key_start[index], self.key_length[index])

    def value(self, index: int) -> bytes | None:
        return self._slice(self.value_start[index], self.value_length[index])

    def headers(self, index: int) -> Headers:
        if not self.header_count[index]:
            return ()
        return read_raw_headers(
            self.blob, int(self.header_start[index]), int(self.headers_end[index])
        )

    def record(self, index: int) -> Record:
        return Record(
            int(self.offsets[index]),
            int(self.timestamps[index]),
            self.key(index),
            self.value(index),
            self.headers(index),
        )

    def summary(self, *, is_compacted: bool) -> RecordsSummary:
        """What ``validate_records`` answers."""
        timed = self.timestamps[self.timestamps != NO_TIMESTAMP]
        least = int(timed.min()) if timed.size else NO_TIMESTAMP
        most = int(self.timestamps.max()) if len(self) else NO_TIMESTAMP
        expected = np.arange(len(self), dtype=np.int64) + self.header.base_offset
        null_keys = np.flatnonzero(self.key_length < 0) if is_compacted else ()
        return RecordsSummary(
            max_timestamp=TimestampMs(most),
            min_timestamp=TimestampMs(least),
            offset_deltas_are_consecutive=bool((self.offsets == expected).all()),
            null_keys=tuple(int(index) for index in null_keys),
        )

    def _slice(self, start: np.int64, length: np.int64) -> bytes | None:
        return None if length < 0 else self.blob[start : start + length]


def decode_columns(
    batch: ByteView, header: BatchHeader | None = None, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> RecordColumns:
    """The records of the batch that starts at the first byte."""
    header = known_header(batch, header)
    blob = bytes(records_blob(batch, header, limit_bytes))
    buffer = np.frombuffer(blob, np.uint8)
    ends = _record_ends(blob, header.records_count)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))[: len(ends)]
    if not len(ends):
        return _no_records(header, blob)

    lengths, at = read_varints(buffer, starts)
    _refuse_below(lengths, 0, "length")
    timestamp_deltas, at = read_varlongs(buffer, at + 1)
    offset_deltas, at = read_varints(buffer, at)
    key_length, key_start = read_varints(buffer, at)
    _refuse_below(key_length, -1, "key length")
    value_length, value_start = read_varints(buffer, key_start + np.maximum(key_length, 0))
    _refuse_below(value_length, -1, "value length")
    header_start = value_start + np.maximum(value_length, 0)
    header_count, at = read_varints(buffer, header_start)
    _refuse_below(header_count, 0, "header count")
    _require_equal(_skip_headers(blob, buffer, header_count, header_start, at, ends), ends)
    return RecordColumns(
        header=header,
        blob=blob,
        offsets=offset_deltas + header.base_offset,
        timestamps=_timestamps(header, timestamp_deltas),
        record_start=starts,
        key_start=key_start,
        key_length=key_length,
        value_start=value_start,
        value_length=value_length,
        header_count=header_count,
        header_start=header_start,
        headers_end=ends,
    )


def _no_records(header: BatchHeader, blob: bytes) -> RecordColumns:
    none = np.zeros(0, np.int64)
    return RecordColumns(header, blob, *(none,) * 10)


def _record_ends(blob: bytes, count: int) -> Int64s:
    """Where each record ends: the only step that has to go from record to record."""
    ends: list[int] = []
    add = ends.append
    position = 0
    try:
        for _ in range(count):
            low = blob[position]
            if low < 0x80:
                position += (low >> 1) + 1
            elif (high := blob[position + 1]) < 0x80:
                position += (high << 6) + (low >> 1) - 62  # (low − 128 + 128·high) / 2 + 2
            else:
                length, position = read_varint(blob, position)
                position += max(length, 0)  # the sign is looked at by the caller
            add(position)
    except IndexError:
        raise InvalidRecord(
            f"record {len(ends)} of {count} starts at byte {position}, "
            f"the records end at {len(blob)}"
        ) from None
    if position != len(blob):
        raise InvalidRecord(
            f"the {count} records declared take {position} bytes, there are {len(blob)}"
        )
    return np.fromiter(ends, np.int64, count)


def _refuse_below(values: Int64s, least: int, what: str) -> None:
    if bool((values < least).any()):
        index = int(np.argmax(values < least))
        raise InvalidRecord(f"record {index}: {what} is {values[index]}")


def _require_equal(reached: Int64s, ends: Int64s) -> None:
    wrong = reached != ends
    if bool(wrong.any()):
        index = int(np.argmax(wrong))
        raise InvalidRecord(
            f"record {index}: its fields end at byte {reached[index]}, the record at {ends[index]}"
        )


def _timestamps(header: BatchHeader, deltas: Int64s) -> Int64s:
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return np.full(len(deltas), header.max_timestamp, np.int64)
    return deltas + header.base_timestamp


def _skip_headers(
    blob: bytes, buffer: Bytes, counts: Int64s, starts: Int64s, at: Int64s, ends: Int64s
) -> Int64s:
    """Where the headers of each record end, having looked at each of them.

    The first headers of all records are one step, the second ones the next, and so on.
    """
    rows = np.flatnonzero(counts)
    if not rows.size:
        return at
    if bool((2 * counts > ends - at).any()):
        raise InvalidRecord("a record declares more headers than it has bytes for")
    reached = at.copy()
    left, at = counts[rows], at[rows]
    key_starts: list[int] = []
    key_ends: list[int] = []
    while rows.size >= _FEW_ROWS:
        key_length, at = read_varints(buffer, at)
        _refuse_below(key_length, 0, "header key length (of those with headers)")
        key_starts += at.tolist()
        at = at + key_length
        key_ends += at.tolist()
        value_length, at = read_varints(buffer, at)
        _refuse_below(value_length, -1, "header value length (of those with headers)")
        at = at + np.maximum(value_length, 0)
        left = left - 1
        reached[rows[left == 0]] = at[left == 0]
        rows, at, left = rows[left > 0], at[left > 0], left[left > 0]
    for row in rows.tolist():
        read_raw_headers(blob, int(starts[row]), int(ends[row]))
        reached[row] = ends[row]
    if not blob.isascii():
        for key in {blob[start:end] for start, end in zip(key_starts, key_ends, strict=True)}:
            decode_header_key(key)
    return reached
