"""What can happen to a node. The shell makes each of these into one ``step``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidelog.controller.raft.messages import Envelope
from tidelog.controller.raft.model import ReplicaKey, SnapshotId
from tidelog.kernel.ids import NodeId


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed. A tick that comes later than ``due_ms`` moves all deadlines by its lateness."""

    due_ms: float


@dataclass(frozen=True, slots=True)
class MessageReceived:
    envelope: Envelope


@dataclass(frozen=True, slots=True)
class Persisted:
    """The disk has everything up to and including this write for good."""

    write: int


@dataclass(frozen=True, slots=True)
class PeerStreamReset:
    """The stream with this node broke; if it is the leader, its process has probably died."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class Proposed:
    """The state machine wants a batch of ``record_count`` records in the log."""

    proposal_id: int
    data: bytes
    record_count: int = 1


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """The state machine's snapshot up to here is on disk; the log below it is not needed."""

    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class SnapshotChunkFailed:
    """The shell could not read the snapshot it was asked to send."""

    target: ReplicaKey
    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class TransferRequested:
    """Hand leadership to this node; ``None`` leaves the choice to the leader."""

    request_id: int
    target: NodeId | None = None


@dataclass(frozen=True, slots=True)
class AddVoterRequested:
    request_id: int
    voter: ReplicaKey


@dataclass(frozen=True, slots=True)
class RemoveVoterRequested:
    request_id: int
    voter: ReplicaKey


@dataclass(frozen=True, slots=True)
class ResignRequested:
    """The node is about to stop: leave leadership now and wake the best successor."""


Event: TypeAlias = (
    Tick
    | MessageReceived
    | Persisted
    | PeerStreamReset
    | Proposed
    | SnapshotTaken
    | SnapshotChunkFailed
    | TransferRequested
    | AddVoterRequested
    | RemoveVoterRequested
    | ResignRequested
)
