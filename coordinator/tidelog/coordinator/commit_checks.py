"""Who may commit offsets for a group, and in which state of it.

A commit is accepted while the members re-join (PreparingRebalance): that is when consumers save
their place. It is refused while a new generation waits for its assignment, because the sender does
not know yet whether the partition is still its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.coordinator.classic_group import ClassicGroup, GroupState
from tidelog.kernel.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Committer:
    """How the sender of a commit introduces itself; a negative generation means: not a member."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


def check_commit(group: ClassicGroup | None, sender: Committer, version: int) -> ErrorCode:
    """The error of a whole OffsetCommit, or NONE; a missing group is created for non-members."""
    if group is None:
        if sender.generation < 0:
            return ErrorCode.NONE
        newer = version >= 9
        return ErrorCode.GROUP_ID_NOT_FOUND if newer else ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if sender.generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    error = _check_sender(group, sender)
    if error is ErrorCode.NONE and group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return error


def check_transactional_commit(group: ClassicGroup | None, sender: Committer) -> ErrorCode:
    """As for a plain commit, but producers need not be members (KIP-447): then all is allowed."""
    anonymous = sender == Committer()
    if group is None:
        return ErrorCode.NONE if sender.generation < 0 else ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.NONE if anonymous else _check_sender(group, sender)


def _check_sender(group: ClassicGroup, sender: Committer) -> ErrorCode:
    error = group.check_member(sender.member_id, sender.instance_id)
    if error is ErrorCode.NONE and sender.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error
