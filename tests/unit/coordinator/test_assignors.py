"""The clients' assignors: known examples, and properties against a brute-force model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.coordinator.assignors import ASSIGNORS, AssignorMember, Shares
from tidelog.coordinator.assignors.cooperative import (
    assign_cooperative_sticky,
    needs_another_round,
)
from tidelog.coordinator.assignors.sticky import assign_sticky
from tidelog.kernel.ids import PartitionIndex, TopicPartition


def parse(text: str) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(word[0], PartitionIndex(int(word[1:]))) for word in text.split())


def member(
    name: str, topics: str = "t", owned: str = "", generation: int = 1, inst: str | None = None
) -> AssignorMember:
    return AssignorMember(name, frozenset(topics), inst, parse(owned), generation)


def show(shares: Shares) -> str:
    return ", ".join(
        f"{name}: " + " ".join(f"{each.topic}{each.partition}" for each in share)
        for name, share in sorted(shares.items())
    )


A, B, C = member("a"), member("b"), member("c")


@pytest.mark.parametrize(
    ("name", "counts", "members", "expected"),
    [
        ("range", {"t": 5}, [A, B], "a: t0 t1 t2, b: t3 t4"),
        ("range", {"t": 3, "u": 3}, [member("a", "tu"), member("b", "tu")],
         "a: t0 t1 u0 u1, b: t2 u2"),
        # Only those who subscribe to a topic share it.
        ("range", {"t": 2, "u": 2}, [member("a", "t"), member("b", "tu")], "a: t0, b: t1 u0 u1"),
        ("range", {"t": 1}, [A, B], "a: t0, b: "),
        # Static members come first, by instance.
        ("range", {"t": 3}, [A, member("z", inst="i")], "a: t2, z: t0 t1"),
        ("range", {}, [A], "a: "),
        ("range", {"t": 3}, [], ""),
        ("roundrobin", {"t": 3, "u": 3}, [member("a", "tu"), member("b", "tu")],
         "a: t0 t2 u1, b: t1 u0 u2"),
        ("roundrobin", {"t": 1, "u": 2, "v": 3},
         [member("a", "t"), member("b", "tu"), member("c", "tuv")],
         "a: t0, b: u0, c: u1 v0 v1 v2"),
        ("roundrobin", {"t": 3}, [], ""),
        ("sticky", {"t": 5}, [A, B], "a: t0 t2 t4, b: t1 t3"),
        ("sticky", {"t": 4}, [member("a", owned="t0 t1 t2 t3"), B], "a: t0 t1, b: t2 t3"),
        ("sticky", {"t": 4}, [member("a", owned="t3"), member("b", owned="t0")],
         "a: t1 t3, b: t0 t2"),
        # The younger generation is right; of equals nobody is.
        ("sticky", {"t": 2}, [member("a", owned="t1", generation=4), member("b", owned="t1",
         generation=5)], "a: t0, b: t1"),
        ("sticky", {"t": 2}, [member("a", owned="t1"), member("b", owned="t1")], "a: t0, b: t1"),
        # What is no longer there or no longer wanted is not kept.
        ("sticky", {"t": 2}, [member("a", owned="t0 t9 u0"), B], "a: t0, b: t1"),
        ("sticky", {"t": 2, "u": 1}, [member("a", "t", "u0 t0"), member("b", "tu", "t1")],
         "a: t0, b: t1 u0"),
        ("sticky", {"t": 2}, [], ""),
        # What moves is withheld until its owner has let go.
        ("cooperative-sticky", {"t": 4}, [member("a", owned="t0 t1 t2 t3"), B], "a: t0 t1, b: "),
        ("cooperative-sticky", {"t": 4}, [member("a", owned="t0 t1"), B], "a: t0 t1, b: t2 t3"),
        # Two who claim the same partition both have to let go first.
        ("cooperative-sticky", {"t": 2}, [member("a", owned="t1"), member("b", owned="t1")],
         "a: t0, b: "),
    ],
)  # fmt: skip
def test_examples(
    name: str, counts: dict[str, int], members: list[AssignorMember], expected: str
) -> None:
    assert show(ASSIGNORS[name](counts, members)) == expected


# --- properties ----------------------------------------------------------------------------------

COUNTS = st.fixed_dictionaries({"t": st.integers(0, 3), "u": st.integers(0, 2)})
EVERYTHING = parse("t0 t1 t2 u0 u1")


@st.composite
def groups(draw: st.DrawFn, alike: bool) -> tuple[dict[str, int], list[AssignorMember]]:
    counts = draw(COUNTS)
    size = draw(st.integers(1, 3))
    common = draw(st.sampled_from(["t", "tu"]))
    members = []
    for name in "abc"[:size]:
        topics = common if alike else draw(st.sampled_from(["", "t", "u", "tu"]))
        members.append(member(name, topics))
    for partition in EVERYTHING:
        owner = draw(st.integers(-1, size - 1))
        if owner >= 0:
            members[owner] = replace(members[owner], owned=(*members[owner].owned, partition))
    return counts, members


def wanted(counts: dict[str, int], members: list[AssignorMember]) -> set[TopicPartition]:
    topics = {topic for each in members for topic in each.topics}
    return {p for p in EVERYTHING if p.topic in topics and p.partition < counts[p.topic]}


def every_assignment(
    counts: dict[str, int], members: list[AssignorMember]
) -> Iterator[dict[TopicPartition, str]]:
    partitions = sorted(wanted(counts, members))
    choices = [[m.member_id for m in members if p.topic in m.topics] for p in partitions]
    for owners in product(*choices):
        yield dict(zip(partitions, owners, strict=True))


def unevenness(loads: list[int]) -> int:
    return sum(load * load for load in loads)


def loads_of(assignment: dict[TopicPartition, str], members: list[AssignorMember]) -> list[int]:
    owners = list(assignment.values())
    return [owners.count(each.member_id) for each in members]


def kept(assignment: dict[TopicPartition, str], members: list[AssignorMember]) -> int:
    return sum(assignment.get(p) == m.member_id for m in members for p in m.owned)


def inverted(shares: Shares) -> dict[TopicPartition, str]:
    return {partition: name for name, share in shares.items() for partition in share}


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky"])
@given(group=groups(alike=False))
@settings(derandomize=True, max_examples=150)
def test_everything_wanted_has_one_owner_who_wants_it(
    name: str, group: tuple[dict[str, int], list[AssignorMember]]
) -> None:
    counts, members = group
    shares = ASSIGNORS[name](counts, members)
    assert shares.keys() == {each.member_id for each in members}
    given_out = [partition for share in shares.values() for partition in share]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == wanted(counts, members)
    assert all(p.topic in each.topics for each in members for p in shares[each.member_id])


@given(groups(alike=True))
@settings(derandomize=True, max_examples=200)
def test_round_robin_and_sticky_are_balanced(
    group: tuple[dict[str, int], list[AssignorMember]],
) -> None:
    counts, members = group
    for name in ("roundrobin", "sticky"):
        sizes = [len(share) for share in ASSIGNORS[name](counts, members).values()]
        assert max(sizes) - min(sizes) <= 1


@given(groups(alike=True))
@settings(derandomize=True, max_examples=200)
def test_sticky_moves_no_more_than_any_balanced_assignment_must(
    group: tuple[dict[str, int], list[AssignorMember]],
) -> None:
    counts, members = group
    found = inverted(assign_sticky(counts, members))
    everything = list(every_assignment(counts, members))
    best = min(unevenness(loads_of(each, members)) for each in everything)
    most_kept = max(
        kept(each, members) for each in everything if unevenness(loads_of(each, members)) == best
    )
    assert unevenness(loads_of(found, members)) == best
    assert kept(found, members) == most_kept


@given(groups(alike=False))
@settings(derandomize=True, max_examples=200)
def test_sticky_is_as_even_as_unlike_subscriptions_allow(
    group: tuple[dict[str, int], list[AssignorMember]],
) -> None:
    counts, members = group
    found = inverted(assign_sticky(counts, members))
    best = min(unevenness(loads_of(each, members)) for each in every_assignment(counts, members))
    assert unevenness(loads_of(found, members)) == best


@given(groups(alike=False))
@settings(derandomize=True, max_examples=200)
def test_sticky_leaves_alone_what_it_made(
    group: tuple[dict[str, int], list[AssignorMember]],
) -> None:
    counts, members = group
    shares = assign_sticky(counts, members)
    again = [replace(each, owned=shares[each.member_id]) for each in members]
    assert assign_sticky(counts, again) == shares


@given(groups(alike=False))
@settings(derandomize=True, max_examples=200)
def test_cooperative_never_has_two_owners_and_ends_where_sticky_would(
    group: tuple[dict[str, int], list[AssignorMember]],
) -> None:
    counts, members = group
    shares = assign_cooperative_sticky(counts, members)
    for each in members:
        others = {p for other in members if other != each for p in other.owned}
        assert not set(shares[each.member_id]) & others
    if needs_another_round(members, shares):
        again = [replace(each, owned=shares[each.member_id]) for each in members]
        second = assign_cooperative_sticky(counts, again)
        assert not needs_another_round(again, second)
        assert set(inverted(second)) == wanted(counts, members)
        for each in again:  # nobody loses in the second round
            assert set(each.owned) <= set(second[each.member_id])
