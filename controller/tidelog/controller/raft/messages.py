"""What controllers say to each other.

Any message may be lost, doubled, late or out of order. Each carries the sender's term and the
offsets that make it safe to judge by itself. It is addressed to a node *and its directory*, so
that a node that lost its disk never answers in the name of the voter it was; only ``Hello``, which
finds out what the directory is, goes to a bare node id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidelog.controller.raft.model import Entry, ReplicaKey, SnapshotId, Term, Voters
from tidelog.kernel.ids import DirectoryId, NodeId, Offset


@dataclass(frozen=True, slots=True)
class Hello:
    """Sent by a node that has no leader and may not stand: who are you, and am I new here?

    The answers found the very first quorum. A leader takes the sender on as an observer.
    """

    is_log_empty: bool
    is_founder: bool
    configured_voters: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class HelloBack:
    """The answer. It names the asker's directory in its address: one that was given to an earlier
    directory of the same node proves nothing to the present one."""

    is_log_empty: bool
    is_founder: bool
    configured_voters: tuple[NodeId, ...]
    leader_id: NodeId | None


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """RequestVote of the paper; the position is the end of the candidate's log.

    In a pre-vote the envelope's term is the present one and the term asked for is the next.
    """

    last_term: Term
    end_offset: Offset
    is_pre_vote: bool
    is_leadership_transfer: bool = False


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """``leader_id`` tells a candidate that was refused whom the voter follows."""

    is_granted: bool
    is_pre_vote: bool
    asked_in_term: Term
    leader_id: NodeId | None = None


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """AppendEntries of the paper: ``entries`` follow ``prev_end``; none in a heartbeat.

    An announcement has none either and tells only how far is committed; it is answered if it does
    not fit, and otherwise not, for the answer would tell the leader what it knows.
    """

    prev_end: Offset
    prev_term: Term
    entries: tuple[Entry, ...]
    commit: Offset
    is_announcement: bool = False


@dataclass(frozen=True, slots=True)
class AppendAccepted:
    """``match_end`` is what agrees with the leader *and* is on stable storage."""

    match_end: Offset


@dataclass(frozen=True, slots=True)
class AppendRejected:
    """Nothing fits at ``prev_end``. The conflicting term and where it begins let the leader skip
    a whole term per round trip (Raft paper, end of section 5.3); no term: the log is too short,
    and ``conflict_start`` is its end."""

    prev_end: Offset
    conflict_term: Term | None
    conflict_start: Offset


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """InstallSnapshot of the paper, a piece at a time. ``voters`` are those in force at its end."""

    snapshot: SnapshotId
    voters: Voters
    position: int
    total_bytes: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SnapshotAck:
    """``position`` is where the follower wants the next chunk to begin; once ``is_installed`` the
    snapshot is on disk and in force."""

    snapshot: SnapshotId
    position: int
    is_installed: bool


@dataclass(frozen=True, slots=True)
class TimeoutNow:
    """Leadership transfer: stand for election now. Sent only to a follower with the whole log."""


Body: TypeAlias = (
    Hello
    | HelloBack
    | VoteRequest
    | VoteResponse
    | AppendRequest
    | AppendAccepted
    | AppendRejected
    | SnapshotChunk
    | SnapshotAck
    | TimeoutNow
)


@dataclass(frozen=True, slots=True)
class Envelope:
    cluster_id: str
    source: ReplicaKey
    target_id: NodeId
    target_directory: DirectoryId | None
    term: Term
    body: Body
