"""The metadata log as the machine sees it: the last snapshot's id and every entry since.

The entries are kept in memory. Between two snapshots there are about 20 MiB of them, and both a
leader and a node that applies them need them at hand; so nothing here ever waits for the disk.
The view is the log *as written*, synced or not: ``DiskQueue.durable_end`` says what is safe.

Owner: the node's ``Core``. Invariants: entries are contiguous from ``start`` to ``end``; terms do
not decrease; ``start`` is 0 or the end of a snapshot whose term is remembered, so that the entry
behind it can still be matched (Raft paper, section 7); a log that is not empty knows its voters.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import pairwise

from tidelog.controller.raft.errors import BrokenInvariant
from tidelog.controller.raft.model import (
    NO_TERM,
    Entry,
    EntryKind,
    RestoredLog,
    SnapshotId,
    Term,
    Voters,
)
from tidelog.kernel.ids import Offset


class LogView:
    def __init__(self, snapshot: SnapshotId | None = None, voters: Voters | None = None) -> None:
        self._reset(snapshot, voters)

    @classmethod
    def restore(cls, found: RestoredLog) -> LogView:
        """Put together what recovery found; refuse a log that cannot be one."""
        log = cls(found.snapshot, found.snapshot_voters)
        entries = found.entries
        _check_contiguous(entries)
        if found.snapshot is not None:
            entries = _entries_behind(found.snapshot, entries)
        if entries and entries[0].base_offset != log.start:
            raise BrokenInvariant(
                f"the log begins at {entries[0].base_offset}, behind the snapshot's end {log.start}"
            )
        log.append(entries)
        if not log.is_empty and log.voters is None:
            raise BrokenInvariant("the log is not empty but names no voters")
        return log

    def _reset(self, snapshot: SnapshotId | None, voters: Voters | None) -> None:
        self.snapshot = snapshot
        self.start = snapshot.end_offset if snapshot else Offset(0)
        self._start_term = snapshot.term if snapshot else NO_TERM
        self._start_voters = voters
        self._entries: list[Entry] = []
        self._ends: list[Offset] = []
        self._bytes_to: list[int] = []
        self._term_starts: list[tuple[Term, Offset]] = []
        self._voter_entries: list[Entry] = []

    # --- reading ---------------------------------------------------------------------------------

    @property
    def end(self) -> Offset:
        return self._ends[-1] if self._ends else self.start

    @property
    def last_term(self) -> Term:
        return self._entries[-1].term if self._entries else self._start_term

    @property
    def is_empty(self) -> bool:
        return self.end == 0

    @property
    def voters(self) -> Voters | None:
        """The voters in force: those of the newest voters entry, committed or not."""
        return self._voter_entries[-1].voters if self._voter_entries else self._start_voters

    @property
    def previous_voters(self) -> Voters | None:
        """The voters that would be in force without the newest voters entry."""
        return (
            self._voter_entries[-2].voters if len(self._voter_entries) > 1 else self._start_voters
        )

    @property
    def voters_end(self) -> Offset:
        """The end of the entry that put the voters in force."""
        return self._voter_entries[-1].end_offset if self._voter_entries else self.start

    def voters_at(self, end: Offset) -> Voters | None:
        """The voters that the log up to ``end`` puts in force."""
        below = [entry for entry in self._voter_entries if entry.end_offset <= end]
        return below[-1].voters if below else self._start_voters

    def term_before(self, end: Offset) -> Term | None:
        """The term of the entry that ends at or covers ``end - 1``; None where the log is not."""
        if end == self.start:
            return self._start_term
        if not self.start < end <= self.end:
            return None
        return self._entries[self._index_of(Offset(end - 1))].term

    def entry_at(self, offset: Offset) -> Entry | None:
        if not self.start <= offset < self.end:
            return None
        return self._entries[self._index_of(offset)]

    def is_boundary(self, offset: Offset) -> bool:
        entry = self.entry_at(offset)
        return offset == self.end or (entry is not None and entry.base_offset == offset)

    def boundary_at_or_below(self, offset: Offset) -> Offset:
        entry = self.entry_at(offset)
        return entry.base_offset if entry else min(offset, self.end)

    def entries_from(self, offset: Offset, max_bytes: int) -> tuple[Entry, ...]:
        """Whole entries from a boundary on, at least one if there is one."""
        if offset >= self.end:
            return ()
        first = self._index_of(offset)
        below = self._bytes_to[first] - self._entries[first].size_bytes
        last = bisect_right(self._bytes_to, below + max_bytes)
        return tuple(self._entries[first : max(last, first + 1)])

    def entries_between(self, start: Offset, end: Offset) -> tuple[Entry, ...]:
        """Whole entries between two boundaries."""
        first = bisect_right(self._ends, start)
        return tuple(self._entries[first : bisect_right(self._ends, end)])

    def bytes_from(self, offset: Offset) -> int:
        """The size of all entries that end above ``offset``."""
        first = bisect_right(self._ends, offset)
        if first == len(self._entries):
            return 0
        return self._bytes_to[-1] - self._bytes_to[first] + self._entries[first].size_bytes

    def start_of_term(self, term: Term) -> Offset:
        """Where the entries of a term begin; the log's start if they reach below it."""
        index = bisect_left(self._term_starts, (term, Offset(0)))
        if index < len(self._term_starts) and self._term_starts[index][0] == term:
            return self._term_starts[index][1]
        return self.start

    def end_of_term(self, term: Term) -> Offset | None:
        """Where the entries of a term end; None if there are none."""
        index = bisect_left(self._term_starts, (term, Offset(0)))
        if index < len(self._term_starts) and self._term_starts[index][0] == term:
            behind = index + 1
            return self._term_starts[behind][1] if behind < len(self._term_starts) else self.end
        return self.start if term == self._start_term and self.start > 0 else None

    def _index_of(self, offset: Offset) -> int:
        return bisect_right(self._ends, offset)

    # --- writing ---------------------------------------------------------------------------------

    def append(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.base_offset != self.end or entry.last_offset < entry.base_offset:
                raise BrokenInvariant(
                    f"entry {entry.base_offset}-{entry.last_offset} does not fit at {self.end}"
                )
            if entry.term < self.last_term:
                raise BrokenInvariant(f"term {entry.term} follows term {self.last_term}")
            if entry.term > self.last_term or not self._term_starts:
                self._term_starts.append((entry.term, entry.base_offset))
            size = self._bytes_to[-1] if self._bytes_to else 0
            self._entries.append(entry)
            self._ends.append(entry.end_offset)
            self._bytes_to.append(size + entry.size_bytes)
            if entry.kind is EntryKind.VOTERS:
                self._voter_entries.append(entry)

    def truncate(self, to: Offset) -> None:
        """Cut at a boundary; voters entries above it are rolled back with the rest."""
        keep = bisect_right(self._ends, to)
        del self._entries[keep:], self._ends[keep:], self._bytes_to[keep:]
        while self._term_starts and self._term_starts[-1][1] >= to:
            self._term_starts.pop()
        while self._voter_entries and self._voter_entries[-1].base_offset >= to:
            self._voter_entries.pop()

    def compact(self, snapshot: SnapshotId) -> None:
        """Forget the entries that a snapshot covers, but not the term of the last of them."""
        voters = self.voters_at(snapshot.end_offset)
        behind = self._entries[bisect_right(self._ends, snapshot.end_offset) :]
        self._reset(snapshot, voters)
        self.append(behind)

    def replace(self, snapshot: SnapshotId, voters: Voters) -> None:
        """Forget the whole log; it begins and ends where the snapshot does."""
        self._reset(snapshot, voters)


def _check_contiguous(entries: tuple[Entry, ...]) -> None:
    for before, after in pairwise(entries):
        if after.base_offset != before.end_offset or after.term < before.term:
            raise BrokenInvariant(
                f"entry {after.base_offset} of term {after.term} cannot follow entry "
                f"{before.base_offset}-{before.last_offset} of term {before.term}"
            )


def _entries_behind(snapshot: SnapshotId, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """What of a recovered log goes on where the snapshot ends.

    A snapshot that was installed over a log of another history makes all of that log void; a crash
    between the two leaves the old log behind.
    """
    end = snapshot.end_offset
    for entry in entries:
        covers = entry.base_offset < end <= entry.end_offset
        if covers and (entry.term != snapshot.term or entry.end_offset != end):
            return ()
    return tuple(entry for entry in entries if entry.base_offset >= end)
