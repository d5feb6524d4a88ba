"""The segment that a pass writes, beside the log and under names of unfinished work.

All four files are made, the transaction index too if it stays empty: then a crash in the middle of
the swap leaves no doubt whether an index without its ``.swap`` twin is the new one or the old one
(``tidelog.storage.tidy``).

Owner: one pass, in whatever thread its steps run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from tidelog.kernel.ids import Offset, TimestampMs
from tidelog.kernel.ports import ByteView, Disk, Steps
from tidelog.kernel.settings import TopicConfig
from tidelog.storage.index import MAX_RELATIVE
from tidelog.storage.names import CLEANED_SUFFIX, LOG_SUFFIX, TXN_INDEX_SUFFIX, segment_file
from tidelog.storage.segment import Segment
from tidelog.storage.swapping import SEGMENT_SUFFIXES
from tidelog.storage.txn_index import AbortedTxn
from tidelog.wire.batch import BatchHeader

_SYNC_EVERY_BYTES: Final = 1 << 20
"""A journal (ext4) writes the data of other files with its own: whoever appends to a log waits for
what has gathered here. So it never gathers."""


class CleanedOutput:
    def __init__(
        self, disk: Disk, directory: str, base_offset: Offset, config: TopicConfig
    ) -> None:
        self._disk = disk
        self._directory = directory
        self.base_offset = base_offset
        self._synced_size = 0
        try:
            self._begin(config)
        except OSError:
            self._remove_files()
            raise

    def _begin(self, config: TopicConfig) -> None:
        self._segment = Segment(
            self._disk,
            self._directory,
            self.base_offset,
            config,
            size=0,
            is_active=False,
            created_ms=TimestampMs(0),
            extra=CLEANED_SUFFIX,
        )
        self._segment.file.truncate(0)
        self._segment.reset_indexes()
        # Neighbours are joined so that their indexes fit together; but a batch may grow.
        self._segment.offset_index.max_entries = self._segment.time_index.max_entries = MAX_RELATIVE
        self._disk.open(self._path(TXN_INDEX_SUFFIX), create=True).close()

    @property
    def size(self) -> int:
        return self._segment.size

    def write(self, buffers: Sequence[ByteView], headers: Iterable[BatchHeader]) -> None:
        segment = self._segment
        segment.file.pwritev(buffers, segment.size)
        for header in headers:
            segment.note_batch(segment.size, header)
        if segment.size - self._synced_size >= _SYNC_EVERY_BYTES:
            segment.file.sync()
            self._synced_size = segment.size

    def add_aborted(self, entries: Iterable[AbortedTxn]) -> None:
        for entry in entries:
            self._segment.txn_index.append(entry)

    def finish(self, modified_ms: TimestampMs) -> Steps[None]:
        """Make the files complete and durable, with their names."""
        segment = self._segment
        segment.close_for_writing()
        self._disk.set_mtime(self._path(LOG_SUFFIX), modified_ms)
        for file in segment.files_to_sync():
            file.sync()
            yield
        segment.unload()
        self._disk.sync_dir(self._directory)

    def discard(self) -> None:
        """Remove the files again."""
        self._segment.discard()
        self._remove_files()

    def _remove_files(self) -> None:
        remove_cleaned(self._disk, self._directory, self.base_offset)

    def _path(self, suffix: str) -> str:
        return segment_file(self._directory, self.base_offset, suffix, CLEANED_SUFFIX)


def remove_cleaned(disk: Disk, directory: str, base_offset: Offset) -> None:
    """Remove what a pass has left under the names of unfinished work."""
    with suppress(OSError):  # a restart removes what is left
        for suffix in SEGMENT_SUFFIXES:
            disk.unlink(segment_file(directory, base_offset, suffix, CLEANED_SUFFIX))
