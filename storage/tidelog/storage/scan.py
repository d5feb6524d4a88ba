"""Walking the batches of a ``.log`` file without reading more of it than needed.

Two walks: ``scan_headers`` hops from header to header and trusts the bytes (they were checked
when they were appended or recovered); ``verify_batches`` reads everything and checks each
batch, as recovery and ``tidelog log verify`` must.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tidelog.kernel.ids import LeaderEpoch, Offset
from tidelog.kernel.ports import File
from tidelog.wire.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MIN_BATCH_LENGTH,
    BatchHeader,
    check_batch,
    read_header,
)
from tidelog.wire.errors import CorruptBatch, MalformedBatch

_SCAN_BYTES: Final = 16 * 1024
_VERIFY_BYTES: Final = 1024 * 1024
_MAGIC_AT: Final = 16


def scan_headers(
    file: File, position: int, end: int, *, chunk_bytes: int = _SCAN_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch in ``[position, end)``."""
    chunk, chunk_start = b"", position
    while position + HEADER_SIZE <= end:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_start, at = file.pread(chunk_bytes, position), position, 0
            if len(chunk) < HEADER_SIZE:
                return
        header = read_header(chunk, at)
        if header.batch_length < MIN_BATCH_LENGTH:
            raise CorruptBatch(
                f"batch at {position}: its length field is {header.batch_length}, "
                f"the least is {MIN_BATCH_LENGTH}"
            )
        if position + header.size > end:
            return
        yield position, header
        position += header.size


@dataclass(frozen=True, slots=True)
class Flaw:
    """Where a log file stops making sense, and why."""

    position: int
    reason: str


@dataclass(slots=True)
class VerifyProgress:
    """What the walk must find next: offsets rise, and so do leader epochs.

    Epochs never fall within a log, because a leader of an older epoch is fenced before a newer
    one appends. A fall means that bytes of another history have come back, for example a
    segment whose removal had not reached the disk.
    """

    next_offset: Offset
    max_offset: Offset
    leader_epoch: LeaderEpoch = LeaderEpoch(-1)

    def refuse(self, header: BatchHeader) -> str | None:
        """Why a batch cannot stand here; if it can, the next one must follow it."""
        last_offset = header.base_offset + header.last_offset_delta
        if header.base_offset < self.next_offset:
            return f"base offset {header.base_offset} is below {self.next_offset}"
        if last_offset < header.base_offset:
            return f"last offset delta {header.last_offset_delta} is negative"
        if last_offset > self.max_offset:
            return f"last offset {last_offset} is beyond {self.max_offset}"
        if header.leader_epoch < self.leader_epoch:
            return f"leader epoch falls from {self.leader_epoch} to {header.leader_epoch}"
        self.next_offset = Offset(last_offset + 1)
        self.leader_epoch = header.leader_epoch
        return None


Located = tuple[int, BatchHeader]


def verify_batches(
    file: File, size: int, progress: VerifyProgress
) -> Iterator[list[Located] | Flaw]:
    """Position and header of the sound batches, a chunk of the file at a time.

    A ``Flaw`` ends the walk. Between two chunks other work may go on.
    """
    position = 0
    while position < size:
        chunk = _chunk_with_a_batch(file, position, size)
        sound, flaw = _verify_chunk(chunk, position, size, progress)
        if sound:
            yield sound
            last_position, last = sound[-1]
            position = last_position + last.size
        if flaw is not None:
            yield flaw
            return


def _verify_chunk(
    chunk: bytes, start: int, size: int, progress: VerifyProgress
) -> tuple[list[Located], Flaw | None]:
    """The sound batches at the beginning of a chunk that lies at ``start`` in the file."""
    view, at, end = memoryview(chunk), 0, len(chunk)
    sound: list[Located] = []
    while at < end:
        try:
            header = check_batch(view, at)
        except MalformedBatch as error:
            if sound and start + end < size and _may_go_on(view, at):
                return sound, None  # the batch goes on behind this chunk
            reason = str(error).replace(f"batch at {at}", f"batch at {start + at}", 1)
            return sound, Flaw(start + at, reason)
        reason_or_none = progress.refuse(header)
        if reason_or_none is not None:
            return sound, Flaw(start + at, f"batch at {start + at}: {reason_or_none}")
        sound.append((start + at, header))
        at += header.batch_length + LOG_OVERHEAD
    return sound, None


def _may_go_on(chunk: memoryview, at: int) -> bool:
    """Is the batch at ``at`` cut by the end of the chunk, rather than wrong?"""
    if len(chunk) - at < HEADER_SIZE:
        return True
    return at + read_header(chunk, at).size > len(chunk)


def _chunk_with_a_batch(file: File, position: int, size: int) -> bytes:
    """A chunk that holds at least the whole batch at ``position``, if its length can be so."""
    chunk = file.pread(min(_VERIFY_BYTES, size - position), position)
    if len(chunk) >= LOG_OVERHEAD:
        batch_size = LOG_OVERHEAD + int.from_bytes(chunk[8:12], "big", signed=True)
        if len(chunk) < batch_size <= size - position:
            chunk = file.pread(batch_size, position)
    return chunk


def find_sound_batch(file: File, position: int, size: int, after: Offset) -> int | None:
    """Where the next batch with a valid checksum lies behind damage, if there is one.

    Its offset must be above ``after``: leftovers of an older use of the blocks, which a torn
    write may show, do not count as data behind the damage.
    """
    overlap = HEADER_SIZE
    while position + HEADER_SIZE <= size:
        chunk = file.pread(min(_VERIFY_BYTES, size - position), position)
        for at in _candidates(chunk):
            header = read_header(chunk, at)
            start = position + at
            if header.base_offset <= after or header.size > size - start:
                continue
            if _is_sound(file.pread(header.size, start)):
                return start
        if len(chunk) <= overlap:
            return None
        position += len(chunk) - overlap
    return None


def _candidates(chunk: bytes) -> Iterator[int]:
    """Positions that look like the start of a batch: magic 2 and a length that can be."""
    at = chunk.find(b"\x02", _MAGIC_AT)
    while at != -1:
        start = at - _MAGIC_AT
        if start + HEADER_SIZE <= len(chunk):
            length = int.from_bytes(chunk[start + 8 : start + 12], "big", signed=True)
            if length >= MIN_BATCH_LENGTH and chunk[start] == 0:
                yield start
        at = chunk.find(b"\x02", at + 1)


def _is_sound(data: bytes) -> bool:
    try:
        check_batch(data)
    except MalformedBatch:
        return False
    return True
