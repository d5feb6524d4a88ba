"""Log directories that fail, and replicas that move between directories.

A directory that was reported failed may have lost what was acknowledged (a failed fsync leaves
pages that look clean), so its replicas leave ISR and ELR at once and are fetched again (hazard
44). The broker lives on with the directories it has left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.controller.decisions.outcome import NO_ERROR, ApiError, Decision, Draft
from tidelog.controller.decisions.partition_plan import ElectionContext, planned_change
from tidelog.controller.decisions.policy import ControllerPolicy
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import UNASSIGNED, PartitionRef, PartitionState
from tidelog.controller.metadata.records import BrokerRegistrationChange, MetadataRecord
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import BrokerEpoch, DirectoryId, NodeId


def changes_of_failed_directories(
    image: MetadataImage,
    policy: ControllerPolicy,
    broker: NodeId,
    failed: Iterable[DirectoryId],
) -> Iterable[MetadataRecord]:
    """The records that follow from a broker's report; none if all of it is known."""
    registration = image.brokers[broker]
    newly_failed = {*failed} & {*registration.log_dirs}
    if not newly_failed:
        return
    left = tuple(d for d in registration.log_dirs if d not in newly_failed)
    lost = newly_failed if left else newly_failed | {UNASSIGNED}
    context = ElectionContext(image, policy)
    for ref in image.topics.counting_on(broker):
        plan = context.plan(ref)
        if plan.state.directory_of(broker) in lost:
            leaving = ElectionContext(image, policy, leaving=frozenset({broker})).plan(ref)
            change = planned_change(leaving.distrusting((broker,)))
            if change is not None:
                yield change
    yield BrokerRegistrationChange(broker, registration.epoch, log_dirs=left)


@dataclass(frozen=True, slots=True)
class DirectoryAssignment:
    """A replica of the asking broker is, from now on, in this directory."""

    partition: PartitionRef
    directory: DirectoryId


@dataclass(frozen=True, slots=True)
class AssignmentAnswer:
    error: ApiError
    partitions: tuple[tuple[PartitionRef, ApiError], ...] = ()


def decide_directory_assignments(
    image: MetadataImage,
    policy: ControllerPolicy,
    broker: NodeId,
    epoch: BrokerEpoch,
    assignments: Iterable[DirectoryAssignment],
) -> Decision[AssignmentAnswer]:
    """Notes where a broker keeps its replicas, and elects leaders where that was in the way."""
    registration = image.brokers.get(broker)
    if registration is None or registration.epoch != epoch:
        stale = ApiError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker} is not of epoch {epoch}")
        return Decision((), AssignmentAnswer(stale))
    draft, results = Draft(image), []
    for assignment in assignments:
        error = _assign(draft, policy, broker, assignment)
        results.append((assignment.partition, error))
    return Decision(tuple(draft.records), AssignmentAnswer(NO_ERROR, tuple(results)))


def _assign(
    draft: Draft, policy: ControllerPolicy, broker: NodeId, assignment: DirectoryAssignment
) -> ApiError:
    ref, directory = assignment.partition, assignment.directory
    if ref.topic_id not in draft.image.topics.by_id:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with id {ref.topic_id}")
    state = draft.image.topics.partition(ref)
    if state is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {ref}")
    if broker not in state.replicas:
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Broker {broker} is no replica of {ref}")
    old = state.directory_of(broker)
    if old == directory:
        return NO_ERROR
    plan = ElectionContext(draft.image, policy).plan_for(ref, _relocated(state, broker, directory))
    plan = dataclasses.replace(plan, state=state, directories=plan.state.directories)
    online = draft.image.brokers[broker].log_dirs
    if old not in (UNASSIGNED, *online) or directory not in online:
        # Its old directory is gone, so what is in the new one has been started from nothing.
        plan = dataclasses.replace(plan.distrusting((broker,)), emptied=frozenset({broker}))
    change = planned_change(plan)
    draft.add([change] if change is not None else [])
    return NO_ERROR


def _relocated(state: PartitionState, broker: NodeId, directory: DirectoryId) -> PartitionState:
    directories = tuple(
        directory if replica == broker else old
        for replica, old in zip(state.replicas, state.directories, strict=True)
    )
    return dataclasses.replace(state, directories=directories)
