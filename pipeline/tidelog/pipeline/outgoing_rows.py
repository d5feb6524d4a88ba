"""Arrow rows to record batches, column by column: no Python object per row.

What differs from row to row in a known way (lengths, deltas, header counts) is encoded for all rows
at once into columns of small heads. Arrow then joins heads and payloads row by row, and the buffer
behind the joined column *is* the records section of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipeline.errors import WrongRows
from tidelog.wire.batch import Codec, TimestampType, assemble
from tidelog.wire.codecs import compress
from tidelog.wire.records import header_of
from tidelog.wire.varint_columns import Bytes, Int64s, join_rows, varint_matrix

RECORD_OVERHEAD: Final = 31
"""Most bytes of a record's length, attributes, deltas and lengths of key and value."""
_EMPTY: Final = pa.scalar(b"", pa.binary())
_NO_HEADERS: Final = pa.scalar(b"\x00", pa.binary())


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Some rows that go to the same place, or all that Spark gave at once."""

    keys: Any
    """``pa.BinaryArray``, or None if there is no such column."""
    values: Any
    headers: Any
    """Encoded, from the header count on; None if there is no such column."""
    timestamps: Int64s
    sizes: Int64s
    """What each row takes at most in a batch."""

    def __len__(self) -> int:
        return len(self.timestamps)

    def take(self, indices: Int64s) -> Rows:
        picked = pa.array(indices)
        return Rows(
            None if self.keys is None else self.keys.take(picked),
            self.values.take(picked),
            None if self.headers is None else self.headers.take(picked),
            self.timestamps[indices],
            self.sizes[indices],
        )

    def between(self, start: int, stop: int) -> Rows:
        count = stop - start
        return Rows(
            None if self.keys is None else self.keys.slice(start, count),
            self.values.slice(start, count),
            None if self.headers is None else self.headers.slice(start, count),
            self.timestamps[start:stop],
            self.sizes[start:stop],
        )


def joined(parts: Sequence[Rows]) -> Rows:
    """One after the other; all have the same columns."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    return Rows(
        None if first.keys is None else pa.concat_arrays([part.keys for part in parts]),
        pa.concat_arrays([part.values for part in parts]),
        None if first.headers is None else pa.concat_arrays([part.headers for part in parts]),
        np.concatenate([part.timestamps for part in parts]),
        np.concatenate([part.sizes for part in parts]),
    )


def rows_of(batch: Any, now_ms: int) -> Rows:
    """The columns of a ``pa.RecordBatch`` that records are made of."""
    names = set(batch.schema.names)
    keys = _binary(batch.column("key")) if "key" in names else None
    values = _binary(batch.column("value"))
    headers = _encoded_headers(batch.column("headers")) if "headers" in names else None
    sizes = np.full(batch.num_rows, RECORD_OVERHEAD, np.int64)
    for column in (keys, values, headers):
        sizes += 1 if column is None else np.maximum(lengths_of(column), 0)
    times = _milliseconds(batch.column("timestamp"), now_ms) if "timestamp" in names else None
    if times is None:
        times = np.full(batch.num_rows, now_ms, np.int64)
    return Rows(keys, values, headers, times, sizes)


def lengths_of(array: Any) -> Int64s:
    """−1 for null."""
    found = pc.fill_null(pc.binary_length(array), -1).to_numpy(zero_copy_only=False)
    return np.asarray(found, np.int64)


def bytes_and_starts(array: Any) -> tuple[Bytes, Int64s]:
    """The buffer behind a binary array, and where each element starts in it."""
    _, offsets, data = array.buffers()
    all_starts = np.frombuffer(offsets, np.int32)
    starts = all_starts[array.offset : array.offset + len(array)].astype(np.int64)
    blob = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return blob, starts


def build_batch(
    rows: Rows,
    *,
    codec: Codec,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    is_transactional: bool,
) -> bytes:
    """A record batch as producers send them."""
    base_timestamp = int(rows.timestamps[0])
    header = header_of(
        base_offset=0,
        leader_epoch=-1,
        codec=codec,
        timestamp_type=TimestampType.CREATE_TIME,
        is_transactional=is_transactional,
        is_control=False,
        has_delete_horizon=False,
        last_offset_delta=len(rows) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=int(rows.timestamps.max()),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(rows),
    )
    section = _records(rows, base_timestamp)
    return assemble(header, section if codec is Codec.NONE else compress(codec, section))


def _records(rows: Rows, base_timestamp: int) -> memoryview:
    count = len(rows)
    keys = pa.nulls(count, pa.binary()) if rows.keys is None else rows.keys
    headers = _NO_HEADERS if rows.headers is None else rows.headers
    key_lengths, value_lengths = lengths_of(keys), lengths_of(rows.values)
    value_heads = varint_matrix(value_lengths)
    fields = [
        (np.zeros((count, 1), np.uint8), np.ones(count, np.int64)),  # attributes
        varint_matrix(rows.timestamps - base_timestamp),
        varint_matrix(np.arange(count, dtype=np.int64)),
        varint_matrix(key_lengths),
    ]
    length = np.maximum(key_lengths, 0) + value_heads[1] + np.maximum(value_lengths, 0)
    length += 1 if rows.headers is None else lengths_of(rows.headers)
    for _, sizes in fields:
        length += sizes
    heads = _column(*join_rows([varint_matrix(length), *fields]))
    return _data(_join(heads, keys, _column(*join_rows([value_heads])), rows.values, headers))


def _encoded_headers(lists: Any) -> Any:
    """Of each row: how many, and each key and value with its length."""
    counts = np.asarray(
        pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False), np.int64
    )
    pairs = lists.flatten()
    keys, values = (_binary(field) for field in pairs.flatten())
    if keys.null_count:
        raise WrongRows("a header has no key; each needs one, though its value may be null")
    key_heads = _column(*join_rows([varint_matrix(lengths_of(keys))]))
    value_heads = _column(*join_rows([varint_matrix(lengths_of(values))]))
    entries = _join(key_heads, keys, value_heads, values)
    blob, starts = bytes_and_starts(entries)
    ends = np.append(starts, len(_data(entries)))
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    offsets = ends[bounds].astype(np.int32)
    of_rows = pa.Array.from_buffers(
        pa.binary(), len(counts), [None, pa.py_buffer(offsets), pa.py_buffer(blob)]
    )
    return _join(_column(*join_rows([varint_matrix(counts)])), of_rows)


def _join(*columns: Any) -> Any:
    return pc.binary_join_element_wise(
        *columns, _EMPTY, null_handling="replace", null_replacement=""
    )


def _data(array: Any) -> memoryview:
    """The bytes of all elements; the array must be one that was just made."""
    _, offsets, data = array.buffers()
    end = int(np.frombuffer(offsets, np.int32)[len(array)]) if len(array) else 0
    return memoryview(b"" if data is None else data)[:end]


def _column(data: bytes, sizes: Int64s) -> Any:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def _binary(array: Any) -> Any:
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _milliseconds(array: Any, now_ms: int) -> Int64s:
    """Rows without a time are written now."""
    micros = array.cast(pa.timestamp("us", tz="UTC")).view(pa.int64())
    found = np.asarray(pc.fill_null(micros, 0).to_numpy(zero_copy_only=False), np.int64) // 1000
    if array.null_count:
        found[np.asarray(array.is_null().to_numpy(zero_copy_only=False))] = now_ms
    return found
