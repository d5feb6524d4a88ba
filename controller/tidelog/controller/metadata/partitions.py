"""One partition as the controller knows it, and how a PartitionChange changes it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.controller.metadata.records import (
    LEADERLESS,
    LeaderRecovery,
    NodeIds,
    Partition,
    PartitionChange,
    ReplicaRestartsEmpty,
    SuspectReplica,
)
from tidelog.kernel.ids import (
    ZERO_UUID,
    DirectoryId,
    LeaderEpoch,
    NodeId,
    PartitionEpoch,
    PartitionIndex,
    TopicId,
)

UNASSIGNED: Final = DirectoryId(ZERO_UUID)
"""The directory of a replica whose broker has not said yet where it keeps it."""


class PartitionRef(NamedTuple):
    """A partition by the id of its topic: a recreated topic is another topic (hazard 9)."""

    topic_id: TopicId
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{self.topic_id}-{self.partition}"


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Who holds a partition, who counts, who leads.

    ``directories`` runs parallel to ``replicas``. ``isr`` are the replicas an acknowledgement
    under acks=all waits for. ``elr`` (KIP-966) left the ISR while it was below
    min.insync.replicas; the high watermark has not moved since, so they still hold everything
    acknowledged. ``last_known_elr`` is the leader of the moment the ISR ran empty. ``suspects``
    are members of ISR or ELR whose recovery found damage. ``restarts_empty`` must discard their
    log before they take part again; a broker can be in it after it left ``replicas``.
    """

    replicas: NodeIds
    isr: NodeIds
    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    directories: tuple[DirectoryId, ...]
    removing: NodeIds = ()
    adding: NodeIds = ()
    elr: NodeIds = ()
    last_known_elr: NodeIds = ()
    leader_recovery: LeaderRecovery = LeaderRecovery.RECOVERED
    suspects: tuple[SuspectReplica, ...] = ()
    restarts_empty: NodeIds = ()

    @property
    def has_leader(self) -> bool:
        return self.leader != LEADERLESS

    @property
    def has_preferred_leader(self) -> bool:
        return self.leader == self.replicas[0]

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    def directory_of(self, broker: NodeId) -> DirectoryId:
        """Where this broker keeps its replica; UNASSIGNED if it has none or did not say."""
        if broker not in self.replicas:
            return UNASSIGNED
        return self.directories[self.replicas.index(broker)]

    def is_suspect(self, broker: NodeId) -> bool:
        return any(suspect.broker == broker for suspect in self.suspects)


def state_of(record: Partition) -> PartitionState:
    """The state that a Partition record spells out."""
    return PartitionState(
        replicas=record.replicas,
        isr=record.isr,
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        directories=record.directories or (UNASSIGNED,) * len(record.replicas),
        removing=record.removing,
        adding=record.adding,
        elr=record.elr,
        last_known_elr=record.last_known_elr,
        leader_recovery=LeaderRecovery(record.leader_recovery),
        suspects=record.suspects,
        restarts_empty=record.restarts_empty,
    )


def record_of(ref: PartitionRef, state: PartitionState) -> Partition:
    """The record that gives this state again."""
    return Partition(
        topic_id=ref.topic_id,
        partition=ref.partition,
        replicas=state.replicas,
        isr=state.isr,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        directories=state.directories,
        removing=state.removing,
        adding=state.adding,
        elr=state.elr,
        last_known_elr=state.last_known_elr,
        leader_recovery=state.leader_recovery.value,
        suspects=state.suspects,
        restarts_empty=state.restarts_empty,
    )


def changed(state: PartitionState, change: PartitionChange) -> PartitionState:
    """The state after a change: partition epoch + 1, leader epoch + 1 iff a leader is given."""
    replicas = _or(change.replicas, state.replicas)
    bump = 0 if change.leader is None else 1
    recovery = change.leader_recovery
    return PartitionState(
        replicas=replicas,
        isr=_or(change.isr, state.isr),
        leader=state.leader if change.leader is None else change.leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + bump),
        partition_epoch=PartitionEpoch(state.partition_epoch + 1),
        directories=_directories(state, change, replicas),
        removing=_or(change.removing, state.removing),
        adding=_or(change.adding, state.adding),
        elr=_or(change.elr, state.elr),
        last_known_elr=_or(change.last_known_elr, state.last_known_elr),
        leader_recovery=state.leader_recovery if recovery is None else LeaderRecovery(recovery),
        suspects=state.suspects if change.suspects is None else change.suspects,
        restarts_empty=_restarts_empty(state, replicas),
    )


def _or(new: NodeIds | None, old: NodeIds) -> NodeIds:
    return old if new is None else new


def _directories(
    state: PartitionState, change: PartitionChange, replicas: NodeIds
) -> tuple[DirectoryId, ...]:
    if change.directories is not None:
        return change.directories
    if change.replicas is None:
        return state.directories
    return tuple(state.directory_of(broker) for broker in replicas)


def _restarts_empty(state: PartitionState, replicas: NodeIds) -> NodeIds:
    """A replica that leaves the assignment starts empty if it is ever added again.

    The cleaner stops waiting for it at this moment, so its log may lack tombstones that the
    others have already dropped (DESIGN 2.4).
    """
    if replicas == state.replicas:
        return state.restarts_empty
    left = [broker for broker in state.replicas if broker not in replicas]
    return tuple(sorted({*state.restarts_empty, *left}))


def restarting_empty(state: PartitionState, record: ReplicaRestartsEmpty) -> PartitionState:
    marked = set(state.restarts_empty) - {record.broker}
    if not record.emptied:
        marked.add(record.broker)
    return dataclasses.replace(state, restarts_empty=tuple(sorted(marked)))


def without_elr(state: PartitionState) -> PartitionState:
    """What ClearElr does to a partition (see there why an empty ISR is an exception)."""
    if not state.isr or not state.elr:
        return state
    suspects = tuple(suspect for suspect in state.suspects if suspect.broker in state.isr)
    return dataclasses.replace(state, elr=(), last_known_elr=(), suspects=suspects)
