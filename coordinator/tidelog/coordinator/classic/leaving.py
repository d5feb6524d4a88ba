"""The ways out of a group: a request, an administrator, or silence."""

from __future__ import annotations

from typing import assert_never

from tidelog.coordinator.classic.core import AnswersHeld, GroupCore, Timer, TimerKind
from tidelog.coordinator.classic.events import (
    UNKNOWN_MEMBER,
    LeaveGroup,
    Leaver,
    LeaveResult,
    LeftMember,
    Respond,
)
from tidelog.coordinator.classic.history import Cause, CauseKind
from tidelog.coordinator.classic.rebalancing import (
    complete_join,
    complete_join_if_possible,
    initial_delay_over,
    rebalance_or_complete,
    sync_phase_over,
)
from tidelog.coordinator.classic.states import GroupState
from tidelog.kernel.errors import ErrorCode


def leave(group: GroupCore, event: LeaveGroup) -> None:
    """Many members in one request: one rebalance for all of them (KIP-345)."""
    if group.state is GroupState.DEAD:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        group.respond(event.request_id, LeaveResult(error))
        return
    gone: list[Cause] = []
    left = tuple(_leave_one(group, leaver, gone) for leaver in event.members)
    writes_before = group.next_write_id
    if gone:
        rebalance_or_complete(group, *gone)
    else:
        complete_join_if_possible(group)  # it may have waited for a pending id
    answer = Respond(event.request_id, LeaveResult(ErrorCode.NONE, left))
    _answer_after_write(group, answer, writes_before)


def _answer_after_write(group: GroupCore, answer: Respond, writes_before: int) -> None:
    """Who leaves an empty group behind is told so when the record of that is safe."""
    if group.next_write_id == writes_before:
        group.effects.append(answer)
        return
    newest = group.next_write_id - 1
    held = group.writes[newest]
    assert isinstance(held, AnswersHeld), "leaving writes nothing but that the group is empty"
    group.writes[newest] = AnswersHeld((*held.answers, answer))


def _leave_one(group: GroupCore, leaver: Leaver, gone: list[Cause]) -> LeftMember:
    member_id, instance_id = leaver.member_id, leaver.instance_id
    kind = CauseKind.LEFT
    if member_id == UNKNOWN_MEMBER and instance_id is not None:
        member_id = group.statics.get(instance_id, UNKNOWN_MEMBER)
        kind = CauseKind.REMOVED_BY_ADMIN
    elif instance_id is None and group.drop_pending(member_id):
        return LeftMember(leaver.member_id, instance_id, ErrorCode.NONE)
    error = group.check_member(member_id, instance_id)
    if error is ErrorCode.NONE:
        group.remove_member(member_id)
        gone.append(group.cause(kind, member_id))
    return LeftMember(leaver.member_id, instance_id, error)


def expire(group: GroupCore) -> None:
    """Handles every timer that is due, the earliest first."""
    while group.timers:
        timer, deadline_ms = min(group.timers.items(), key=_by_deadline)
        if deadline_ms > group.now_ms:
            return
        group.cancel(timer)
        _expired(group, timer)


def _by_deadline(entry: tuple[Timer, int]) -> tuple[int, int, str]:
    timer, deadline_ms = entry
    return deadline_ms, timer.kind.value, timer.member_id


def _expired(group: GroupCore, timer: Timer) -> None:
    match timer.kind:
        case TimerKind.SESSION:
            _session_expired(group, timer.member_id)
        case TimerKind.PENDING:
            group.drop_pending(timer.member_id)
            complete_join_if_possible(group)
        case TimerKind.JOIN_PHASE:
            complete_join(group)
        case TimerKind.INITIAL_DELAY:
            initial_delay_over(group)
        case TimerKind.SYNC_PHASE:
            sync_phase_over(group)
        case other:
            assert_never(other)


def _session_expired(group: GroupCore, member_id: str) -> None:
    """A member that waits for us cannot be late, except a new one: nobody saw it alive yet."""
    member = group.members[member_id]
    waits = member.join_request is not None or member.sync_request is not None
    if waits and not member.is_new:
        return
    group.remove_member(member_id)
    rebalance_or_complete(group, group.cause(CauseKind.SESSION_EXPIRED, member_id))
