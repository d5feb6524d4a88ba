"""Record batches to Arrow, column by column: no Python object per record.

Only what the columns need is decoded: those that headers of batches tell take no look at records.

The columns of ``joined_batches`` are positions in a buffer. Arrow's binary arrays are positions in
a buffer too, only without gaps. So the buffer becomes that of an array whose even elements are the
field and whose odd ones are what lies between, and one ``take`` picks the even ones. Batches are
gathered until there are enough of them, because much of the cost is per call.

The schema is that of Spark's Kafka connector, in the exact types Spark demands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.pipeline.joined_batches import JoinedColumns, Section, section_of
from tidelog.wire.batch import BatchHeader
from tidelog.wire.errors import MalformedBatch
from tidelog.wire.varint_columns import Bytes, Int64s, read_varints

Bools: TypeAlias = npt.NDArray[np.bool_]

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
    """Gathers batches of one partition; ``take`` gives what there is.

    ``columns`` are those that are made, in this order; None: all of them. ``wanted`` says which
    records are, ``on_damage`` is told of a batch whose records make no sense:
    it raises, or the batch is left out.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        include_headers: bool,
        include_value: bool,
        columns: tuple[str, ...] | None = None,
        wanted: Callable[[JoinedColumns], Bools],
        on_damage: Callable[[BatchHeader, MalformedBatch], None],
    ) -> None:
        self._constants = Constants(topic, partition)
        self._schema = SCHEMA_WITH_HEADERS if include_headers else SCHEMA
        if columns is not None:
            self._schema = pa.schema([self._schema.field(name) for name in columns])
        self._include_value = include_value
        self._wanted = wanted
        self._on_damage = on_damage
        self._sections: list[Section] = []
        self._rows = 0
        self._bytes = 0

    def add(self, buffer: Bytes, position: int, header: BatchHeader) -> None:
        """The batch at ``position``, which is all there. The buffer must not change any more."""
        try:
            section = section_of(buffer, position, header)
        except MalformedBatch as error:
            self._on_damage(header, error)
            return
        self._sections.append(section)
        self._rows += header.records_count
        self._bytes += section.end - section.start

    @property
    def is_enough(self) -> bool:
        """Whether it is time to ``take``: larger batches are no faster and hold more memory."""
        return self._rows >= _ENOUGH_ROWS or self._bytes >= _ENOUGH_BYTES

    @property
    def is_worth_it(self) -> bool:
        """Whether to ``take`` now that the next batch comes from another place: else all these
        are copied to lie beside it."""
        return self._rows >= _ENOUGH_ROWS // 8 or self._bytes >= _ENOUGH_BYTES // 8

    def take(self) -> Any:
        """A ``pyarrow.RecordBatch`` of all that was added since the last time; None if there is
        nothing in it."""
        sections = self._sections
        self._sections, self._rows, self._bytes = [], 0, 0
        if not sections:
            return None
        try:
            return self._arrow_of(JoinedColumns(sections))
        except MalformedBatch:
            sound = [one for one in sections if self._is_sound(one)]
            return self._arrow_of(JoinedColumns(sound)) if sound else None

    def _is_sound(self, section: Section) -> bool:
        try:
            self._arrow_of(JoinedColumns([section]))
        except MalformedBatch as error:
            self._on_damage(section.header, error)
            return False
        return True

    def _arrow_of(self, columns: JoinedColumns) -> Any:
        wanted = self._wanted(columns)
        rows = None if wanted.all() else np.flatnonzero(wanted)
        count = len(columns) if rows is None else len(rows)
        if not count:
            return None

        def picked(column: Int64s) -> Int64s:
            return column if rows is None else column[rows]

        def slices(start: Int64s, length: Int64s) -> Any:
            return _slices(columns.buffer, picked(start), picked(length), pa.binary())

        def made(name: str) -> Any:
            match name:
                case "key":
                    return slices(columns.fields.key_start, columns.fields.key_length)
                case "value" if self._include_value:
                    return slices(columns.fields.value_start, columns.fields.value_length)
                case "value":
                    return pa.nulls(count, pa.binary())
                case "topic" | "partition":
                    return self._constants.of(name, count)
                case "offset":
                    return pa.array(picked(columns.offsets), pa.int64())
                case "timestamp":
                    return _timestamps(picked(columns.timestamps))
                case "timestampType":
                    kinds = columns.timestamp_types
                    return pa.array(kinds if rows is None else kinds[rows])
                case _:
                    fields = columns.fields
                    starts, counts = picked(fields.header_start), picked(fields.header_count)
                    return _headers(columns.buffer, starts, counts)

        arrays = [made(name) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class Constants:
    """The columns that are the same for all rows; made once, and cut to what is needed."""

    def __init__(self, topic: str, partition: int) -> None:
        self._values = {
            "topic": pa.scalar(topic, pa.string()),
            "partition": pa.scalar(partition, pa.int32()),
        }
        self._arrays: dict[str, Any] = {}

    def of(self, name: str, count: int) -> Any:
        known = self._arrays.get(name)
        if known is None or len(known) < count:
            known = self._arrays[name] = pa.repeat(self._values[name], count)
        return known.slice(0, count)


def _slices(buffer: Bytes, start: Int64s, length: Int64s, kind: Any) -> Any:
    """An array of ``buffer[start : start + length]``; starts ascend, length −1 is null."""
    count = len(start)
    if not count:
        return pa.array([], kind)
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = start
    offsets[1::2] = start + np.maximum(length, 0)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(buffer)]
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


def _headers(buffer: Bytes, start: Int64s, count: Int64s) -> Any:
    """Lists of headers; null for a record that has none, as Spark's connector says it.

    The first headers of all records are read in one step, then the second ones, and so on; each
    has its place in the flat columns already.
    """
    list_offsets = np.zeros(len(count) + 1, np.int64)
    np.cumsum(count, out=list_offsets[1:])
    flat = np.zeros((4, int(list_offsets[-1])), np.int64)
    rows = np.flatnonzero(count)
    _, at = read_varints(buffer, start[rows]) if rows.size else (rows, rows)
    _fill_headers(buffer, flat, list_offsets[rows], count[rows], at)
    key_start, key_length, value_start, value_length = flat
    pairs = pa.StructArray.from_arrays(
        [
            _slices(buffer, key_start, key_length, pa.string()),
            _slices(buffer, value_start, value_length, pa.binary()),
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
