"""How far each log of a directory is clean: Kafka's ``cleaner-offset-checkpoint``.

Losing the file costs a pass over each log and no more, so what cannot be read counts as nothing.
A point is written when the pass is durable, and lowered before a truncation cuts below it: a point
that is too high would keep old records of a key beside the newest for ever.
"""

from __future__ import annotations

from collections.abc import Container

from tidelog.kernel.ids import Offset, TopicPartition
from tidelog.kernel.ports import Disk
from tidelog.storage.checkpoints import CorruptCheckpoint
from tidelog.storage.names import CLEANER_CHECKPOINT
from tidelog.storage.offset_table import OffsetTable


class CleanPoints:
    def __init__(self, disk: Disk, log_dir: str) -> None:
        self.table = OffsetTable(disk, f"{log_dir}/{CLEANER_CHECKPOINT}")
        self.flaw: str | None = None
        """Why the file was not believed, if it was not."""
        try:
            self.table.load()
        except CorruptCheckpoint as error:
            self.flaw = f"{error}; every log counts as dirty"

    def get(self, tp: TopicPartition) -> Offset | None:
        return self.table.offsets.get(tp)

    def set(self, tp: TopicPartition, offset: Offset) -> None:
        """Durable on return."""
        if self.table.offsets.get(tp) != offset:
            self.table.write({**self.table.offsets, tp: offset})

    def lower(self, tp: TopicPartition, end: Offset) -> None:
        """Let no file vouch for anything from ``end`` on; durable on return.

        Where the file cannot be written, which may be a full disk, it is removed: that needs no
        room, and a point that stays too high is believed by the cleaners of all replicas.
        """
        if self.table.get(tp) > end:
            try:
                self.table.write({**self.table.offsets, tp: end})
            except OSError:
                self.table.withdraw({**self.table.offsets, tp: end})

    def keep_only(self, known: Container[TopicPartition]) -> None:
        """Drop the entries of partitions that are not here any more."""
        kept = {tp: offset for tp, offset in self.table.offsets.items() if tp in known}
        if len(kept) != len(self.table.offsets):
            self.table.write(kept)
