"""The records of one range of a segment file, to Arrow.

Every batch is checked. Where one is damaged the walk either stops with an error, or goes on at the
next sound batch and says how much was left out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tidelog.kernel.ids import Offset
from tidelog.kernel.ports import Disk, File
from tidelog.pipeline.arrow_records import ArrowRecords, Bools
from tidelog.pipeline.errors import CorruptData
from tidelog.pipeline.joined_batches import JoinedColumns
from tidelog.pipeline.segments_options import SegmentsOptions
from tidelog.pipeline.segments_plan import SegmentRange
from tidelog.pipeline.visibility import Visibility
from tidelog.storage.scan import find_sound_batch
from tidelog.wire.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, check_batch, read_header
from tidelog.wire.errors import IncompleteBatch, MalformedBatch
from tidelog.wire.varint_columns import Bytes

_CHUNK_BYTES: Final = 4 * 1024 * 1024
_LOG: Final = logging.getLogger("tidelog.pipeline")


@dataclass(slots=True)
class Damage:
    places: int = 0
    bytes: int = 0


def read_segment(disk: Disk, options: SegmentsOptions, task: SegmentRange) -> Iterator[Any]:
    """``pyarrow.RecordBatch`` objects in the order of the file."""
    visibility, damage = Visibility(task.aborted), Damage()
    records = _gathering(options, task, damage)
    last: Bytes | None = None
    file = disk.open(task.path, read_only=True)
    try:
        for buffer, position, header in _batches(file, options, task, damage):
            if header.base_offset >= task.end_offset:
                break
            batch = buffer[position : position + header.size].data
            if not visibility.shows(header, batch) or header.last_offset < task.start_offset:
                continue
            if options.start_ms is not None and header.max_timestamp < options.start_ms:
                continue
            if records.is_enough or (buffer is not last and records.is_worth_it):
                yield from _taken(records)
            records.add(buffer, position, header)
            last = buffer
    finally:
        file.close()
    yield from _taken(records)
    if damage.places:
        _LOG.warning(
            "%s: %d damaged places, %d bytes, were left out", task.path, damage.places, damage.bytes
        )


def _taken(records: ArrowRecords) -> Iterator[Any]:
    batch = records.take()
    if batch is not None:
        yield batch


def _gathering(options: SegmentsOptions, task: SegmentRange, damage: Damage) -> ArrowRecords:
    def is_wanted(columns: JoinedColumns) -> Bools:
        offsets, times = columns.offsets, columns.timestamps
        wanted = (offsets >= task.start_offset) & (offsets < task.end_offset)
        if options.start_ms is not None:
            wanted &= times >= options.start_ms
        if options.end_ms is not None:
            wanted &= times < options.end_ms
        return wanted

    def on_damage(header: BatchHeader, error: MalformedBatch) -> None:
        """Its checksum is right, but its records make no sense."""
        if options.fail_on_corrupt:
            raise CorruptData(f"{task.path}, offset {header.base_offset}: {error}") from error
        damage.places += 1
        damage.bytes += header.size

    return ArrowRecords(
        task.topic,
        task.partition,
        include_headers=options.include_headers,
        include_value=options.include_value,
        columns=options.columns,
        wanted=is_wanted,
        on_damage=on_damage,
    )


def _batches(
    file: File, options: SegmentsOptions, task: SegmentRange, damage: Damage
) -> Iterator[tuple[Bytes, int, BatchHeader]]:
    """Sound batches between the positions of the task, each with the memory it is in and where."""
    position, end, last_offset = task.position, task.end_position, -1
    while position < end:
        chunk = memoryview(_chunk(file, position, end))
        buffer = np.frombuffer(chunk, np.uint8)
        at = 0
        while at < len(chunk):
            try:
                header = check_batch(chunk, at)
            except MalformedBatch as error:
                if at and _goes_on(chunk, at, end - position):
                    break
                position = _behind_damage(
                    file, options, task, damage, position + at, last_offset, error
                )
                at = 0
                break
            yield buffer, at, header
            last_offset = int(header.last_offset)
            at += header.size
        position += at


def _chunk(file: File, position: int, end: int) -> bytes:
    """Holds the whole batch at ``position``, if its length can be so."""
    chunk = file.pread(min(_CHUNK_BYTES, end - position), position)
    if len(chunk) >= LOG_OVERHEAD:
        size = LOG_OVERHEAD + int.from_bytes(chunk[8:12], "big", signed=True)
        if len(chunk) < size <= end - position:
            chunk = file.pread(size, position)
    return chunk


def _goes_on(chunk: memoryview, at: int, room: int) -> bool:
    """Is the batch cut by the end of the chunk, and not by the end of all?"""
    if len(chunk) >= room:
        return False
    return len(chunk) - at < HEADER_SIZE or at + read_header(chunk, at).size > len(chunk)


def _behind_damage(
    file: File,
    options: SegmentsOptions,
    task: SegmentRange,
    damage: Damage,
    position: int,
    last_offset: int,
    error: MalformedBatch,
) -> int:
    """Where to go on; the end if nothing sound follows."""
    end = task.end_position
    next_sound = find_sound_batch(file, position + 1, end, Offset(last_offset))
    is_cut = isinstance(error, IncompleteBatch) or _is_blank(file, position, end)
    if next_sound is None and task.may_be_torn and is_cut:
        return end  # being written, never finished, or preallocated: recovery would cut it off
    if options.fail_on_corrupt:
        raise CorruptData(
            f"{task.path}, byte {position}: {error}. To skip what is damaged, "
            "set failOnCorrupt to false"
        ) from error
    damage.places += 1
    damage.bytes += (next_sound or end) - position
    return end if next_sound is None else next_sound


def _is_blank(file: File, position: int, end: int) -> bool:
    while position < end:
        chunk = file.pread(min(_CHUNK_BYTES, end - position), position)
        if not chunk or chunk.count(0) != len(chunk):
            return not chunk
        position += len(chunk)
    return True
