"""The records of many batches at once, as columns of positions into one buffer.

``tidelog.wire.columns`` opens one batch; to do that for each small batch of a large log would cost
more in calls than in work. Here all batches of a chunk are opened together. Only the chain of
record starts has to be followed step by step, and it is followed in all batches side by side:
step i finds the i-th record of each of them.

Positions are checked against the end of each record, so nothing is read outside its batch. What
the cleaner does not look at (headers) is not looked at here.

Importing this module imports numpy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tidelog.storage.cleaner.chunks import PADDING, Located
from tidelog.wire.batch import HEADER_SIZE
from tidelog.wire.errors import InvalidRecord
from tidelog.wire.records import records_blob
from tidelog.wire.varint_columns import Bytes, Int64s, read_varints, read_varlongs
from tidelog.wire.varints import read_varint

Bools: TypeAlias = npt.NDArray[np.bool_]

_FEW_LANES: Final = 60
"""With fewer batches side by side than this, following each for itself is faster."""


def _short_varints() -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int8]]:
    """For each two bytes: the varint they begin with, and its size; size 0 if it is longer."""
    pairs = np.arange(1 << 16)
    low, high = pairs & 0xFF, pairs >> 8
    is_short = low < 0x80
    raw = np.where(is_short, low, (low & 0x7F) | ((high & 0x7F) << 7))
    sizes = np.where(is_short, 1, np.where(high < 0x80, 2, 0))
    return ((raw >> 1) ^ -(raw & 1)).astype(np.int16), sizes.astype(np.int8)


_VALUES, _SIZES = _short_varints()
_STEPS: Final = np.where((_SIZES == 0) | (_VALUES < 0), 0, _SIZES + _VALUES.astype(np.int64))
"""For each two bytes: how far from a record's start its end is; 0 if they do not tell."""


class _Reader:
    """Varints at many places of a buffer; nearly all of them have one or two bytes."""

    __slots__ = ("_buffer", "_pairs")

    def __init__(self, buffer: Bytes) -> None:
        self._buffer = buffer
        self._pairs = np.ndarray((len(buffer) - 1,), "<u2", buffer=buffer, strides=(1,))

    def read(self, at: Int64s) -> tuple[Int64s, Int64s]:
        """An int32 at each position, and the positions behind them."""
        pairs = self._pairs_at(at)
        values = _VALUES.take(pairs).astype(np.int64)
        sizes = _SIZES.take(pairs)
        behind = at + sizes
        if not bool(sizes.all()):
            rows = np.flatnonzero(sizes == 0)
            values[rows], behind[rows] = read_varints(self._buffer, at[rows])
        return values, behind

    def skip(self, at: Int64s) -> Int64s:
        """The positions behind the int64 at each position."""
        sizes = _SIZES.take(self._pairs_at(at))
        behind = at + sizes
        if not bool(sizes.all()):
            rows = np.flatnonzero(sizes == 0)
            behind[rows] = read_varlongs(self._buffer, at[rows])[1]
        return behind

    def _pairs_at(self, at: Int64s) -> npt.NDArray[np.uint16]:
        try:
            return self._pairs[at]
        except IndexError:
            raise InvalidRecord("a record ends behind its chunk") from None


@dataclass(frozen=True, slots=True, eq=False)
class OpenedBatches:
    """Some batches of a chunk with their records. Arrays have one element per record, except
    those that say otherwise."""

    indices: list[int]
    """Which batches of the chunk."""
    data: bytes
    """All records sections, uncompressed."""
    buffer: Bytes
    """The same bytes."""
    counts: Int64s
    """Records per batch."""
    first_rows: Int64s
    """The row of each batch's first record."""
    batch: Int64s
    """Which element of ``indices`` each record belongs to."""
    start: Int64s
    end: Int64s
    offset: Int64s
    delta_at: Int64s
    """Where the timestamp stands, relative to the batch's base, …"""
    delta_end: Int64s
    """… and where it ends."""
    key_start: Int64s
    key_length: Int64s
    """−1 if there is none."""
    has_value: Bools


def open_batches(
    data: bytes, batches: Sequence[Located], wanted: Sequence[int], limit_bytes: int
) -> Iterator[OpenedBatches]:
    """The wanted batches of a chunk, in parts that take about ``limit_bytes`` uncompressed."""
    if all(batches[index][1].codec_id == 0 for index in wanted):
        if wanted:
            starts = [batches[index][0] + HEADER_SIZE for index in wanted]
            ends = [batches[index][0] + batches[index][1].size for index in wanted]
            yield _open(list(wanted), data, starts, ends, batches)
        return
    view = memoryview(data)
    indices: list[int] = []
    sections: list[bytes | memoryview] = []
    size = 0
    for index in wanted:
        position, header = batches[index]
        section = records_blob(view[position : position + header.size], header)
        indices.append(index)
        sections.append(section)
        size += len(section)
        if size >= limit_bytes:
            yield _open_joined(indices, sections, batches)
            indices, sections, size = [], [], 0
    if indices:
        yield _open_joined(indices, sections, batches)


def _open_joined(
    indices: list[int], sections: list[bytes | memoryview], batches: Sequence[Located]
) -> OpenedBatches:
    starts, at = [], 0
    for section in sections:
        starts.append(at)
        at += len(section)
    ends = [*starts[1:], at]
    return _open(indices, b"".join((*sections, bytes(PADDING))), starts, ends, batches)


def _open(
    indices: list[int],
    data: bytes,
    starts: list[int],
    ends: list[int],
    batches: Sequence[Located],
) -> OpenedBatches:
    headers = [batches[index][1] for index in indices]
    buffer = np.frombuffer(data, np.uint8)
    counts = np.array([header.records_count for header in headers], np.int64)
    if bool((counts < 0).any()):
        raise InvalidRecord("a batch has a negative count of records")
    first_rows = np.cumsum(counts) - counts
    batch = np.repeat(np.arange(len(indices), dtype=np.int64), counts)
    start, end = _bounds(buffer, starts, ends, counts, first_rows)

    reader = _Reader(buffer)
    delta_at = reader.skip(start) + 1
    delta_end = reader.skip(delta_at)
    offset_delta, at = reader.read(delta_end)
    key_length, key_start = reader.read(at)
    value_length, value_start = reader.read(key_start + np.maximum(key_length, 0))
    _require(key_length >= -1, "key length")
    _require(value_length >= -1, "value length")
    _require(value_start + np.maximum(value_length, 0) < end, "length of its fields")
    bases = np.array([header.base_offset for header in headers], np.int64)
    return OpenedBatches(
        indices=indices,
        data=data,
        buffer=buffer,
        counts=counts,
        first_rows=first_rows,
        batch=batch,
        start=start,
        end=end,
        offset=bases[batch] + offset_delta,
        delta_at=delta_at,
        delta_end=delta_end,
        key_start=key_start,
        key_length=key_length,
        has_value=value_length >= 0,
    )


def _require(holds: Bools, what: str) -> None:
    if not bool(holds.all()):
        raise InvalidRecord(f"record {int(np.argmin(holds))} of a chunk: its {what} is wrong")


def _bounds(
    buffer: Bytes, starts: list[int], ends: list[int], counts: Int64s, first_rows: Int64s
) -> tuple[Int64s, Int64s]:
    """Where each record starts and ends."""
    total = int(counts.sum())
    found = np.empty(total, np.int64)
    if total >= _FEW_LANES * int(counts.max(initial=0)):
        reached = _side_by_side(buffer, starts, counts, first_rows, found)
    else:
        reached = _one_by_one(buffer.tobytes(), starts, counts, first_rows, found)
    wrong = reached != np.array(ends, np.int64)
    if bool(wrong.any()):
        raise InvalidRecord(f"the records of batch {int(np.argmax(wrong))} do not fill its section")
    behind = np.empty(total, np.int64)
    behind[:-1] = found[1:]
    is_filled = counts > 0
    behind[(first_rows + counts - 1)[is_filled]] = reached[is_filled]
    return found, behind


def _side_by_side(
    buffer: Bytes, starts: list[int], counts: Int64s, first_rows: Int64s, found: Int64s
) -> Int64s:
    """Fill ``found``; where the last record of each batch ends."""
    pairs = np.ndarray((len(buffer) - 1,), "<u2", buffer=buffer, strides=(1,))
    order = np.argsort(-counts, kind="stable")
    positions = np.array(starts, np.int64)[order]
    # How many batches have more than i records: the first so many, in this order.
    most = int(counts.max(initial=0))
    lanes = len(counts) - np.searchsorted(np.sort(counts), np.arange(most), "right")
    # Where batches have about as many records a table takes less time than to scatter each row.
    is_even = most * len(counts) <= 2 * len(found)
    table = np.empty((most if is_even else 0, len(counts)), np.int64)
    rows = first_rows[order]
    try:
        for row, lane_count in enumerate(lanes.tolist()):
            at = positions[:lane_count]
            if is_even:
                table[row, :lane_count] = at
            else:
                found[rows[:lane_count] + row] = at
            step = _STEPS.take(pairs[at])
            if not step.all():
                _measure_long(buffer, at, step)
            at += step
    except IndexError:
        raise InvalidRecord("a record ends behind its chunk") from None
    back = np.empty(len(counts), np.int64)
    back[order] = np.arange(len(counts))
    if is_even:
        found[:] = table.T[back][np.arange(most) < counts[:, None]]
    return positions[back]


def _measure_long(buffer: Bytes, at: Int64s, step: Int64s) -> None:
    """The records whose length takes more than two bytes, or is wrong."""
    rows = np.flatnonzero(step == 0)
    length, behind = read_varints(buffer, at[rows])
    _require(length >= 0, "length")
    step[rows] = behind - at[rows] + length


def _one_by_one(
    data: bytes, starts: list[int], counts: Int64s, first_rows: Int64s, found: Int64s
) -> Int64s:
    """The same for a few batches of many records."""
    reached: list[int] = []
    for position, count, row in zip(starts, counts.tolist(), first_rows.tolist(), strict=True):
        begins: list[int] = []
        add = begins.append
        for _ in range(count):
            add(position)
            low = data[position] if position < len(data) else 1
            if low < 0x80:
                position += (low >> 1) + 1
                if low & 1:
                    raise InvalidRecord(f"a record at {begins[-1]} has a negative length")
            else:
                length, position = read_varint(data, position)
                position += length
                if length < 0:
                    raise InvalidRecord(f"a record at {begins[-1]} has a negative length")
        found[row : row + count] = begins
        reached.append(position)
    return np.array(reached, np.int64)
