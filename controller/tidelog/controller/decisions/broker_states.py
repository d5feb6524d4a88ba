"""Brokers between fenced, unfenced and gone: heartbeats, lost brokers, controlled shutdown.

A fenced broker is in no ISR, leads nothing and is not shown to clients. It is unfenced when it
asks for it and has seen its own registration in the metadata log. A broker that wants to stop is
first relieved of its leaderships; it may go when it leads nothing and every active broker has
seen that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from tidelog.controller.decisions.directories import changes_of_failed_directories
from tidelog.controller.decisions.outcome import NO_ERROR, ApiError, Decision, Draft
from tidelog.controller.decisions.partition_plan import ElectionContext, planned_change
from tidelog.controller.decisions.policy import ControllerPolicy
from tidelog.controller.metadata.brokers import BrokerRegistration
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.controller.metadata.records import (
    LEADERLESS,
    BrokerRegistrationChange,
    MetadataRecord,
    PartitionChange,
)
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import BrokerEpoch, DirectoryId, NodeId, Offset

MAX_REMOVALS_PER_DECISION: Final = 1000


@dataclass(frozen=True, slots=True)
class BrokerHeartbeat:
    broker_id: NodeId
    broker_epoch: BrokerEpoch
    metadata_offset: Offset
    """The last metadata record the broker has applied."""
    wants_fence: bool = False
    wants_shut_down: bool = False
    offline_log_dirs: tuple[DirectoryId, ...] = ()


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    error: ApiError
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False


def stale_broker_epoch(image: MetadataImage, broker: NodeId, epoch: BrokerEpoch) -> ApiError | None:
    """An error unless exactly this incarnation of the broker is registered (hazard 6)."""
    known = image.brokers.get(broker)
    if known is not None and known.epoch == epoch:
        return None
    current = "it is not registered" if known is None else f"its current epoch is {known.epoch}"
    message = f"Broker {broker} spoke with epoch {epoch}, but {current}"
    return ApiError(ErrorCode.STALE_BROKER_EPOCH, message)


def decide_heartbeat(
    image: MetadataImage,
    policy: ControllerPolicy,
    heartbeat: BrokerHeartbeat,
    *,
    lowest_active_offset: Offset | None,
) -> Decision[HeartbeatAnswer]:
    """``lowest_active_offset`` is the smallest metadata offset any active broker reported;
    None if no broker is active."""
    stale = stale_broker_epoch(image, heartbeat.broker_id, heartbeat.broker_epoch)
    if stale is not None:
        return Decision((), HeartbeatAnswer(stale))
    draft = Draft(image)
    draft.add(
        changes_of_failed_directories(
            image, policy, heartbeat.broker_id, heartbeat.offline_log_dirs
        )
    )
    shut_down = _next_state(draft, policy, heartbeat, lowest_active_offset)
    broker = draft.image.brokers[heartbeat.broker_id]
    answer = HeartbeatAnswer(
        error=NO_ERROR,
        is_caught_up=heartbeat.metadata_offset >= broker.epoch,
        is_fenced=broker.fenced,
        should_shut_down=shut_down,
    )
    return Decision(tuple(draft.records), answer)


def _next_state(
    draft: Draft, policy: ControllerPolicy, heartbeat: BrokerHeartbeat, lowest: Offset | None
) -> bool:
    """Adds the records of a change of state; returns whether the broker should stop now."""
    image = draft.image
    broker = image.brokers[heartbeat.broker_id]
    if heartbeat.wants_shut_down:
        if _may_stop(image, broker, lowest):
            draft.add(_fence(image, policy, broker))
            return True
        if not broker.in_controlled_shutdown:
            draft.add(_begin_controlled_shutdown(image, policy, broker))
        return False
    if broker.in_controlled_shutdown:
        return False
    if heartbeat.wants_fence:
        draft.add(_fence(image, policy, broker))
    elif broker.fenced and heartbeat.metadata_offset >= broker.epoch:
        draft.add(_unfence(image, policy, broker))
    return False


def _may_stop(image: MetadataImage, broker: BrokerRegistration, lowest: Offset | None) -> bool:
    if image.topics.leads_any(broker.broker_id):
        return False
    if not broker.in_controlled_shutdown or lowest is None:
        return True
    return broker.controlled_shutdown_at <= lowest


@dataclass(frozen=True, slots=True)
class FencingAnswer:
    error: ApiError
    is_complete: bool = True
    """Whether the broker is fenced; if not, the same decision is to be taken again."""


def decide_fencing(
    image: MetadataImage,
    policy: ControllerPolicy,
    broker: NodeId,
    epoch: BrokerEpoch,
    limit: int = MAX_REMOVALS_PER_DECISION,
) -> Decision[FencingAnswer]:
    """A broker was lost: take it out of every ISR and elect new leaders.

    A broker with very many partitions is fenced in several decisions, so that none of them holds
    up the controller; the record that fences it is the last one of all.
    """
    stale = stale_broker_epoch(image, broker, epoch)
    if stale is not None:
        return Decision((), FencingAnswer(stale))
    if image.brokers[broker].fenced:
        return Decision((), FencingAnswer(NO_ERROR))
    removals = tuple(islice(_removals(image, policy, broker), limit))
    if len(removals) == limit:
        return Decision(removals, FencingAnswer(NO_ERROR, is_complete=False))
    fence = BrokerRegistrationChange(broker, epoch, fenced=True)
    return Decision((*removals, fence), FencingAnswer(NO_ERROR))


def _fence(
    image: MetadataImage, policy: ControllerPolicy, broker: BrokerRegistration
) -> Iterable[MetadataRecord]:
    if broker.fenced:
        return
    yield from _removals(image, policy, broker.broker_id)
    yield BrokerRegistrationChange(broker.broker_id, broker.epoch, fenced=True)


def _begin_controlled_shutdown(
    image: MetadataImage, policy: ControllerPolicy, broker: BrokerRegistration
) -> Iterable[MetadataRecord]:
    yield BrokerRegistrationChange(broker.broker_id, broker.epoch, in_controlled_shutdown=True)
    yield from _removals(image, policy, broker.broker_id)


def _removals(
    image: MetadataImage, policy: ControllerPolicy, broker: NodeId
) -> Iterable[PartitionChange]:
    context = ElectionContext(image, policy, leaving=frozenset({broker}))
    for ref in image.topics.in_sync_on(broker):
        change = planned_change(context.plan(ref).without((broker,)))
        if change is not None:
            yield change


def _unfence(
    image: MetadataImage, policy: ControllerPolicy, broker: BrokerRegistration
) -> Iterable[MetadataRecord]:
    yield BrokerRegistrationChange(broker.broker_id, broker.epoch, fenced=False)
    context = ElectionContext(image, policy, returning=frozenset({broker.broker_id}))
    for ref in _may_profit_from(image, broker.broker_id):
        change = planned_change(context.plan(ref))
        if change is not None:
            yield change


def _may_profit_from(image: MetadataImage, broker: NodeId) -> list[PartitionRef]:
    """Leaderless partitions that have a replica on this broker."""
    held = image.topics.indexes.holding.get(broker, ())
    return [ref for ref in image.topics.led_by(LEADERLESS) if ref in held]
