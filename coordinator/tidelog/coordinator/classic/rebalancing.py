"""From the reason for a rebalance to the new generation.

A rebalance starts with the *join phase*: all members have to join again. It ends when they all
have, or when the most patient one's rebalance time-out is over. A group that was empty instead
waits for a short while whether more members come (KIP-134). Then follows the *sync phase*.
"""

from __future__ import annotations

from tidelog.coordinator.classic.core import (
    INITIAL_DELAY,
    JOIN_PHASE,
    SYNC_PHASE,
    AnswersHeld,
    GroupCore,
)
from tidelog.coordinator.classic.history import Cause, CauseKind
from tidelog.coordinator.classic.states import TRANSITIONS, GroupState
from tidelog.kernel.errors import ErrorCode


def rebalance_or_complete(group: GroupCore, first_cause: Cause, *more: Cause) -> None:
    """Starts a rebalance, or sees whether the one under way can go on."""
    starts = GroupState.PREPARING_REBALANCE in TRANSITIONS[group.state]
    if starts:
        group.history.start(first_cause)
    else:
        group.history.note(first_cause)
    for cause in more:
        group.history.note(cause)
    if starts:
        _start_rebalance(group)
    else:
        complete_join_if_possible(group)


def _start_rebalance(group: GroupCore) -> None:
    group.release_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
    group.not_synced.clear()
    group.cancel(SYNC_PHASE)
    first = group.state is GroupState.EMPTY
    group.transition(GroupState.PREPARING_REBALANCE)
    if first:
        delay_ms = group.settings.initial_rebalance_delay_ms
        group.delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.joined_in_delay = False
        group.arm(INITIAL_DELAY, delay_ms)
    elif group.all_joined:
        complete_join(group)
    else:
        group.arm(JOIN_PHASE, group.rebalance_timeout_ms)


def complete_join_if_possible(group: GroupCore) -> None:
    """During the initial delay only time completes the join phase."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.all_joined
        and group.previous_state is not GroupState.EMPTY
    ):
        complete_join(group)


def initial_delay_over(group: GroupCore) -> None:
    """Whoever joined meanwhile may be followed by more; but there is an end to that."""
    if group.joined_in_delay and group.delay_left_ms > 0:
        delay_ms = min(group.settings.initial_rebalance_delay_ms, group.delay_left_ms)
        group.joined_in_delay = False
        group.delay_left_ms -= delay_ms
        group.arm(INITIAL_DELAY, delay_ms)
    else:
        complete_join(group)


def complete_join(group: GroupCore) -> None:
    group.cancel(JOIN_PHASE)
    group.cancel(INITIAL_DELAY)
    absent = [each for each in group.members.values() if each.join_request is None]
    dropped = tuple(each.member_id for each in absent if not each.is_static)
    for member_id in dropped:
        group.remove_member(member_id)
    if group.members and not _elect_joined_leader(group):
        # Only static members that are away: they have until their sessions expire.
        group.arm(JOIN_PHASE, group.rebalance_timeout_ms)
        return
    group.generation += 1
    group.history.finish_joining(group.now_ms, group.generation, dropped)
    if group.members:
        _start_sync_phase(group)
    else:
        group.protocol = None
        group.transition(GroupState.EMPTY)
        group.history.finish(group.now_ms)
        group.append(group.as_record(), AnswersHeld(()))


def _elect_joined_leader(group: GroupCore) -> bool:
    """Whether there is a leader that joined; one that did not gives way to any that did."""
    joined = [each.member_id for each in group.members.values() if each.join_request is not None]
    if joined and group.leader not in joined:
        group.leader = joined[0]
    return bool(joined)


def _start_sync_phase(group: GroupCore) -> None:
    group.protocol = group.select_protocol()
    group.transition(GroupState.COMPLETING_REBALANCE)
    for member in group.members.values():
        group.answer_join(member, group.current_join_result(member))
        group.arm_session(member)
        member.is_new = False
    group.not_synced = set(group.members)
    group.arm(SYNC_PHASE, group.rebalance_timeout_ms)


def sync_phase_over(group: GroupCore) -> None:
    """Members that know of the generation and did not ask for their part of it are gone."""
    late = sorted(group.not_synced)
    if not late:
        return
    for member_id in late:
        group.remove_member(member_id)
    causes = [group.cause(CauseKind.DID_NOT_SYNC, member_id) for member_id in late]
    rebalance_or_complete(group, *causes)
