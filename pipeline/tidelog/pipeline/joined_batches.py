"""Several record batches decoded as one: what a step costs by itself is paid once for all of them.

Batches that were not compressed stay where they are, in the memory they were received in, and all
positions are positions in that. Others are decompressed and joined; so are batches that lie in
different places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

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


class JoinedColumns:
    """The records of several batches (at least one): one element per record, in order.

    Each column is made when it is asked for. Offsets of batches without gaps are known from their
    headers alone; all else takes a walk over the records, and ``InvalidRecord`` is raised by
    whatever needs a record that is malformed.
    """

    def __init__(self, sections: Sequence[Section]) -> None:
        self._sections = sections
        self._headers = [one.header for one in sections]

    def __len__(self) -> int:
        return sum(self._counts.tolist())

    @property
    def buffer(self) -> Bytes:
        """What positions in ``fields`` are positions in."""
        return self._placed[0].buffer

    @cached_property
    def offsets(self) -> Int64s:
        bases = np.array([header.base_offset for header in self._headers], np.int64)
        starts: Int64s = np.repeat(bases, self._counts)
        if not all(map(_is_without_gaps, self._headers)):
            return starts + self.fields.offset_deltas
        before = np.cumsum(self._counts) - self._counts
        in_batch = np.arange(len(self), dtype=np.int64) - np.repeat(before, self._counts)
        return starts + in_batch

    @cached_property
    def timestamps(self) -> Int64s:
        return _timestamps(self._headers, self._kinds, self._counts, self.fields.timestamp_deltas)

    @property
    def timestamp_types(self) -> npt.NDArray[np.int32]:
        return np.repeat(self._kinds, self._counts)

    @cached_property
    def fields(self) -> FieldColumns:
        parts = [
            record_ends(self.buffer[one.start : one.end], one.header.records_count) + one.start
            for one in self._placed
        ]
        ends = np.concatenate(parts)
        starts = np.empty_like(ends)
        starts[1:] = ends[:-1]
        has_records = self._counts > 0
        firsts = (np.cumsum(self._counts) - self._counts)[has_records]
        begins = np.array([one.start for one in self._placed], np.int64)
        starts[firsts] = begins[has_records]
        return read_fields(self.buffer, starts, ends)

    @cached_property
    def _placed(self) -> Sequence[Section]:
        return _in_one_buffer(self._sections)

    @cached_property
    def _counts(self) -> Int64s:
        return np.array([header.records_count for header in self._headers], np.int64)

    @cached_property
    def _kinds(self) -> npt.NDArray[np.int32]:
        return np.array([header.timestamp_type for header in self._headers], np.int32)


def section_of(buffer: Bytes, position: int, header: BatchHeader) -> Section:
    """Of the whole batch at ``position``; ``MalformedBatch`` if there cannot be such records."""
    end = position + header.size
    blob = records_blob(buffer[position:end].data, header)
    if header.codec_id == Codec.NONE:
        return Section(header, buffer, position + HEADER_SIZE, end)
    return Section(header, np.frombuffer(blob, np.uint8), 0, len(blob))


def _is_without_gaps(header: BatchHeader) -> bool:
    """Offsets of records ascend (compaction makes gaps), so their number tells."""
    return header.records_count in (0, header.last_offset_delta + 1)


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
