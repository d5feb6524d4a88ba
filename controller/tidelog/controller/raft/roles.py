"""The roles of a node, the state that goes with each, and the table of legal transitions.

State that belongs to a role lives in that role's class, so that it cannot be read or kept by
mistake after the role has ended.

======================  ==========================================================================
``Unattached``          a voter that knows no leader of its term
``Follower``            a voter that follows the leader of its term
``PreCandidate``        asks whether it could win, without raising its term (thesis, section 9.6)
``Candidate``           raised its term, voted for itself, asks for votes
``Leader``              won; appends
``Resigned``            led this very term and gave up, or restarted; may not lead it again
``Learner``             has no vote, or does not know of one yet: observer, new or wiped node
======================  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Final, TypeAlias

from tidelog.controller.raft.errors import IllegalTransition
from tidelog.controller.raft.model import LOG_BEGIN, NO_TERM, ReplicaKey, SnapshotId, Term, Voters
from tidelog.controller.raft.progress import Progress
from tidelog.kernel.ids import DirectoryId, NodeId, Offset


class Role(Enum):
    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"
    LEARNER = "learner"


# A higher term always leads through UNATTACHED (or leaves a LEARNER one), so that a leader never
# turns into a follower in one move and nothing of its leadership is carried over.
TRANSITIONS: Final[Mapping[Role, tuple[Role, ...]]] = {
    Role.UNATTACHED: (Role.FOLLOWER, Role.PRE_CANDIDATE),
    Role.FOLLOWER: (Role.UNATTACHED, Role.PRE_CANDIDATE, Role.CANDIDATE, Role.LEARNER),
    Role.PRE_CANDIDATE: (Role.UNATTACHED, Role.FOLLOWER, Role.CANDIDATE),
    Role.CANDIDATE: (Role.UNATTACHED, Role.FOLLOWER, Role.PRE_CANDIDATE, Role.LEADER),
    Role.LEADER: (Role.UNATTACHED, Role.RESIGNED, Role.LEARNER),
    Role.RESIGNED: (Role.UNATTACHED, Role.PRE_CANDIDATE),
    Role.LEARNER: (Role.UNATTACHED, Role.FOLLOWER),
}


def check_transition(old: Role, new: Role) -> None:
    if new not in TRANSITIONS[old]:
        raise IllegalTransition(old.value, new.value)


@dataclass(slots=True)
class IncomingSnapshot:
    snapshot: SnapshotId
    voters: Voters
    position: int = 0


@dataclass(slots=True)
class Following:
    """What a follower or learner knows about its leader.

    ``verified_end`` is how far the log is known to agree with the leader's; at first that is the
    high watermark (leader completeness). ``acknowledged_end`` is what the leader was told.
    """

    leader: ReplicaKey
    lease_until_ms: float
    verified_end: Offset
    acknowledged_end: Offset = LOG_BEGIN
    leader_commit: Offset = LOG_BEGIN
    incoming: IncomingSnapshot | None = None


@dataclass(frozen=True, slots=True)
class EmptyReport:
    """A configured voter told this very directory that its log is empty."""

    directory_id: DirectoryId


@dataclass(slots=True)
class CatchingUp:
    """A learner is to become a voter and has to reach ``target_end`` first."""

    request_id: int
    voter: ReplicaKey
    target_end: Offset
    deadline_ms: float


@dataclass(slots=True)
class ChangeAppended:
    """A voters entry of this term waits to be committed; ``None``: nobody asked for it."""

    request_id: int | None
    end_offset: Offset


@dataclass(slots=True)
class Handover:
    """Leadership is being transferred; nothing new is accepted meanwhile."""

    request_id: int
    target: ReplicaKey
    deadline_ms: float
    is_told: bool = False


@dataclass(slots=True)
class Unattached:
    role: ClassVar[Role] = Role.UNATTACHED
    deadline_ms: float
    hello_due_ms: float = 0.0


@dataclass(slots=True)
class Follower:
    role: ClassVar[Role] = Role.FOLLOWER
    following: Following
    deadline_ms: float


@dataclass(slots=True)
class PreCandidate:
    role: ClassVar[Role] = Role.PRE_CANDIDATE
    deadline_ms: float
    granted: set[ReplicaKey]


@dataclass(slots=True)
class Candidate:
    role: ClassVar[Role] = Role.CANDIDATE
    deadline_ms: float
    granted: set[ReplicaKey] = field(default_factory=set)


@dataclass(slots=True)
class Leader:
    role: ClassVar[Role] = Role.LEADER
    term: Term
    epoch_start: Offset
    change_end: Offset
    """The end of this term's LEADER_CHANGE entry; once committed, leadership is established."""
    heartbeat_due_ms: float
    progress: dict[ReplicaKey, Progress] = field(default_factory=dict)
    is_established: bool = False
    change: CatchingUp | ChangeAppended | None = None
    handover: Handover | None = None


@dataclass(slots=True)
class Resigned:
    role: ClassVar[Role] = Role.RESIGNED
    deadline_ms: float


@dataclass(slots=True)
class Learner:
    role: ClassVar[Role] = Role.LEARNER
    following: Following | None
    hello_due_ms: float
    reports: dict[NodeId, EmptyReport] = field(default_factory=dict)
    reported_term: Term = NO_TERM
    leader_hint: NodeId | None = None


RoleState: TypeAlias = (
    Unattached | Follower | PreCandidate | Candidate | Leader | Resigned | Learner
)
