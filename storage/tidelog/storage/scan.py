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
_VERIFY_BYTES: Final = 4 * 1024 * 1024
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


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    position: int
    header: BatchHeader
    data: memoryview
    """The whole batch; valid until the next one is asked for."""


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
        if header.base_offset < self.next_offset:
            return f"base offset {header.base_offset} is below {self.next_offset}"
        if header.last_offset_delta < 0:
            return f"last offset delta {header.last_offset_delta} is negative"
        if header.last_offset > self.max_offset:
            return f"last offset {header.last_offset} is beyond {self.max_offset}"
        if header.leader_epoch < self.leader_epoch:
            return f"leader epoch falls from {self.leader_epoch} to {header.leader_epoch}"
        return None

    def accept(self, header: BatchHeader) -> None:
        self.next_offset = header.next_offset
        self.leader_epoch = header.leader_epoch


def verify_batches(
    file: File, size: int, progress: VerifyProgress
) -> Iterator[CheckedBatch | Flaw | None]:
    """Each sound batch from the start of the file; a ``Flaw`` ends the walk.

    Yields None after each chunk that was read, so that a long walk can be interleaved with
    other work.
    """
    position = 0
    while position < size:
        chunk = _chunk_with_a_batch(file, position, size)
        yield None
        view, at = memoryview(chunk), 0
        while at < len(chunk):
            outcome = _check_one(view, at, position, size, progress)
            if outcome is None:
                break  # the batch goes on behind this chunk
            if isinstance(outcome, Flaw):
                yield outcome
                return
            yield CheckedBatch(position + at, outcome, view[at : at + outcome.size])
            progress.accept(outcome)
            at += outcome.size
        position += at


def _check_one(
    chunk: memoryview, at: int, chunk_start: int, size: int, progress: VerifyProgress
) -> BatchHeader | Flaw | None:
    position = chunk_start + at
    try:
        header = check_batch(chunk, at)
    except MalformedBatch as error:
        if at > 0 and chunk_start + len(chunk) < size and _may_go_on(chunk, at):
            return None
        return Flaw(position, str(error).replace(f"batch at {at}", f"batch at {position}", 1))
    reason = progress.refuse(header)
    return header if reason is None else Flaw(position, f"batch at {position}: {reason}")


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
