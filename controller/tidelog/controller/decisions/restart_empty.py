"""Replicas that were away for so long that they must start over (DESIGN 2.4).

A replica that is absent holds back the removal of tombstones on the others, since it would bring
deleted keys back. After `compaction.absent.replica.max.ms` the controller commits that it restarts
empty: from then on it does not count, and when it returns it discards its log, says so, and is
fetched anew. Until it has said so it is not admitted to the ISR.
"""

from __future__ import annotations

from tidelog.controller.decisions.broker_states import stale_broker_epoch
from tidelog.controller.decisions.outcome import NO_ERROR, ApiError, Decision
from tidelog.controller.decisions.partition_plan import ElectionContext, planned_change
from tidelog.controller.decisions.policy import ControllerPolicy
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.controller.metadata.records import ReplicaRestartsEmpty
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import BrokerEpoch, NodeId


def decide_restart_empty(
    image: MetadataImage, policy: ControllerPolicy, ref: PartitionRef, broker: NodeId
) -> Decision[ApiError]:
    """An absent replica stops counting; refused if its data may still be needed."""
    state = image.topics.partition(ref)
    if state is None or broker not in state.replicas:
        return _refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{broker} is no replica of {ref}")
    if broker in state.restarts_empty:
        return Decision((), NO_ERROR)
    registration = image.brokers.get(broker)
    if broker in state.isr or (registration is not None and not registration.fenced):
        return _refuse(ErrorCode.INVALID_REQUEST, f"The replica of {ref} on {broker} is not absent")
    if not state.isr:
        return _refuse(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"{ref} has nobody in sync, so the replica on {broker} may be the best there is",
        )
    record = ReplicaRestartsEmpty(ref.topic_id, ref.partition, broker)
    change = planned_change(ElectionContext(image, policy).plan(ref).distrusting((broker,)))
    return Decision((record,) if change is None else (record, change), NO_ERROR)


def decide_restarted_empty(
    image: MetadataImage, ref: PartitionRef, broker: NodeId, epoch: BrokerEpoch
) -> Decision[ApiError]:
    """The broker has discarded the log of its replica and fetches it anew."""
    stale = stale_broker_epoch(image, broker, epoch)
    if stale is not None:
        return Decision((), stale)
    state = image.topics.partition(ref)
    if state is None:
        return _refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {ref}")
    if broker not in state.restarts_empty:
        return Decision((), NO_ERROR)
    return Decision(
        (ReplicaRestartsEmpty(ref.topic_id, ref.partition, broker, emptied=True),), NO_ERROR
    )


def _refuse(code: ErrorCode, message: str) -> Decision[ApiError]:
    return Decision((), ApiError(code, message))
