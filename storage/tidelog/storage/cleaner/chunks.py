"""Reading a segment for the cleaner: checked batches, many at a time.

Every batch is checked as if it came from a stranger. What a pass drops is gone for good, so it
must not be decided by damaged bytes; and a damaged batch that was copied would be called clean.
Base offsets lie outside the checksum, so they have to rise and to stay within their segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from tidelog.kernel.ids import Offset
from tidelog.kernel.ports import File
from tidelog.wire.batch import (
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MIN_BATCH_LENGTH,
    BatchHeader,
    check_batch,
    read_header,
)
from tidelog.wire.errors import CorruptBatch

PADDING: Final = 16
"""Bytes behind the last batch that may be read, but mean nothing (``digests.PADDING``)."""

Located = tuple[int, BatchHeader]


@dataclass(frozen=True, slots=True)
class Chunk:
    data: bytes
    batches: list[Located]
    """Where in ``data`` each whole batch begins."""
    size: int
    """How much of ``data`` they take."""


def read_chunks(
    file: File, start: int, end: int, chunk_bytes: int, offsets: tuple[Offset, Offset]
) -> Iterator[Chunk]:
    """The batches in ``[start, end)`` of a file, which holds ``offsets`` from the first to before
    the second; ``CorruptBatch`` says where one is not sound."""
    next_offset, end_offset = offsets
    position = start
    while position < end:
        data = file.pread(min(chunk_bytes, end - position), position)
        batches, size = _whole_batches(data, position)
        if not batches:
            needed = _size_of_first(data, position, end)
            data = file.pread(needed, position)
            batches, size = _whole_batches(data, position)
        if not batches:
            raise CorruptBatch(f"the batch at {position} is not all there")
        if len(data) - size < PADDING:
            data += bytes(PADDING)
        for at, header in batches:
            if not next_offset <= header.base_offset <= header.last_offset < end_offset:
                raise CorruptBatch(
                    f"batch at {position + at}: offsets {header.base_offset} to "
                    f"{header.last_offset} are not within {next_offset} to {end_offset - 1}"
                )
            next_offset = header.next_offset
        yield Chunk(data, batches, size)
        position += size


def _whole_batches(data: bytes, position: int) -> tuple[list[Located], int]:
    """What is complete at the beginning of ``data``, which lies at ``position`` in its file."""
    view, at, end = memoryview(data), 0, len(data)
    batches: list[Located] = []
    while end - at >= HEADER_SIZE:
        header = read_header(view, at)
        behind = at + LOG_OVERHEAD + header.batch_length
        is_sound = header.magic == MAGIC and header.batch_length >= MIN_BATCH_LENGTH
        if is_sound and behind > end:
            break
        if not is_sound or crc32c(view[at + CRC_START : behind]) != header.crc:
            raise _objection(view, at, position)
        batches.append((at, header))
        at = behind
    return batches, at


def _objection(view: memoryview, at: int, position: int) -> CorruptBatch:
    """What is wrong with the batch at ``at``, in words of the file."""
    try:
        check_batch(view, at)
    except CorruptBatch as error:
        return CorruptBatch(str(error).replace(f"batch at {at}", f"batch at {position + at}", 1))
    return CorruptBatch(f"batch at {position + at} is not sound")


def _size_of_first(data: bytes, position: int, end: int) -> int:
    """How large the batch at the beginning of ``data`` says it is."""
    if len(data) < LOG_OVERHEAD:
        raise CorruptBatch(f"{end - position} bytes at {position} are no batch")
    size = LOG_OVERHEAD + int.from_bytes(data[8:LOG_OVERHEAD], "big", signed=True)
    if not HEADER_SIZE <= size <= end - position:
        raise CorruptBatch(
            f"the batch at {position} has {size} bytes, {end - position} are left in the file"
        )
    return size
