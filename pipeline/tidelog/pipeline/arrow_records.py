"""Record batches to Arrow, column by column: no Python object per record.

The columns of ``tidelog.wire.columns`` are positions in a blob. Arrow's binary arrays are
positions in a buffer too, only without gaps. So the blob becomes a buffer of an array whose even
elements are the field and whose odd ones are what lies between, and one ``take`` picks the even
ones. Batches of a few records are common; their blobs are joined first, because the cost of all
this is per call.

The schema is that of Spark's Kafka connector, in the exact types Spark demands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelog.wire.columns import RecordColumns
from tidelog.wire.varint_columns import Bytes, Int64s, read_varints

_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_HEADERS: Final = pa.list_(pa.field("element", _HEADER))
SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS: Final = SCHEMA.append(pa.field("headers", _HEADERS))

_ENOUGH_ROWS: Final = 32_768
_ENOUGH_BYTES: Final = 8 * 1024 * 1024
_MOST_MS: Final = (2**63 - 1) // 1000


class ArrowRecords:
    """Gathers the records of one partition; ``take`` gives what there is."""

    __slots__ = ("_columns", "_include_headers", "_include_value", "_place", "_rows", "size")

    def __init__(
        self, topic: str, partition: int, *, include_headers: bool, include_value: bool
    ) -> None:
        self._place = topic, partition
        self._include_headers = include_headers
        self._include_value = include_value
        self._columns: list[RecordColumns] = []
        self._rows: list[Int64s] = []
        self.size = 0
        """Bytes of the blobs that are held."""

    def add(self, columns: RecordColumns, rows: Int64s) -> None:
        """``rows``: which records, by index, ascending."""
        if len(rows):
            self._columns.append(columns)
            self._rows.append(rows)
            self.size += len(columns.blob)

    def __len__(self) -> int:
        return sum(map(len, self._rows))

    @property
    def is_enough(self) -> bool:
        """Whether it is time to ``take``: larger batches are no faster and hold more memory."""
        return self.size >= _ENOUGH_BYTES or len(self) >= _ENOUGH_ROWS

    def take(self) -> Any:
        """A ``pyarrow.RecordBatch`` of all that was added since the last time."""
        columns, rows = self._columns, self._rows
        self._columns, self._rows, self.size = [], [], 0
        blob, shifts = _joined(columns)
        count = sum(map(len, rows))

        def gathered(name: str) -> Int64s:
            return _concatenated([getattr(c, name)[r] for c, r in zip(columns, rows, strict=True)])

        def shifted(name: str) -> Int64s:
            return _concatenated(
                [
                    getattr(c, name)[r] + shift
                    for c, r, shift in zip(columns, rows, shifts, strict=True)
                ]
            )

        topic, partition = self._place
        value = pa.nulls(count, pa.binary())
        if self._include_value:
            value = _slices(blob, shifted("value_start"), gathered("value_length"), pa.binary())
        arrays = [
            _slices(blob, shifted("key_start"), gathered("key_length"), pa.binary()),
            value,
            pa.repeat(pa.scalar(topic, pa.string()), count),
            pa.repeat(pa.scalar(partition, pa.int32()), count),
            pa.array(gathered("offsets"), pa.int64()),
            _timestamps(gathered("timestamps")),
            pa.array(_timestamp_types(columns, rows), pa.int32()),
        ]
        if not self._include_headers:
            return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
        arrays.append(_headers(blob, shifted("header_start"), gathered("header_count")))
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA_WITH_HEADERS)


def _joined(columns: Sequence[RecordColumns]) -> tuple[bytes, list[int]]:
    """One blob of all, and where each of them begins in it."""
    if len(columns) == 1:
        return columns[0].blob, [0]
    shifts, end = [], 0
    for one in columns:
        shifts.append(end)
        end += len(one.blob)
    return b"".join(one.blob for one in columns), shifts


def _concatenated(parts: list[Int64s]) -> Int64s:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _slices(blob: bytes, start: Int64s, length: Int64s, kind: Any) -> Any:
    """An array of ``blob[start : start + length]``; starts ascend, length −1 is null."""
    count = len(start)
    if not count:
        return pa.array([], kind)
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = start
    offsets[1::2] = start + np.maximum(length, 0)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(blob)]
    with_gaps = pa.Array.from_buffers(kind, 2 * count - 1, buffers)
    is_null = length < 0
    picked = pa.array(
        np.arange(0, 2 * count, 2, dtype=np.int32), mask=is_null if is_null.any() else None
    )
    return with_gaps.take(picked)


def _timestamps(milliseconds: Int64s) -> Any:
    # Spark has microseconds; a time 290,000 years away is cut to what fits.
    micros = np.clip(milliseconds, -_MOST_MS, _MOST_MS) * 1000
    return pa.array(micros, pa.int64()).view(pa.timestamp("us", tz="UTC"))


def _timestamp_types(columns: Sequence[RecordColumns], rows: Sequence[Int64s]) -> Any:
    kinds = np.array([one.header.timestamp_type for one in columns], np.int32)
    return np.repeat(kinds, np.array([len(one) for one in rows], np.int64))


def _headers(blob: bytes, start: Int64s, count: Int64s) -> Any:
    """Lists of headers; null for a record that has none, as Spark's connector says it.

    The first headers of all records are read in one step, then the second ones, and so on; each
    has its place in the flat columns already.
    """
    buffer = np.frombuffer(blob, np.uint8)
    list_offsets = np.zeros(len(count) + 1, np.int64)
    np.cumsum(count, out=list_offsets[1:])
    flat = np.zeros((4, int(list_offsets[-1])), np.int64)
    rows = np.flatnonzero(count)
    _, at = read_varints(buffer, start[rows]) if rows.size else (rows, rows)
    _fill_headers(buffer, flat, list_offsets[rows], count[rows], at)
    key_start, key_length, value_start, value_length = flat
    pairs = pa.StructArray.from_arrays(
        [
            _slices(blob, key_start, key_length, pa.string()),
            _slices(blob, value_start, value_length, pa.binary()),
        ],
        fields=list(_HEADER),
    )
    return pa.ListArray.from_arrays(
        pa.array(list_offsets, pa.int32()), pairs, type=_HEADERS, mask=pa.array(count == 0)
    )


def _fill_headers(buffer: Bytes, flat: Any, target: Int64s, left: Int64s, at: Int64s) -> None:
    """Rows of ``flat``: key start, key length, value start, value length."""
    while left.size:
        key_length, key_start = read_varints(buffer, at)
        value_length, value_start = read_varints(buffer, key_start + key_length)
        flat[:, target] = key_start, key_length, value_start, value_length
        at = value_start + np.maximum(value_length, 0)
        goes_on = left > 1
        target, left, at = target[goes_on] + 1, left[goes_on] - 1, at[goes_on]
