"""Which leader epoch wrote which part of a log: the map by which replicas find where they differ.

Theory: two replicas that hold the same (offset, epoch) hold the same log up to there (KIP-101).
To find the last point they share, a follower asks the leader where an epoch ended and cuts its
own log there (KIP-279). Each entry is an epoch and the offset of its first batch; an epoch ends
where the next one starts.

Pure: the log owns an instance, and writes its entries to ``leader-epoch-checkpoint`` whenever a
method says that they changed.

Invariants: epochs and start offsets both increase strictly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.kernel.ids import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset


class EpochEntry(NamedTuple):
    epoch: LeaderEpoch
    start_offset: Offset

    def to_line(self) -> str:
        return f"{self.epoch} {self.start_offset}"

    @classmethod
    def from_line(cls, line: str) -> EpochEntry:
        """``ValueError`` if it is not two numbers ≥ 0 with a blank between them."""
        epoch, _, start_offset = line.partition(" ")
        if not (epoch.isdecimal() and start_offset.isdecimal() and line.isascii()):
            raise ValueError(f"{line!r} is not an epoch and a start offset")
        return cls(LeaderEpoch(int(epoch)), Offset(int(start_offset)))


class EpochEnd(NamedTuple):
    """The answer to "where does this epoch end": an epoch ≤ the one asked for, and its end."""

    epoch: LeaderEpoch
    end_offset: Offset


UNDEFINED_END: Final = EpochEnd(NO_LEADER_EPOCH, NO_OFFSET)


class EpochCache:
    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        """Entries as a checkpoint has them; a later one overrules what it contradicts."""
        self._entries: list[EpochEntry] = []
        for entry in entries:
            self.assign(*entry)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def latest_entry(self) -> EpochEntry | None:
        return self._entries[-1] if self._entries else None

    @property
    def latest_epoch(self) -> LeaderEpoch | None:
        return self._entries[-1].epoch if self._entries else None

    @property
    def previous_epoch(self) -> LeaderEpoch | None:
        """The epoch before the latest."""
        return self._entries[-2].epoch if len(self._entries) > 1 else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that ``epoch`` starts at ``start_offset``; True if the entries changed.

        What is known about this offset and epoch or later ones is superseded: it described
        batches that are no longer in the log.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} cannot start at {start_offset}: both must be ≥ 0")
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochEntry(LeaderEpoch(epoch), Offset(start_offset)))
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest known epoch ≤ ``epoch`` and where it ends; ``UNDEFINED_END`` if unknown."""
        if epoch == NO_LEADER_EPOCH:
            return UNDEFINED_END
        if epoch == self.latest_epoch:
            return EpochEnd(LeaderEpoch(epoch), Offset(log_end_offset))
        higher = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if higher == len(self._entries):
            return UNDEFINED_END
        floor = self._entries[higher - 1].epoch if higher else LeaderEpoch(epoch)
        return EpochEnd(floor, self._entries[higher].start_offset)

    def epoch_for_offset(self, offset: int) -> LeaderEpoch | None:
        """The epoch in which ``offset`` was, or would be, written."""
        higher = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[higher - 1].epoch if higher else None

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget epochs that start at or above ``end_offset``; True if the entries changed."""
        count = len(self._entries)
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
        return len(self._entries) < count

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget what is below ``start_offset``; True if the entries changed.

        The epoch that is in force there stays and starts there from now on.
        """
        higher = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if higher == 0:
            return False
        in_force = EpochEntry(self._entries[higher - 1].epoch, Offset(start_offset))
        if higher == 1 and self._entries[0] == in_force:
            return False
        self._entries[:higher] = [in_force]
        return True

    def clear(self) -> bool:
        changed = bool(self._entries)
        self._entries.clear()
        return changed

    def to_lines(self) -> list[str]:
        return [entry.to_line() for entry in self._entries]

    @classmethod
    def from_lines(cls, lines: Iterable[str]) -> EpochCache:
        return cls(map(EpochEntry.from_line, lines))
