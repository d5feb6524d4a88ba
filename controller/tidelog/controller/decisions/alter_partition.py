"""What a leader reports about its partitions: a new ISR, or that it has recovered.

A report is an opinion formed at one moment. It counts only if nothing it was based on has changed
since: the leader's own registration, its leadership, the partition's epoch, and the registration
of every broker it wants in the ISR. The last one is KIP-903 (hazard 6): a follower that was
caught up, then lost its disk and registered again, is another incarnation with another epoch, and
a report about its predecessor must not let it in. Every member must therefore carry the broker
epoch the leader saw in its fetches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.controller.decisions.broker_states import stale_broker_epoch
from tidelog.controller.decisions.outcome import NO_ERROR, ApiError, Decision, Refused
from tidelog.controller.decisions.partition_plan import ElectionContext, planned_change
from tidelog.controller.decisions.policy import ControllerPolicy
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef, PartitionState, changed
from tidelog.controller.metadata.records import LeaderRecovery, PartitionChange
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch


@dataclass(frozen=True, slots=True)
class IsrMember:
    broker: NodeId
    epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class PartitionReport:
    partition: PartitionRef
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[IsrMember, ...]
    recovery: LeaderRecovery = LeaderRecovery.RECOVERED


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """The partition as the controller now has it; None with an error."""

    partition: PartitionRef
    error: ApiError
    state: PartitionState | None = None


@dataclass(frozen=True, slots=True)
class AlterPartitionAnswer:
    error: ApiError
    partitions: tuple[PartitionVerdict, ...] = ()


def decide_alter_partition(
    image: MetadataImage,
    policy: ControllerPolicy,
    broker: NodeId,
    epoch: BrokerEpoch,
    reports: Iterable[PartitionReport],
) -> Decision[AlterPartitionAnswer]:
    stale = stale_broker_epoch(image, broker, epoch)
    if stale is not None:
        return Decision((), AlterPartitionAnswer(stale))
    context = ElectionContext(image, policy)
    records: list[PartitionChange] = []
    verdicts: list[PartitionVerdict] = []
    seen: set[PartitionRef] = set()
    for report in reports:
        try:
            if report.partition in seen:
                raise Refused(ErrorCode.INVALID_REQUEST, f"{report.partition} is listed twice")
            seen.add(report.partition)
            verdicts.append(_judge(context, broker, report, records))
        except Refused as refused:
            verdicts.append(PartitionVerdict(report.partition, refused.error))
    return Decision(tuple(records), AlterPartitionAnswer(NO_ERROR, tuple(verdicts)))


def _judge(
    context: ElectionContext,
    broker: NodeId,
    report: PartitionReport,
    records: list[PartitionChange],
) -> PartitionVerdict:
    ref = report.partition
    state = _existing(context.image, ref)
    _check_epochs(broker, report, state)
    _check_isr(report, state)
    _check_members(context.image, report, state)
    isr = tuple(sorted(member.broker for member in report.isr))
    if set(isr) == set(state.isr):
        isr = state.isr
    plan = dataclasses.replace(context.plan(ref), isr=isr, recovery=report.recovery)
    change = planned_change(plan)
    if change is None:
        return PartitionVerdict(ref, NO_ERROR, state)
    records.append(change)
    if change.leader is not None and change.leader != broker:
        # Only the completion of a reassignment takes the leadership from a leader that reports.
        message = f"Broker {change.leader} leads {ref} now"
        return PartitionVerdict(ref, ApiError(ErrorCode.NEW_LEADER_ELECTED, message))
    return PartitionVerdict(ref, NO_ERROR, changed(state, change))


def _existing(image: MetadataImage, ref: PartitionRef) -> PartitionState:
    if ref.topic_id not in image.topics.by_id:
        # A recreated topic has another id, so a report about its predecessor ends here (hazard 9).
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with id {ref.topic_id}")
    state = image.topics.partition(ref)
    if state is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {ref}")
    return state


def _check_epochs(broker: NodeId, report: PartitionReport, state: PartitionState) -> None:
    ref, epoch, version = report.partition, report.leader_epoch, report.partition_epoch
    if epoch > state.leader_epoch or version > state.partition_epoch:
        # The leader knows a later state than this node: another controller must be active.
        raise Refused(
            ErrorCode.NOT_CONTROLLER,
            f"{ref}: leader epoch {epoch} and partition epoch {version} are ahead of"
            f" {state.leader_epoch} and {state.partition_epoch} here",
        )
    if epoch < state.leader_epoch:
        raise Refused(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"{ref}: leader epoch {epoch} is over, the current one is {state.leader_epoch}",
        )
    if broker != state.leader:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{ref} is led by {state.leader}, not by {broker}")
    if version < state.partition_epoch:
        raise Refused(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{ref}: partition epoch {version} is over, the current one is {state.partition_epoch}",
        )


def _check_isr(report: PartitionReport, state: PartitionState) -> None:
    isr, ref = [member.broker for member in report.isr], report.partition
    if len(set(isr)) != len(isr) or not set(isr) <= set(state.replicas):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"{ref}: ISR {isr} must be distinct members of the replicas {list(state.replicas)}",
        )
    if state.leader not in isr:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{ref}: ISR {isr} lacks its leader")
    if report.recovery is LeaderRecovery.RECOVERING:
        if len(isr) > 1:
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"{ref}: a recovering leader is alone in the ISR"
            )
        if state.leader_recovery is LeaderRecovery.RECOVERED:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{ref} has already recovered")


def _check_members(image: MetadataImage, report: PartitionReport, state: PartitionState) -> None:
    reasons = [
        f"{member.broker} ({reason})"
        for member in report.isr
        if (reason := _ineligible(image, member, state)) is not None
    ]
    if reasons:
        raise Refused(
            ErrorCode.INELIGIBLE_REPLICA,
            f"{report.partition}: not eligible for the ISR: {', '.join(reasons)}",
        )


def _ineligible(image: MetadataImage, member: IsrMember, state: PartitionState) -> str | None:
    known = image.brokers.get(member.broker)
    if known is None:
        return "not registered"
    if known.in_controlled_shutdown:
        return "shutting down"
    if known.fenced:
        return "fenced"
    if known.epoch != member.epoch:
        return f"broker epoch {member.epoch}, registered is {known.epoch}"
    if member.broker in state.restarts_empty:
        return "has to restart empty first"
    if not known.has_online(state.directory_of(member.broker)):
        return "its directory is offline"
    return None
