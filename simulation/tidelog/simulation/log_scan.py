"""The batches of a partition's log as they lie on a simulated disk, read without disturbing it.

``SegmentScan`` remembers what it read of a file and goes on from there, since a checker looks at a
growing log again and again. It begins anew when its last batch is not there any more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from tidelog.simulation.disk_content import FileContent
from tidelog.simulation.disk_view import DiskView, ViewedFile
from tidelog.storage.names import LOG_SUFFIX
from tidelog.wire.batch import HEADER_SIZE, MAGIC, read_header

_SMALLEST_LENGTH: Final = HEADER_SIZE - 12
_end: Final = attrgetter("end")
_held_end: Final = attrgetter("held_end")


class Batch(NamedTuple):
    """A batch by its header. Equal headers, checksum included, are equal batches."""

    base_offset: int
    next_offset: int
    epoch: int
    crc: int


class _Placed(NamedTuple):
    batch: Batch
    position: int
    end: int
    held_end: int
    """The highest next offset of this batch and those before it in the segment."""


class SegmentScan:
    """One ``.log`` file."""

    def __init__(self) -> None:
        self._header = b""
        self.placed: list[_Placed] = []

    def update(self, content: FileContent) -> list[_Placed]:
        """In order: both the ends and what is held up to a batch grow."""
        size = content.size
        if self.placed:
            last = self.placed[-1]
            if last.end > size or content.read(HEADER_SIZE, last.position) != self._header:
                self.placed = []
        position = self.placed[-1].end if self.placed else 0
        while position + HEADER_SIZE <= size:
            raw = content.read(HEADER_SIZE, position)
            header = read_header(raw)
            end = position + header.size
            if header.magic != MAGIC or header.batch_length < _SMALLEST_LENGTH or end > size:
                break
            batch = Batch(header.base_offset, header.next_offset, header.leader_epoch, header.crc)
            held_end = max(batch.next_offset, self.placed[-1].held_end if self.placed else 0)
            self.placed.append(_Placed(batch, position, end, held_end))
            self._header = raw
            position = end
        return self.placed


class LogScan:
    """One partition's directory on one node's disk; give it the disk as it is now each time."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._segments: dict[str, SegmentScan] = {}

    def batches(self, view: DiskView, start: int = 0) -> list[Batch]:
        """From the batch that holds ``start`` on, as a process would read them."""
        return [
            placed.batch
            for _, segment in self._from(view, start)
            for placed in segment[bisect_right(segment, start, key=_held_end) :]
            if placed.batch.next_offset > start
        ]

    def safe_end(self, view: DiskView, start: int = 0) -> int:
        """Up to which offset all from ``start`` on survives power loss, whatever is drawn."""
        end = start
        for file, segment in self._from(view, start):
            safe = bisect_right(segment, file.safe_bytes, key=_end)
            if safe > 0:
                end = max(end, segment[safe - 1].held_end)
            if safe < len(segment):
                return max(start, min(end, segment[safe].batch.base_offset))
        return end

    def _from(self, view: DiskView, start: int) -> Iterator[tuple[ViewedFile, list[_Placed]]]:
        """The segments that may hold ``start`` or what comes behind it."""
        files = view.files(self.directory, LOG_SUFFIX)
        bases = [int(file.name.removesuffix(LOG_SUFFIX)) for file in files]
        first = max((i for i, base in enumerate(bases) if base <= start), default=0)
        for file in files[first:]:
            scan = self._segments.setdefault(file.name, SegmentScan())
            yield file, scan.update(file.content)
