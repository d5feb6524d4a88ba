"""What has reached stable storage, and the group commit that gets it there.

Theory: an acknowledgement under acks=all counts on the *flushed end* of each replica. A flush
is decided on the log's own thread (which files, up to which offset), done in another (the
fsyncs), and its result told back to the log. The flushed end moves to the log end captured
*before* the fsync, and only when the directory entries of new files were synced too (a rolled
segment whose name is lost in a power failure is lost with all its data).

Invariants: one flush of a log at a time; a truncation lowers the end of a flush that is under
way; after a failed fsync no later flush may succeed, because the kernel may have marked the
lost pages clean.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.kernel.ids import Offset
from tidelog.kernel.ports import Disk, File, Steps
from tidelog.storage.segment import Segment


@dataclass(slots=True)
class Flush:
    """One group commit of a log: everything below ``end``."""

    end: Offset
    files: list[File]
    directory: str | None
    """Set when files were made, renamed or removed since the last flush."""
    closed: list[Segment]
    """Segments that need no more writing once this flush is done."""
    synced: int = 0
    """How many of the files are, so far."""

    def steps(self, disk: Disk) -> Steps[None]:
        """The blocking part; touches nothing that the log owns."""
        for file in self.files:
            file.sync()
            self.synced += 1
            yield
        if self.directory is not None:
            disk.sync_dir(self.directory)


@dataclass(slots=True)
class FlushState:
    """Keeps the account; the log asks it what to flush and tells it what happened."""

    directory: str
    flushed_end: Offset
    closed: list[Segment] = field(default_factory=list)
    """Segments that were rolled since the last flush; their indexes are not synced yet."""
    directory_is_dirty: bool = False
    under_way: Flush | None = None

    def begin(self, end: Offset, active_file: File) -> Flush | None:
        """None if there is nothing to flush, or a flush is under way already."""
        if self.under_way is not None:
            return None
        if end == self.flushed_end and not self.closed and not self.directory_is_dirty:
            return None
        directory = self.directory if self.directory_is_dirty else None
        files = [file for segment in self.closed for file in segment.files_to_sync()]
        self.under_way = Flush(end, [*files, active_file], directory, self.closed)
        self.closed = []
        self.directory_is_dirty = False
        return self.under_way

    def complete(self, flush: Flush) -> Offset:
        """The flush came back without an error; the new flushed end."""
        if flush is not self.under_way:
            raise ValueError("this flush is not the one under way")
        self.under_way = None
        for segment in flush.closed:
            segment.unload()
        self.flushed_end = max(self.flushed_end, flush.end)
        return self.flushed_end

    def forget(self, segment: Segment) -> None:
        """The segment has left the log; its files need no syncing any more."""
        self.closed = [other for other in self.closed if other is not segment]

    def truncated(self, end: Offset) -> None:
        """Offsets from ``end`` on will be written again, so nothing may count them flushed."""
        self.flushed_end = min(self.flushed_end, end)
        if self.under_way is not None:
            self.under_way.end = min(self.under_way.end, end)

    def restarted_at(self, offset: Offset) -> None:
        """The log is empty and begins at ``offset``: nothing below it is left to flush."""
        self.flushed_end = offset
        if self.under_way is not None:
            self.under_way.end = min(self.under_way.end, offset)
