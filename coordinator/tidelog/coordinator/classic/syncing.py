"""SyncGroup and Heartbeat: the leader hands in the assignment, the members fetch their part.

Nobody is told an assignment before the record with all of them is replicated: otherwise a new
coordinator would know another owner of the same generation.
"""

from __future__ import annotations

from typing import assert_never

from tidelog.coordinator.append_errors import group_write_error
from tidelog.coordinator.classic.core import (
    SYNC_PHASE,
    AnswersHeld,
    AssignmentWritten,
    GroupCore,
    Member,
    StaticReplaced,
)
from tidelog.coordinator.classic.events import (
    AppendFinished,
    Heartbeat,
    HeartbeatResult,
    JoinResult,
    LeaveResult,
    Respond,
    SyncGroup,
    SyncResult,
)
from tidelog.coordinator.classic.history import CauseKind
from tidelog.coordinator.classic.joining import rename_static
from tidelog.coordinator.classic.rebalancing import rebalance_or_complete
from tidelog.coordinator.classic.states import GroupState
from tidelog.kernel.errors import ErrorCode


def check_sender(
    group: GroupCore, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    """The checks that SyncGroup, Heartbeat and OffsetCommit share."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(member_id, instance_id)
    if error is ErrorCode.NONE and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def sync(group: GroupCore, event: SyncGroup) -> None:
    error = check_sender(group, event.member_id, event.instance_id, event.generation)
    if error is ErrorCode.NONE and _differs(group, event):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if error is not ErrorCode.NONE:
        group.respond(event.request_id, SyncResult(error))
        return
    member = group.members[event.member_id]
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            group.respond(event.request_id, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        case GroupState.COMPLETING_REBALANCE:
            _mark_synced(group, member)
            _park(group, event, member)
        case GroupState.STABLE:
            _mark_synced(group, member)
            group.arm_session(member)
            group.respond(event.request_id, group.sync_result(member))
        case GroupState.EMPTY | GroupState.DEAD:
            group.respond(event.request_id, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        case other:
            assert_never(other)


def _differs(group: GroupCore, event: SyncGroup) -> bool:
    """Whether what the sender says of the protocol, if it does, is not so (version 5 and later)."""
    return (event.protocol_type is not None and event.protocol_type != group.protocol_type) or (
        event.protocol is not None and event.protocol != group.protocol
    )


def _mark_synced(group: GroupCore, member: Member) -> None:
    group.not_synced.discard(member.member_id)
    if not group.not_synced:
        group.cancel(SYNC_PHASE)


def _park(group: GroupCore, event: SyncGroup, member: Member) -> None:
    group.answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_request = event.request_id
    if member.member_id != group.leader or _is_being_written(group):
        return
    # Whoever the leader forgot gets nothing; whoever is no member is left out.
    given = dict(event.assignments)
    assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
    group.append(group.as_record(assignments), AssignmentWritten(group.generation, assignments))


def _is_being_written(group: GroupCore) -> bool:
    return any(
        isinstance(write, AssignmentWritten) and write.generation == group.generation
        for write in group.writes.values()
    )


def heartbeat(group: GroupCore, event: Heartbeat) -> None:
    error = check_sender(group, event.member_id, event.instance_id, event.generation)
    if error is ErrorCode.NONE:
        group.arm_session(group.members[event.member_id])
        if group.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
    group.respond(event.request_id, HeartbeatResult(error))


def append_finished(group: GroupCore, event: AppendFinished) -> None:
    write = group.writes.pop(event.write_id, None)
    error = group_write_error(event.error)
    match write:
        case AssignmentWritten():
            _assignment_written(group, write, error)
        case StaticReplaced():
            _static_replaced(group, write, error)
        case AnswersHeld(answers):
            for answer in answers:
                group.effects.append(answer if error is ErrorCode.NONE else _failed(answer, error))
        case None:
            return  # of a former life of the group
        case other:
            assert_never(other)


def _failed(answer: Respond, error: ErrorCode) -> Respond:
    """The error in place of an answer that relied on the record."""
    match answer.result:
        case JoinResult():
            return Respond(answer.request_id, JoinResult(error, ""))
        case LeaveResult():
            return Respond(answer.request_id, LeaveResult(error))
        case other:
            raise AssertionError(f"{other} never waits for the record of an empty group")


def _assignment_written(group: GroupCore, write: AssignmentWritten, error: ErrorCode) -> None:
    current = group.state is GroupState.COMPLETING_REBALANCE
    if not current or write.generation != group.generation:
        return  # a rebalance came in between and has answered whoever waited
    if error is not ErrorCode.NONE:
        for member in group.members.values():
            member.assignment = b""
        group.release_syncs(error)
        rebalance_or_complete(group, group.cause(CauseKind.WRITE_FAILED, group.leader or ""))
        return
    group.transition(GroupState.STABLE)
    group.history.finish(group.now_ms)
    for member in group.members.values():
        member.assignment = write.assignments.get(member.member_id, b"")
        if member.sync_request is not None:
            group.answer_sync(member, group.sync_result(member))
            group.arm_session(member)


def _static_replaced(group: GroupCore, write: StaticReplaced, error: ErrorCode) -> None:
    if error is ErrorCode.NONE:
        group.respond(write.request_id, write.result)
        return
    group.respond(write.request_id, JoinResult(error, ""))
    old = write.old_member
    if write.new_id in group.members:
        # As if it had not come: the record still names the former id.
        member = rename_static(group, write.new_id, old.member_id)
        member.protocols = old.protocols
        member.session_timeout_ms = old.session_timeout_ms
        member.rebalance_timeout_ms = old.rebalance_timeout_ms
        group.arm_session(member)
