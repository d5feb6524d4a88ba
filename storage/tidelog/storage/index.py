"""The sparse indexes of a segment: offset → file position, and timestamp → offset.

Theory: an index is a hint that saves a scan. Losing its tail costs time, never data; a wrong
entry would cost data, so a file that does not hold increasing entries is refused
(``CorruptIndex``) and the segment's owner rebuilds it from the batches.

The entries live in memory as two columns, read with one call on first use, and searched with
``bisect``. The file of an active index is a hole of the largest size with the entries at its
beginning, as Kafka's tools expect it; ``trim`` cuts it to what is used. It is written with
``pwrite`` and never mapped, so that a full disk is an error and not a SIGBUS. Offsets and
positions are stored relative to the segment, in 31 bits.

Owner: the segment, on the event loop.

Invariants: offsets increase strictly in an offset index; timestamps increase strictly and
offsets never fall in a time index; the file equals memory up to ``_written`` entries and is
zero behind them.
"""

from __future__ import annotations

import struct
import sys
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from operator import le, lt
from typing import ClassVar, Final, NamedTuple, Self

from tidelog.kernel.ids import NO_TIMESTAMP, Offset, TimestampMs
from tidelog.kernel.ports import Disk, File

OFFSET_ENTRY_SIZE: Final = 8
TIME_ENTRY_SIZE: Final = 12
MAX_RELATIVE: Final = 2**31 - 1

_LITTLE_ENDIAN: Final = sys.byteorder == "little"


class CorruptIndex(Exception):
    """An index file holds what nobody can have written; it has to be rebuilt."""


class OffsetPosition(NamedTuple):
    offset: Offset
    position: int


class TimestampOffset(NamedTuple):
    timestamp: TimestampMs
    offset: Offset


def _increases(column: array[int]) -> bool:
    return all(map(lt, column, islice(column, 1, None)))


class _SparseIndex(ABC):
    """What the two kinds share: columns in memory, and a file that follows them."""

    ENTRY_SIZE: ClassVar[int]

    __slots__ = (
        "_active",
        "_disk",
        "_file",
        "_loaded",
        "_offsets",
        "_values",
        "_written",
        "base_offset",
        "max_entries",
        "path",
    )

    def __init__(self, disk: Disk, path: str, base_offset: Offset, max_bytes: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.ENTRY_SIZE
        self._disk = disk
        self._file: File | None = None
        self._active = False
        self._loaded = False
        self._offsets: array[int] = array("i")
        self._values: array[int] = self._empty_values()
        self._written = 0

    @classmethod
    def open(
        cls, disk: Disk, path: str, base_offset: Offset, max_bytes: int, *, active: bool
    ) -> Self:
        """An index whose file is read when it is first needed.

        An active index makes its file, at full size, if there is none; an inactive one raises
        ``FileNotFoundError`` on first use.
        """
        index = cls(disk, path, base_offset, max_bytes)
        index._active = active
        if active and disk.stat(path) is None:
            index._loaded = True
            index._writable_file()
            index._release()
        return index

    # What the kinds differ in.

    @abstractmethod
    def _empty_values(self) -> array[int]: ...

    @abstractmethod
    def _decode(self, data: bytes) -> tuple[array[int], array[int]]:
        """The columns of a file's entries: offsets, values."""

    @abstractmethod
    def _encode(self, start: int) -> bytes:
        """The entries from ``start`` on, as the file has them."""

    @abstractmethod
    def _offsets_in_order(self, offsets: array[int]) -> bool: ...

    def _used_size(self, data: bytes) -> int:
        """Where the entries end in a file that may still be preallocated."""
        used = len(data.rstrip(b"\0"))
        return -(-used // self.ENTRY_SIZE) * self.ENTRY_SIZE

    # Reading.

    def _load(self) -> None:
        data = self._disk.read(self.path)
        if len(data) % self.ENTRY_SIZE:
            raise CorruptIndex(
                f"{self.path}: {len(data)} bytes are not a multiple of {self.ENTRY_SIZE}"
            )
        offsets, values = self._decode(data[: self._used_size(data)])
        self._check_order(offsets, values)
        self._offsets, self._values = offsets, values
        self._written = len(offsets)
        self._loaded = True

    def _check_order(self, offsets: array[int], values: array[int]) -> None:
        if not (_increases(values) and self._offsets_in_order(offsets)):
            raise CorruptIndex(f"{self.path}: entries do not increase")
        if offsets and (offsets[0] < 0 or values[0] < 0):
            raise CorruptIndex(
                f"{self.path}: the first entry is negative ({offsets[0]}, {values[0]})"
            )

    @property
    def is_active(self) -> bool:
        return self._active

    @property
    def entries(self) -> int:
        if not self._loaded:
            self._load()
        return len(self._offsets)

    @property
    def last_offset(self) -> Offset:
        """The offset of the last entry; the base offset if there is none."""
        if not self.entries:
            return self.base_offset
        return Offset(self.base_offset + self._offsets[-1])

    def sanity_check(self) -> None:
        """Read the file now; ``CorruptIndex`` or ``FileNotFoundError`` if it is no good."""
        if not self._loaded:
            self._load()

    # Changing.

    def _relative(self, offset: int) -> int:
        relative = offset - self.base_offset
        if not 0 <= relative <= MAX_RELATIVE:
            raise ValueError(
                f"{self.path}: offset {offset} is not within 2^31 of base {self.base_offset}"
            )
        return relative

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and above ``offset``."""
        if not self._loaded:
            self._load()
        self._keep(bisect_left(self._offsets, offset - self.base_offset))

    def reset(self) -> None:
        """Start over, whatever the file holds or whether it is there at all."""
        self._cut_file(0)
        self._forget()
        self._loaded = True

    def _keep(self, count: int) -> None:
        if self._written > count:
            self._cut_file(count)
        del self._offsets[count:]
        del self._values[count:]

    def _cut_file(self, count: int) -> None:
        # Cut and grown again, so that no stale entry is left behind the last one.
        file = self._writable_file()
        file.truncate(count * self.ENTRY_SIZE)
        self._written = count
        if self._active:
            self._preallocate(file)

    def _forget(self) -> None:
        self._offsets = array("i")
        self._values = self._empty_values()
        self._written = 0
        self._loaded = False

    # The file.

    def _full_size(self) -> int:
        return self.max_entries * self.ENTRY_SIZE

    def _writable_file(self) -> File:
        if self._file is None:
            file = self._disk.open(self.path, create=True)
            self._file = file
            if self._active:
                self._preallocate(file)
        return self._file

    def _preallocate(self, file: File) -> None:
        if file.size() < self._full_size():
            file.truncate(self._full_size())

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def write_back(self) -> None:
        """Bring the file up to date with memory; not yet durable."""
        count = len(self._offsets)
        if count > self._written:
            data = self._encode(self._written)
            self._writable_file().pwrite(data, self._written * self.ENTRY_SIZE)
            self._written = count

    def file_to_sync(self) -> File:
        """The file, up to date with memory; its ``sync`` may run off the event loop.

        It stays open until ``close``, ``unload`` or ``delete``.
        """
        if not self._loaded:
            self._load()
        self.write_back()
        return self._writable_file()

    def sync(self) -> None:
        """Make all entries durable."""
        self.file_to_sync().sync()

    def grow(self) -> None:
        """Become active again: room for the largest number of entries."""
        if not self._loaded:
            self._load()
        self._active = True
        self._preallocate(self._writable_file())

    def trim(self) -> None:
        """Stop being active: the file ends with the last entry."""
        self._active = False
        if self._loaded:
            self.write_back()
            self._writable_file().truncate(len(self._offsets) * self.ENTRY_SIZE)

    def unload(self) -> None:
        """Give back the memory and descriptor of an inactive index; it is read again on use."""
        if not self._active:
            self.write_back()
            self._release()
            self._forget()

    def discard(self) -> None:
        """Let the file go as it is. It is not closed: a flush may still be syncing it."""
        self._file = None
        self._active = False
        self._forget()

    def rename(self, new_path: str) -> None:
        """Give the file another name. A file that is not there is missed on its next use."""
        with suppress(FileNotFoundError):
            self._disk.rename(self.path, new_path)
        self.path = new_path

    def delete(self) -> None:
        self._release()
        self._disk.unlink(self.path)
        self._active = False
        self._forget()

    def close(self) -> None:
        """Trim an active file and let it go. The index can still be read afterwards."""
        if self._active:
            self.trim()
        self.write_back()
        self._release()


class OffsetIndex(_SparseIndex):
    """Of some batches: the last offset, and where in the file the batch starts."""

    ENTRY_SIZE: ClassVar[int] = OFFSET_ENTRY_SIZE
    _ENTRY: ClassVar[struct.Struct] = struct.Struct(">ii")

    __slots__ = ()

    def _empty_values(self) -> array[int]:
        return array("i")

    def _decode(self, data: bytes) -> tuple[array[int], array[int]]:
        numbers: array[int] = array("i", data)
        if _LITTLE_ENDIAN:
            numbers.byteswap()
        return numbers[0::2], numbers[1::2]

    def _encode(self, start: int) -> bytes:
        pack = self._ENTRY.pack
        return b"".join(map(pack, self._offsets[start:], self._values[start:]))

    def _offsets_in_order(self, offsets: array[int]) -> bool:
        return _increases(offsets)

    @property
    def is_full(self) -> bool:
        return self.entries >= self.max_entries

    @property
    def last_entry(self) -> OffsetPosition:
        """(base offset, 0) if there is none."""
        if not self.entries:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(self.last_offset, self._values[-1])

    def append(self, offset: int, position: int) -> None:
        """Add the entry of a batch whose last offset is ``offset``; only memory changes."""
        if not self._loaded:
            self._load()
        offsets, positions = self._offsets, self._values
        relative = offset - self.base_offset
        if (
            len(offsets) >= self.max_entries
            or not 0 <= relative <= MAX_RELATIVE
            or not 0 <= position <= MAX_RELATIVE
            or (offsets and (relative <= offsets[-1] or position <= positions[-1]))
        ):
            raise ValueError(self._objection(offset, position))
        offsets.append(relative)
        positions.append(position)

    def _objection(self, offset: int, position: int) -> str:
        if self.is_full:
            return f"{self.path}: all {self.max_entries} entries are in use"
        if not 0 <= position <= MAX_RELATIVE:
            return f"{self.path}: position {position} is not within 0…2^31−1"
        self._relative(offset)
        return f"{self.path}: ({offset}, {position}) does not come after {self.last_entry}"

    def lookup(self, offset: int) -> OffsetPosition:
        """The entry with the largest offset ≤ ``offset``; (base offset, 0) if there is none."""
        if not self._loaded:
            self._load()
        slot = bisect_right(self._offsets, offset - self.base_offset) - 1
        if slot < 0:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(Offset(self.base_offset + self._offsets[slot]), self._values[slot])

    def first_at_or_after_position(self, position: int) -> Offset | None:
        """The offset of the first entry whose position is ≥ ``position``.

        An exact hit on the very first entry is passed over: Kafka's binary search rounds its
        middle up and never compares entry 0 for equality, and clients see the difference in
        the lists of aborted transactions.
        """
        if not self._loaded:
            self._load()
        slot = bisect_left(self._values, position)
        if slot == 0 and self._values and self._values[0] == position:
            slot = 1
        if slot == len(self._values):
            return None
        return Offset(self.base_offset + self._offsets[slot])

    def __iter__(self) -> Iterator[OffsetPosition]:
        if not self._loaded:
            self._load()
        for relative, position in zip(self._offsets, self._values, strict=True):
            yield OffsetPosition(Offset(self.base_offset + relative), position)


class TimeIndex(_SparseIndex):
    """Of some moments: the largest timestamp so far, and the last offset of its batch."""

    ENTRY_SIZE: ClassVar[int] = TIME_ENTRY_SIZE
    _ENTRY: ClassVar[struct.Struct] = struct.Struct(">qi")

    __slots__ = ()

    def _empty_values(self) -> array[int]:
        return array("q")

    def _decode(self, data: bytes) -> tuple[array[int], array[int]]:
        # Twelve-byte entries do not line up with any array type, so each byte of the
        # timestamps and offsets is moved to its place with a strided copy.
        count = len(data) // TIME_ENTRY_SIZE
        timestamps, offsets = bytearray(count * 8), bytearray(count * 4)
        for byte in range(8):
            timestamps[byte::8] = data[byte::12]
        for byte in range(4):
            offsets[byte::4] = data[8 + byte :: 12]
        columns: tuple[array[int], array[int]] = array("i", offsets), array("q", timestamps)
        if _LITTLE_ENDIAN:
            for column in columns:
                column.byteswap()
        return columns

    def _encode(self, start: int) -> bytes:
        pack = self._ENTRY.pack
        return b"".join(map(pack, self._values[start:], self._offsets[start:]))

    def _offsets_in_order(self, offsets: array[int]) -> bool:
        return all(map(le, offsets, islice(offsets, 1, None)))

    def _used_size(self, data: bytes) -> int:
        # Timestamp 0 at the base offset is a real entry of twelve zero bytes, but only a
        # trimmed file can hold it alone.
        return len(data) if len(data) == TIME_ENTRY_SIZE else super()._used_size(data)

    @property
    def is_full(self) -> bool:
        """One entry is kept back for the one that is due when the segment is rolled."""
        return self.entries >= self.max_entries - 1

    @property
    def last_entry(self) -> TimestampOffset:
        """(−1, base offset) if there is none."""
        if not self.entries:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(TimestampMs(self._values[-1]), self.last_offset)

    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> bool:
        """Add an entry if ``timestamp`` is larger than all before; only memory changes."""
        if not skip_full_check and self.is_full:
            raise ValueError(f"{self.path}: all but one of {self.max_entries} entries are in use")
        last = self.last_entry
        if timestamp <= last.timestamp:
            return False
        relative = self._relative(offset)
        if offset < last.offset:
            raise ValueError(f"{self.path}: ({timestamp}, {offset}) does not come after {last}")
        self._offsets.append(relative)
        self._values.append(timestamp)
        return True

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The entry with the largest timestamp ≤ ``timestamp``; (−1, base offset) if none."""
        if not self._loaded:
            self._load()
        slot = bisect_right(self._values, timestamp) - 1
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(
            TimestampMs(self._values[slot]), Offset(self.base_offset + self._offsets[slot])
        )

    def __iter__(self) -> Iterator[TimestampOffset]:
        if not self._loaded:
            self._load()
        for relative, timestamp in zip(self._offsets, self._values, strict=True):
            yield TimestampOffset(TimestampMs(timestamp), Offset(self.base_offset + relative))
