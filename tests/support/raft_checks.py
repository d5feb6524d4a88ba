"""What must hold after every event of a quorum (Raft paper, figure 3), judged from outside.

The checks know only effects and disks, not how the machine came to them:

- election safety: at most one leader per term;
- log matching: an offset and a term name one entry with one predecessor;
- leader completeness: a leader holds everything that was committed in earlier terms;
- state machine safety: all nodes apply the same entries; nothing committed is cut;
- durability: what a leader commits is on the disks of a majority of its voters;
- promises: a vote, an acknowledgement or a candidacy is on disk before it is spoken of;
- a directory that replaced a lost one, after something was committed, does not vote while empty.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from raft_disk import MemoryDisk

from tidelog.controller.raft import RaftNode
from tidelog.controller.raft.messages import (
    AppendAccepted,
    Envelope,
    SnapshotAck,
    VoteRequest,
    VoteResponse,
)
from tidelog.controller.raft.model import Entry, ReplicaKey, Term, Voters
from tidelog.controller.raft.roles import Role
from tidelog.kernel.ids import Offset

START_DIGEST = b"\0" * 16


class Violation(AssertionError):
    """A property of Raft does not hold."""


def digest_after(before: bytes, entry: Entry) -> bytes:
    return hashlib.blake2b(before + repr(entry).encode(), digest_size=16).digest()


@dataclass(slots=True)
class Checks:
    leaders: dict[Term, ReplicaKey] = field(default_factory=dict)
    votes: dict[tuple[ReplicaKey, Term], ReplicaKey] = field(default_factory=dict)
    seen: dict[tuple[Offset, Term], tuple[Entry, Term]] = field(default_factory=dict)
    chain: list[Entry] = field(default_factory=list)
    committed_in: list[Term] = field(default_factory=list)
    index_at: dict[Offset, int] = field(default_factory=dict)
    digests: dict[Offset, bytes] = field(default_factory=lambda: {Offset(0): START_DIGEST})
    replacements: set[ReplicaKey] = field(default_factory=set)

    @property
    def committed_end(self) -> Offset:
        return self.chain[-1].end_offset if self.chain else Offset(0)

    @property
    def committed_voters(self) -> Voters | None:
        return next((e.voters for e in reversed(self.chain) if e.voters is not None), None)

    def became_leader(self, key: ReplicaKey, term: Term, node: RaftNode) -> None:
        if self.leaders.setdefault(term, key) != key:
            raise Violation(f"term {term} has two leaders: {self.leaders[term]} and {key}")
        status = node.status
        mine = {e.base_offset: e for e in node.entries_between(status.log_start, status.log_end)}
        for entry, committed_in in zip(self.chain, self.committed_in, strict=True):
            if committed_in >= term or entry.base_offset < status.log_start:
                continue
            if mine.get(entry.base_offset) != entry:
                raise Violation(f"leader {key} of term {term} lacks committed {entry}")

    def appended(self, entries: tuple[Entry, ...], term_before: Term) -> None:
        for entry in entries:
            known = self.seen.setdefault((entry.base_offset, entry.term), (entry, term_before))
            if known != (entry, term_before):
                raise Violation(f"{entry} after term {term_before}, but elsewhere {known}")
            term_before = entry.term

    def truncated(self, key: ReplicaKey, to: Offset, applied_end: Offset) -> None:
        if to < applied_end:
            raise Violation(f"{key} cuts its log to {to} but has applied up to {applied_end}")

    def applied(self, key: ReplicaKey, entry: Entry, term: Term) -> None:
        index = self.index_at.get(entry.base_offset)
        if index is None:
            if entry.base_offset != self.committed_end:
                raise Violation(f"{key} applies {entry}; {self.committed_end} is next")
            self.index_at[entry.base_offset] = len(self.chain)
            self.digests[entry.end_offset] = digest_after(self.digests[entry.base_offset], entry)
            self.chain.append(entry)
            self.committed_in.append(term)
        elif self.chain[index] != entry:
            raise Violation(f"{key} applies {entry}, others {self.chain[index]}")

    def installed(self, key: ReplicaKey, end: Offset, digest: bytes) -> None:
        if self.digests.get(end) != digest:
            raise Violation(f"{key} installs a snapshot up to {end} that nobody could have taken")

    def committed(
        self, key: ReplicaKey, node: RaftNode, disks: Mapping[ReplicaKey, MemoryDisk]
    ) -> None:
        status = node.status
        if status.role is not Role.LEADER or status.high_watermark <= status.log_start:
            return
        before = Offset(status.high_watermark - 1)
        last = next(e for e in reversed(self.chain) if e.last_offset == before)
        holders = [voter for voter in status.voters if voter in disks and disks[voter].holds(last)]
        if len(holders) < status.voters.majority:
            raise Violation(f"{key} commits {last}, which is on disk at {holders} only")
        if last.term != status.term:
            raise Violation(f"{key} commits {last} of an earlier term by counting")

    def sent(self, key: ReplicaKey, envelope: Envelope, disk: MemoryDisk) -> None:
        match envelope.body:
            case VoteResponse(is_granted=True, is_pre_vote=False, asked_in_term=term):
                self._voted(key, term, envelope, disk)
            case VoteRequest(is_pre_vote=False):
                self._promised(key, envelope, disk)
            case AppendAccepted(match_end=end):
                self._promised(key, envelope, disk)
                if end > disk.durable_end:
                    raise Violation(f"{key} acknowledges {end}, {disk.durable_end} is on disk")
            case SnapshotAck(snapshot=snapshot, is_installed=True):
                if snapshot.end_offset > disk.durable_end:
                    raise Violation(f"{key} confirms {snapshot} before it is on disk")
            case _:
                pass

    def _voted(self, key: ReplicaKey, term: Term, envelope: Envelope, disk: MemoryDisk) -> None:
        chosen = next(
            k for k in (disk.state.voted_for, None) if k is None or k.node_id == envelope.target_id
        )
        if disk.state.term == term and chosen is None:
            raise Violation(f"{key} sends a vote of term {term} that is not on disk")
        if disk.state.term < term:
            raise Violation(f"{key} votes in term {term}, its disk knows {disk.state.term}")
        candidate = ReplicaKey(envelope.target_id, envelope.target_directory or key.directory_id)
        if self.votes.setdefault((key, term), candidate) != candidate:
            raise Violation(f"{key} votes twice in term {term}")
        if key in self.replacements and disk.durable_end == 0:
            raise Violation(f"{key} replaced a lost directory and votes with an empty log")

    def _promised(self, key: ReplicaKey, envelope: Envelope, disk: MemoryDisk) -> None:
        if max(disk.state.term, disk.entries[-1].term if disk.entries else 0) < envelope.term:
            raise Violation(f"{key} speaks in term {envelope.term} before that is on disk")
