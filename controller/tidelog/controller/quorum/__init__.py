"""The metadata quorum: the Raft machine with a disk, peers and a state machine around it."""

from tidelog.controller.quorum.errors import RefusedToStart, RequestRefused
from tidelog.controller.quorum.interface import (
    CommittedBatch,
    MetadataQuorum,
    NotController,
    Proposal,
    QuorumOverloaded,
    QuorumStatus,
    ReplicaStatus,
    StateMachine,
)
from tidelog.controller.quorum.quorum import Quorum, QuorumPorts
from tidelog.controller.quorum.settings import QuorumSettings

__all__ = [
    "CommittedBatch",
    "MetadataQuorum",
    "NotController",
    "Proposal",
    "Quorum",
    "QuorumOverloaded",
    "QuorumPorts",
    "QuorumSettings",
    "QuorumStatus",
    "RefusedToStart",
    "ReplicaStatus",
    "RequestRefused",
    "StateMachine",
]
