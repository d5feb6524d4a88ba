"""One of a log directory's offset checkpoints, and what is known to be on disk of it.

The file is replaced whole. What it says on disk matters as much as what it should say: an
entry that vouches for batches which are about to be cut off, or for a partition that is gone,
would later condemn a sound log, or empty a new one of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from tidelog.kernel.ids import Offset, TopicPartition
from tidelog.kernel.ports import Disk
from tidelog.storage.checkpoints import read_offset_checkpoint, write_offset_checkpoint


class OffsetTable:
    """``offsets`` is what the file on disk says, or would say if it was not withdrawn."""

    __slots__ = ("_disk", "offsets", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self.offsets: dict[TopicPartition, Offset] = {}

    def load(self) -> None:
        """Read the file, if there is one; ``CorruptCheckpoint`` if it makes no sense."""
        self.offsets = read_offset_checkpoint(self._disk, self.path)

    def get(self, tp: TopicPartition) -> Offset:
        return self.offsets.get(tp, Offset(0))

    def write(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Durable on return."""
        write_offset_checkpoint(self._disk, self.path, offsets)
        self.offsets = dict(offsets)

    def withdraw(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Let the file say nothing, durably, until it is next written, from these."""
        self._disk.unlink(self.path)
        self._disk.sync_dir(self.path.rpartition("/")[0])
        self.offsets = dict(offsets)

    def forget(self, tp: TopicPartition) -> None:
        """Let the file say nothing about a partition, if it does."""
        if tp in self.offsets:
            self.write({other: offset for other, offset in self.offsets.items() if other != tp})

    def raise_to(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Let the file say at least this; on a full disk it is let be, see ``lower``."""
        higher = {tp: offset for tp, offset in offsets.items() if offset > self.get(tp)}
        if higher:
            with suppress(OSError):
                self.write({**self.offsets, **higher})

    def lower(self, tp: TopicPartition, end: Offset) -> None:
        """Let the file vouch for nothing from ``end`` on.

        If it cannot be written (a full disk), a crash now would make the log suspect; that is
        no reason to refuse the truncation, which is about to make room.
        """
        if self.get(tp) > end:
            with suppress(OSError):
                self.write({**self.offsets, tp: end})
