"""What a node wants done. The shell carries effects out in the order of the list.

The disk is one more peer: every write has a number, the shell performs writes in that order and
answers with ``Persisted(write)`` when a write *and all before it* are on stable storage. Messages
that promise something about the disk are held back inside the machine until then; whatever is in
the list may be sent at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from tidelog.controller.raft.messages import Envelope, SnapshotChunk
from tidelog.controller.raft.model import Entry, PersistentState, SnapshotId, Term, Voters
from tidelog.controller.raft.roles import Role
from tidelog.kernel.ids import NodeId, Offset

# --- to the disk ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PersistState:
    write: int
    state: PersistentState


@dataclass(frozen=True, slots=True)
class AppendEntries:
    """Cut the log to ``truncate_to`` if given, then append."""

    write: int
    truncate_to: Offset | None
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class WriteSnapshotChunk:
    """Put the bytes into the unfinished file of this snapshot; ``position`` 0 begins it anew."""

    write: int
    snapshot: SnapshotId
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """Sync and name the finished file, replace the whole log and the state machine by it."""

    write: int
    snapshot: SnapshotId
    voters: Voters


@dataclass(frozen=True, slots=True)
class MoveLogStart:
    """What lies below the snapshot may be deleted."""

    snapshot: SnapshotId


# --- to the peers --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    envelope: Envelope


@dataclass(frozen=True, slots=True)
class SendSnapshotChunk:
    """Read up to ``max_bytes`` of the snapshot at ``chunk.position`` and send them."""

    envelope: Envelope
    chunk: SnapshotChunk
    max_bytes: int

    def filled(self, data: bytes, total_bytes: int) -> Envelope:
        chunk = replace(self.chunk, data=data, total_bytes=total_bytes)
        return replace(self.envelope, body=chunk)


# --- to the state machine and the clients --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Committed:
    """The high watermark: everything below this end is decided and may be applied."""

    end_offset: Offset


class RejectReason(Enum):
    NOT_LEADER = "not-leader"
    TRANSFERRING = "transferring"
    TOO_LARGE = "too-large"
    OVERLOADED = "overloaded"
    NOT_ESTABLISHED = "not-established"
    CHANGE_IN_PROGRESS = "change-in-progress"
    ALREADY_VOTER = "already-voter"
    NODE_ALREADY_VOTES = "node-already-votes"
    NOT_A_VOTER = "not-a-voter"
    UNKNOWN_LEARNER = "unknown-learner"
    LAST_VOTER = "last-voter"
    CATCH_UP_TIMED_OUT = "catch-up-timed-out"
    TRANSFER_TIMED_OUT = "transfer-timed-out"


@dataclass(frozen=True, slots=True)
class ProposalAccepted:
    """In the leader's log, not yet committed: answer when ``Committed`` reaches ``last_offset``."""

    proposal_id: int
    base_offset: Offset
    last_offset: Offset
    term: Term


@dataclass(frozen=True, slots=True)
class ProposalRejected:
    proposal_id: int
    reason: RejectReason
    leader_id: NodeId | None


@dataclass(frozen=True, slots=True)
class BecameLeader:
    """Elected. Not yet active: see ``LeadershipEstablished``."""

    term: Term
    epoch_start: Offset


@dataclass(frozen=True, slots=True)
class LeadershipEstablished:
    """The start of this term is committed, so all earlier decisions are known: be active."""

    term: Term
    epoch_start: Offset


@dataclass(frozen=True, slots=True)
class LeadershipLost:
    """Fail what is pending with NOT_CONTROLLER; it may still commit under another leader."""

    term: Term
    reason: str


@dataclass(frozen=True, slots=True)
class RoleChanged:
    term: Term
    old: Role
    new: Role


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    term: Term
    leader_id: NodeId | None


@dataclass(frozen=True, slots=True)
class VotersChanged:
    """The voters in force, which take effect when appended and may be rolled back."""

    voters: Voters


@dataclass(frozen=True, slots=True)
class MembershipChanged:
    """The change that was asked for is committed."""

    request_id: int
    voters: Voters


@dataclass(frozen=True, slots=True)
class LeadershipHandedOver:
    """The successor was told to stand, and this node leads no more."""

    request_id: int


@dataclass(frozen=True, slots=True)
class RequestRejected:
    """The answer to a membership change or a transfer that will not happen."""

    request_id: int
    reason: RejectReason
    leader_id: NodeId | None


# --- to the operator -----------------------------------------------------------------------------


class IgnoreReason(Enum):
    """Why a message had no effect; the shell counts and logs these."""

    FOREIGN_CLUSTER = "foreign-cluster"
    NOT_FOR_US = "not-for-us"
    FROM_OURSELVES = "from-ourselves"
    BAD_FIELD = "bad-field"
    TOO_LARGE = "too-large"
    STALE_TERM = "stale-term"
    NOT_EXPECTED = "not-expected"
    UNKNOWN_REPLICA = "unknown-replica"
    TOO_MANY_OBSERVERS = "too-many-observers"
    VOTER_LIST_DIFFERS = "voter-list-differs"
    ACKNOWLEDGED_TOO_MUCH = "acknowledged-too-much"
    BAD_SNAPSHOT = "bad-snapshot"


@dataclass(frozen=True, slots=True)
class Ignored:
    reason: IgnoreReason
    detail: str


DiskWrite: TypeAlias = PersistState | AppendEntries | WriteSnapshotChunk | InstallSnapshot

Effect: TypeAlias = (
    DiskWrite
    | MoveLogStart
    | Send
    | SendSnapshotChunk
    | Committed
    | ProposalAccepted
    | ProposalRejected
    | BecameLeader
    | LeadershipEstablished
    | LeadershipLost
    | RoleChanged
    | LeaderChanged
    | VotersChanged
    | MembershipChanged
    | LeadershipHandedOver
    | RequestRejected
    | Ignored
)
