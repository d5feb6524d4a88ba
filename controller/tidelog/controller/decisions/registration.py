"""Brokers register, and are taken off the list.

A registration is one incarnation of a broker: a process from its start to its end. Registering is
idempotent by incarnation id (hazard 12): a broker that did not get the answer asks again and gets
the same epoch. The epoch is the offset of the registration record, so a newer incarnation always
has a larger one, and whoever still acts for the older one is recognised (hazard 6).

What a restart costs (DESIGN 2.2): a new incarnation is treated like a broker that was fenced. It
also loses its eligibility for a partition if it may have lost data there: its directory is gone,
its recovery found damage, the log itself is missing, or the topic trusts the page cache and the
stop was not clean.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from tidelog.controller.decisions.outcome import NO_ERROR, ApiError, Decision, Draft, Refused
from tidelog.controller.decisions.partition_plan import (
    ElectionContext,
    PartitionPlan,
    planned_change,
)
from tidelog.controller.decisions.policy import ControllerPolicy, elr_enabled, trusts_page_cache
from tidelog.controller.metadata.brokers import BrokerRegistration
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import UNASSIGNED, PartitionRef
from tidelog.controller.metadata.records import (
    Endpoint,
    FeatureRange,
    PartitionChange,
    RegisterBroker,
    SuspectReplica,
    UnregisterBroker,
)
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    NO_LEADER_EPOCH,
    BrokerEpoch,
    DirectoryId,
    IncarnationId,
    LeaderEpoch,
    NodeId,
    Offset,
)

NO_BROKER_EPOCH = BrokerEpoch(-1)


class RecoveryVerdict(Enum):
    """What recovery found in a log that was not closed cleanly."""

    TORN_TAIL = "an unfinished write was cut off above everything that was flushed"
    SUSPECT = "bytes were cut off that may have been acknowledged"


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """A replica that recovery did not find clean."""

    partition: PartitionRef
    last_epoch: LeaderEpoch
    end: Offset
    verdict: RecoveryVerdict


@dataclass(frozen=True, slots=True)
class RegistrationRequest:
    broker_id: NodeId
    cluster_id: str
    incarnation_id: IncarnationId
    log_dirs: tuple[DirectoryId, ...]
    endpoints: tuple[Endpoint, ...] = ()
    features: tuple[FeatureRange, ...] = ()
    rack: str | None = None
    peer_endpoint: Endpoint | None = None
    previous_broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
    """The epoch of the incarnation that was last shut down cleanly."""
    reports: tuple[RecoveryReport, ...] = ()
    held: frozenset[PartitionRef] | None = None
    """Every replica the broker has a log of; None if it does not say."""


@dataclass(frozen=True, slots=True)
class RegistrationAnswer:
    error: ApiError
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH


def decide_registration(
    image: MetadataImage,
    policy: ControllerPolicy,
    request: RegistrationRequest,
    *,
    next_offset: Offset,
    has_session: bool,
) -> Decision[RegistrationAnswer]:
    """``next_offset`` is where the first record of this decision will stand in the log;
    ``has_session`` says whether the registered incarnation is still heard of."""
    known = image.brokers.get(request.broker_id)
    try:
        _check(image, policy, request)
        if known is not None and known.incarnation_id == request.incarnation_id:
            return _register_again(known, request)
        _check_no_other_incarnation(known, has_session)
    except Refused as refused:
        return Decision((), RegistrationAnswer(refused.error))
    changes = _changes_of_restart(image, policy, request, known)
    epoch = BrokerEpoch(next_offset + len(changes))
    register = RegisterBroker(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        endpoints=request.endpoints,
        features=request.features,
        rack=request.rack,
        log_dirs=request.log_dirs,
        peer_endpoint=request.peer_endpoint,
    )
    return Decision((*changes, register), RegistrationAnswer(NO_ERROR, epoch))


def _register_again(
    known: BrokerRegistration, request: RegistrationRequest
) -> Decision[RegistrationAnswer]:
    """The same incarnation keeps its epoch and its state; only its particulars may change."""
    updated = dataclasses.replace(
        known,
        endpoints=request.endpoints,
        features=request.features,
        rack=request.rack,
        peer_endpoint=request.peer_endpoint,
    )
    records = () if updated == known else (updated.record(),)
    return Decision(records, RegistrationAnswer(NO_ERROR, known.epoch))


def _check(image: MetadataImage, policy: ControllerPolicy, request: RegistrationRequest) -> None:
    if request.cluster_id != policy.cluster_id:
        raise Refused(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster id {policy.cluster_id}, but got {request.cluster_id}",
        )
    _check_directories(image, request)
    ranges = {feature.name: feature for feature in request.features}
    for name, level in sorted(image.features.items()):
        offered = ranges.get(name)
        low, high = (offered.min_level, offered.max_level) if offered else (0, 0)
        if not low <= level <= high:
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level}"
                f" of {name}. The broker supports levels {low} to {high}.",
            )


def _check_directories(image: MetadataImage, request: RegistrationRequest) -> None:
    dirs = request.log_dirs
    if not dirs:
        raise Refused(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
    if len(set(dirs)) != len(dirs):
        raise Refused(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ids in request")
    if UNASSIGNED in dirs:
        raise Refused(ErrorCode.INVALID_REGISTRATION, "Reserved directory id in request")
    for broker_id in sorted(image.brokers):
        shared = set(dirs) & set(image.brokers[broker_id].log_dirs)
        if shared and broker_id != request.broker_id:
            raise Refused(
                ErrorCode.INVALID_REGISTRATION,
                f"Broker {broker_id} is already registered with directory {min(shared)}",
            )


def _check_no_other_incarnation(known: BrokerRegistration | None, has_session: bool) -> None:
    if known is not None and has_session and not known.in_controlled_shutdown:
        raise Refused(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker is registered with id {known.broker_id} and incarnation"
            f" {known.incarnation_id}, and it is alive; every node needs a node.id of its own",
        )


def _changes_of_restart(
    image: MetadataImage,
    policy: ControllerPolicy,
    request: RegistrationRequest,
    known: BrokerRegistration | None,
) -> list[PartitionChange]:
    broker = request.broker_id
    context = ElectionContext(image, policy, leaving=frozenset({broker}))
    suspects = _suspects(request, image.topics.counting_on(broker))
    was_clean = known is not None and known.epoch == request.previous_broker_epoch
    changes = []
    for ref in image.topics.counting_on(broker):
        plan = context.plan(ref).without((broker,))
        if _may_have_lost(image, policy, request, plan, was_clean=was_clean, known=known):
            plan = plan.distrusting((broker,))
        elif ref in suspects:
            others = (suspect for suspect in plan.suspects if suspect.broker != broker)
            plan = dataclasses.replace(plan, suspects=(*others, suspects[ref]))
        change = planned_change(plan)
        if change is not None:
            changes.append(change)
    return changes


def _suspects(
    request: RegistrationRequest, counted: Iterable[PartitionRef]
) -> dict[PartitionRef, SuspectReplica]:
    """A log that is not there at all is one that was cut to nothing."""
    broker, held = request.broker_id, request.held
    missing = () if held is None else (ref for ref in counted if ref not in held)
    found = {ref: SuspectReplica(broker, NO_LEADER_EPOCH, Offset(0)) for ref in missing}
    for report in request.reports:
        if report.verdict is RecoveryVerdict.SUSPECT:
            found[report.partition] = SuspectReplica(broker, report.last_epoch, report.end)
    return found


def _may_have_lost(
    image: MetadataImage,
    policy: ControllerPolicy,
    request: RegistrationRequest,
    plan: PartitionPlan,
    *,
    was_clean: bool,
    known: BrokerRegistration | None,
) -> bool:
    directory = plan.state.directory_of(request.broker_id)
    if directory == UNASSIGNED:
        # It may have been on any of them, so none may be missing.
        earlier = known.log_dirs if known is not None else ()
        if not set(earlier) <= set(request.log_dirs):
            return True
    elif directory not in request.log_dirs:
        return True
    if was_clean or not elr_enabled(image):
        return False
    return trusts_page_cache(image, policy, image.topics.by_id[plan.ref.topic_id].name)


def decide_unregistration(
    image: MetadataImage, policy: ControllerPolicy, broker: NodeId
) -> Decision[ApiError]:
    """Takes a broker off the list for good, as an administrator asked."""
    known = image.brokers.get(broker)
    if known is None:
        message = f"Broker ID {broker} is not currently registered"
        return Decision((), ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, message))
    draft = Draft(image)
    context = ElectionContext(image, policy, leaving=frozenset({broker}))
    for ref in image.topics.in_sync_on(broker):
        change = planned_change(context.plan(ref).without((broker,)))
        draft.add([change] if change is not None else [])
    draft.add([UnregisterBroker(broker, known.epoch)])
    return Decision(tuple(draft.records), NO_ERROR)
