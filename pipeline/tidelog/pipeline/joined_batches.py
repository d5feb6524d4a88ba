"""Several record batches decoded as one: what a step costs by itself is paid once for all of them.

Batches that were not compressed stay where they are, in the memory they were received in, and all
positions are positions in that. Others are decompressed and joined; so are batches that lie in
different places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidelog.wire.batch import HEADER_SIZE, BatchHeader, Codec, TimestampType
from tidelog.wire.field_columns import FieldColumns, read_fields
from tidelog.wire.record_ends import record_ends
from tidelog.wire.records import records_blob
from tidelog.wire.varint_columns import Bytes, Int64s


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """The records of one batch: ``buffer[start:end]``, decompressed."""

    header: BatchHeader
    buffer: Bytes
    start: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class JoinedColumns:
    """The records of several batches; one element per record, positions are those in ``buffer``."""

    buffer: Bytes
    offsets: Int64s
    timestamps: Int64s
    timestamp_types: npt.NDArray[np.int32]
    fields: FieldColumns

    def __len__(self) -> int:
        return len(self.offsets)


def section_of(buffer: Bytes, position: int, header: BatchHeader) -> Section:
    """Of the whole batch at ``position``; ``MalformedBatch`` if there cannot be such records."""
    end = position + header.size
    blob = records_blob(buffer[position:end].data, header)
    if header.codec_id == Codec.NONE:
        return Section(header, buffer, position + HEADER_SIZE, end)
    return Section(header, np.frombuffer(blob, np.uint8), 0, len(blob))


def decode_together(sections: Sequence[Section]) -> JoinedColumns:
    """At least one. ``InvalidRecord`` if any of the records is malformed."""
    placed = _in_one_buffer(sections)
    buffer = placed[0].buffer
    parts = [
        record_ends(buffer[one.start : one.end], one.header.records_count) + one.start
        for one in placed
    ]
    counts = np.array([len(part) for part in parts], np.int64)
    ends = np.concatenate(parts)
    starts = np.empty_like(ends)
    starts[1:] = ends[:-1]
    has_records = counts > 0
    firsts = (np.cumsum(counts) - counts)[has_records]
    starts[firsts] = np.array([one.start for one in placed], np.int64)[has_records]
    fields = read_fields(buffer, starts, ends)
    headers = [one.header for one in placed]
    bases = np.array([header.base_offset for header in headers], np.int64)
    kinds = np.array([header.timestamp_type for header in headers], np.int32)
    return JoinedColumns(
        buffer,
        np.repeat(bases, counts) + fields.offset_deltas,
        _timestamps(headers, kinds, counts, fields.timestamp_deltas),
        np.repeat(kinds, counts),
        fields,
    )


def _in_one_buffer(sections: Sequence[Section]) -> Sequence[Section]:
    first = sections[0].buffer
    if all(one.buffer is first for one in sections):
        return sections
    joined = np.concatenate([one.buffer[one.start : one.end] for one in sections])
    placed, at = [], 0
    for one in sections:
        end = at + one.end - one.start
        placed.append(Section(one.header, joined, at, end))
        at = end
    return placed


def _timestamps(
    headers: Sequence[BatchHeader], kinds: npt.NDArray[np.int32], counts: Int64s, deltas: Int64s
) -> Int64s:
    is_appended = kinds == TimestampType.LOG_APPEND_TIME
    bases = np.array([header.base_timestamp for header in headers], np.int64)
    if not is_appended.any():
        return np.repeat(bases, counts) + deltas
    latest = np.array([header.max_timestamp for header in headers], np.int64)
    steps = np.where(np.repeat(is_appended, counts), 0, deltas)
    return np.repeat(np.where(is_appended, latest, bases), counts) + steps
