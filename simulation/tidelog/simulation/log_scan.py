"""The batches of a partition's log as they lie on a simulated disk, read without disturbing it.

``SegmentScan`` remembers what it read of a file and goes on from there, since a checker looks at a
growing log again and again. It begins anew when its last batch is not there any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.simulation.disk_view import DiskView
from tidelog.storage.names import LOG_SUFFIX
from tidelog.wire.batch import HEADER_SIZE, MAGIC, read_header

_SMALLEST_LENGTH: Final = HEADER_SIZE - 12


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


class SegmentScan:
    """One ``.log`` file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._header = b""
        self.placed: list[_Placed] = []

    def update(self, view: DiskView) -> list[_Placed]:
        size = view.size(self._path)
        if self.placed:
            last = self.placed[-1]
            if last.end > size or view.read(self._path, last.position, HEADER_SIZE) != self._header:
                self.placed = []
        position = self.placed[-1].end if self.placed else 0
        while position + HEADER_SIZE <= size:
            raw = view.read(self._path, position, HEADER_SIZE)
            header = read_header(raw)
            end = position + header.size
            if header.magic != MAGIC or header.batch_length < _SMALLEST_LENGTH or end > size:
                break
            batch = Batch(header.base_offset, header.next_offset, header.leader_epoch, header.crc)
            self.placed.append(_Placed(batch, position, end))
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
            for placed in segment
            if placed.batch.next_offset > start
        ]

    def safe_end(self, view: DiskView, start: int = 0) -> int:
        """Up to which offset all from ``start`` on survives power loss, whatever is drawn."""
        end = start
        for path, segment in self._from(view, start):
            safe = view.safe_bytes(path)
            for placed in segment:
                if placed.end > safe:
                    return max(start, min(end, placed.batch.base_offset))
                end = max(end, placed.batch.next_offset)
        return end

    def _from(self, view: DiskView, start: int) -> Iterator[tuple[str, list[_Placed]]]:
        """The segments that may hold ``start`` or what comes behind it."""
        names = [name for name in view.names(self.directory) if name.endswith(LOG_SUFFIX)]
        bases = [int(name.removesuffix(LOG_SUFFIX)) for name in names]
        first = max((i for i, base in enumerate(bases) if base <= start), default=0)
        for name in names[first:]:
            path = f"{self.directory}/{name}"
            scan = self._segments.setdefault(path, SegmentScan(path))
            yield path, scan.update(view)
