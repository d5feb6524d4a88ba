"""ConsumerGroupHeartbeat: who may join or stay, and how far the sender has come.

1. The member is created or updated; a changed subscription, or changed topics, is a new epoch of
   the group.
2. A new epoch gets a target assignment, when the last one is old enough.
3. The sender takes one step towards its target (``reconciling``).

An answer may be lost, or come when the client no longer waits for it, and not every client says
everything again after that (librdkafka gives a heartbeat up after one interval and sends the next
as if nothing had happened). So a member is told what it has until it says that it has just that:
otherwise it might never read a partition that it was given, or never give up one that it lost.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace

from tidelog.coordinator import consumer_records as r
from tidelog.coordinator.classic.history import CauseKind
from tidelog.coordinator.consumer.assigning import assign_if_due
from tidelog.coordinator.consumer.core import ConsumerCore, Timer, TimerKind
from tidelog.coordinator.consumer.events import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    RespondConsumer,
    refused,
)
from tidelog.coordinator.consumer.heartbeat_checks import Refusal
from tidelog.coordinator.consumer.leaving import check_identity, leave
from tidelog.coordinator.consumer.members import (
    AWAY,
    JOINING,
    LEAVING,
    NEW,
    Held,
    Member,
    MemberState,
    Owned,
    is_part_of,
    owned_from,
)
from tidelog.coordinator.consumer.reconciling import Target, reconcile
from tidelog.coordinator.consumer.subscribing import (
    bump_epoch,
    bump_if_topics_changed,
    check_regex,
    drop_unused_regexes,
    resolve_regexes,
    subscribed_ids,
)
from tidelog.coordinator.consumer_records import AssignedTopic, ConsumerMember
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Uuid


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of the sender: its own, a new one, or that of the member it replaces."""

    member: Member
    replaced: Member | None = None


def heartbeat(core: ConsumerCore, event: ConsumerHeartbeat) -> None:
    if event.member_epoch in (LEAVING, AWAY):
        leave(core, event)
        return
    owned = None if event.owned is None else owned_from(event.owned)
    seat = find_seat(core, event, owned)
    if not isinstance(seat, Seat):
        core.refuse(refused(event.request_id, *seat))
        return
    before = seat.member
    metadata = _updated(before.metadata, event)
    member = take_seat(core, seat, metadata, event.may_see)
    assign_if_due(core)
    changed = subscription(before.metadata) != subscription(metadata)
    member = step_towards_target(core, member, owned, changed)
    if member != replace(before, metadata=metadata):
        core.arm_rebalance(member)
    if before.is_classic:
        core.cancel(Timer(TimerKind.JOIN, member.member_id))
        core.cancel(Timer(TimerKind.SYNC, member.member_id))
    core.arm_session(member)
    tells = _tells_assignment(core, event, before, member, owned)
    _answer(core, event, member, tells)


def _tells_assignment(
    core: ConsumerCore, event: ConsumerHeartbeat, before: Member, after: Member, owned: Owned | None
) -> bool:
    """Whether it is asked for, is new, or may not have been heard."""
    is_new = _differ(before.assigned, after.assigned)
    _note_confirmation(core, after, owned, is_new)
    told_ms = core.unconfirmed.get(after.member_id, core.now_ms)
    is_overdue = core.now_ms - told_ms >= core.settings.heartbeat_interval_ms
    tells = event.member_epoch == JOINING or event.is_full or is_new or is_overdue
    if tells and after.member_id in core.unconfirmed:
        core.unconfirmed[after.member_id] = core.now_ms
    return tells


def _note_confirmation(
    core: ConsumerCore, member: Member, owned: Owned | None, is_new: bool
) -> None:
    if owned is not None and _is_just(owned, member.assigned):
        core.unconfirmed.pop(member.member_id, None)
    elif owned is not None or is_new:
        core.unconfirmed.setdefault(member.member_id, core.now_ms)


def _answer(core: ConsumerCore, event: ConsumerHeartbeat, after: Member, tells: bool) -> None:
    result = ConsumerHeartbeatResult(
        ErrorCode.NONE,
        None,
        after.member_id,
        after.epoch,
        core.settings.heartbeat_interval_ms,
        assigned_topics(after) if tells else None,
    )
    core.answer(RespondConsumer(event.request_id, result))


def assigned_topics(member: Member) -> tuple[AssignedTopic, ...]:
    held = member.assigned
    return tuple(AssignedTopic(topic, tuple(sorted(held[topic]))) for topic in sorted(held))


def _differ(before: Held, after: Held) -> bool:
    return before is not after and _without_epochs(before) != _without_epochs(after)


def _is_just(owned: Owned, held: Held) -> bool:
    return _without_epochs(held) == {topic: those for topic, those in owned.items() if those}


def _without_epochs(held: Held) -> dict[Uuid, frozenset[int]]:
    return {topic: frozenset(indexes) for topic, indexes in held.items()}


# --- who sends -------------------------------------------------------------------------------


def check_room(core: ConsumerCore, member_id: str) -> Refusal | None:
    limit = core.settings.max_size
    if member_id in core.members or len(core.members) < limit:
        return None
    message = f"group {core.group_id!r} has {limit} members, which is all it may have"
    return ErrorCode.GROUP_MAX_SIZE_REACHED, message


def find_seat(core: ConsumerCore, event: ConsumerHeartbeat, owned: Owned | None) -> Seat | Refusal:
    full = check_room(core, event.member_id)
    if full is not None:
        return full
    if event.member_epoch == JOINING:
        seat = _joining_seat(core, event)
    else:
        seat = _own_seat(core, event, owned)
    if not isinstance(seat, Seat):
        return seat
    if _is_lost(seat.member, owned):
        return ErrorCode.FENCED_MEMBER_EPOCH, "the member's state is unknown: it must join again"
    wrong = check_regex(core, event.topic_regex)
    return seat if wrong is None else (ErrorCode.INVALID_REGULAR_EXPRESSION, wrong)


def _own_seat(core: ConsumerCore, event: ConsumerHeartbeat, owned: Owned | None) -> Seat | Refusal:
    error = check_identity(core, event.member_id, event.instance_id)
    if error is not None:
        return error
    member = core.members[event.member_id]
    return _check_epoch(member, event.member_epoch, owned) or Seat(member)


def _is_lost(member: Member, owned: Owned | None) -> bool:
    return member.state is MemberState.UNKNOWN and (owned is None or bool(owned))


def _check_epoch(member: Member, epoch: int, owned: Owned | None) -> Refusal | None:
    """A lower epoch is accepted only of a member that missed the last answer, and has no more."""
    if epoch == member.epoch:
        return None
    missed = epoch < member.epoch and epoch == member.previous_epoch
    if missed and owned is not None and is_part_of(owned, member.assigned):
        return None
    message = f"the member's epoch is {member.epoch}, not {epoch}: it must join again"
    return ErrorCode.FENCED_MEMBER_EPOCH, message


def _joining_seat(core: ConsumerCore, event: ConsumerHeartbeat) -> Seat | Refusal:
    """Epoch 0 is always let in: it is also how a fenced member starts anew."""
    member_id = event.member_id or event.fresh_id
    holder = None if event.instance_id is None else core.statics.get(event.instance_id)
    if holder is not None and holder != member_id:
        old = core.members[holder]
        # A classic member cannot say that it goes for a while: its place is taken as ever.
        if old.epoch != AWAY and not old.is_classic:
            message = f"member {holder!r} still has the instance id {event.instance_id!r}"
            return ErrorCode.UNRELEASED_INSTANCE_ID, message
        return Seat(succeed(old, member_id), old)
    return Seat(core.members.get(member_id) or Member(member_id, NEW))


def succeed(old: Member, member_id: str) -> Member:
    """A new member in the place of an old one: what was assigned stays (KIP-345)."""
    return replace(
        old,
        member_id=member_id,
        epoch=JOINING,
        previous_epoch=JOINING,
        state=MemberState.STABLE,
        revoking={},
    )


# --- what it subscribes to -------------------------------------------------------------------


def _updated(known: ConsumerMember, event: ConsumerHeartbeat) -> ConsumerMember:
    """A field that was not sent stays as it was."""
    names = (
        known.topic_names if event.topic_names is None else tuple(sorted(set(event.topic_names)))
    )
    timeout_ms = event.rebalance_timeout_ms
    return ConsumerMember(
        known.instance_id if event.instance_id is None else event.instance_id,
        known.rack_id if event.rack_id is None else event.rack_id,
        event.client_id,
        event.client_host,
        names,
        known.topic_regex if event.topic_regex is None else event.topic_regex,
        known.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        known.server_assignor if event.server_assignor is None else event.server_assignor,
        None,
    )


def subscription(metadata: ConsumerMember) -> tuple[tuple[str, ...], str]:
    return metadata.topic_names, metadata.topic_regex or ""


def take_seat(
    core: ConsumerCore, seat: Seat, metadata: ConsumerMember, may_see: Callable[[str], bool]
) -> Member:
    """Writes the member down; a new subscription, or new topics, is a new epoch."""
    known = seat.member
    is_new = seat.replaced is None and known.member_id not in core.members
    member = replace(known, metadata=metadata)
    if seat.replaced is not None:
        _hand_over(core, seat.replaced, member)
    core.put_member(member)
    changed = subscription(known.metadata) != subscription(metadata)
    if changed:
        drop_unused_regexes(core)
    resolved_anew = resolve_regexes(core, member, may_see)
    if changed or core.epoch == 0:
        core.note_cause(CauseKind.JOINED if is_new else CauseKind.CHANGED, member.member_id)
        bump_epoch(core)
    elif not bump_if_topics_changed(core, member.member_id) and resolved_anew:
        core.note_cause(CauseKind.TOPICS_CHANGED, member.member_id)
        bump_epoch(core)
    return member


def _hand_over(core: ConsumerCore, old: Member, member: Member) -> None:
    target = core.targets.get(old.member_id)
    core.remove_member(old.member_id)
    core.put(core.member_key(r.MEMBER_KEY, member.member_id), member.metadata)
    if target is not None:
        core.put_target(member.member_id, target)


# --- what it gets ----------------------------------------------------------------------------


def step_towards_target(
    core: ConsumerCore, member: Member, owned: Owned | None, changed: bool
) -> Member:
    if member.is_at(core.target_epoch) and not changed:
        return member
    member_id = member.member_id
    topics: Container[Uuid] = subscribed_ids(core, member)
    target = Target(
        core.target_epoch,
        core.target_for(member_id),
        topics,
        lambda topic, index: core.is_free(member_id, topic, index),
    )
    stepped = reconcile(member, target, owned, changed)
    core.put_member(stepped)
    if stepped.is_at(core.epoch) and not member.is_at(core.epoch):
        core.history.note_joined(member_id)
    return stepped
