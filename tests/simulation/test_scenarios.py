"""What a cluster must survive, one thing at a time: kills, power, stops, stalls, wiped disks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_lab import APART, STEADY, THREE, SimLab, simulate
from slow_tests import slow_after

from tidelog.kernel.errors import ErrorCode
from tidelog.simulation import LinkQuality, kafka_messages
from tidelog.simulation.cluster import ClusterPlan
from tidelog.wire.protocol.kio_values import to_kio_uuid

CARELESS = replace(STEADY, has_careless=True)
SPARSE = replace(STEADY, pause_s=0.3)


# --- power -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", slow_after(1, range(1, 5)))
def test_power_loss_of_all_nodes_loses_nothing_acknowledged(seed: int) -> None:
    """Hazard 13: an acknowledgement waits for fsync on every member of the ISR."""

    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        for _ in range(2):
            await lab.until_acknowledged(20)
            await lab.cluster.power_loss([1, 2, 3])
            await lab.cluster.start()
            await lab.cluster.until_serving()
        await lab.until_acknowledged(5)
        await lab.finish()

    simulate(scenario, seed=seed, workload=CARELESS)


@pytest.mark.parametrize("seed", slow_after(1, range(1, 4)))
def test_power_loss_of_one_after_the_other(seed: int) -> None:
    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        for node in (1, 2, 3, 1):
            await lab.cluster.power_loss([node])
            await lab.pass_time(0.7)
            await lab.cluster.restart(node)
            await lab.pass_time(0.7)
        await lab.until_acknowledged(5)
        await lab.finish()

    simulate(scenario, seed=seed)


# --- kills -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", slow_after(1, range(1, 4)))
def test_the_active_controller_and_the_leader_killed_together_fail_over_as_one_alone(
    seed: int,
) -> None:
    """The next controller judges by what it noted as a standby, so nobody waits for a session."""

    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        await lab.until_in_sync()
        leader, active = lab.leader(), lab.cluster.active_controller
        assert active is not None
        both = sorted({leader, active})
        killed_ms = lab.world.loop.elapsed_ms()
        for node in both:
            await lab.cluster.kill(node)
        if len(both) == 1:
            await lab.until_acknowledged(10)
            assert lab.longest_gap_ms(killed_ms) <= 1_500
        await lab.cluster.start()
        await lab.until_acknowledged(10)
        await lab.finish()

    simulate(scenario, seed=seed)


@pytest.mark.parametrize("seed", slow_after(1, range(1, 4)))
def test_the_active_controller_and_another_brokers_process_die_at_once(seed: int) -> None:
    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        await lab.until_in_sync()
        active = lab.cluster.active_controller
        assert active is not None
        killed_ms = lab.world.loop.elapsed_ms()
        await lab.cluster.kill(active)
        await lab.cluster.kill(lab.leader())
        await lab.until_acknowledged(10)
        assert lab.longest_gap_ms(killed_ms) <= 1_500
        await lab.cluster.start()
        await lab.finish()

    simulate(scenario, seed=seed, plan=APART)


def test_a_killed_leader_is_replaced_well_within_a_session() -> None:
    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        for _ in range(5):
            await lab.until_in_sync()
            leader = lab.leader()
            killed_ms = lab.world.loop.elapsed_ms()
            await lab.cluster.kill(leader)
            await lab.until_acknowledged(10)
            assert lab.longest_gap_ms(killed_ms) <= 1_500
            await lab.cluster.restart(leader)
        await lab.finish()

    simulate(scenario)


@pytest.mark.parametrize("seed", slow_after(1, range(1, 4)))
def test_two_fast_elections_leave_one_history(seed: int) -> None:
    """Hazard 2: leaders that wrote what they could not replicate, one after the other."""

    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        for _ in range(3):
            await lab.until_in_sync()
            first = lab.leader()
            # Nothing is replicated from here on, but acks=1 goes on being written.
            for other in (1, 2, 3):
                if other != first:
                    lab.cluster.network.cut(first, other, "bulk")
            await lab.pass_time(0.4)
            await lab.cluster.kill(first)
            lab.cluster.network.heal()
            await lab.until_led_by_another(first)
            second = lab.leader()
            await lab.cluster.restart(first)
            await lab.pass_time(0.05)
            await lab.cluster.kill(second)
            await lab.pass_time(0.5)
            await lab.cluster.restart(second)
            await lab.until_acknowledged(5)
        await lab.finish()

    simulate(scenario, seed=seed, workload=replace(CARELESS, pause_s=0.02))


# --- stops -----------------------------------------------------------------------------


@pytest.mark.parametrize("pause_s", slow_after(2, [2.5, 12.0, 1.0, 5.0, 20.0]))
def test_a_leader_that_is_stopped_and_goes_on_later(pause_s: float) -> None:
    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        await lab.until_in_sync()
        leader = lab.leader()
        # So slow that a flush is under way when it stops.
        lab.cluster.slow_disk(leader, 200.0)
        await lab.pass_time(0.5)
        lab.cluster.pause(leader)
        lab.cluster.slow_disk(leader, 0.0)
        await lab.pass_time(pause_s)
        if pause_s > 4.5:
            assert lab.leader() != leader
        lab.cluster.resume(leader)
        await lab.until_acknowledged(10)
        await lab.finish()
        assert lab.cluster.halts == []

    simulate(scenario, workload=replace(CARELESS, pause_s=0.3))


def test_a_leader_that_was_replaced_unheard_sends_consumers_away() -> None:
    """To them OFFSET_OUT_OF_RANGE would mean that records were lost, and they would start over."""

    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        leader, known = lab.leader(), lab.state()
        for other in lab.followers():
            lab.cluster.cut(leader, other)
            lab.cluster.cut(other, leader)
        await lab.cluster.until(lambda: lab.leader() != leader, "another leader")
        await lab.until_acknowledged(10)
        request = kafka_messages.fetch(
            to_kio_uuid(lab.ref().topic_id),
            0,
            1 + max(sent.base_offset for sent in lab.answered),
            leader_epoch=known.leader_epoch,
            last_epoch=-1,  # it begins where its group has committed
            max_wait_ms=100,
            max_bytes=1000,
        )
        answer = await lab.ask(leader, request)
        (row,) = answer.responses[0].partitions
        assert ErrorCode(int(row.error_code)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        for other in (1, 2, 3):
            lab.cluster.mend(leader, other)
            lab.cluster.mend(other, leader)
        await lab.finish()

    simulate(scenario)


@pytest.mark.parametrize(("plan", "stall_s"), [(APART, 2.5), (THREE, 2.4)], ids=["apart", "one"])
@pytest.mark.parametrize("seed", slow_after(1, [1, 2]))
def test_a_stall_of_the_active_controller_fences_nobody(
    plan: ClusterPlan, stall_s: float, seed: int
) -> None:
    """Hazard 42: whoever stood still moves its deadlines, and hears what waits before it judges.

    A node that is a broker too is silent for its stall and up to a heartbeat interval before.
    """

    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        await lab.until_in_sync()
        epoch = lab.state().leader_epoch
        for _ in range(3):
            active = lab.cluster.active_controller
            assert active is not None
            lab.cluster.pause(active)
            await lab.pass_time(stall_s)
            lab.cluster.resume(active)
            for _ in range(40):
                await lab.pass_time(0.05)
                assert lab.fencings() == []
        assert lab.state().leader_epoch == epoch
        await lab.finish()

    simulate(scenario, seed=seed, plan=plan, workload=SPARSE)


def test_a_node_that_is_asked_to_stop_hands_over_first() -> None:
    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        for _ in range(3):
            await lab.until_in_sync()
            leader = lab.leader()
            begin_ms = lab.world.loop.elapsed_ms()
            lab.cluster.stop(leader)
            await lab.until_down(leader)
            await lab.until_acknowledged(10)
            assert lab.longest_gap_ms(begin_ms) <= 700
            await lab.cluster.restart(leader)
        await lab.finish()
        assert lab.cluster.halts == []

    simulate(scenario)


@pytest.mark.parametrize("seed", slow_after(1, range(1, 5)))
def test_a_retry_is_recognised_after_all_nodes_were_stopped_and_started(seed: int) -> None:
    """Hazard 24: a snapshot knows one batch of each producer; the last five are in the log."""

    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        for _ in range(3):
            await lab.until_acknowledged(15)
            for node in (1, 2, 3):
                lab.cluster.stop(node)
            for node in (1, 2, 3):
                await lab.until_down(node)
            await lab.cluster.start()
            await lab.cluster.until_serving()
        await lab.until_acknowledged(5)
        await lab.finish()
        assert lab.cluster.halts == []

    simulate(scenario, seed=seed, workload=replace(STEADY, window=5, pause_s=0.01))


# --- wiped disks -----------------------------------------------------------------------


@pytest.mark.parametrize("seed", slow_after(1, range(1, 4)))
def test_a_wiped_node_returns(seed: int) -> None:
    """Hazards 7 and 40: it is another directory, which neither votes nor counts at first."""

    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        await lab.until_in_sync()
        node = lab.leader() if seed % 2 else lab.followers()[0]
        await lab.cluster.kill(node)
        lab.cluster.replace_disk(node)
        await lab.cluster.restart(node)
        await lab.cluster.until(lambda: lab.cluster.nodes[node].is_serving, "it serves")
        assert lab.cluster.quorum(node) is not None
        voters = lab.voters()
        assert lab.cluster.replica_key(node) not in voters
        await lab.cluster.admit_replaced()
        assert lab.cluster.replica_key(node) in lab.voters()
        await lab.until_acknowledged(10)
        await lab.finish()

    simulate(scenario, seed=seed)


@pytest.mark.parametrize("seed", slow_after(1, range(1, 5)))
def test_a_report_that_was_under_way_does_not_admit_a_wiped_follower(seed: int) -> None:
    """Hazard 6 (KIP-903): the report speaks of an incarnation that is gone."""

    async def scenario(lab: SimLab) -> None:
        await lab.begin()
        await lab.until_in_sync()
        leader = lab.leader()
        follower = lab.followers()[seed % 2]
        await lab.cluster.kill(follower)
        await lab.until_acknowledged(10)
        # The leader's reports crawl, its heartbeats and fetches go on.
        slow = LinkQuality(min_delay_ms=900, max_delay_ms=1_000)
        for controller in lab.cluster.plan.controllers:
            lab.cluster.network.set_quality(leader, controller, slow, "control")
        await lab.cluster.restart(follower)

        await lab.cluster.until(lambda: lab.has_report(leader), "it is wanted back", 20.0)
        await lab.cluster.kill(follower)
        lab.cluster.replace_disk(follower)
        await lab.cluster.restart(follower)
        await lab.pass_time(3.0)
        lab.cluster.network.heal()
        await lab.until_acknowledged(5)
        await lab.finish()

    simulate(scenario, seed=seed, plan=APART)
