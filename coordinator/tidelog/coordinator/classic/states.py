"""The states of a classic group and the only ways between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class GroupState(Enum):
    """The values are the names that ListGroups and DescribeGroups show."""

    EMPTY = "Empty"
    """No members; there may be offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for the members to join again."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A new generation; waits for the leader's assignment to be written."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Deleted, or the coordinator moved away: nothing happens any more."""


_S = GroupState

TRANSITIONS: Final[Mapping[GroupState, frozenset[GroupState]]] = MappingProxyType(
    {
        _S.EMPTY: frozenset({_S.PREPARING_REBALANCE, _S.DEAD}),
        # To Empty when nobody is left at the end of the join phase.
        _S.PREPARING_REBALANCE: frozenset({_S.COMPLETING_REBALANCE, _S.EMPTY, _S.DEAD}),
        _S.COMPLETING_REBALANCE: frozenset({_S.STABLE, _S.PREPARING_REBALANCE, _S.DEAD}),
        _S.STABLE: frozenset({_S.PREPARING_REBALANCE, _S.DEAD}),
        _S.DEAD: frozenset(),
    }
)


class IllegalTransition(AssertionError):
    """A change of state that the table does not have: a defect of the machine itself."""


def check_transition(group_id: str, old: GroupState, new: GroupState) -> None:
    if new not in TRANSITIONS[old]:
        allowed = ", ".join(sorted(state.value for state in TRANSITIONS[old])) or "nothing"
        raise IllegalTransition(
            f"group {group_id!r} cannot go from {old.value} to {new.value}; allowed: {allowed}"
        )
