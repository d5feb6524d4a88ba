"""Moving replicas to other brokers (KIP-455).

A reassignment puts the new replicas beside the old ones (``adding``, ``removing``). It completes
by itself, in whatever change first finds all targets in sync; see ``partition_plan``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.controller.decisions.assignments import check_assignment
from tidelog.controller.decisions.outcome import NO_ERROR, ApiError, Decision, Draft, Refused
from tidelog.controller.decisions.partition_plan import (
    ElectionContext,
    PartitionPlan,
    planned_change,
)
from tidelog.controller.decisions.policy import ControllerPolicy, unclean_election_allowed
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef, PartitionState
from tidelog.controller.metadata.records import NodeIds
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import DirectoryId, TopicPartition


@dataclass(frozen=True, slots=True)
class ReassignmentRequest:
    partition: TopicPartition
    replicas: NodeIds | None
    """The replicas wanted; None cancels."""


@dataclass(frozen=True, slots=True)
class ReassignmentResult:
    partition: TopicPartition
    error: ApiError


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    partition: TopicPartition
    replicas: NodeIds
    adding: NodeIds
    removing: NodeIds


def decide_reassignments(
    image: MetadataImage,
    policy: ControllerPolicy,
    requests: Iterable[ReassignmentRequest],
    *,
    may_change_factor: bool = True,
) -> Decision[tuple[ReassignmentResult, ...]]:
    draft, results = Draft(image), []
    for request in requests:
        try:
            plan = _plan(draft.image, policy, request, may_change_factor)
            change = planned_change(plan)
            draft.add([change] if change is not None else [])
            results.append(ReassignmentResult(request.partition, NO_ERROR))
        except Refused as refused:
            results.append(ReassignmentResult(request.partition, refused.error))
    return Decision(tuple(draft.records), tuple(results))


def _plan(
    image: MetadataImage,
    policy: ControllerPolicy,
    request: ReassignmentRequest,
    may_change_factor: bool,
) -> PartitionPlan:
    name, index = request.partition.topic, request.partition.partition
    topic = image.topics.named(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    state = topic.partitions.get(index)
    if state is None:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}."
        )
    plan = ElectionContext(image, policy).plan(PartitionRef(topic.topic_id, index))
    if request.replicas is None:
        return _cancelled(plan, allows_unclean=unclean_election_allowed(image, policy, name))
    check_assignment(image, request.replicas)
    _check_factor(state, request.replicas, may_change_factor)
    return _towards(image, plan, request.replicas)


def _towards(image: MetadataImage, plan: PartitionPlan, target: NodeIds) -> PartitionPlan:
    """The plan with the target beside what it replaces.

    Replicas that an earlier, unfinished reassignment was adding and that are no longer wanted go
    at once, unless they are in sync by now.
    """
    state = plan.state
    original = [broker for broker in state.replicas if broker not in state.adding]
    kept = {*original, *state.isr}
    removing = tuple(sorted(b for b in state.replicas if b not in target and b in kept))
    replicas = (*target, *removing)
    return dataclasses.replace(
        plan,
        replicas=replicas,
        removing=removing,
        adding=tuple(sorted(b for b in target if b not in original)),
        directories=_directories(image, state, replicas),
    )


def _check_factor(state: PartitionState, target: NodeIds, may_change_factor: bool) -> None:
    factor = len(state.replicas) - len(state.adding)
    if not may_change_factor and len(target) != factor:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is {factor}, the request asks for {len(target)},"
            " and it does not allow a change.",
        )


def _directories(
    image: MetadataImage, state: PartitionState, replicas: NodeIds
) -> tuple[DirectoryId, ...] | None:
    if replicas == state.replicas:
        return None
    return tuple(
        state.directory_of(broker)
        if broker in state.replicas
        else image.brokers[broker].only_directory
        for broker in replicas
    )


def _cancelled(plan: PartitionPlan, *, allows_unclean: bool) -> PartitionPlan:
    state = plan.state
    if not state.is_reassigning:
        raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = tuple(broker for broker in state.replicas if broker not in state.adding)
    isr = tuple(broker for broker in state.isr if broker in replicas)
    eligible = isr or any(broker in replicas for broker in state.elr)
    if not eligible and not allows_unclean:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to cancel: none of the original replicas {list(replicas)} is in sync, and"
            " unclean leader election is not enabled.",
        )
    return dataclasses.replace(
        plan,
        replicas=replicas,
        isr=isr,
        removing=(),
        adding=(),
        directories=tuple(state.directory_of(broker) for broker in replicas),
    )


def ongoing_reassignments(
    image: MetadataImage, wanted: Iterable[TopicPartition] | None
) -> tuple[OngoingReassignment, ...]:
    """The reassignments under way, of the partitions wanted or of all; unknown ones are skipped."""
    found = []
    chosen = None if wanted is None else set(wanted)
    for ref in image.topics.indexes.reassigning:
        topic = image.topics.by_id[ref.topic_id]
        partition = TopicPartition(topic.name, ref.partition)
        if chosen is None or partition in chosen:
            state = topic.partitions[ref.partition]
            found.append(
                OngoingReassignment(partition, state.replicas, state.adding, state.removing)
            )
    return tuple(sorted(found, key=lambda one: one.partition))
