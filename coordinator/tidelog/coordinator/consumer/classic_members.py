"""Members that still speak the classic protocol, in a group that was upgraded.

They get their assignment from the coordinator as all others do, wrapped into the answers they know:

- *JoinGroup* is their heartbeat with everything in it: the subscription, and in it what they own.
  The answer has their epoch as the generation. Nobody is told to be the leader, so nobody assigns.
- *SyncGroup* hands out what is assigned.
- *Heartbeat* says REBALANCE_IN_PROGRESS where a member has to join again: for a new epoch of the
  group, to give something up, or because what it waits for has become free.

A member that is told to join again, and one that joined and has to sync, has its rebalance time-out
for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelog.coordinator.classic import events as e
from tidelog.coordinator.classic.history import CauseKind
from tidelog.coordinator.consumer.assigning import assign_if_due
from tidelog.coordinator.consumer.core import ConsumerCore, Timer, TimerKind
from tidelog.coordinator.consumer.events import see_all
from tidelog.coordinator.consumer.heartbeat import (
    Seat,
    check_room,
    step_towards_target,
    subscription,
    succeed,
    take_seat,
)
from tidelog.coordinator.consumer.leaving import check_identity
from tidelog.coordinator.consumer.members import NEW, Member, MemberState, Owned
from tidelog.coordinator.consumer_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerMember,
)
from tidelog.coordinator.record_fields import MalformedRecord
from tidelog.coordinator.subscriptions import (
    CONSUMER,
    Assignment,
    Subscription,
    decode_subscription,
    encode_assignment,
)
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import PartitionIndex, TopicPartition, Uuid


@dataclass(frozen=True, slots=True)
class Joining:
    """A join that may go ahead."""

    seat: Seat
    metadata: ConsumerMember
    owned: Owned


# --- JoinGroup -------------------------------------------------------------------------------


def prepare_join(core: ConsumerCore, event: e.JoinGroup) -> Joining | e.JoinResult:
    """The checks; changes nothing."""
    member_id = event.member_id or f"{event.instance_id or event.client_id}-{event.fresh_id}"
    full = check_room(core, member_id)
    if full is not None:
        return e.JoinResult(full[0], e.UNKNOWN_MEMBER)
    said = _subscription_of(event)
    if said is None or not supports(core, event):
        return e.JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, event.member_id)
    if not event.member_id and event.instance_id is None and event.needs_member_id:
        return e.JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    seat = _find_seat(core, event, member_id)
    if isinstance(seat, ErrorCode):
        return e.JoinResult(seat, event.member_id)
    return Joining(seat, _metadata(event, said), _owned(core, said))


def _subscription_of(event: e.JoinGroup) -> Subscription | None:
    """All protocols carry the same subscription; None if it cannot be read."""
    if event.protocol_type != CONSUMER or not event.protocols:
        return None
    try:
        return decode_subscription(event.protocols[0].metadata)
    except MalformedRecord:
        return None


def supports(core: ConsumerCore, event: e.JoinGroup) -> bool:
    """Whether there is a protocol that all classic members know: they may be alone one day."""
    names = {protocol.name for protocol in event.protocols}
    for member in core.members.values():
        classic = member.metadata.classic
        if classic is not None and member.member_id != event.member_id:
            names &= {protocol.name for protocol in classic.protocols}
    return bool(names)


def _find_seat(core: ConsumerCore, event: e.JoinGroup, member_id: str) -> Seat | ErrorCode:
    if event.instance_id is None:
        return Seat(core.members.get(member_id) or Member(member_id, NEW))
    holder = core.statics.get(event.instance_id)
    if event.member_id:
        error = check_identity(core, event.member_id, event.instance_id)
        return Seat(core.members[event.member_id]) if error is None else error[0]
    if holder is None:
        return Seat(Member(member_id, NEW))
    # As in the classic protocol a static member that comes back without its id takes its place.
    old = core.members[holder]
    return Seat(succeed(old, member_id), old)


def _metadata(event: e.JoinGroup, said: Subscription) -> ConsumerMember:
    protocols = tuple(ClassicProtocol(each.name, each.metadata) for each in event.protocols)
    return ConsumerMember(
        event.instance_id,
        said.rack,
        event.client_id,
        event.client_host,
        tuple(sorted(set(said.topics))),
        "",
        event.rebalance_timeout_ms,
        None,
        ClassicMemberMetadata(event.session_timeout_ms, protocols),
    )


def _owned(core: ConsumerCore, said: Subscription) -> Owned:
    found: dict[Uuid, set[int]] = {}
    for each in said.owned:
        info = core.topics.named(each.topic)
        if info is not None:
            found.setdefault(info.topic_id, set()).add(each.partition)
    return {topic: frozenset(indexes) for topic, indexes in found.items()}


def join(core: ConsumerCore, event: e.JoinGroup, joining: Joining) -> None:
    before = joining.seat.member
    member = take_seat(core, joining.seat, joining.metadata, see_all)
    assign_if_due(core)
    changed = subscription(before.metadata) != subscription(joining.metadata)
    member = step_towards_target(core, member, joining.owned, changed)
    if not before.is_classic and before.metadata != NEW:
        core.lost_members = True  # one less that speaks the consumer protocol
    core.cancel(Timer(TimerKind.JOIN, member.member_id))
    core.arm_rebalance(member)
    core.arm_session(member)
    core.arm(Timer(TimerKind.SYNC, member.member_id), event.rebalance_timeout_ms)
    core.answer(e.Respond(event.request_id, join_result(member)))


def join_result(member: Member) -> e.JoinResult:
    return e.JoinResult(
        ErrorCode.NONE, member.member_id, member.epoch, CONSUMER, _first_protocol(member)
    )


def _first_protocol(member: Member) -> str:
    assert member.metadata.classic is not None, "asked for members of the classic protocol only"
    return member.metadata.classic.protocols[0].name


# --- SyncGroup and Heartbeat -----------------------------------------------------------------


def sync(core: ConsumerCore, event: e.SyncGroup) -> None:
    error = _check_sender(core, event.member_id, event.instance_id, event.generation)
    if error is ErrorCode.NONE and _differs(core.members[event.member_id], event):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if error is ErrorCode.NONE and _has_to_catch_up(core, core.members[event.member_id]):
        _expect_join(core, core.members[event.member_id])
        error = ErrorCode.REBALANCE_IN_PROGRESS
    if error is not ErrorCode.NONE:
        core.refuse(e.Respond(event.request_id, e.SyncResult(error)))
        return
    member = core.members[event.member_id]
    core.cancel(Timer(TimerKind.SYNC, member.member_id))
    core.arm_session(member)
    result = e.SyncResult(
        ErrorCode.NONE, CONSUMER, _first_protocol(member), assignment_bytes(core, member)
    )
    core.answer(e.Respond(event.request_id, result))


def _differs(member: Member, event: e.SyncGroup) -> bool:
    other_type = event.protocol_type is not None and event.protocol_type != CONSUMER
    return other_type or (event.protocol is not None and event.protocol != _first_protocol(member))


def _has_to_catch_up(core: ConsumerCore, member: Member) -> bool:
    """One that is giving something up joins again anyway when it is done."""
    return core.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS


def assignment_bytes(core: ConsumerCore, member: Member) -> bytes:
    """What is assigned, as classic consumers read it; topics that are gone are left out."""
    partitions = []
    for topic_id in member.assigned:
        info = core.topics.with_id(topic_id)
        if info is not None:
            indexes = map(PartitionIndex, sorted(member.assigned[topic_id]))
            partitions += [TopicPartition(info.name, index) for index in indexes]
    return encode_assignment(Assignment(tuple(sorted(partitions))))


def heartbeat(core: ConsumerCore, event: e.Heartbeat) -> None:
    error = _check_sender(core, event.member_id, event.instance_id, event.generation)
    if error is not ErrorCode.NONE:
        core.refuse(e.Respond(event.request_id, e.HeartbeatResult(error)))
        return
    member = core.members[event.member_id]
    core.arm_session(member)
    if _has_to_join(core, member):
        _expect_join(core, member)
        error = ErrorCode.REBALANCE_IN_PROGRESS
    core.answer(e.Respond(event.request_id, e.HeartbeatResult(error)))


def _has_to_join(core: ConsumerCore, member: Member) -> bool:
    if member.epoch < core.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    incomplete = member.state is MemberState.UNRELEASED_PARTITIONS
    return incomplete and not core.waits_for_others(member)


def _expect_join(core: ConsumerCore, member: Member) -> None:
    timer = Timer(TimerKind.JOIN, member.member_id)
    if timer not in core.timers:
        core.arm(timer, member.metadata.rebalance_timeout_ms)


def _check_sender(
    core: ConsumerCore, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    error = check_identity(core, member_id, instance_id)
    if error is not None:
        return error[0]
    member = core.members[member_id]
    if not member.is_classic:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if generation == member.epoch else ErrorCode.ILLEGAL_GENERATION


# --- LeaveGroup ------------------------------------------------------------------------------


def check_leavers(
    core: ConsumerCore, leavers: Iterable[e.Leaver]
) -> tuple[tuple[e.LeftMember, ...], Sequence[tuple[str, CauseKind]]]:
    """The answer for each, and who really goes."""
    left = []
    gone: dict[str, CauseKind] = {}
    for leaver in leavers:
        member_id, kind = leaver.member_id, CauseKind.LEFT
        by_admin = member_id == e.UNKNOWN_MEMBER and leaver.instance_id is not None
        if by_admin:
            member_id = core.statics.get(leaver.instance_id or "", e.UNKNOWN_MEMBER)
            kind = CauseKind.REMOVED_BY_ADMIN
        error = check_identity(core, member_id, leaver.instance_id)
        code = ErrorCode.NONE if error is None else error[0]
        twice = member_id in gone
        if code is ErrorCode.NONE and (
            twice or not (by_admin or core.members[member_id].is_classic)
        ):
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if code is ErrorCode.NONE:
            gone[member_id] = kind
        left.append(e.LeftMember(leaver.member_id, leaver.instance_id, code))
    return tuple(left), list(gone.items())
