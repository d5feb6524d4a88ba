"""All records of a batch at once: columns of positions into one blob, made with numpy.

Theory: a record's fields follow one another, so field k of *all* records can be read in one
vectorised step once field k−1 is known (``field_columns``). Only the starts of the records form a
chain (``record_ends``). Keys and values stay where they are: a column holds their starts and
lengths, −1 for null.

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
from tidelog.wire.field_columns import read_fields
from tidelog.wire.record_ends import record_ends
from tidelog.wire.records import (
    Headers,
    Record,
    RecordsSummary,
    known_header,
    read_raw_headers,
    records_blob,
)
from tidelog.wire.varint_columns import Int64s


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
    ends = record_ends(buffer, header.records_count)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))[: len(ends)]
    if not len(ends):
        return _no_records(header, blob)

    fields = read_fields(buffer, starts, ends)
    return RecordColumns(
        header=header,
        blob=blob,
        offsets=fields.offset_deltas + header.base_offset,
        timestamps=_timestamps(header, fields.timestamp_deltas),
        record_start=starts,
        key_start=fields.key_start,
        key_length=fields.key_length,
        value_start=fields.value_start,
        value_length=fields.value_length,
        header_count=fields.header_count,
        header_start=fields.header_start,
        headers_end=ends,
    )


def _no_records(header: BatchHeader, blob: bytes) -> RecordColumns:
    none = np.zeros(0, np.int64)
    return RecordColumns(header, blob, *(none,) * 10)


def _timestamps(header: BatchHeader, deltas: Int64s) -> Int64s:
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return np.full(len(deltas), header.max_timestamp, np.int64)
    return deltas + header.base_timestamp
