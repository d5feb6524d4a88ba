"""The entries of a segment's sparse indexes, each held against the log it points into.

The index of an active segment is preallocated: behind its entries the file is zero. As Kafka's
tool does, the dump ends at the first entry, other than the very first, that has the base offset,
which is what zeros read as. Only what lies before the zeros is held against the log.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from tidelog.cli.dump_items import Item, Line, Problem, Remark
from tidelog.cli.index_check import Batches, read_batches, wrong_offsets, wrong_timestamps
from tidelog.kernel.ids import Offset, TimestampMs
from tidelog.kernel.ports import Disk
from tidelog.storage.index import (
    CorruptIndex,
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
)
from tidelog.storage.names import LOG_SUFFIX, segment_file
from tidelog.wire.errors import MalformedBatch


class Entry(Protocol):
    @property
    def offset(self) -> Offset: ...


E = TypeVar("E", bound=Entry)

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class Mode:
    sanity_only: bool = False
    """Only ask whether the file would load at start-up."""
    quiet: bool = False
    """Check against the log, but print no entries."""


def offset_index_items(disk: Disk, path: str, base_offset: Offset, mode: Mode) -> Iterator[Item]:
    data = disk.read(path)
    if not data:
        yield Remark(f"{path} is empty.")
        return
    if mode.sanity_only:
        yield _sanity(path, OffsetIndex(disk, path, base_offset, len(data)))
        return
    entries = [
        OffsetPosition(Offset(base_offset + relative), position)
        for relative, position in _whole_entries(_OFFSET_ENTRY, data)
    ]
    if not mode.quiet:
        for entry in _before_zeros(entries, base_offset):
            yield Line("index", {"offset": entry.offset, "position": entry.position})
    yield from _torn(path, data, _OFFSET_ENTRY.size)
    batches = yield from _batches_beside(disk, path, base_offset)
    if batches is not None:
        wrong = wrong_offsets(_used(entries, data, _OFFSET_ENTRY.size), batches)
        yield from _problem(f"Mismatches in :{os.path.abspath(path)}", wrong)


def time_index_items(disk: Disk, path: str, base_offset: Offset, mode: Mode) -> Iterator[Item]:
    data = disk.read(path)
    if mode.sanity_only:
        yield _sanity(path, TimeIndex(disk, path, base_offset, len(data)))
        return
    entries = [
        TimestampOffset(TimestampMs(timestamp), Offset(base_offset + relative))
        for timestamp, relative in _whole_entries(_TIME_ENTRY, data)
    ]
    if not mode.quiet:
        for entry in _before_zeros(entries, base_offset):
            yield Line("timeindex", {"timestamp": entry.timestamp, "offset": entry.offset})
    yield from _torn(path, data, _TIME_ENTRY.size)
    batches = yield from _batches_beside(disk, path, base_offset)
    if batches is not None:
        wrong = wrong_timestamps(_used(entries, data, _TIME_ENTRY.size), batches)
        where = os.path.abspath(path)
        yield from _problem(f"Found timestamp mismatch in :{where}", wrong.mismatches)
        yield from _problem(f"Found out of order timestamp in :{where}", wrong.out_of_order)
        yield from _problem(f"Indexed offsets not found in the log of {where}", wrong.not_found)


def _sanity(path: str, index: OffsetIndex | TimeIndex) -> Item:
    try:
        index.sanity_check()
    except CorruptIndex as error:
        return Problem(str(error))
    return Remark(f"{path} passed sanity check.")


def _whole_entries(layout: struct.Struct, data: bytes) -> Iterator[tuple[int, int]]:
    yield from layout.iter_unpack(data[: len(data) // layout.size * layout.size])


def _before_zeros(entries: Sequence[E], base_offset: Offset) -> Iterator[E]:
    for number, entry in enumerate(entries):
        if number > 0 and entry.offset == base_offset:
            return
        yield entry


def _used(entries: Sequence[E], data: bytes, entry_size: int) -> Sequence[E]:
    """The entries up to the last byte that is not zero."""
    return entries[: -(-len(data.rstrip(b"\0")) // entry_size)]


def _torn(path: str, data: bytes, entry_size: int) -> Iterator[Item]:
    if len(data) % entry_size:
        yield Problem(f"{path}: {len(data)} bytes are not a multiple of {entry_size}")


def _batches_beside(
    disk: Disk, path: str, base_offset: Offset
) -> Generator[Item, None, Batches | None]:
    """The batches of the index's log; None, and a problem, if they cannot be had."""
    log = segment_file(os.path.dirname(path) or ".", base_offset, LOG_SUFFIX)
    try:
        return read_batches(disk, log)
    except FileNotFoundError:
        yield Problem(f"{path}: {log} is missing, so entries could not be checked against it")
    except MalformedBatch as error:
        yield Problem(f"{path}: entries could not be checked against {log}: {error}")
    return None


def _problem(heading: str, lines: Sequence[str]) -> Iterator[Item]:
    if lines:
        yield Problem("\n".join([heading, *(f"  {line}" for line in lines)]))
