"""Schedules of faults: drawn within the budget, printed, shrunk."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.simulation import (
    Budget,
    BudgetExceeded,
    FaultSchedule,
    LinkQuality,
    SimRandom,
    draw_schedule,
    shrink,
)
from tidelog.simulation import fault_schedule as schedules
from tidelog.simulation import faults as kinds
from tidelog.simulation.faults import (
    BadLinks,
    ClockJump,
    Crash,
    Cut,
    FailedOperation,
    Fault,
    FlippedBit,
    FullDisk,
    Kill,
    Pause,
    PowerLoss,
    SlowDisk,
    StalledDisk,
    Stop,
    conditions,
    lossy_nodes,
    nodes_of,
)

THREE = Budget((1, 2, 3), (1, 2, 3))
FIVE = Budget((1, 2, 3, 4, 5), (1, 2, 3))


def drawn(seed: int, budget: Budget = THREE) -> FaultSchedule:
    return draw_schedule(SimRandom(seed), budget, duration_ms=60_000)


# ---- the budget


@pytest.mark.parametrize(
    ("budget", "max_lossy"),
    [
        (Budget((1,)), 0),
        (Budget((1, 2)), 0),
        (Budget((1, 2, 3)), 1),
        (Budget((1, 2, 3, 4, 5)), 2),
        (Budget((1, 2, 3, 4, 5), (1, 2, 3)), 1),
    ],
)
def test_a_minority_may_be_lossy(budget: Budget, max_lossy: int) -> None:
    assert budget.max_lossy == max_lossy


def flip(node: int) -> Fault:
    return FlippedBit(0, 100, node, 7)


def test_a_schedule_beyond_the_budget_cannot_be_made() -> None:
    failed_sync = FailedOperation(50_000, 100, 2, "sync", 1)
    FaultSchedule(THREE, (flip(1), FailedOperation(50_000, 100, 1, "sync", 1)))
    with pytest.raises(BudgetExceeded, match=r"nodes \[1, 2\] of \[1, 2, 3\] may lose data"):
        FaultSchedule(THREE, (flip(1), failed_sync))
    FaultSchedule(THREE, (flip(1), PowerLoss(0, 100, (1, 2, 3))))
    without_fsync = Budget((1, 2, 3), is_power_loss_lossy=True)
    FaultSchedule(without_fsync, (PowerLoss(0, 100, (2,)), PowerLoss(200, 100, (2,))))
    with pytest.raises(BudgetExceeded):
        FaultSchedule(without_fsync, (PowerLoss(0, 100, (2,)), flip(1)))


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 1 << 64),
    count=st.integers(1, 7),
    voters=st.integers(0, 5),
    is_power_loss_lossy=st.booleans(),
)
def test_what_is_drawn_keeps_to_the_budget_and_the_time(
    seed: int, count: int, voters: int, is_power_loss_lossy: bool
) -> None:
    nodes = tuple(range(1, count + 1))
    budget = Budget(nodes, nodes[:voters], is_power_loss_lossy)
    schedule = draw_schedule(SimRandom(seed), budget, duration_ms=10_000, max_faults=30)
    lossy = lossy_nodes(schedule.faults, is_power_loss_lossy=is_power_loss_lossy)
    assert len(lossy) <= budget.max_lossy
    for fault in schedule.faults:
        assert 0 <= fault.at_ms < 10_000
        assert 0 < fault.for_ms <= 20_000
        assert nodes_of(fault) and set(nodes_of(fault)) <= set(nodes)
    assert schedule.end_ms <= 30_000


def test_seeds_draw_every_kind_and_every_shape() -> None:
    found: dict[type[Fault], int] = {}
    shapes: set[frozenset[tuple[int, int]]] = set()
    for seed in range(600):
        for fault in drawn(seed, FIVE).faults:
            found[type(fault)] = found.get(type(fault), 0) + 1
            if isinstance(fault, Cut):
                shapes.add(frozenset(fault.ways))
    assert set(found) == {
        *(Kill, PowerLoss, Pause, Cut, BadLinks, SlowDisk, StalledDisk, FullDisk),
        *(FailedOperation, FlippedBit, ClockJump, Stop, Crash),
    }
    assert min(found.values()) > 20
    ring = frozenset((a, b) for a in range(1, 6) for b in range(1, 6) if (a - b) % 5 in (2, 3))
    pair = frozenset({(1, 2), (2, 1)})
    alone = frozenset((a, b) for a in range(1, 6) for b in range(1, 6) if a != b and 4 in (a, b))
    from_controllers = frozenset({(5, 1), (1, 5), (5, 2), (2, 5), (5, 3), (3, 5)})
    assert shapes >= {ring, pair, alone, from_controllers}
    assert any(len(shape) == 1 for shape in shapes), "no cut of one direction"


def test_a_seed_draws_the_same_again_and_others_something_else() -> None:
    assert [drawn(seed) for seed in range(20)] == [drawn(seed) for seed in range(20)]
    assert len({repr(drawn(seed)) for seed in range(20)}) == 20


def test_only_the_kinds_that_were_asked_for() -> None:
    for seed in range(20):
        schedule = draw_schedule(
            SimRandom(seed), THREE, duration_ms=1000, kinds=("kill", "pause"), max_faults=5
        )
        assert {type(fault) for fault in schedule.faults} <= {Kill, Pause}
        assert 1 <= len(schedule.faults) <= 5


# ---- printing


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_prints_as_code_that_makes_it_again(seed: int) -> None:
    schedule = drawn(seed)
    names = {**vars(schedules), **vars(kinds), "inf": float("inf")}
    assert eval(repr(schedule), names) == schedule


def test_a_schedule_prints_for_people_in_the_order_of_time() -> None:
    schedule = FaultSchedule(THREE, (Pause(1500, 250, 2), Kill(20, 30, 1)))
    assert str(schedule).splitlines() == [
        "2 faults on nodes [1, 2, 3]",
        "       20 –      50 ms  Kill(at_ms=20, for_ms=30, node=1)",
        "     1500 –    1750 ms  Pause(at_ms=1500, for_ms=250, node=2)",
    ]


# ---- shrinking


@settings(derandomize=True, max_examples=200, deadline=None)
@given(size=st.integers(0, 25), guilty=st.sets(st.integers(0, 24), max_size=4))
def test_shrinking_finds_the_guilty_faults(size: int, guilty: set[int]) -> None:
    faults = [Kill(number, 1, 1) for number in range(size)]
    culprits = {fault for fault in faults if fault.at_ms in guilty}
    runs = 0

    def fails(schedule: FaultSchedule) -> bool:
        nonlocal runs
        runs += 1
        return culprits <= set(schedule.faults)

    shrunk = shrink(FaultSchedule(THREE, tuple(faults)), fails)
    assert set(shrunk.faults) == culprits
    assert list(shrunk.faults) == sorted(shrunk.faults, key=lambda fault: fault.at_ms)
    assert runs < 250


def test_shrinking_keeps_faults_that_need_each_other() -> None:
    faults = tuple(Kill(number, 1, 1) for number in range(10))

    def fails(schedule: FaultSchedule) -> bool:
        times = [fault.at_ms for fault in schedule.faults]
        return any(after - before >= 5 for before in times for after in times)

    shrunk = shrink(FaultSchedule(THREE, faults), fails)
    assert len(shrunk.faults) == 2
    assert fails(shrunk)


# ---- what lasts


def test_conditions_of_what_is_under_way() -> None:
    slow = LinkQuality(max_delay_ms=500)
    holds = conditions(
        [
            Kill(0, 1, 1),
            PowerLoss(0, 1, (2, 3)),
            Pause(0, 1, 4),
            Cut(0, 1, ((1, 2), (2, 1))),
            Cut(0, 1, ((1, 2),)),
            BadLinks(0, 1, ((1, 3),), slow),
            SlowDisk(0, 1, 1, 5.0),
            SlowDisk(0, 1, 1, 9.0),
            StalledDisk(0, 1, 2),
            FullDisk(0, 1, 3, 0),
            ClockJump(0, 1, 4, -50),
            FlippedBit(0, 1, 1, 1),
        ]
    )
    assert holds.down == {1, 2, 3}
    assert holds.paused == {4}
    assert holds.cut == {(1, 2), (2, 1)}
    assert holds.quality == {(1, 3): slow}
    assert holds.step_delay_ms == {1: 9.0}
    assert holds.stalled == {2}
    assert holds.free_bytes == {3: 0}
    assert holds.skew_ms == {4: -50}


@pytest.mark.parametrize(
    ("stalls", "is_lossy"),
    [
        ([(0, 8_000)], False),
        ([(0, 8_001)], True),
        ([(0, 5_000), (4_000, 5_000)], True),
        ([(0, 5_000), (6_000, 5_000)], True),
        ([(0, 5_000), (9_000, 5_000)], False),
    ],
)
def test_a_disk_that_hangs_for_long_counts_as_lost(
    stalls: list[tuple[int, int]], is_lossy: bool
) -> None:
    faults = [StalledDisk(at_ms, for_ms, 2) for at_ms, for_ms in stalls]
    assert lossy_nodes(faults, is_power_loss_lossy=False) == ((2,) if is_lossy else ())
