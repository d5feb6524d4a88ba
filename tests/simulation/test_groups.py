"""Consumer groups under faults: fixed seeds, many members for a long time, and what checks find."""

from __future__ import annotations

import logging

import pytest
from slow_tests import slow_after

from tidelog.simulation import World, run_simulation
from tidelog.simulation.fault_schedule import Budget, FaultSchedule
from tidelog.simulation.faults import Kill
from tidelog.simulation.group_ledger import GroupLedger
from tidelog.simulation.group_run import GroupRun
from tidelog.simulation.group_workload import GroupsPlan
from tidelog.simulation.history import Violation
from tidelog.simulation.random import SimRandom
from tidelog.simulation.runner import describe_failure, run_one
from tidelog.simulation.workload import TOPIC, WorkloadPlan

SEEDS = range(1, 5)


@pytest.mark.parametrize("seed", slow_after(2, SEEDS))
def test_groups(seed: int) -> None:
    result = run_one("groups", seed)
    assert result.failure is None, describe_failure(result)


# --- many members ----------------------------------------------------------------------


class CrowdRun(GroupRun):
    """25 members of each protocol, one change every other second, brokers killed now and then."""

    duration_ms = 300_000

    def draw_workload(self, random: SimRandom, brokers: int) -> WorkloadPlan:
        return WorkloadPlan(
            partitions=12, window=1, pause_s=20.0, has_careless=False, has_admin=False
        )

    def draw_groups(self, random: SimRandom) -> GroupsPlan:
        return GroupsPlan(TOPIC, 12, "cooperative-sticky", "uniform", members=25, churn_s=4.0)


@pytest.mark.slow
def test_fifty_members_churn_for_five_minutes() -> None:
    logging.getLogger("tidelog").propagate = False
    faults = FaultSchedule(
        Budget((1, 2, 3), (1, 2, 3)),
        tuple(Kill(at_ms, 3_000, 1 + at_ms % 3) for at_ms in (20_000, 80_001, 140_002, 299_000)),
    )

    async def main(world: World) -> None:
        run = CrowdRun(world, faults)
        try:
            await run.run()
        finally:
            run.cluster.trace.close()
        assert sum(place.lives for place in run.groups.places) > 60
        assert all(ledger.commits > 50 for ledger in run.groups.ledgers.values())

    run_simulation(main, 1, time_limit_s=900)


# --- what the checks find --------------------------------------------------------------


def test_two_owners_in_one_generation_are_found() -> None:
    ledger = GroupLedger("g")
    ledger.owned("a", 1, 0)
    ledger.owned("a", 1, 0)
    ledger.owned("b", 2, 0)
    with pytest.raises(Violation, match="belongs to a and to b"):
        ledger.owned("b", 1, 0)


def test_an_offset_that_goes_back_is_found() -> None:
    ledger = GroupLedger("g")
    ledger.read(0, 0, 9)
    before = ledger.floors()
    ledger.committed("a", 0, 5, before)
    ledger.committed("b", 0, 4, before)  # was under way when 5 was committed
    with pytest.raises(Violation, match="committed 4"):
        ledger.committed("b", 0, 4, ledger.floors())
    ledger.fetched("c", 0, 5, "5", ledger.floors())
    with pytest.raises(Violation, match="is told that -1"):
        ledger.fetched("c", 0, -1, "", ledger.floors())


def test_a_commit_of_what_nobody_read_is_found() -> None:
    ledger = GroupLedger("g")
    ledger.read(0, 0, 3)
    ledger.read(0, 4, 6)
    with pytest.raises(Violation, match="not all before it was read"):
        ledger.fetched("c", 0, 5, "5", {})
    with pytest.raises(Violation, match="of another commit"):
        ledger.fetched("c", 0, 3, "2", {})
    ledger.committed("c", 0, 6, {})
    assert ledger.unread({0: 6}) == "group g: nobody read 0/3"
    assert ledger.unread({0: 7}) == "group g: partition 0 is committed to 6 of 7"
    ledger.read(0, 3, 4)
    assert ledger.unread({0: 6}) is None
