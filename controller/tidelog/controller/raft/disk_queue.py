"""The disk seen as a peer: numbered writes out, ``Persisted`` back, promises held until then.

Writes complete in the order of their numbers. A message that promises something about the disk is
kept here with the number of the write it depends on. Numbers, not offsets, come back from the disk:
an old confirmation of offset 9 must not count for another entry that was written there since.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

from tidelog.controller.raft.errors import BrokenInvariant
from tidelog.controller.raft.messages import Envelope
from tidelog.controller.raft.model import Term
from tidelog.kernel.ids import Offset


@dataclass(frozen=True, slots=True)
class OwnVote:
    """The node's vote for itself, which counts when it is on disk like any other."""

    term: Term


Promise: TypeAlias = Envelope | OwnVote


class DiskQueue:
    """``durable_end`` is the end of the log that survives a power loss."""

    def __init__(self, durable_end: Offset) -> None:
        self.durable_end = durable_end
        self.state_write = 0
        self.last_write = 0
        self._durable_write = 0
        self._log_ends: deque[tuple[int, Offset]] = deque()
        self._withheld: deque[tuple[int, Promise]] = deque()

    def number_write(self) -> int:
        self.last_write += 1
        return self.last_write

    def number_state_write(self) -> int:
        self.state_write = self.number_write()
        return self.state_write

    def number_log_write(self, end: Offset) -> int:
        """The log will end there once this write is durable."""
        write = self.number_write()
        self._log_ends.append((write, end))
        return write

    def cut(self, end: Offset) -> None:
        """The log is being cut: what lies above no longer counts, written or not."""
        self.durable_end = min(self.durable_end, end)
        self._log_ends = deque((write, min(old, end)) for write, old in self._log_ends)

    def is_durable(self, write: int) -> bool:
        return write <= self._durable_write

    def withhold(self, write: int, promise: Promise) -> None:
        self._withheld.append((write, promise))

    def persisted(self, write: int) -> list[Promise]:
        """Note what the disk confirmed, and return the promises that may now be given."""
        if write > self.last_write:
            raise BrokenInvariant(f"the disk confirms write {write} of {self.last_write}")
        self._durable_write = max(self._durable_write, write)
        while self._log_ends and self._log_ends[0][0] <= self._durable_write:
            self.durable_end = self._log_ends.popleft()[1]
        kept = [promise for promise in self._withheld if not self.is_durable(promise[0])]
        released = [promise for after, promise in self._withheld if self.is_durable(after)]
        self._withheld = deque(kept)
        return released
