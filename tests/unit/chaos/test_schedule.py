"""The plan of a run: drawn from a seed, complete, and with calm between faults."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.chaos.faults import (
    FAULTS,
    Family,
    PlannedFault,
    UnknownFault,
    counted_schedule,
    named,
    schedule,
)
from tidelog.chaos.faults.applying import ring_cuts

NODES = (1, 2, 3)


def test_the_same_seed_gives_the_same_plan() -> None:
    assert schedule(7, ["all"], 600, NODES) == schedule(7, ["all"], 600, NODES)
    assert schedule(7, ["all"], 600, NODES) != schedule(8, ["all"], 600, NODES)


def test_a_plan_that_others_have_repeated_stays_as_it_was() -> None:
    first, second, *_ = schedule(1, ["kill-leader", "cut"], 60, NODES)

    assert first == PlannedFault(1, 2.0, "kill-leader", 0.581, 1014138928, {"node": 2})
    assert (second.name, second.at_s) == ("cut", 7.067)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from(sorted(FAULTS)), min_size=1, unique=True),
    st.floats(1, 900),
)
def test_faults_follow_one_another_with_calm_between(
    seed: int, names: list[str], duration_s: float
) -> None:
    plan = schedule(seed, names, duration_s, NODES)

    ends_s = 2.0 - 3.0
    for number, planned in enumerate(plan, start=1):
        low, high = FAULTS[planned.name].lasts_s
        assert planned.number == number
        assert planned.name in names
        assert planned.at_s >= ends_s + 3.0
        assert low <= planned.duration_s <= high
        assert planned.parameters["node"] in NODES
        ends_s = planned.at_s + planned.duration_s
    assert ends_s + 3.0 <= max(duration_s, 2.0)
    for start in range(0, len(plan) - len(names) + 1, len(names)):
        turn = plan[start : start + len(names)]
        assert {planned.name for planned in turn} == set(names), "each once before any again"


def test_families_and_all_stand_for_their_faults() -> None:
    assert {fault.family for fault in named(["kills"])} == {Family.KILL}
    assert [fault.name for fault in named(["all"])] == list(FAULTS)
    assert [fault.name for fault in named(["cut", "kill-leader"])] == ["kill-leader", "cut"]


def test_a_name_that_stands_for_nothing_is_refused_with_those_that_do() -> None:
    with pytest.raises(
        UnknownFault, match=r"no fault 'kil-leader'; there are kill-leader, .*kills"
    ):
        schedule(1, ["kil-leader"], 60, NODES)


def test_a_fault_that_needs_more_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="kill-leader needs 3 nodes, and there are 1"):
        schedule(1, ["kill-random", "kill-leader"], 60, [1])


@pytest.mark.parametrize(
    ("nodes", "cuts"),
    [
        ((1, 2, 3), [(1, 3), (2, 1), (3, 2)]),
        ((1, 2, 3, 4), [(1, 3), (2, 4), (3, 1), (4, 2)]),
    ],
)
def test_a_ring_leaves_links_to_neighbours(
    nodes: tuple[int, ...], cuts: list[tuple[int, int]]
) -> None:
    assert ring_cuts(nodes) == cuts


def test_a_plan_that_counts_has_so_many_of_each_in_a_drawn_order() -> None:
    counts = {"kill-leader": 6, "cut": 3, "power-loss": 1}
    plan = counted_schedule(5, counts, NODES)

    names = [planned.name for planned in plan]
    assert {name: names.count(name) for name in names} == counts
    assert names != sorted(names) and names != counted_names(6, counts)
    assert [planned.number for planned in plan] == list(range(1, 11))
    assert all(planned.at_s == 0.0 for planned in plan)
    assert plan == counted_schedule(5, counts, NODES)
    for planned in plan:
        low, high = FAULTS[planned.name].lasts_s
        assert low <= planned.duration_s <= high


def counted_names(seed: int, counts: dict[str, int]) -> list[str]:
    return [planned.name for planned in counted_schedule(seed, counts, NODES)]


def test_a_plan_that_counts_needs_enough_nodes() -> None:
    with pytest.raises(ValueError, match="cut needs 3 nodes, and there are 2"):
        counted_schedule(1, {"cut": 1}, (1, 2))
