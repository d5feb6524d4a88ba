"""JoinGroup: who may join, under which id, and what that means for the generation."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from tidelog.coordinator.classic.core import (
    GroupCore,
    Member,
    StaticReplaced,
    Timer,
    TimerKind,
)
from tidelog.coordinator.classic.events import UNKNOWN_MEMBER, JoinGroup, JoinResult
from tidelog.coordinator.classic.history import CauseKind
from tidelog.coordinator.classic.rebalancing import (
    complete_join_if_possible,
    rebalance_or_complete,
)
from tidelog.coordinator.classic.states import GroupState
from tidelog.kernel.errors import ErrorCode


def join(group: GroupCore, event: JoinGroup) -> None:
    error = _refusal(group, event)
    if error is not ErrorCode.NONE:
        _refuse(group, event, error)
    elif event.member_id != UNKNOWN_MEMBER:
        _join_known(group, event)
    elif event.instance_id is not None:
        _join_static(group, event, event.instance_id)
    elif event.needs_member_id:
        member_id = f"{event.client_id}-{event.fresh_id}"
        group.add_pending(member_id, event.session_timeout_ms)
        group.respond(event.request_id, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(group, event, f"{event.client_id}-{event.fresh_id}")


def _refusal(group: GroupCore, event: JoinGroup) -> ErrorCode:
    """The checks that do not depend on who the member is, in Kafka's order."""
    if not has_room(group, event.member_id):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not group.supports(event.protocol_type, event.protocols):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def has_room(group: GroupCore, member_id: str) -> bool:
    """While the members re-join the first come are served; otherwise members keep their place."""
    limit = group.settings.max_size
    match group.state:
        case GroupState.EMPTY | GroupState.DEAD:
            return True
        case GroupState.PREPARING_REBALANCE:
            member = group.members.get(member_id)
            waits = member is not None and member.join_request is not None
            return waits or group.joining_count < limit
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return member_id in group.members or len(group.members) < limit
        case other:
            assert_never(other)


def _refuse(group: GroupCore, event: JoinGroup, error: ErrorCode) -> None:
    if error is ErrorCode.GROUP_MAX_SIZE_REACHED:
        # It is told to go away, so nobody has to wait for it.
        group.drop_pending(event.member_id)
        if event.member_id in group.members:
            group.remove_member(event.member_id)
        group.respond(event.request_id, JoinResult(error, UNKNOWN_MEMBER))
        complete_join_if_possible(group)
        return
    group.respond(event.request_id, JoinResult(error, event.member_id))


def _join_known(group: GroupCore, event: JoinGroup) -> None:
    if event.member_id in group.pending and event.instance_id is None:
        _add(group, event, event.member_id)
        return
    error = group.check_member(event.member_id, event.instance_id)
    if error is not ErrorCode.NONE:
        group.respond(event.request_id, JoinResult(error, event.member_id))
        return
    member = group.members[event.member_id]
    changed = member.protocols != event.protocols
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            _rejoin(group, event, member, CauseKind.CHANGED if changed else None)
        case GroupState.COMPLETING_REBALANCE if not changed:
            # The answer to its join may have been lost.
            group.respond(event.request_id, group.current_join_result(member))
        case GroupState.STABLE if not changed and member.member_id != group.leader:
            group.respond(event.request_id, group.current_join_result(member))
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            _rejoin(group, event, member, _reason(changed))
        case GroupState.EMPTY | GroupState.DEAD:
            result = JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, event.member_id)
            group.respond(event.request_id, result)
        case other:
            assert_never(other)


def _reason(changed: bool) -> CauseKind:
    return CauseKind.CHANGED if changed else CauseKind.LEADER_REJOINED


def _add(group: GroupCore, event: JoinGroup, member_id: str) -> None:
    if group.state is GroupState.PREPARING_REBALANCE:
        group.joined_in_delay = True
    member = Member(
        member_id,
        event.instance_id,
        event.client_id,
        event.client_host,
        event.session_timeout_ms,
        event.rebalance_timeout_ms,
        event.protocols,
        join_request=event.request_id,
    )
    group.add_member(member, event.protocol_type)
    rebalance_or_complete(group, group.cause(CauseKind.JOINED, member_id))
    group.history.note_joined(member_id)


def _rejoin(group: GroupCore, event: JoinGroup, member: Member, kind: CauseKind | None) -> None:
    _update(group, event, member)
    if kind is None:
        group.history.note_joined(member.member_id)
        complete_join_if_possible(group)
    else:
        rebalance_or_complete(group, group.cause(kind, member.member_id))
        group.history.note_joined(member.member_id)


def _update(group: GroupCore, event: JoinGroup, member: Member) -> None:
    """The newest request counts; an older one of the same member is sent back for another try."""
    older = JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
    group.answer_join(member, older)
    member.join_request = event.request_id
    member.protocols = event.protocols
    member.session_timeout_ms = event.session_timeout_ms
    member.rebalance_timeout_ms = event.rebalance_timeout_ms


def _join_static(group: GroupCore, event: JoinGroup, instance_id: str) -> None:
    new_id = f"{instance_id}-{event.fresh_id}"
    if instance_id not in group.statics:
        _add(group, event, new_id)
        return
    old_leader = group.leader or ""
    old = replace(group.members[group.statics[instance_id]], join_request=None, sync_request=None)
    group.fail_requests(group.members[old.member_id], ErrorCode.FENCED_INSTANCE_ID)
    member = rename_static(group, old.member_id, new_id)
    _update(group, event, member)
    group.arm_session(member)
    match group.state:
        case GroupState.STABLE if group.select_protocol() == group.protocol:
            _keep_generation(group, event, member, old, old_leader)
        case GroupState.PREPARING_REBALANCE:
            group.history.note_joined(new_id)
            complete_join_if_possible(group)
        case _:
            rebalance_or_complete(group, group.cause(CauseKind.RESTARTED, new_id))
            group.history.note_joined(new_id)


def _keep_generation(
    group: GroupCore, event: JoinGroup, member: Member, old: Member, old_leader: str
) -> None:
    """The point of static membership: a restart in a stable group moves nothing (KIP-345).

    A leader of version 9 and later learns that the assignment stands (KIP-814). An older one must
    not compute a new one: it is shown the id of its former self as the leader and so follows.
    """
    member.join_request = None
    result = group.current_join_result(member)
    leads = member.member_id == group.leader
    if event.can_skip_assignment:
        result = replace(result, skip_assignment=leads)
    else:
        result = replace(result, leader=old_leader, members=())
    write = StaticReplaced(event.request_id, result, old, member.member_id)
    group.append(group.as_record(), write)


def rename_static(group: GroupCore, old_id: str, new_id: str) -> Member:
    """Puts a member under another id, at the same place among the others."""
    member = group.members[old_id]
    assert member.instance_id is not None, "only static members change their id"
    group.members = {
        new_id if known == old_id else known: each for known, each in group.members.items()
    }
    member.member_id = new_id
    group.statics[member.instance_id] = new_id
    if group.leader == old_id:
        group.leader = new_id
    if old_id in group.not_synced:
        group.not_synced = group.not_synced - {old_id} | {new_id}
    group.cancel(Timer(TimerKind.SESSION, old_id))
    return member
