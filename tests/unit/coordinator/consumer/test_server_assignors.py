"""The coordinator's assignors against every possible assignment of small cases."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.coordinator.server_assignors import SERVER_ASSIGNORS, AssignorMember, Shares
from tidelog.kernel.ids import Uuid

FEW = settings(derandomize=True, max_examples=150, deadline=None)
TOPICS = [Uuid(bytes([number]) * 16) for number in range(1, 4)]
A, B, C = TOPICS
Piece = tuple[Uuid, int]
Case = tuple[dict[Uuid, int], list[AssignorMember]]
uniform, ranged = SERVER_ASSIGNORS["uniform"], SERVER_ASSIGNORS["range"]


def pieces(shares: Shares) -> dict[Piece, str]:
    """Who has what; fails if two have the same."""
    found: dict[Piece, str] = {}
    for member_id, share in shares.items():
        for topic, indexes in share.items():
            assert indexes, "no topic without a partition"
            for index in indexes:
                assert (topic, index) not in found
                found[topic, index] = member_id
    return found


def wanted(counts: dict[Uuid, int], members: list[AssignorMember]) -> list[Piece]:
    topics = {topic for each in members for topic in each.topics}
    return [(topic, index) for topic in sorted(topics) for index in range(counts.get(topic, 0))]


def loads(owners: dict[Piece, str], members: list[AssignorMember]) -> list[int]:
    found = dict.fromkeys((each.member_id for each in members), 0)
    for owner in owners.values():
        found[owner] += 1
    return sorted(found.values(), reverse=True)


def stays(owners: dict[Piece, str], members: list[AssignorMember]) -> int:
    return sum(
        owners.get((topic, index)) == each.member_id
        for each in members
        for topic, indexes in each.owned.items()
        for index in indexes
    )


def all_assignments(
    counts: dict[Uuid, int], members: list[AssignorMember]
) -> Iterator[dict[Piece, str]]:
    places = wanted(counts, members)
    takers = [[each.member_id for each in members if topic in each.topics] for topic, _ in places]
    for choice in product(*takers):
        yield dict(zip(places, choice, strict=True))


@st.composite
def cases(draw: st.DrawFn, alike: bool) -> Case:
    counts = {topic: draw(st.integers(1, 3)) for topic in TOPICS[: draw(st.integers(1, 2))]}
    if alike:
        every = frozenset(counts)
        subscriptions = [every] * draw(st.integers(1, 4))
    else:
        some = st.frozensets(st.sampled_from([*counts, C]))
        subscriptions = draw(st.lists(some, min_size=1, max_size=4))
    names = [f"m{index}" for index in range(len(subscriptions))]
    before: dict[str, dict[Uuid, set[int]]] = {name: {} for name in names}
    for topic, count in counts.items():
        for index in range(count + 1):  # one beyond: of a topic that was larger once
            owner = draw(st.sampled_from([*names, None]))
            if owner is not None:
                before[owner].setdefault(topic, set()).add(index)
    members = [
        AssignorMember(name, topics, None, {t: frozenset(p) for t, p in before[name].items()})
        for name, topics in zip(names, subscriptions, strict=True)
    ]
    return counts, members


@FEW
@given(cases(alike=True))
def test_uniform_is_even_complete_and_moves_least_if_all_subscribe_alike(case: Case) -> None:
    counts, members = case
    owners = pieces(uniform(counts, members))
    assert sorted(owners) == wanted(counts, members)
    best = min(loads(other, members) for other in all_assignments(counts, members))
    assert loads(owners, members) == best
    assert stays(owners, members) == max(
        stays(other, members)
        for other in all_assignments(counts, members)
        if loads(other, members) == best
    )


@FEW
@given(cases(alike=False))
def test_uniform_is_even_complete_and_moves_least_if_subscriptions_differ(case: Case) -> None:
    counts, members = case
    shares = uniform(counts, members)
    owners = pieces(shares)
    assert set(shares) == {each.member_id for each in members}
    assert sorted(owners) == wanted(counts, members)
    topics = {each.member_id: each.topics for each in members}
    assert all(topic in topics[owner] for (topic, _), owner in owners.items())
    best = min(loads(other, members) for other in all_assignments(counts, members))
    assert loads(owners, members) == best
    assert stays(owners, members) == max(
        stays(other, members)
        for other in all_assignments(counts, members)
        if loads(other, members) == best
    )


@FEW
@given(cases(alike=False))
def test_a_second_look_moves_nothing(case: Case) -> None:
    counts, members = case
    shares = uniform(counts, members)
    again = [
        AssignorMember(each.member_id, each.topics, None, shares[each.member_id])
        for each in members
    ]
    assert uniform(counts, again) == shares


@FEW
@given(cases(alike=False))
def test_range_gives_each_topic_in_contiguous_even_pieces(case: Case) -> None:
    counts, members = case
    shares = ranged(counts, members)
    assert sorted(pieces(shares)) == wanted(counts, members)
    for topic in counts:
        takers = [each.member_id for each in members if topic in each.topics]
        sizes = [len(shares[who].get(topic, ())) for who in takers]
        assert (
            sizes == sorted(sizes, reverse=True)
            and max(sizes, default=0) - min(sizes, default=0) <= 1
        )
        flat = [index for who in takers for index in sorted(shares[who].get(topic, ()))]
        assert flat == sorted(flat)


@pytest.mark.parametrize("name", ["uniform", "range"])
def test_nobody_gets_nothing(name: str) -> None:
    assert SERVER_ASSIGNORS[name]({A: 3}, []) == {}


@pytest.mark.parametrize("name", ["uniform", "range"])
def test_topics_that_do_not_exist_are_left_out(name: str) -> None:
    members = [AssignorMember("m", frozenset({A, B}), None, {B: frozenset({0})})]
    assert SERVER_ASSIGNORS[name]({A: 2}, members) == {"m": {A: frozenset({0, 1})}}


def test_the_owner_keeps_its_first_partitions() -> None:
    all_of_it = {A: frozenset({0, 1, 2})}
    members = [
        AssignorMember("a", frozenset({A}), None, all_of_it),
        AssignorMember("b", frozenset({A})),
    ]
    assert uniform({A: 3}, members) == {"a": {A: frozenset({0, 1})}, "b": {A: frozenset({2})}}


def test_static_members_come_first_in_range() -> None:
    topics = frozenset({A})
    members = [AssignorMember("a", topics), AssignorMember("z", topics, "instance")]
    assert ranged({A: 2}, members) == {"z": {A: frozenset({0})}, "a": {A: frozenset({1})}}
