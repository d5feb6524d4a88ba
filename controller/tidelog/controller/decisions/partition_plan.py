"""One partition's next state: who is in sync, who is eligible, who leads.

Every change of a partition goes through `planned_change`, whoever asks for it: a broker that was
lost or came back, a leader that reports its ISR, an administrator. The order of the steps is
KIP-966's and the reassignment's of KIP-455:

1. a reassignment whose targets are all in sync is completed;
2. suspect replicas leave as soon as a sound one is there to take over (hazard 41);
3. the eligible replicas (ELR) follow from the ISR: whoever leaves an ISR that falls below
   min.insync.replicas stays eligible, because the high watermark stands still from then on;
4. a leader is elected: the current one if it is valid, else the first valid one in the order of
   the assignment, else the best of the suspects if nothing but suspects is left, else the last
   known leader, else (where unclean elections are allowed) any live replica.

Invariant: a leader outside ISR ∪ ELR is only ever the result of steps "last known" and
"unclean", and those set the leader recovery state to RECOVERING.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from tidelog.controller.decisions.policy import (
    ControllerPolicy,
    elr_enabled,
    min_insync_replicas,
    unclean_election_allowed,
)
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef, PartitionState
from tidelog.controller.metadata.records import (
    LEADERLESS,
    LeaderRecovery,
    NodeIds,
    PartitionChange,
    SuspectReplica,
)
from tidelog.kernel.ids import DirectoryId, NodeId


class Election(Enum):
    """Which replicas may win."""

    ONLINE = "the first valid replica, but no change without need"
    PREFERRED = "the first replica of the assignment, if it is valid"
    UNCLEAN = "if nobody is valid, any live replica"


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """A partition, and what is to become of it."""

    ref: PartitionRef
    state: PartitionState
    may_lead: Callable[[NodeId], bool]
    """Whether a broker is alive and has its replica's directory."""
    min_isr: int
    keeps_elr: bool
    election: Election
    isr: NodeIds
    replicas: NodeIds
    removing: NodeIds
    adding: NodeIds
    recovery: LeaderRecovery
    suspects: tuple[SuspectReplica, ...]
    lossy: frozenset[NodeId] = frozenset()
    """Replicas that may have lost data and must leave both ISR and ELR."""
    emptied: frozenset[NodeId] = frozenset()
    """Replicas that have certainly lost everything; they are not even a last known leader."""
    directories: tuple[DirectoryId, ...] | None = None
    """Where ``replicas`` are, one for each, if that is about to change."""

    def without(self, brokers: Iterable[NodeId]) -> PartitionPlan:
        """The same with these brokers out of the ISR (they may stay eligible)."""
        gone = frozenset(brokers)
        return dataclasses.replace(self, isr=tuple(b for b in self.isr if b not in gone))

    def distrusting(self, brokers: Iterable[NodeId]) -> PartitionPlan:
        """The same with these brokers out of ISR and ELR."""
        gone = frozenset(brokers)
        return dataclasses.replace(self.without(gone), lossy=self.lossy | gone)


@dataclass(frozen=True, slots=True)
class ElectionContext:
    """Where plans come from: the image, and what is about to change in it."""

    image: MetadataImage
    policy: ControllerPolicy
    leaving: frozenset[NodeId] = field(default_factory=frozenset)
    returning: frozenset[NodeId] = field(default_factory=frozenset)
    """Brokers to be treated as active, because this decision makes them so."""

    def plan(self, ref: PartitionRef) -> PartitionPlan:
        """A plan that keeps everything, except that a leader is elected if there is none."""
        topic = self.image.topics.by_id[ref.topic_id]
        return self.plan_for(ref, topic.partitions[ref.partition])

    def plan_for(self, ref: PartitionRef, state: PartitionState) -> PartitionPlan:
        name = self.image.topics.by_id[ref.topic_id].name
        unclean = unclean_election_allowed(self.image, self.policy, name)
        return PartitionPlan(
            ref=ref,
            state=state,
            may_lead=lambda broker: self.may_lead(broker, state),
            min_isr=min_insync_replicas(self.image, self.policy, name),
            keeps_elr=elr_enabled(self.image),
            election=Election.UNCLEAN if unclean else Election.ONLINE,
            isr=state.isr,
            replicas=state.replicas,
            removing=state.removing,
            adding=state.adding,
            recovery=state.leader_recovery,
            suspects=state.suspects,
        )

    def may_lead(self, broker: NodeId, state: PartitionState) -> bool:
        registration = self.image.brokers.get(broker)
        if registration is None or broker in self.leaving or broker in state.restarts_empty:
            return False
        is_active = broker in self.returning or registration.is_active
        return is_active and registration.has_online(state.directory_of(broker))


@dataclass(frozen=True, slots=True)
class _Elected:
    leader: NodeId
    is_clean: bool = True


def planned_change(plan: PartitionPlan) -> PartitionChange | None:
    """The record that carries a plan out; None if it changes nothing."""
    plan = _drop_suspects(_complete_reassignment(plan))
    elr = _target_elr(plan, plan.isr)
    elected = _elect(plan, elr)
    isr, recovery = plan.isr, plan.recovery
    if not elected.is_clean:
        isr, elr, recovery = (elected.leader,), (), LeaderRecovery.RECOVERING
    elif elected.leader != LEADERLESS and elected.leader not in isr:
        isr = (elected.leader,)
        elr = _target_elr(plan, isr)
    if not isr and not plan.keeps_elr:
        # Without ELR the ISR keeps its last members, so that one of them can lead again.
        isr = tuple(b for b in plan.state.isr if b in plan.replicas and b not in plan.lossy)
    return _difference(plan, elected, isr, elr, recovery)


def _complete_reassignment(plan: PartitionPlan) -> PartitionPlan:
    if not plan.adding and not plan.removing:
        return plan
    replicas = tuple(broker for broker in plan.replicas if broker not in plan.removing)
    if not replicas or not set(replicas) <= set(plan.isr):
        return plan
    isr = tuple(broker for broker in plan.isr if broker in replicas)
    directories = plan.directories
    if directories is not None:
        known = dict(zip(plan.replicas, directories, strict=True))
        directories = tuple(known[broker] for broker in replicas)
    return dataclasses.replace(
        plan, replicas=replicas, isr=isr, adding=(), removing=(), directories=directories
    )


def _drop_suspects(plan: PartitionPlan) -> PartitionPlan:
    if not plan.suspects:
        return plan
    suspects = {suspect.broker for suspect in plan.suspects}
    if any(broker not in suspects and plan.may_lead(broker) for broker in _counting(plan)):
        return plan.distrusting(suspects)
    return plan


def _counting(plan: PartitionPlan) -> list[NodeId]:
    """Who may hold everything acknowledged: the ISR, and who is or becomes eligible."""
    members = {*plan.isr}
    if plan.keeps_elr:
        members |= {*plan.state.isr, *plan.state.elr}
    return [b for b in plan.replicas if b in members and b not in plan.lossy]


def _target_elr(plan: PartitionPlan, isr: NodeIds) -> NodeIds:
    if not plan.keeps_elr or len(isr) >= min(plan.min_isr, len(plan.replicas)):
        return ()
    candidates = {*plan.state.elr, *plan.state.isr} - {*isr} - plan.lossy
    return tuple(sorted(candidates & {*plan.replicas}))


def _elect(plan: PartitionPlan, elr: NodeIds) -> _Elected:
    suspects = {suspect.broker for suspect in plan.suspects}

    def is_valid(broker: NodeId) -> bool:
        counts = broker in plan.isr or (not plan.isr and broker in elr)
        return counts and broker not in suspects and plan.may_lead(broker)

    first_choice = plan.state.leader
    if plan.election is Election.PREFERRED and is_valid(plan.replicas[0]):
        first_choice = plan.replicas[0]
    for broker in (first_choice, *plan.replicas):
        if is_valid(broker) and broker in plan.replicas:
            return _Elected(broker)
    return _elect_without_certainty(plan, elr)


def _elect_without_certainty(plan: PartitionPlan, elr: NodeIds) -> _Elected:
    best = _best_suspect(plan, elr)
    if best is not None and plan.may_lead(best):
        return _Elected(best, is_clean=False)
    if _can_elect_last_known(plan, elr):
        return _Elected(plan.state.last_known_elr[0], is_clean=False)
    if plan.election is Election.UNCLEAN:
        for broker in plan.replicas:
            if plan.may_lead(broker):
                return _Elected(broker, is_clean=False)
    return _Elected(LEADERLESS)


def _best_suspect(plan: PartitionPlan, elr: NodeIds) -> NodeId | None:
    """Once all who count have reported damage, the longest history wins (DESIGN 2.2)."""
    reports = {suspect.broker: suspect for suspect in plan.suspects}
    members = [broker for broker in plan.replicas if broker in plan.isr or broker in elr]
    if not members or any(broker not in reports for broker in members):
        return None
    return max(members, key=lambda broker: (reports[broker].last_epoch, reports[broker].end))


def _can_elect_last_known(plan: PartitionPlan, elr: NodeIds) -> bool:
    if not plan.keeps_elr or plan.isr or elr or len(plan.state.last_known_elr) != 1:
        return False
    last_known = plan.state.last_known_elr[0]
    return (
        last_known in plan.replicas and last_known not in plan.emptied and plan.may_lead(last_known)
    )


def _difference(
    plan: PartitionPlan, elected: _Elected, isr: NodeIds, elr: NodeIds, recovery: LeaderRecovery
) -> PartitionChange | None:
    state = plan.state
    leader = elected.leader if elected.leader != state.leader else None
    if leader is None and any(broker not in plan.replicas for broker in state.replicas):
        # KIP-455: a leader of this epoch could still count the removed replica's fetches.
        leader = state.leader
    counting = {*isr, *elr} if elected.is_clean else set()
    suspects = tuple(suspect for suspect in plan.suspects if suspect.broker in counting)
    change = PartitionChange(
        topic_id=plan.ref.topic_id,
        partition=plan.ref.partition,
        isr=_new(isr, state.isr),
        leader=leader,
        replicas=_new(plan.replicas, state.replicas),
        removing=_new(plan.removing, state.removing),
        adding=_new(plan.adding, state.adding),
        leader_recovery=None if recovery == state.leader_recovery else recovery.value,
        elr=_new(elr, state.elr),
        last_known_elr=_new(_last_known(plan, isr, elected.leader), state.last_known_elr),
        directories=plan.directories if plan.directories != state.directories else None,
        suspects=suspects if suspects != state.suspects else None,
    )
    nothing = PartitionChange(plan.ref.topic_id, plan.ref.partition)
    return change if change != nothing else None


def _new(target: NodeIds, current: NodeIds) -> NodeIds | None:
    return target if target != current else None


def _last_known(plan: PartitionPlan, isr: NodeIds, leader: NodeId) -> NodeIds:
    state = plan.state
    if leader != LEADERLESS or not plan.keeps_elr:
        return ()
    if not isr and state.has_leader:
        return () if state.leader in plan.emptied else (state.leader,)
    return tuple(broker for broker in state.last_known_elr if broker not in plan.emptied)
