"""Raft for the metadata log: a pure machine, ``RaftNode``; its doc says what a shell owes it."""

from tidelog.controller.raft.errors import BrokenInvariant, IllegalTransition
from tidelog.controller.raft.node import QuorumStatus, RaftNode, ReplicaStatus

__all__ = ["BrokenInvariant", "IllegalTransition", "QuorumStatus", "RaftNode", "ReplicaStatus"]
