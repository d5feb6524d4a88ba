"""Reading a log: by offset, by time, and which aborted transactions a reader must skip.

A read yields a slice of a file, not bytes: the caller copies it, or hands the descriptor to
``sendfile``. The slice holds its file, so it stays readable when the segment is renamed or
deleted meanwhile. It begins at a batch boundary and may contain smaller offsets than asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.kernel.ids import NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from tidelog.kernel.ports import File
from tidelog.storage.segment import Segment
from tidelog.storage.segments import SegmentList
from tidelog.storage.txn_index import AbortedTxn
from tidelog.wire.records import decode_records


@dataclass(frozen=True, slots=True)
class FileSlice:
    file: File
    position: int
    length: int

    def read(self) -> bytes:
        return self.file.pread(self.length, self.position)


@dataclass(frozen=True, slots=True)
class LogRead:
    """Whole batches, and perhaps the beginning of one more, from ``segment_base`` on."""

    records: FileSlice | None
    segment_base: Offset
    first_batch_size: int

    @property
    def length(self) -> int:
        return 0 if self.records is None else self.records.length


@dataclass(frozen=True, slots=True)
class FoundByTime:
    offset: Offset
    timestamp: TimestampMs
    leader_epoch: LeaderEpoch


def read_slice(
    segments: SegmentList,
    offset: Offset,
    limit: Offset | None,
    max_bytes: int,
    *,
    whole_first: bool,
) -> LogRead:
    """From the batch that holds ``offset`` up to ``limit`` (None: all), within one segment.

    ``whole_first`` gives the first batch in full even if it is larger than ``max_bytes``, so
    that a reader always gets on (KIP-74).
    """
    index = segments.floor_index(offset)
    while index < len(segments):
        segment = segments[index]
        found = segment.locate(offset)
        if found is not None and (limit is None or segment.base_offset < limit):
            position, batch_size = found
            end = _limit_position(segments, index, limit)
            wanted = max(max_bytes, batch_size) if whole_first else max_bytes
            length = min(wanted, end - position)
            slice_ = FileSlice(segment.file, position, length) if length > 0 else None
            return LogRead(slice_, segment.base_offset, batch_size)
        index += 1
    return LogRead(None, segments.active.base_offset, 0)


def _limit_position(segments: SegmentList, index: int, limit: Offset | None) -> int:
    """Where in the segment's file a reader must stop, which may see offsets below ``limit``."""
    segment = segments[index]
    if limit is None:
        return segment.size
    if index + 1 < len(segments) and limit >= segments[index + 1].base_offset:
        return segment.size
    return segment.position_of(limit)


def find_by_time(
    segments: SegmentList, target: TimestampMs, log_start: Offset
) -> tuple[Offset, TimestampMs] | None:
    """The first record in log order whose timestamp is at least ``target``."""
    for segment in segments.from_offset(log_start):
        if segment.largest[0] >= target:
            found = _find_in_segment(segment, target, log_start)
            if found is not None:
                return found
    return None


def find_max_timestamp(
    segments: SegmentList, log_start: Offset
) -> tuple[Offset, TimestampMs] | None:
    """The first record that carries the largest timestamp of the log."""
    best = NO_TIMESTAMP
    for segment in segments.from_offset(log_start):
        best = max(best, segment.largest[0])
    return None if best == NO_TIMESTAMP else find_by_time(segments, best, log_start)


def _find_in_segment(
    segment: Segment, target: TimestampMs, log_start: Offset
) -> tuple[Offset, TimestampMs] | None:
    near = max(segment.offset_before_time(target), log_start)
    for position, header in segment.batches(segment.start_before(near)):
        if header.max_timestamp < target or header.last_offset < log_start:
            continue
        for record in decode_records(segment.read_batch(position, header.size)):
            if record.timestamp >= target and record.offset >= log_start:
                return Offset(record.offset), TimestampMs(record.timestamp)
    return None


def aborted_transactions(
    segments: SegmentList, offset: Offset, read: LogRead, log_end: Offset
) -> list[AbortedTxn]:
    """What a read_committed reader of ``read`` has to skip.

    The list covers offsets up to the first index entry behind the slice: a little more than
    was read, which a reader ignores, but found without walking the batches.
    """
    if read.records is None:
        return []
    index = segments.floor_index(read.segment_base)
    segment = segments[index]
    behind = segment.offset_behind(read.records.position + read.records.length)
    upper = segments.end_of(index, log_end) if behind is None else behind
    aborted: list[AbortedTxn] = []
    for later in segments.from_offset(read.segment_base):
        found, is_complete = later.txn_index.collect(offset, upper)
        aborted.extend(found)
        if is_complete:
            break
    return aborted
