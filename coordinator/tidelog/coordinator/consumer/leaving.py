"""The ways out of a group: a request, an administrator, silence, or partitions not given up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from tidelog.coordinator.classic.history import CauseKind
from tidelog.coordinator.consumer.core import ConsumerCore, Timer, TimerKind
from tidelog.coordinator.consumer.events import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    RespondConsumer,
    refused,
)
from tidelog.coordinator.consumer.members import AWAY, NO_PARTITIONS, Held, Member, MemberState
from tidelog.coordinator.consumer.subscribing import bump_epoch, drop_unused_regexes
from tidelog.kernel.errors import ErrorCode


def leave(core: ConsumerCore, event: ConsumerHeartbeat) -> None:
    """Epoch −1 for good; −2 of a static member, which keeps its place for as long as its session.

    The answer has the epoch that was asked for and nothing else.
    """
    error = check_identity(core, event.member_id, event.instance_id)
    if error is not None:
        core.refuse(refused(event.request_id, *error))
        return
    member = core.members[event.member_id]
    if event.member_epoch == AWAY:
        _go_away(core, member)
    else:
        remove_members(core, [(member.member_id, CauseKind.LEFT)])
    result = ConsumerHeartbeatResult(
        ErrorCode.NONE, member_id=member.member_id, member_epoch=event.member_epoch
    )
    core.answer(RespondConsumer(event.request_id, result))


def check_identity(
    core: ConsumerCore, member_id: str, instance_id: str | None
) -> tuple[ErrorCode, str] | None:
    """Whether the sender is who it says; an instance id is looked at first (KIP-345)."""
    if instance_id is not None:
        holder = core.statics.get(instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id!r}"
        if holder != member_id:
            message = f"the instance id {instance_id!r} is now that of member {holder!r}"
            return ErrorCode.FENCED_INSTANCE_ID, message
    if member_id not in core.members:
        message = f"{member_id!r} is not a member of group {core.group_id!r}"
        return ErrorCode.UNKNOWN_MEMBER_ID, message
    return None


def _go_away(core: ConsumerCore, member: Member) -> None:
    """It has nothing more to give up, and starts from epoch 0 when it comes back."""
    core.cancel(Timer(TimerKind.REBALANCE, member.member_id))
    away = replace(
        member,
        epoch=AWAY,
        state=MemberState.STABLE,
        assigned=_since_ever(member.assigned),
        revoking=NO_PARTITIONS,
    )
    core.put_member(away)


def _since_ever(held: Held) -> Held:
    return {topic: dict.fromkeys(indexes, 0) for topic, indexes in held.items()}


def remove_members(core: ConsumerCore, gone: Sequence[tuple[str, CauseKind]]) -> None:
    """One epoch for all of them."""
    for member_id, kind in gone:
        core.note_cause(kind, member_id)
        core.remove_member(member_id)
    drop_unused_regexes(core)
    bump_epoch(core)


def expire(core: ConsumerCore) -> list[tuple[str, CauseKind]]:
    """Who has to go because its time is up; whoever cannot be late stays."""
    due = sorted(
        (deadline_ms, timer.kind.value, timer.member_id, timer)
        for timer, deadline_ms in core.timers.items()
        if deadline_ms <= core.now_ms
    )
    gone: dict[str, CauseKind] = {}
    for *_, timer in due:
        core.cancel(timer)
        if timer.member_id in core.members:
            gone.setdefault(timer.member_id, _reason(timer.kind))
    late = (who for who, kind in gone.items() if kind is CauseKind.DID_NOT_REVOKE)
    core.dropped += tuple(late)
    return list(gone.items())


def _reason(kind: TimerKind) -> CauseKind:
    match kind:
        case TimerKind.SESSION:
            return CauseKind.SESSION_EXPIRED
        case TimerKind.REBALANCE:
            return CauseKind.DID_NOT_REVOKE
        case TimerKind.JOIN:
            return CauseKind.DID_NOT_REJOIN
        case TimerKind.SYNC:
            return CauseKind.DID_NOT_SYNC
        case other:
            assert_never(other)
