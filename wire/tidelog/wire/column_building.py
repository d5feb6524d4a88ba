"""Records sections and batches made of columns, the way back from ``tidelog.wire.columns``.

Theory: what differs from record to record in a known way (length, deltas, field lengths) is
encoded for all records at once into one string of heads; the payload bytes are slices of blobs
that exist already. Heads and slices are then joined alternately, so no payload byte passes
through numpy.

Compaction keeps some records of a batch. As long as the base timestamp stays, a kept record's
bytes stay too and neighbours are copied as one run; when the base timestamp becomes a delete
horizon (KIP-534), only the head in front of the key is written anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tidelog.kernel.ids import TimestampMs
from tidelog.kernel.ports import ByteView
from tidelog.wire.batch import CODEC_MASK, DELETE_HORIZON_BIT, Codec, TimestampType, assemble
from tidelog.wire.codecs import compress
from tidelog.wire.columns import RecordColumns
from tidelog.wire.records import emptied_batch, header_of
from tidelog.wire.varint_columns import Bytes, Int64s, join_rows, varint_matrix

Selection: TypeAlias = npt.NDArray[np.bool_] | Int64s
"""Which records: a mask over all of them, or their indices in ascending order."""


@dataclass(frozen=True, slots=True, eq=False)
class BytesColumn:
    """One byte string per record, as slices of a blob; length −1 is null."""

    blob: ByteView
    start: Int64s
    length: Int64s

    def __len__(self) -> int:
        return len(self.start)

    @classmethod
    def of(cls, values: Iterable[bytes | None]) -> BytesColumn:
        """A column of single values, for callers who do not have a blob yet."""
        kept = list(values)
        length = np.array([-1 if value is None else len(value) for value in kept], np.int64)
        ends = np.cumsum(np.maximum(length, 0))
        return cls(b"".join(value for value in kept if value), ends - np.maximum(length, 0), length)


def encode_columns(
    *,
    timestamp_deltas: Int64s,
    offset_deltas: Int64s,
    keys: BytesColumn,
    values: BytesColumn,
    headers: BytesColumn | None = None,
) -> bytes:
    """An uncompressed records section.

    ``headers`` are raw slices from the header count on, as in ``RecordColumns.header_start``;
    without it no record has any.
    """
    count = len(timestamp_deltas)
    value_lengths = varint_matrix(values.length)
    tails = _NO_HEADERS if headers is None else headers.length
    rest = np.maximum(keys.length, 0) + value_lengths[1] + np.maximum(values.length, 0) + tails
    heads = _heads(timestamp_deltas, offset_deltas, [varint_matrix(keys.length)], rest)
    pieces: list[bytes | memoryview] = [b"\x00"] * (5 * count)
    pieces[0::5] = _rows(*heads)
    pieces[1::5] = _slices(keys.blob, keys.start, keys.length)
    pieces[2::5] = _rows(*join_rows([value_lengths]))
    pieces[3::5] = _slices(values.blob, values.start, values.length)
    if headers is not None:
        pieces[4::5] = _slices(headers.blob, headers.start, headers.length)
    return b"".join(pieces)


_NO_HEADERS = 1
"""The size of a header count of zero."""


def _heads(
    timestamp_deltas: Int64s,
    offset_deltas: Int64s,
    more: list[tuple[Bytes, Int64s]],
    rest: Int64s,
) -> tuple[bytes, Int64s]:
    """Length, attributes, deltas and ``more`` of each record that goes on for ``rest`` bytes."""
    count = len(timestamp_deltas)
    attributes = np.zeros((count, 1), np.uint8), np.ones(count, np.int64)
    fields = [attributes, varint_matrix(timestamp_deltas), varint_matrix(offset_deltas), *more]
    lengths = rest.copy()
    for _, sizes in fields:
        lengths += sizes
    return join_rows([varint_matrix(lengths), *fields])


def _rows(joined: bytes, sizes: Int64s) -> Iterator[bytes]:
    return map(BytesIO(joined).read, sizes.tolist())


def _slices(blob: ByteView, start: Int64s, length: Int64s) -> Iterator[bytes | memoryview]:
    sizes = np.maximum(length, 0)
    stop = start + sizes
    data = blob if isinstance(blob, bytes) else memoryview(blob)
    if len(start) and bool((start[1:] == stop[:-1]).all()):
        # Nothing between the slices: reading on is three times faster than slicing.
        return _rows(bytes(data[int(start[0]) : int(stop[-1])]), sizes)
    return map(data.__getitem__, map(slice, start.tolist(), stop.tolist()))


def build_batch_from_columns(
    *,
    timestamps: Int64s,
    keys: BytesColumn,
    values: BytesColumn,
    headers: BytesColumn | None = None,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    leader_epoch: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    level: int | None = None,
) -> bytes:
    """A batch of at least one record at consecutive offsets, as producers send them."""
    count = len(timestamps)
    if not count:
        raise ValueError("a batch is built of at least one record")
    base_timestamp = int(timestamps[0])
    section = encode_columns(
        timestamp_deltas=timestamps - base_timestamp,
        offset_deltas=np.arange(count, dtype=np.int64),
        keys=keys,
        values=values,
        headers=headers,
    )
    header = header_of(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        codec=codec,
        timestamp_type=timestamp_type,
        is_transactional=is_transactional,
        is_control=False,
        has_delete_horizon=False,
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=int(timestamps.max()),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=count,
    )
    return assemble(header, compress(codec, section, level))


def _indices(selection: Selection) -> Int64s:
    if selection.dtype == np.bool_:
        return np.flatnonzero(selection).astype(np.int64, copy=False)
    return selection.astype(np.int64, copy=False)


def encode_selected(columns: RecordColumns, selection: Selection, base_timestamp: int) -> bytes:
    """The records section of some records of a batch, relative to another base timestamp."""
    rows = _indices(selection)
    header = columns.header
    if (
        base_timestamp == header.base_timestamp
        and header.timestamp_type is TimestampType.CREATE_TIME
    ):
        return _copy_runs(columns, rows)
    key_lengths = varint_matrix(columns.key_length[rows])
    start, stop = columns.key_start[rows], columns.headers_end[rows]
    pieces: list[bytes | memoryview] = [b""] * (2 * len(rows))
    pieces[0::2] = _rows(
        *_heads(
            columns.timestamps[rows] - base_timestamp,
            columns.offsets[rows] - header.base_offset,
            [key_lengths],
            stop - start,
        )
    )
    pieces[1::2] = _slices(columns.blob, start, stop - start)
    return b"".join(pieces)


def _copy_runs(columns: RecordColumns, rows: Int64s) -> bytes:
    """The records as they are; those that follow one another in one piece."""
    if not len(rows):
        return b""
    breaks = np.flatnonzero(np.diff(rows) != 1)
    first = rows[np.concatenate((np.zeros(1, np.int64), breaks + 1))]
    last = rows[np.concatenate((breaks, np.full(1, len(rows) - 1)))]
    start = columns.record_start[first]
    return b"".join(_slices(columns.blob, start, columns.headers_end[last] - start))


def rebuild_batch_from_columns(
    columns: RecordColumns,
    selection: Selection,
    *,
    codec: Codec | None = None,
    level: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """The batch with these of its records; the columnar form of ``records.rebuild_batch``."""
    header = columns.header
    rows = _indices(selection)
    if not len(rows):
        return emptied_batch(header)
    codec = Codec(header.codec_id) if codec is None else codec
    timestamps = columns.timestamps[rows]
    base_timestamp = int(timestamps[0])
    attributes = header.attributes & ~CODEC_MASK | codec
    if header.has_delete_horizon:
        base_timestamp = header.base_timestamp
    elif delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
        attributes |= DELETE_HORIZON_BIT
    rebuilt = header._replace(
        attributes=attributes,
        base_timestamp=TimestampMs(base_timestamp),
        records_count=len(rows),
        max_timestamp=header.max_timestamp
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME
        else TimestampMs(int(timestamps.max())),
    )
    section = encode_selected(columns, rows, base_timestamp)
    return assemble(rebuilt, compress(codec, section, level))
