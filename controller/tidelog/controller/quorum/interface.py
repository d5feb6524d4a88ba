"""What stands between the metadata quorum and the controller that it replicates.

The quorum decides an order of batches of metadata records; the controller is the state machine
that they drive. Both live on one event loop and call each other directly:

- the active controller *proposes*: it has replayed the records into its own image already and
  answers its caller when the future of the proposal is done;
- the quorum *applies* every committed batch exactly once and in order, on every member, the
  proposer included. A controller that has applied its own proposal ahead must recognise it.

A proposal whose future fails with ``NotController`` may still commit under another leader: only
a future that is done proves anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidelog.controller.metadata.records import MetadataRecord
from tidelog.controller.raft.model import ReplicaKey, SnapshotId, Term
from tidelog.kernel.ids import NodeId, Offset


class NotController(Exception):
    """This node does not lead the quorum, or ceased to before the proposal was committed."""

    def __init__(self, leader_id: NodeId | None, reason: str) -> None:
        super().__init__(reason)
        self.leader_id = leader_id


class QuorumOverloaded(Exception):
    """More is proposed than the quorum commits; the caller may try again later."""


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """Records in one batch are decided together: all or none."""

    base_offset: Offset
    last_offset: Offset
    term: Term
    records: tuple[MetadataRecord, ...]


@dataclass(frozen=True, slots=True)
class Proposal:
    """In the leader's log; ``committed`` is done when a majority has it on disk."""

    base_offset: Offset
    last_offset: Offset
    term: Term
    committed: asyncio.Future[None]


class StateMachine(Protocol):
    """The controller, as the quorum sees it. No call may block or raise."""

    def apply(self, batch: CommittedBatch) -> None: ...

    def load_snapshot(self, snapshot: SnapshotId, records: Iterable[MetadataRecord]) -> None:
        """Forget everything and start from this state."""
        ...

    def snapshot_records(self) -> Iterable[MetadataRecord]:
        """The state made by everything applied so far, as records (for a snapshot)."""
        ...

    def became_active(self, term: Term) -> None:
        """This node leads, and everything decided before its term has been applied."""
        ...

    def became_standby(self) -> None:
        """This node leads no more. Its uncommitted proposals' futures fail by themselves."""
        ...


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    replica: ReplicaKey
    is_voter: bool
    log_end_offset: Offset
    lag: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumStatus:
    """What DescribeQuorum tells; the replicas' rows are known to the leader only."""

    leader_id: NodeId | None
    term: Term
    high_watermark: Offset
    replicas: tuple[ReplicaStatus, ...]


class MetadataQuorum(Protocol):
    """One member of the quorum, as the controller sees it."""

    @property
    def leader_id(self) -> NodeId | None: ...

    @property
    def term(self) -> Term: ...

    @property
    def is_active(self) -> bool: ...

    @property
    def high_watermark(self) -> Offset: ...

    def propose(self, records: Sequence[MetadataRecord]) -> Proposal:
        """Append now; raises ``NotController`` or ``QuorumOverloaded`` and then did nothing."""
        ...

    def status(self) -> QuorumStatus: ...

    async def add_voter(self, voter: ReplicaKey) -> None: ...

    async def remove_voter(self, voter: ReplicaKey) -> None: ...

    async def transfer_leadership(self, target: NodeId | None) -> None: ...
