"""The content of one simulated file: what is in the page cache and what is on the medium.

Theory: the medium takes whole sectors. Between two syncs the system may write any dirty
sector at any moment or never, and the file's size likewise, in any order. So after power loss
each sector that was written since the last sync holds its old or its new bytes, bytes that
never were written are zero, and the size is one the file had since then or, when it grew, a
sector boundary on the way. Bytes that were not touched since the last sync are as synced.

``data`` may be shorter than ``size``; what is missing is a hole of zeros and costs no memory,
so preallocated index files are cheap. All operations cost what they touch, not the file's size.

Owner: ``SimDisk``. A failed sync leaves the page cache as it is but *clean* (hazard 44): later
syncs have nothing to write and succeed, and power loss takes the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog.kernel.ids import TimestampMs
from tidelog.kernel.ports import ByteView
from tidelog.simulation.random import SimRandom

_MOST_SIZES_REMEMBERED: Final = 4096


class FileContent:
    """An inode: it lives on without a name for as long as a handle is open."""

    __slots__ = (
        "_data",
        "_dirty_sectors",
        "_durable",
        "_durable_mtime_ms",
        "_durable_size",
        "_sector_bytes",
        "_sizes_since_sync",
        "handles",
        "mtime_ms",
        "names",
        "size",
    )

    def __init__(self, sector_bytes: int, mtime_ms: TimestampMs, content: bytes = b"") -> None:
        self._sector_bytes = sector_bytes
        self._data = bytearray(content)
        self._durable = bytearray(content)
        self._durable_size = len(content)
        self._dirty_sectors: set[int] = set()
        self._sizes_since_sync: list[int] = []
        self._durable_mtime_ms = mtime_ms
        self.size = len(content)
        self.mtime_ms = mtime_ms
        self.names = 0
        self.handles = 0

    @property
    def allocated_bytes(self) -> int:
        """What the file takes on the disk; holes at its end are free."""
        return len(self._data)

    @property
    def safe_bytes(self) -> int:
        """How many bytes from the start are on the medium and stay there, come what may."""
        limit = min([self._durable_size, *self._sizes_since_sync])
        for sector in sorted(self._dirty_sectors):
            start = sector * self._sector_bytes
            end = min(start + self._sector_bytes, limit)
            if start >= limit:
                break
            # The sector is written as a whole or not at all: what is equal in both stays.
            new, old = self.read(end - start, start), _padded(self._durable, start, end)
            if new != old:
                return start + next(i for i in range(len(old)) if new[i : i + 1] != old[i : i + 1])
        return limit

    def growth_by(self, length: int, position: int) -> int:
        """How many bytes more a write would allocate."""
        return max(0, position + length - len(self._data)) if length else 0

    def read(self, length: int, position: int) -> bytes:
        end = min(position + length, self.size)
        if end <= position:
            return b""
        found = bytes(memoryview(self._data)[position:end])
        return found if len(found) == end - position else found.ljust(end - position, b"\0")

    def write(self, data: ByteView, position: int) -> None:
        if not data:
            return
        end = position + len(data)
        if position > len(self._data):
            self._data.extend(bytes(position - len(self._data)))
        self._data[position:end] = data
        self._mark_dirty(position, end)
        if end > self.size:
            self._set_size(end)

    def truncate(self, size: int) -> None:
        if size < self.size:
            self._mark_dirty(size, max(len(self._data), len(self._durable)))
            del self._data[size:]
        if size != self.size:
            self._set_size(size)

    def sync(self) -> None:
        """Make the dirty sectors and a changed size durable."""
        for start, end in self._dirty_runs():
            _copy_range(self._data, self._durable, start, end)
        if self._sizes_since_sync:
            self._make_size_durable()
        self._durable_mtime_ms = self.mtime_ms
        self.forget_dirty()

    def forget_dirty(self) -> None:
        """What a failed sync does: nothing was written, and nothing is left to write."""
        self._dirty_sectors.clear()
        self._sizes_since_sync.clear()

    def flip_bit(self, position: int, bit: int, *, cached: bool, durable: bool) -> None:
        """Damage without a trace: the sector does not become dirty."""
        if not 0 <= position < self.size or not 0 <= bit < 8:
            raise ValueError(f"no bit {bit} of byte {position} in a file of {self.size} bytes")
        if cached:
            _flip(self._data, position, bit)
        if durable and position < self._durable_size:
            _flip(self._durable, position, bit)
        elif not cached:
            raise ValueError(f"byte {position} is not on the medium yet, only in the cache")

    def write_back(self, random: SimRandom) -> None:
        """What the system does at any time by itself: some dirty sectors become durable."""
        written = self._chosen_sectors(random)
        for sector in written:
            start = sector * self._sector_bytes
            _copy_range(self._data, self._durable, start, start + self._sector_bytes)
        self._dirty_sectors.difference_update(written)
        if self._sizes_since_sync and random.random() < 0.5:
            self._make_size_durable()

    def after_power_loss(self, random: SimRandom) -> FileContent:
        """The file as the next boot finds it; this one stays as it is."""
        survivor = bytearray(self._durable)
        for sector in self._chosen_sectors(random):
            start = sector * self._sector_bytes
            _copy_range(self._data, survivor, start, start + self._sector_bytes)
        size = self._chosen_size(random)
        del survivor[size:]
        mtime_ms = random.choice((self._durable_mtime_ms, self.mtime_ms))
        found = FileContent(self._sector_bytes, mtime_ms, bytes(survivor))
        found.size = found._durable_size = size
        return found

    def twin(self) -> FileContent:
        """A file of its own with the same durable content."""
        twin = FileContent(self._sector_bytes, self._durable_mtime_ms, bytes(self._durable))
        twin.size = twin._durable_size = self._durable_size
        return twin

    def _make_size_durable(self) -> None:
        self._durable_size = self.size
        del self._durable[self.size :]
        self._sizes_since_sync.clear()

    def _set_size(self, size: int) -> None:
        self.size = size
        sizes = self._sizes_since_sync
        if len(sizes) >= _MOST_SIZES_REMEMBERED:
            del sizes[1::2]
        sizes.append(size)

    def _mark_dirty(self, start: int, end: int) -> None:
        if end > start:
            sector_bytes = self._sector_bytes
            first, last = start // sector_bytes, (end - 1) // sector_bytes
            if first == last:
                self._dirty_sectors.add(first)
            else:
                self._dirty_sectors.update(range(first, last + 1))

    def _dirty_runs(self) -> Iterator[tuple[int, int]]:
        """Byte ranges of neighbouring dirty sectors, ascending."""
        start = end = -1
        for sector in sorted(self._dirty_sectors):
            if sector != end:
                if end > start:
                    yield start * self._sector_bytes, end * self._sector_bytes
                start = sector
            end = sector + 1
        if end > start:
            yield start * self._sector_bytes, end * self._sector_bytes

    def _chosen_sectors(self, random: SimRandom) -> list[int]:
        """The dirty sectors that reach the medium: none, all, a start, an end or any of them."""
        dirty = sorted(self._dirty_sectors)
        cut = random.randrange(0, len(dirty) + 1)
        match random.randrange(0, 5):
            case 0:
                return []
            case 1:
                return dirty
            case 2:
                return dirty[:cut]
            case 3:
                return dirty[cut:]
            case _:
                return [sector for sector in dirty if random.random() < 0.5]

    def _chosen_size(self, random: SimRandom) -> int:
        """The size that reaches the medium."""
        sizes = [self._durable_size, *self._sizes_since_sync]
        match random.randrange(0, 3):
            case 0:
                return sizes[0]
            case 1:
                return sizes[-1]
            case _:
                index = random.randrange(0, len(sizes))
        if index == 0 or sizes[index] < sizes[index - 1] or random.random() < 0.5:
            return sizes[index]
        first = sizes[index - 1] // self._sector_bytes + 1
        last = sizes[index] // self._sector_bytes
        if first > last:
            return sizes[index]
        return random.randrange(first, last + 1) * self._sector_bytes


def _copy_range(source: bytearray, target: bytearray, start: int, end: int) -> None:
    """Copy bytes ``start`` to ``end``; beyond the end of ``source`` there are zeros."""
    if start >= len(source) and start >= len(target):
        return
    if start > len(target):
        target.extend(bytes(start - len(target)))
    part = source[start:end]
    end = min(end, max(len(source), len(target)))
    if len(part) < end - start:
        part.extend(bytes(end - start - len(part)))
    target[start:end] = part


def _padded(data: bytearray, start: int, end: int) -> bytes:
    return bytes(data[start:end]).ljust(end - start, b"\0")


def _flip(data: bytearray, position: int, bit: int) -> None:
    if position >= len(data):
        data.extend(bytes(position + 1 - len(data)))
    data[position] ^= 1 << bit
