"""Zigzag varints of many records at once, with numpy.

Reading never looks outside the buffer: a position behind its end reads the last byte. The
caller finds out, because positions only grow and have to meet the end of each record exactly.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tidelog.wire.errors import InvalidRecord

Int64s: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
_UInt64s: TypeAlias = npt.NDArray[np.uint64]

_ONE: Final = np.uint64(1)
_LOW_BITS: Final = np.uint64(0x7F)
_ONE_BYTE_VALUES: Final = np.array([(raw >> 1) ^ -(raw & 1) for raw in range(256)], np.int64)

# The widest forms: how many bytes, and how large the last of them may be.
_INT32_FORM: Final = (5, 0x0F)
_INT64_FORM: Final = (10, 0x01)


def read_varints(buffer: Bytes, positions: Int64s) -> tuple[Int64s, Int64s]:
    """An int32 at each position, and the positions behind them."""
    return _read(buffer, positions, *_INT32_FORM)


def read_varlongs(buffer: Bytes, positions: Int64s) -> tuple[Int64s, Int64s]:
    """An int64 at each position, and the positions behind them."""
    return _read(buffer, positions, *_INT64_FORM)


def _read(
    buffer: Bytes, positions: Int64s, most_bytes: int, most_in_last: int
) -> tuple[Int64s, Int64s]:
    first = buffer.take(positions, mode="clip")
    after = positions + 1
    rows = np.flatnonzero(first >= 0x80)
    if not rows.size:
        return _ONE_BYTE_VALUES[first], after
    raw = first.astype(np.uint64) & _LOW_BITS
    for index in range(1, most_bytes):
        byte = buffer.take(after[rows], mode="clip")
        raw[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        after[rows] += 1
        if index == most_bytes - 1 and bool((byte > most_in_last).any()):
            raise InvalidRecord(f"a varint of over {32 if most_bytes == 5 else 64} bits")
        rows = rows[byte >= 0x80]
        if not rows.size:
            break
    return _unzigzag(raw), after


def _unzigzag(raw: _UInt64s) -> Int64s:
    signs = np.uint64(0) - (raw & _ONE)  # all ones where the value is negative
    return ((raw >> _ONE) ^ signs).view(np.int64)


def _zigzag(values: Int64s) -> _UInt64s:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def varint_matrix(values: Int64s) -> tuple[Bytes, Int64s]:
    """Each value's bytes in a row of their own, and how many of the row are used."""
    rest = _zigzag(values)
    widest = int(rest.max()) if rest.size else 0
    width = max(1, (widest.bit_length() + 6) // 7)
    matrix = np.empty((len(values), width), np.uint8)
    sizes = np.ones(len(values), np.int64)
    for column in range(width):
        matrix[:, column] = (rest & _LOW_BITS).astype(np.uint8)
        rest = rest >> np.uint64(7)
        if column + 1 < width:
            goes_on = rest != 0
            matrix[:, column] |= goes_on.astype(np.uint8) << 7
            sizes += goes_on
    return matrix, sizes


def join_rows(fields: list[tuple[Bytes, Int64s]]) -> tuple[bytes, Int64s]:
    """The used bytes of all fields, row by row, and how many each row has."""
    used = [np.arange(matrix.shape[1]) < sizes[:, None] for matrix, sizes in fields]
    joined = np.concatenate([matrix for matrix, _ in fields], axis=1)
    row_sizes = np.zeros(len(joined), np.int64)
    for _, sizes in fields:
        row_sizes += sizes
    return joined[np.concatenate(used, axis=1)].tobytes(), row_sizes
