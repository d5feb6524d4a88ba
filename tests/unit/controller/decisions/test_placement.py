"""Where new replicas go: leaders even, replicas even, racks spread, fenced brokers last."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.controller.decisions.outcome import Refused
from tidelog.controller.decisions.placement import Candidate, place_replicas
from tidelog.controller.metadata.records import NodeIds
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NodeId

SETTINGS = settings(derandomize=True, max_examples=150, deadline=None)


def brokers(*racks: int, fenced: frozenset[int] = frozenset()) -> list[Candidate]:
    """So many brokers in each rack, numbered from 1."""
    found: list[Candidate] = []
    for rack, size in enumerate(racks):
        for _ in range(size):
            number = len(found) + 1
            name = f"r{rack}" if len(racks) > 1 else None
            found.append(Candidate(NodeId(number), name, number not in fenced))
    return found


def place(
    candidates: list[Candidate], partitions: int, factor: int, seed: int = 1
) -> list[NodeIds]:
    return place_replicas(candidates, partitions, factor, random.Random(seed))


@SETTINGS
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(1, 30),
    st.integers(0, 1000),
)
def test_properties(racks: list[int], factor: int, partitions: int, seed: int) -> None:
    candidates = brokers(*racks)
    factor = min(factor, len(candidates))
    lists = place(candidates, partitions, factor, seed)
    rack_of = {candidate.broker: candidate.rack for candidate in candidates}
    assert len(lists) == partitions
    for replicas in lists:
        assert len(set(replicas)) == factor
        assert len({rack_of[b] for b in replicas}) == min(factor, len(racks))
    led = Counter(replicas[0] for replicas in lists)
    counts = [led[candidate.broker] for candidate in candidates]
    assert max(counts) - min(counts) <= 1
    if len(set(racks)) == 1:
        held = Counter(b for replicas in lists for b in replicas)
        totals = [held[candidate.broker] for candidate in candidates]
        assert max(totals) - min(totals) <= 3


@SETTINGS
@given(st.integers(2, 6), st.data())
def test_fenced_brokers_come_last(count: int, data: st.DataObject) -> None:
    numbers = st.sets(st.integers(1, count), max_size=count - 1)
    fenced = frozenset(data.draw(numbers))
    factor = data.draw(st.integers(1, count))
    live = count - len(fenced)
    for replicas in place(brokers(count, fenced=fenced), 10, factor):
        assert replicas[0] not in fenced
        flags = [broker in fenced for broker in replicas]
        assert flags == sorted(flags)
        assert flags.count(True) == max(0, factor - live)


def test_the_same_seed_gives_the_same_places() -> None:
    candidates = brokers(2, 2)
    assert place(candidates, 20, 3, seed=5) == place(list(reversed(candidates)), 20, 3, seed=5)
    assert place(candidates, 20, 3, seed=5) != place(candidates, 20, 3, seed=6)


def test_the_same_neighbours_do_not_share_everything() -> None:
    followers: dict[int, set[int]] = {}
    for replicas in place(brokers(6), 60, 2):
        followers.setdefault(replicas[0], set()).add(replicas[1])
    assert all(len(partners) >= 3 for partners in followers.values())


@pytest.mark.parametrize(
    ("candidates", "factor", "words"),
    [
        (brokers(2), 3, "only 2 broker"),
        (brokers(2, fenced=frozenset({1, 2})), 1, "fenced"),
        ([], 1, "only 0 broker"),
    ],
)
def test_what_cannot_be_placed(candidates: list[Candidate], factor: int, words: str) -> None:
    with pytest.raises(Refused) as refused:
        place(candidates, 1, factor)
    assert refused.value.error.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert words in (refused.value.error.message or "")
