"""One segment: a stretch of the log in a ``.log`` file, with its three indexes.

The last segment of a log is *active*: it alone is written. The others are closed: their
indexes are trimmed, and their files are opened when somebody first reads them.

Invariants: ``size`` counts whole batches only; an index never points behind ``size``; the
active segment's recent batches are remembered, so that reads at the tail of the log, which are
nearly all of them, find their place without touching the disk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.kernel.ids import NO_TIMESTAMP, Offset, TimestampMs
from tidelog.kernel.ports import ByteView, Disk, File
from tidelog.kernel.settings import TopicConfig
from tidelog.storage.index import CorruptIndex, OffsetIndex, TimeIndex, TimestampOffset
from tidelog.storage.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file,
    segment_paths,
)
from tidelog.storage.scan import scan_headers
from tidelog.storage.txn_index import TxnIndex
from tidelog.wire.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, read_header
from tidelog.wire.errors import CorruptBatch

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_RECENT_BATCHES: Final = 1024

# A segment that grows fast has its blocks set aside in strides: the file system then finds them
# once and not for every page, a third of the cost of a large write on ext4. Small partitions,
# of which there may be thousands, take no block they do not use.
_RESERVES_FROM: Final = 4 * 1024 * 1024
_RESERVED_STRIDE: Final = 16 * 1024 * 1024


class RecentBatches:
    """Where the last batches of the active segment begin and end: (last offset, position)."""

    __slots__ = ("_end_offsets", "_positions")

    def __init__(self) -> None:
        self._end_offsets: list[int] = []
        self._positions: list[int] = []

    def add(self, next_offset: int, position: int) -> None:
        self._end_offsets.append(next_offset)
        self._positions.append(position)
        if len(self._positions) > 2 * _RECENT_BATCHES:
            del self._end_offsets[:_RECENT_BATCHES], self._positions[:_RECENT_BATCHES]

    def find(self, offset: Offset) -> tuple[int, int | None] | None:
        """Start of the batch that holds ``offset``, and its end where that is known.

        None if the batch is older than what is remembered, or not there at all.
        """
        at = bisect_right(self._end_offsets, offset)
        if at == len(self._positions) or (at == 0 and self._may_be_older(offset)):
            return None
        end = self._positions[at + 1] if at + 1 < len(self._positions) else None
        return self._positions[at], end

    def _may_be_older(self, offset: Offset) -> bool:
        # The first batch remembered begins at an offset that is not kept here.
        return self._positions[0] != 0

    def clear(self) -> None:
        self._end_offsets.clear()
        self._positions.clear()


class Segment:
    """See the module. Owned by one ``Log``; every method runs on the log's own thread."""

    __slots__ = (
        "_bytes_since_index",
        "_directory",
        "_disk",
        "_extra",
        "_file",
        "_first_batch_timestamp",
        "_indexed_timestamp",
        "_interval_bytes",
        "_largest",
        "_reserve_at",
        "_segment_bytes",
        "base_offset",
        "created_ms",
        "is_active",
        "offset_index",
        "recent",
        "roll_jitter_ms",
        "size",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: Offset,
        config: TopicConfig,
        *,
        size: int,
        is_active: bool,
        created_ms: TimestampMs,
        roll_jitter_ms: int = 0,
        extra: str = "",
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._extra = extra
        self._file: File | None = None
        self.base_offset = base_offset
        self.size = size
        self.is_active = is_active
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self._segment_bytes = config.effective_segment_bytes
        self._reserve_at = _RESERVES_FROM
        self._interval_bytes = config.index_interval_bytes
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex.open(
            disk, self.path(INDEX_SUFFIX), base_offset, index_bytes, active=is_active
        )
        self.time_index = TimeIndex.open(
            disk, self.path(TIME_INDEX_SUFFIX), base_offset, index_bytes, active=is_active
        )
        self.txn_index = TxnIndex(disk, self.path(TXN_INDEX_SUFFIX))
        self._bytes_since_index = 0
        self._largest: tuple[TimestampMs, Offset] | None = None
        self._first_batch_timestamp: TimestampMs | None = None
        self._indexed_timestamp = NO_TIMESTAMP
        """No later than the last time entry: saves asking the index for every batch."""
        self.recent = RecentBatches()
        if extra:
            self._file = disk.open(self.path(LOG_SUFFIX), create=True)

    @classmethod
    def create(
        cls,
        disk: Disk,
        directory: str,
        base_offset: Offset,
        config: TopicConfig,
        *,
        now_ms: TimestampMs,
        roll_jitter_ms: int = 0,
    ) -> Segment:
        """A new, empty, active segment; its directory entries are not synced yet."""
        path = segment_file(directory, base_offset, LOG_SUFFIX)
        file = disk.open(path, create=True)
        wanted = config.effective_segment_bytes if config.preallocate else 0
        if file.size() != wanted:
            # Not otherwise: ext4 takes a file that was cut to nothing for one that is being
            # replaced, and writes all of it out when it is closed.
            file.truncate(wanted)
        segment = cls(
            disk,
            directory,
            base_offset,
            config,
            size=0,
            is_active=True,
            created_ms=now_ms,
            roll_jitter_ms=roll_jitter_ms,
        )
        segment._file = file
        segment._largest = (NO_TIMESTAMP, base_offset)
        return segment

    # --- files -------------------------------------------------------------------------

    def path(self, suffix: str) -> str:
        return segment_file(self._directory, self.base_offset, suffix, self._extra)

    def paths(self) -> list[str]:
        return [path + self._extra for path in segment_paths(self._directory, self.base_offset)]

    def take_its_name(self) -> None:
        """Rename all files to those of a live segment, the log first; what is open stays open."""
        before = self.paths()
        self._extra = ""
        for old, new in zip(before, self.paths(), strict=True):
            self._disk.rename(old, new)
        self.offset_index.path = self.path(INDEX_SUFFIX)
        self.time_index.path = self.path(TIME_INDEX_SUFFIX)
        self.txn_index.path = self.path(TXN_INDEX_SUFFIX)

    @property
    def file(self) -> File:
        """The ``.log`` file, opened when first needed."""
        if self._file is None:
            self._file = self._disk.open(self.path(LOG_SUFFIX), read_only=not self.is_active)
        return self._file

    def discard(self) -> None:
        """Let the files go as they are; whoever still holds one keeps it open."""
        self.offset_index.discard()
        self.time_index.discard()
        self.txn_index.discard()
        self._file = None

    def unload(self) -> None:
        """Give back memory and descriptors of a closed segment; all is read again on use."""
        self.offset_index.unload()
        self.time_index.unload()
        self.txn_index.close()
        self._file = None

    def files_to_sync(self) -> list[File]:
        """The files of a segment that was just closed for writing."""
        files = [self.file, self.offset_index.file_to_sync(), self.time_index.file_to_sync()]
        txn = self.txn_index.file_to_sync()
        return files if txn is None else [*files, txn]

    # --- writing -----------------------------------------------------------------------

    def write(self, buffers: Sequence[ByteView], headers: Sequence[BatchHeader]) -> None:
        """Append whole batches: ``buffers`` joined are the batches of ``headers``, in order.

        Raises ``OSError`` with ``size`` unchanged; what lies behind ``size`` is then not part
        of the log and must be cut off before the next write.
        """
        if self.size >= self._reserve_at:
            self._reserve_blocks()
        self.file.pwritev(buffers, self.size)
        for header in headers:
            self.note_batch(self.size, header)

    def note_batch(self, position: int, header: BatchHeader) -> None:
        """Account for a batch that is in the file at ``position``: size, indexes, timestamps.

        The rule is Kafka's, per batch: an entry is made when enough bytes have gone by since
        the last one, and it holds the *last* offset of the batch and where the batch begins.
        So the first batch of a segment, and the first after it was reopened, has none.
        """
        batch_size = header.batch_length + LOG_OVERHEAD
        last_offset = header.base_offset + header.last_offset_delta
        largest = self._largest
        if largest is None:
            self._largest = largest = self._load_largest()
        if header.max_timestamp > largest[0]:
            self._largest = largest = (header.max_timestamp, Offset(last_offset))
        if position == 0:
            self._first_batch_timestamp = header.max_timestamp
        if self._bytes_since_index > self._interval_bytes:
            self.offset_index.append(last_offset, position)
            if largest[0] > self._indexed_timestamp:
                self.time_index.maybe_append(*largest)
                self._indexed_timestamp = largest[0]
            self._bytes_since_index = 0
        self._bytes_since_index += batch_size
        self.recent.add(last_offset + 1, position)
        self.size = position + batch_size

    def _reserve_blocks(self) -> None:
        length = min(_RESERVED_STRIDE, self._segment_bytes - self.size)
        if length > 0:
            self.file.reserve(self.size, length)
        self._reserve_at = self.size + _RESERVED_STRIDE

    def has_room_in_indexes(self, batches: int) -> bool:
        """Whether so many more batches can be noted, whatever they are."""
        offsets, times = self.offset_index, self.time_index
        return (
            offsets.entries + batches <= offsets.max_entries
            and times.entries + batches < times.max_entries
        )

    def make_room_in_indexes(self) -> None:
        """For batches that are in the file already, also if the index settings have shrunk."""
        if self.offset_index.is_full:
            self.offset_index.max_entries = self.offset_index.entries + 1
        if self.time_index.is_full:
            self.time_index.max_entries = self.time_index.entries + 2

    def forget_bytes_behind_size(self) -> None:
        """Cut off what an unfinished write left behind the last whole batch."""
        self.file.truncate(self.size)

    def close_for_writing(self) -> None:
        """Make this segment a closed one: final time entry, trimmed files (roll and close)."""
        if self.size > 0:
            self.time_index.maybe_append(*self.largest, skip_full_check=True)
        self.offset_index.trim()
        self.time_index.trim()
        self.txn_index.write_back()
        may_hold_blocks = self.size >= _RESERVES_FROM
        if self.is_active and (may_hold_blocks or self.file.size() != self.size):
            self.file.truncate(self.size)
        self.is_active = False

    def make_active(self) -> None:
        """The segment becomes the last of the log again, after a truncation or a restart."""
        if not self.is_active:
            self._file = None  # it may have been opened for reading only
        self.is_active = True
        self.offset_index.grow()
        self.time_index.grow()
        self._bytes_since_index = 0

    def truncate_to(self, offset: Offset) -> None:
        """Drop the batch that holds ``offset`` and all behind it."""
        position = self.position_of(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.file.truncate(position)
        self.size = position
        self.recent.clear()
        self._largest = None
        self._indexed_timestamp = NO_TIMESTAMP
        self._bytes_since_index = 0
        if position == 0:
            self._first_batch_timestamp = None

    def reset_indexes(self) -> None:
        """Empty indexes, to be filled by ``note_batch`` from the first batch on."""
        self.offset_index.reset()
        self.time_index.reset()
        self.txn_index.reset()
        self._forget_noted()

    def _forget_noted(self) -> None:
        self.recent.clear()
        self._largest = (NO_TIMESTAMP, self.base_offset)
        self._first_batch_timestamp = None
        self._indexed_timestamp = NO_TIMESTAMP
        self._bytes_since_index = 0
        self.size = 0

    # --- facts -------------------------------------------------------------------------

    @property
    def largest(self) -> tuple[TimestampMs, Offset]:
        """The largest timestamp, and the last offset of the batch that brought it."""
        if self._largest is None:
            self._largest = self._load_largest()
        return self._largest

    def _load_largest(self) -> tuple[TimestampMs, Offset]:
        """From the time index, then from the batches its last entry does not cover."""
        try:
            largest = self.time_index.last_entry
            is_sound = self._is_time_of_batch(largest)
        except (CorruptIndex, FileNotFoundError):
            is_sound = False
        if not is_sound:
            self.reindex()
            largest = self.time_index.last_entry
        if largest[0] >= 0 and not self.is_active:
            return largest  # the final entry, written when the segment was closed
        for _, header in self.batches(self.start_before(largest[1])):
            if header.max_timestamp > largest[0]:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
        return largest

    def retention_timestamp(self) -> TimestampMs:
        """What retention by time judges: the largest timestamp, else when the file changed."""
        if self.largest[0] >= 0:
            return self.largest[0]
        stat = self._disk.stat(self.path(LOG_SUFFIX))
        return stat.mtime_ms if stat is not None else self.created_ms

    @property
    def first_batch_timestamp(self) -> TimestampMs | None:
        """The first batch's largest timestamp, from which the age for a roll counts."""
        if self._first_batch_timestamp is None:
            for _, header in scan_headers(self.file, 0, self.size):
                self._first_batch_timestamp = header.max_timestamp
                break
        return self._first_batch_timestamp

    @property
    def offset_index_is_full(self) -> bool:
        return self.offset_index.is_full

    @property
    def time_index_is_full(self) -> bool:
        return self.time_index.is_full

    def next_offset(self) -> Offset:
        """One behind the last record, found by a walk over the last few batches."""
        end = self.base_offset
        for _, header in self.batches(self.start_before(Offset(2**63 - 1))):
            end = header.next_offset
        return end

    # --- finding -----------------------------------------------------------------------

    def locate(self, offset: Offset) -> tuple[int, int] | None:
        """Position and size of the first batch that ends at or behind ``offset``."""
        found = self.recent.find(offset)
        if found is not None:
            position, end = found
            return position, (self.size if end is None else end) - position
        size, end = self.size, self.start_before(offset)
        for position, header in scan_headers(self.file, end, size, chunk_bytes=4096):
            if header.base_offset + header.last_offset_delta >= offset:
                return position, header.size
            end = position + header.size
        if end != size:
            # No checksum covers a batch's length. Taken for the end of the segment, a wrong one
            # would hide the batches behind it: a follower would go on without them.
            raise CorruptBatch(
                f"{self.path(LOG_SUFFIX)}: the batch at {end} goes on behind its end"
            )
        return None

    def start_before(self, offset: Offset) -> int:
        """A batch boundary at or before ``offset``, from the index.

        An entry is believed only if the batch it points to is the one it names. An index that
        does not fit its log is made anew; it is a hint and must never change what is read.
        """
        try:
            entry_offset, position = self.offset_index.lookup(offset)
            if position == 0 or self._is_batch_of(entry_offset, position):
                return position
        except (CorruptIndex, FileNotFoundError):
            pass
        self.reindex()
        return self.offset_index.lookup(offset)[1]

    def offset_before_time(self, timestamp: TimestampMs) -> Offset:
        """An offset before which no batch is as young as ``timestamp``, from the index.

        As with offsets, an entry is believed only if it fits the batch it names.
        """
        try:
            entry = self.time_index.lookup(timestamp)
            if self._is_time_of_batch(entry):
                return entry.offset
        except (CorruptIndex, FileNotFoundError):
            pass
        self.reindex()
        return self.time_index.lookup(timestamp).offset

    def _is_time_of_batch(self, entry: TimestampOffset) -> bool:
        if entry.timestamp == NO_TIMESTAMP:
            return True
        found = self.locate(entry.offset)
        if found is None:
            return False
        header = read_header(self.file.pread(HEADER_SIZE, found[0]))
        return header.base_offset <= entry.offset and header.max_timestamp == entry.timestamp

    def offset_behind(self, position: int) -> Offset | None:
        """The last offset of the first indexed batch at or behind ``position``."""
        try:
            offset = self.offset_index.first_at_or_after_position(position)
            if offset is None or self._is_batch_of(*self.offset_index.lookup(offset)):
                return offset
        except (CorruptIndex, FileNotFoundError):
            pass
        self.reindex()
        return self.offset_index.first_at_or_after_position(position)

    def start_before_position(self, position: int) -> int:
        """A batch boundary at or before ``position``."""
        offset = self.offset_behind(position)
        return 0 if offset is None else self.start_before(Offset(offset - 1))

    def _is_batch_of(self, last_offset: Offset, position: int) -> bool:
        if position + HEADER_SIZE > self.size:
            return False
        header = read_header(self.file.pread(HEADER_SIZE, position))
        return header.last_offset == last_offset

    def reindex(self) -> None:
        """Offset and time index anew, from the batches."""
        end = self.size
        self.offset_index.reset()
        self.time_index.reset()
        self._forget_noted()
        for position, header in scan_headers(self.file, 0, end):
            self.make_room_in_indexes()
            self.note_batch(position, header)
        if not self.is_active:
            self.close_for_writing()

    def position_of(self, offset: Offset) -> int:
        """Where the batch that holds ``offset`` begins; the end if all lies below it."""
        found = self.locate(offset)
        return self.size if found is None else found[0]

    def end_below(self, offset: Offset) -> Offset:
        """Where the segment would end without the batch that holds ``offset`` and the rest."""
        position = self.position_of(offset)
        end = self.base_offset
        if position > 0:
            if position < self.size:
                offset = read_header(self.file.pread(HEADER_SIZE, position)).base_offset
            for at, header in self.batches(self.start_before(Offset(offset - 1))):
                if at >= position:
                    break
                end = header.next_offset
        return end

    def batches(self, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        return scan_headers(self.file, start, self.size)

    def read_batch(self, position: int, size: int) -> bytes:
        return self.file.pread(size, position)
