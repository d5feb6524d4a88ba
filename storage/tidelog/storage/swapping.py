"""Putting a cleaned segment in the place of those it was made from.

The new files are complete and durable under ``.cleaned`` when this begins. Then:

1. they are renamed to ``.swap``, and the directory is synced: from here on a restart completes
   what was begun (``tidelog.storage.tidy``), before it throws it away;
2. the old files leave (``.deleted``), and the directory is synced: of renames that were not synced
   a power failure may undo any, and an old segment must not come back beside what replaces it;
3. the new files get their names, the log first: while its name ends with ``.swap``, a restart
   believes that old files may still be there.

Readers get the new segment from the first moment on, while its files still end with ``.swap``, and
those that hold a file of an old segment read on. Between two of these steps the owner has the
directory synced off the event loop, and the log goes on: appends do not touch closed segments.
Whoever is about to take segments away has to complete the swap first (``finish_swap``), else a
restart would complete it from files that tell of an older log.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import Final

from tidelog.kernel.ids import Offset, TimestampMs, TopicPartition
from tidelog.kernel.ports import Disk, Steps
from tidelog.kernel.settings import TopicConfig
from tidelog.storage.flush import FlushState
from tidelog.storage.names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file,
)
from tidelog.storage.producer_log import ProducerLog
from tidelog.storage.readable import ReadableLog
from tidelog.storage.removal import DelayedRemoval
from tidelog.storage.segment import Segment

SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class SwapFailed(Exception):
    """The disk failed in the middle; the log has to be opened again."""


class CompactableLog(ReadableLog, ABC):
    """The part of ``Log`` that takes over what the cleaner wrote."""

    tp: TopicPartition
    directory: str
    config: TopicConfig
    producers: ProducerLog
    failure: str | None
    on_swapping: Callable[[TopicPartition, Offset], None] | None = None
    """Told, before segments are swapped, where those end. Recovery takes a gap between segments
    for a loss, and compaction makes gaps: the recovery point on disk must lie behind."""
    _disk: Disk
    _flush: FlushState
    removal: DelayedRemoval
    _swap: Generator[None, None, None] | None = None

    @abstractmethod
    def fail(self, reason: str) -> None: ...

    def begin_swap(self, old: Sequence[Segment], now_ms: TimestampMs) -> None:
        """Replace neighbours ``old`` by the cleaned segment that has the name of the first.

        Then sync the directory and call ``advance_swap`` while ``is_swapping``. ``SwapFailed``
        leaves the log closed to writers; opening it completes or undoes the swap.
        """
        if self._swap is not None:
            raise ValueError(f"{self.tp}: another swap is under way")
        if self.on_swapping is not None:
            last = self.segments.floor_index(old[-1].base_offset)
            self.on_swapping(self.tp, self.segments.end_of(last, self.end_offset))
        base = old[0].base_offset
        try:
            for role in SEGMENT_SUFFIXES:
                cleaned = segment_file(self.directory, base, role, CLEANED_SUFFIX)
                self._disk.rename(cleaned, segment_file(self.directory, base, role, SWAP_SUFFIX))
            new = self._load(base)
        except OSError as error:
            raise self.swap_failed(error) from error
        self.segments.replace(old, new)
        for segment in old:
            self._discard(segment)
        self._swap = self._phases(old, new, now_ms)
        next(self._swap)

    @property
    def is_swapping(self) -> bool:
        return self._swap is not None

    def sync_swap(self) -> Steps[None]:
        """The blocking part, due before each ``advance_swap``; touches nothing the log owns."""
        yield
        self._disk.sync_dir(self.directory)

    def advance_swap(self) -> None:
        """The directory was synced: go on, if nobody else had to do it meanwhile."""
        if self._swap is None:
            return
        try:
            next(self._swap)
        except StopIteration:
            self._swap = None
        except OSError as error:
            raise self.swap_failed(error) from error

    def finish_swap(self) -> None:
        """Complete a swap that is under way, on the spot."""
        while self._swap is not None:
            try:
                self._disk.sync_dir(self.directory)
            except OSError as error:
                raise self.swap_failed(error) from error
            self.advance_swap()

    def swap_failed(self, error: OSError) -> SwapFailed:
        self._swap = None
        self.fail(f"swapping in a cleaned segment failed: {error}")
        return SwapFailed(f"{self.tp}: {self.failure}")

    def _phases(
        self, old: Sequence[Segment], new: Segment, now_ms: TimestampMs
    ) -> Generator[None, None, None]:
        """Renames, with a pause wherever they have to be made durable."""
        yield
        self._retire(old, now_ms)
        yield
        self._give_name(new)
        self._flush.directory_is_dirty = True
        yield

    def _retire(self, old: Sequence[Segment], now_ms: TimestampMs) -> None:
        due_ms = TimestampMs(now_ms + self.config.file_delete_delay_ms)
        for segment in old:
            paths = segment.paths()
            if segment is not old[0]:
                snapshot = self.producers.forget_snapshot(segment.base_offset)
                paths += [] if snapshot is None else [snapshot]
            self.removal.add(paths, due_ms)

    def _discard(self, segment: Segment) -> None:
        """The segment is leaving; a flush or a reader that still holds its files keeps them."""
        self._flush.forget(segment)
        segment.discard()

    def _load(self, base: Offset) -> Segment:
        log = self._disk.stat(segment_file(self.directory, base, LOG_SUFFIX, SWAP_SUFFIX))
        segment = Segment(
            self._disk,
            self.directory,
            base,
            self.config,
            size=0 if log is None else log.size,
            is_active=False,
            created_ms=TimestampMs(0) if log is None else log.mtime_ms,
            extra=SWAP_SUFFIX,
        )
        segment.unload()
        return segment

    def _give_name(self, segment: Segment) -> None:
        segment.take_its_name()
        txn_index = segment.path(TXN_INDEX_SUFFIX)
        stat = self._disk.stat(txn_index)
        if stat is not None and stat.size == 0:
            self._disk.unlink(txn_index)
