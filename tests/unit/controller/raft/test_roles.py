"""One table says which role may follow which; every other change of role is an error."""

from __future__ import annotations

from itertools import product

import pytest

from tidelog.controller.raft import BrokenInvariant, IllegalTransition
from tidelog.controller.raft.roles import TRANSITIONS, Role, check_transition

PAIRS = list(product(Role, Role))
LEGAL = [(old, new) for old, new in PAIRS if new in TRANSITIONS[old]]
ILLEGAL = [pair for pair in PAIRS if pair not in LEGAL]


@pytest.mark.parametrize(("old", "new"), LEGAL)
def test_a_listed_transition_is_allowed(old: Role, new: Role) -> None:
    check_transition(old, new)


@pytest.mark.parametrize(("old", "new"), ILLEGAL)
def test_any_other_transition_is_refused(old: Role, new: Role) -> None:
    with pytest.raises(IllegalTransition, match=f"from {old.value} to {new.value}"):
        check_transition(old, new)


def test_the_table_names_every_role_once() -> None:
    assert list(TRANSITIONS) == list(Role)
    assert issubclass(IllegalTransition, BrokenInvariant)


def test_nobody_leads_without_an_election() -> None:
    assert [old for old in Role if Role.LEADER in TRANSITIONS[old]] == [Role.CANDIDATE]


def test_a_leader_never_turns_into_a_follower_in_one_move() -> None:
    assert Role.FOLLOWER not in TRANSITIONS[Role.LEADER]
    assert Role.FOLLOWER not in TRANSITIONS[Role.RESIGNED]
