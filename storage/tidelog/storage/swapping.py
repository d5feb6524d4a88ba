"""Putting a cleaned segment in the place of those it was made from.

The new files are complete and durable under ``.cleaned`` when this begins. Then:

1. they are renamed to ``.swap``, and the directory is synced: from here on a restart completes
   what was begun (``tidelog.storage.tidy``), before it throws it away;
2. the old files leave (``.deleted``), and the directory is synced: of renames that were not synced
   a power failure may undo any, and an old segment must not come back beside what replaces it;
3. the new files get their names, the log first: while its name ends with ``.swap``, a restart
   believes that old files may still be there.

All of it happens in one call on the log's own thread, so nobody sees a log between two states.
Readers that hold a file of an old segment read on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from tidelog.kernel.ids import Offset, TimestampMs, TopicPartition
from tidelog.kernel.ports import Disk
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
    _removal: DelayedRemoval

    @abstractmethod
    def fail(self, reason: str) -> None: ...

    def swap_in(self, old: Sequence[Segment], now_ms: TimestampMs) -> None:
        """Replace neighbours ``old`` by the cleaned segment that has the name of the first.

        ``SwapFailed`` leaves the log closed to writers; opening it completes or undoes the swap.
        """
        if self.on_swapping is not None:
            last = self.segments.floor_index(old[-1].base_offset)
            self.on_swapping(self.tp, self.segments.end_of(last, self.end_offset))
        base = old[0].base_offset
        try:
            self._rename_all(base, CLEANED_SUFFIX, SWAP_SUFFIX)
            self._disk.sync_dir(self.directory)
            self._retire(old, now_ms)
            self._disk.sync_dir(self.directory)
            self._rename_all(base, SWAP_SUFFIX, "")
            self.segments.replace(old, self._load(base))
        except OSError as error:
            self.fail(f"swapping in the cleaned segment {base} failed: {error}")
            raise SwapFailed(f"{self.tp}: {self.failure}") from error
        self._flush.directory_is_dirty = True

    def _rename_all(self, base: Offset, suffix: str, new_suffix: str) -> None:
        for role in SEGMENT_SUFFIXES:
            source = segment_file(self.directory, base, role, suffix)
            self._disk.rename(source, segment_file(self.directory, base, role, new_suffix))

    def _retire(self, old: Sequence[Segment], now_ms: TimestampMs) -> None:
        due_ms = TimestampMs(now_ms + self.config.file_delete_delay_ms)
        for segment in old:
            paths = segment.paths()
            if segment is not old[0]:
                snapshot = self.producers.forget_snapshot(segment.base_offset)
                paths += [] if snapshot is None else [snapshot]
            self._flush.forget(segment)
            segment.discard()
            self._removal.add(paths, due_ms)

    def _load(self, base: Offset) -> Segment:
        txn_index = segment_file(self.directory, base, TXN_INDEX_SUFFIX)
        stat = self._disk.stat(txn_index)
        if stat is not None and stat.size == 0:
            self._disk.unlink(txn_index)
        log = self._disk.stat(segment_file(self.directory, base, LOG_SUFFIX))
        return Segment(
            self._disk,
            self.directory,
            base,
            self.config,
            size=0 if log is None else log.size,
            is_active=False,
            created_ms=TimestampMs(0) if log is None else log.mtime_ms,
        )
