"""The fields of many records at once, once it is known where each record starts and ends.

Field k of *all* records is read in one vectorised step when field k−1 is known. The records may be
those of several batches, with anything in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tidelog.wire.errors import InvalidRecord
from tidelog.wire.records import decode_header_key, read_raw_headers
from tidelog.wire.varint_columns import Bytes, Int64s, read_varints, read_varlongs

_FEW_ROWS: Final = 16
"""Below this a loop over the rows is faster than a vectorised step, and cannot be abused."""


@dataclass(frozen=True, slots=True, eq=False)
class FieldColumns:
    """One element per record; positions are those in the buffer, a length of −1 is null."""

    timestamp_deltas: Int64s
    offset_deltas: Int64s
    key_start: Int64s
    key_length: Int64s
    value_start: Int64s
    value_length: Int64s
    header_count: Int64s
    header_start: Int64s
    """Where the header count stands."""


def read_fields(buffer: Bytes, starts: Int64s, ends: Int64s) -> FieldColumns:
    """``InvalidRecord`` unless the fields of each record end where the record does."""
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
    _require_equal(_skip_headers(buffer, header_count, header_start, at, ends), ends)
    return FieldColumns(
        timestamp_deltas,
        offset_deltas,
        key_start,
        key_length,
        value_start,
        value_length,
        header_count,
        header_start,
    )


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


def _skip_headers(
    buffer: Bytes, counts: Int64s, starts: Int64s, at: Int64s, ends: Int64s
) -> Int64s:
    """Where the headers of each record end, having looked at each of them.

    The first headers of all records are one step, the second ones the next, and so on.
    """
    rows = np.flatnonzero(counts)
    if not rows.size:
        return at
    if bool((2 * counts > ends - at).any()):
        raise InvalidRecord("a record declares more headers than it has bytes for")
    blob = buffer.tobytes()
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
