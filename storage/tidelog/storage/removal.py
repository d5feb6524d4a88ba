"""Files that have left a log and are removed after a delay.

They are renamed first, so that a restart knows them for what they are, and unlinked later, so
that whoever opened them by name has time to notice (``file.delete.delay.ms``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.kernel.ids import TimestampMs
from tidelog.kernel.ports import Disk
from tidelog.storage.names import DELETED_SUFFIX


@dataclass(frozen=True, slots=True)
class Unlink:
    path: str
    due_ms: TimestampMs


class DelayedRemoval:
    """What one log still has to unlink."""

    __slots__ = ("_disk", "pending")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.pending: list[Unlink] = []

    def add(self, paths: Iterable[str], due_ms: TimestampMs) -> None:
        """Rename what is there of ``paths`` and unlink it when ``due_ms`` has come."""
        for path in paths:
            if self._disk.stat(path) is not None:
                self._disk.rename(path, path + DELETED_SUFFIX)
                self.pending.append(Unlink(path + DELETED_SUFFIX, due_ms))

    def take_due(self, now_ms: TimestampMs) -> list[str]:
        """The files whose delay is over; whoever takes them unlinks them.

        What is not unlinked after all is removed by the next start, which knows such names.
        """
        due = [unlink.path for unlink in self.pending if unlink.due_ms <= now_ms]
        self.pending = [unlink for unlink in self.pending if unlink.due_ms > now_ms]
        return due

    def unlink_due(self, now_ms: TimestampMs) -> int:
        """Unlink them on the spot; how many. For whom a large file may hold up."""
        due = self.take_due(now_ms)
        for path in due:
            self._disk.unlink(path)
        return len(due)
