"""The disk of one quorum member in memory: what survives, and what was written but not synced.

Writes wait in a queue until the network lets them complete. A crash keeps any prefix of the
unsynced log writes and any of the unsynced state writes, as a real disk may: they are two files.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tidelog.controller.raft.effects import (
    AppendEntries,
    DiskWrite,
    InstallSnapshot,
    PersistState,
    WriteSnapshotChunk,
)
from tidelog.controller.raft.model import (
    Entry,
    PersistentState,
    RestoredLog,
    SnapshotId,
    Voters,
)
from tidelog.kernel.ids import Offset


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    snapshot: SnapshotId
    voters: Voters
    data: bytes


@dataclass(slots=True)
class MemoryDisk:
    state: PersistentState = field(default_factory=PersistentState)
    snapshot: StoredSnapshot | None = None
    entries: list[Entry] = field(default_factory=list)
    pending: list[DiskWrite] = field(default_factory=list)
    part: bytearray = field(default_factory=bytearray)
    """The unfinished snapshot: a real file, but nobody relies on it after a crash."""
    installing: dict[SnapshotId, bytes] = field(default_factory=dict)

    @property
    def durable_end(self) -> Offset:
        end = self.snapshot.snapshot.end_offset if self.snapshot else Offset(0)
        return max(end, self.entries[-1].end_offset) if self.entries else end

    def holds(self, entry: Entry) -> bool:
        """Whether this entry survives a power loss here."""
        if self.snapshot and entry.end_offset <= self.snapshot.snapshot.end_offset:
            return True
        return entry in self.entries

    def write(self, effect: DiskWrite) -> None:
        self.pending.append(effect)
        match effect:
            case WriteSnapshotChunk(position=position, data=data):
                if position == 0:
                    self.part.clear()
                self.part[position:] = data
            case InstallSnapshot(snapshot=snapshot):
                self.installing[snapshot] = bytes(self.part)
            case _:
                pass

    def complete(self, write: int) -> None:
        while self.pending and self.pending[0].write <= write:
            self._apply(self.pending.pop(0))

    def crash(self, chance: random.Random) -> None:
        """Lose power: of what was not synced, some survives."""
        log_survives = True
        for effect in self.pending:
            if isinstance(effect, PersistState):
                if chance.random() < 0.5:
                    self._apply(effect)
            elif log_survives:
                log_survives = chance.random() < 0.5
                if log_survives:
                    self._apply(effect)
                elif isinstance(effect, AppendEntries) and chance.random() < 0.5:
                    torn = effect.entries[: chance.randrange(0, len(effect.entries) + 1)]
                    self._apply(AppendEntries(effect.write, effect.truncate_to, torn))
        self.pending.clear()
        self.part.clear()
        self.installing.clear()

    def forget_below(self, snapshot: SnapshotId) -> None:
        self.entries = [e for e in self.entries if e.base_offset >= snapshot.end_offset]

    def restored(self) -> RestoredLog:
        if self.snapshot is None:
            return RestoredLog(entries=tuple(self.entries))
        return RestoredLog(self.snapshot.snapshot, self.snapshot.voters, tuple(self.entries))

    def _apply(self, effect: DiskWrite) -> None:
        match effect:
            case PersistState(state=state):
                self.state = state
            case AppendEntries(truncate_to=truncate_to, entries=entries):
                if truncate_to is not None:
                    self.entries = [e for e in self.entries if e.end_offset <= truncate_to]
                self.entries.extend(entries)
            case InstallSnapshot(snapshot=snapshot, voters=voters):
                data = self.installing[snapshot]
                self.snapshot = StoredSnapshot(snapshot, voters, data)
                self.entries.clear()
            case WriteSnapshotChunk():
                pass
