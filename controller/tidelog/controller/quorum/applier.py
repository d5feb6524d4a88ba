"""Committed entries on their way into the state machine: each once, in order, on every member.

Applying many entries takes long (a node that starts replays all since the last snapshot), so it
is done in slices between which the event loop goes on. A proposal is answered when it was applied
here: whoever sees the answer also sees its effect.

Owner: the quorum, on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidelog.controller.metadata.records import MetadataRecord
from tidelog.controller.quorum.batches import entry_to_records
from tidelog.controller.quorum.interface import CommittedBatch, StateMachine
from tidelog.controller.quorum.snapshots import LoadedSnapshot
from tidelog.controller.raft.model import NO_TERM, Entry, EntryKind, SnapshotId, Term, Voters
from tidelog.kernel.ids import Offset


@dataclass(frozen=True, slots=True)
class PendingProposal:
    """In this leader's log under this term; the records need not be decoded again."""

    base_offset: Offset
    last_offset: Offset
    term: Term
    records: tuple[MetadataRecord, ...]
    committed: asyncio.Future[None]


class Applier:
    """``applied_end`` is what the state machine has seen, ``queued_end`` what it will see."""

    def __init__(self, machine: StateMachine) -> None:
        self._machine = machine
        self._queue: deque[Entry] = deque()
        self._pending: deque[PendingProposal] = deque()
        self.applied_end = Offset(0)
        self.applied_term: Term = NO_TERM
        self.queued_end = Offset(0)
        self.voters: Voters | None = None
        """Those that the applied entries put in force."""
        self.bytes_since_snapshot = 0

    @property
    def has_backlog(self) -> bool:
        return bool(self._queue)

    @property
    def position(self) -> SnapshotId:
        """What a snapshot of the state machine as it is would cover."""
        return SnapshotId(self.applied_end, self.applied_term)

    def load(self, loaded: LoadedSnapshot) -> None:
        """A snapshot takes the place of everything applied so far."""
        self._queue.clear()
        self._machine.load_snapshot(loaded.snapshot, loaded.records)
        self.applied_end = self.queued_end = loaded.snapshot.end_offset
        self.applied_term = loaded.snapshot.term
        self.voters = loaded.voters
        self.bytes_since_snapshot = 0

    def add(self, entries: Sequence[Entry]) -> None:
        """These were committed; they follow ``queued_end``."""
        self._queue.extend(entries)
        if entries:
            self.queued_end = entries[-1].end_offset

    def apply_some(self, records: int, on_applied: Callable[[], None]) -> None:
        """Apply entries until at least so many records were; ``on_applied`` after each entry."""
        while self._queue and records > 0:
            entry = self._queue.popleft()
            records -= entry.end_offset - entry.base_offset
            self._apply(entry)
            on_applied()

    def _apply(self, entry: Entry) -> None:
        pending = self._pending_of(entry)
        if entry.kind is EntryKind.DATA:
            records = entry_to_records(entry) if pending is None else pending.records
            where = (entry.base_offset, entry.last_offset, entry.term)
            self._machine.apply(CommittedBatch(*where, records))
        elif entry.voters is not None:
            self.voters = entry.voters
        self.applied_end = entry.end_offset
        self.applied_term = entry.term
        self.bytes_since_snapshot += entry.size_bytes
        if pending is not None and not pending.committed.done():
            pending.committed.set_result(None)

    # --- proposals ---------------------------------------------------------------------

    def expect(self, pending: PendingProposal) -> None:
        self._pending.append(pending)

    def _pending_of(self, entry: Entry) -> PendingProposal | None:
        if not self._pending or self._pending[0].base_offset != entry.base_offset:
            return None
        # Whatever is still expected was proposed in the present term, or is known to be
        # committed: another entry at its place would be Raft's first.
        return self._pending.popleft()

    def give_up(self, make_error: Callable[[], Exception]) -> None:
        """Fail every proposal that is not known to be committed; it may yet be."""
        while self._pending and self._pending[-1].base_offset >= self.queued_end:
            future = self._pending.pop().committed
            if not future.done():
                future.set_exception(make_error())
                future.exception()  # a caller that has gone away need not look
