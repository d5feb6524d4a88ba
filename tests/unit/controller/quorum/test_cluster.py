"""Members of a quorum together: they elect, commit, survive, catch up, change and hand over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from quorum_cluster import SMALL, HistoryMachine, Member, QuorumCluster, record

from tidelog.controller.quorum import (
    MetadataQuorum,
    NotController,
    Quorum,
    RefusedToStart,
    RequestRefused,
)
from tidelog.controller.quorum.interface import ReplicaStatus
from tidelog.controller.raft import BrokenInvariant
from tidelog.controller.raft.effects import Effect, RejectReason
from tidelog.controller.raft.events import Event, Proposed, Tick
from tidelog.controller.raft.model import ReplicaKey, Voters
from tidelog.kernel.ids import NodeId
from tidelog.simulation import CrashAt, SimDisk, SimRandom, World, run_simulation

Scenario = Callable[[QuorumCluster], Awaitable[None]]


def play(scenario: Scenario, seed: int = 1, node_ids: tuple[int, ...] = (1, 2, 3)) -> None:
    """Run a scenario on a cluster that has started."""

    async def main(world: World) -> None:
        cluster = QuorumCluster(world, node_ids)
        await cluster.start()
        await scenario(cluster)

    run_simulation(main, seed, time_limit_s=600)


def quorum_of(member: Member) -> MetadataQuorum:
    assert member.quorum is not None
    return member.quorum


def member_quorum(member: Member) -> Quorum:
    assert member.quorum is not None
    return member.quorum


def machine_of(member: Member) -> HistoryMachine:
    assert member.machine is not None
    return member.machine


def replicas_of(leader: Member) -> list[ReplicaKey]:
    return [row.replica for row in quorum_of(leader).status().replicas]


async def others_of(cluster: QuorumCluster, member: Member) -> list[Member]:
    return [other for other in cluster.members.values() if other is not member]


# --- electing and committing ---------------------------------------------------------------------


@pytest.mark.parametrize("node_ids", [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4, 5)])
def test_a_new_quorum_elects_and_commits(node_ids: tuple[int, ...]) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        await cluster.until_active(2.0)
        for count in (1, 2, 30):
            await cluster.propose(count)
        await cluster.converge()
        assert len(cluster.truth.terms) == 1
        for member in cluster.members.values():
            assert quorum_of(member).leader_id in node_ids
            assert quorum_of(member).high_watermark >= machine_of(member).next_offset

    play(scenario, node_ids=node_ids)


def test_a_proposal_says_where_it_stands_and_is_applied_when_it_is_answered() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        member = await cluster.until_active()

        async def propose() -> None:
            batch = [record("a", 1), record("b", 1)]
            first = quorum_of(member).propose(batch)
            second = quorum_of(member).propose(batch[:1])
            assert first.last_offset == first.base_offset + 1
            assert second.base_offset == first.last_offset + 1
            assert first.term == quorum_of(member).term
            assert not first.committed.done()
            await second.committed
            assert first.committed.done()
            assert machine_of(member).history == [*batch, *batch[:1]]

        await cluster.run_in(member.node_id, propose())

    play(scenario)


def test_only_the_active_member_takes_proposals_and_others_name_it() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.until_active()
        await cluster.propose()
        for member in await others_of(cluster, leader):
            with pytest.raises(NotController) as refused:
                quorum_of(member).propose([record("x", 1)])
            assert refused.value.leader_id == leader.node_id
            with pytest.raises(NotController):
                await cluster.run_in(member.node_id, quorum_of(member).transfer_leadership(None))

    play(scenario)


def test_absurd_proposals_are_refused_and_change_nothing() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = quorum_of(await cluster.until_active())
        for batch in ([], [record("x", 1)] * 10_001, [record("x" * (9 << 20), 1)]):
            with pytest.raises(ValueError):
                leader.propose(batch)
        await cluster.converge()

    play(scenario)


def test_a_member_becomes_active_only_when_it_has_applied_all_that_was_decided() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        for _ in range(3):
            leader = await cluster.until_active()
            last = await cluster.propose(25)
            await cluster.kill(leader.node_id)
            successor = await cluster.until_active()
            term, next_offset = machine_of(successor).activations[-1]
            assert (term, next_offset > last) == (quorum_of(successor).term, True)
            await cluster.start(leader.node_id)

    play(scenario)


def test_a_member_that_starts_with_much_to_replay_is_not_active_before_it_has() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        for _ in range(30):
            last = await cluster.propose(2)
        for node in sorted(cluster.members):
            await cluster.kill(node)
        await cluster.start()
        leader = await cluster.until_active()
        assert machine_of(leader).activations[-1][1] > last

    play(scenario)


# --- surviving -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["kill", "lose_power", "stop"])
@pytest.mark.parametrize("who", ["leader", "follower"])
def test_one_member_may_go_and_come_back(how: str, who: str) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        for _ in range(3):
            leader = await cluster.until_active()
            await cluster.propose(20)
            victim = leader if who == "leader" else (await others_of(cluster, leader))[0]
            await getattr(cluster, how)(victim.node_id)
            await cluster.propose(20)
            await cluster.start(victim.node_id)
            await cluster.converge()

    play(scenario)


def test_a_killed_leader_is_followed_within_half_a_second() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        for _ in range(5):
            leader = await cluster.until_active()
            await cluster.propose()
            await cluster.kill(leader.node_id)
            before_s = cluster.world.loop.time()
            await cluster.propose()
            assert cluster.world.loop.time() - before_s < 0.5
            await cluster.start(leader.node_id)
            await cluster.converge()

    play(scenario)


def test_proposals_of_a_leader_that_is_cut_off_fail_and_their_callers_are_told() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.until_active()
        await cluster.propose()
        cluster.network.partition(
            [leader.node_id], [m.node_id for m in await others_of(cluster, leader)]
        )

        async def propose() -> None:
            await quorum_of(leader).propose([record("lost", 1)]).committed

        with pytest.raises(NotController):
            await cluster.run_in(leader.node_id, propose())
        assert not machine_of(leader).is_active
        await cluster.propose()
        cluster.network.heal()
        await cluster.converge()
        assert record("lost", 1) not in machine_of(leader).history

    play(scenario)


def test_the_power_may_fail_everywhere_at_once() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        for _ in range(4):
            await cluster.propose(10)
            for node in sorted(cluster.members):
                await cluster.lose_power(node)
            await cluster.start()
        await cluster.converge()

    for seed in range(3):
        play(scenario, seed)


def test_a_crash_at_any_disk_operation_of_a_member_loses_nothing() -> None:
    """Each round crashes a member one operation later, under a little load."""

    async def scenario(cluster: QuorumCluster) -> None:
        for nth in range(1, 30):
            await cluster.converge()
            leader = await cluster.until_active()
            followers = await others_of(cluster, leader)
            victim = leader if nth % 3 == 0 else followers[nth % 2]
            victim.disk.on_operation(CrashAt(nth))
            for _ in range(40):
                await cluster.propose(5)
                if victim.fatal:
                    break
            assert victim.fatal
            victim.disk.on_operation(None)
            await cluster.lose_power(victim.node_id, SimRandom(nth))
            await cluster.start(victim.node_id)
        await cluster.converge()

    play(scenario)


# --- snapshots -----------------------------------------------------------------------------------


def test_a_member_that_lags_far_behind_gets_a_snapshot() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.until_active()
        absent = (await others_of(cluster, leader))[0]
        await cluster.propose()
        await cluster.kill(absent.node_id)
        for _ in range(40):
            await cluster.propose(10)
        await cluster.start(absent.node_id)
        await cluster.converge()
        assert machine_of(absent).loaded
        await cluster.kill(absent.node_id)
        await cluster.start(absent.node_id)
        await cluster.converge()
        assert machine_of(absent).loaded, "it starts from the snapshot that it received"

    play(scenario)


def test_old_snapshots_and_segments_go() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        for _ in range(150):
            await cluster.propose(10)
        await cluster.converge()
        await asyncio.sleep(3)
        await cluster.propose()
        await asyncio.sleep(3)
        for member in cluster.members.values():
            names = member.disk.list_dir("/data/metadata/__cluster_metadata-0")
            assert "00000000000000000000.log" not in names
            assert not [name for name in names if name.endswith(".deleted")]
            assert [name for name in names if name.endswith(".checkpoint")]
            await cluster.kill(member.node_id)
        await cluster.start()
        await cluster.converge()

    play(scenario)


def test_a_full_disk_costs_a_snapshot_and_nothing_else() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        member = cluster.member(1)
        member.disk.faults.fail("write", ".checkpoint.part", error=28, times=3)
        for _ in range(60):
            await cluster.propose(10)
        assert not member.fatal
        await cluster.converge()

    play(scenario)


# --- members -------------------------------------------------------------------------------------


def test_a_voter_is_added_and_another_removed() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.until_active()
        await cluster.propose(10)
        newcomer = cluster.add_host(4)
        await cluster.start(4)
        await cluster.until(lambda: machine_of(newcomer).history)
        work = quorum_of(leader).add_voter(newcomer.key)
        await cluster.run_in(leader.node_id, work)
        gone = (await others_of(cluster, leader))[0]
        await cluster.run_in(leader.node_id, quorum_of(leader).remove_voter(gone.key))
        rows = quorum_of(leader).status().replicas
        voters = Voters.of(row.replica for row in rows if row.is_voter)
        expected = [m.key for m in cluster.members.values() if m is not gone]
        assert voters == Voters.of(expected)
        await cluster.kill(gone.node_id)
        del cluster.members[gone.node_id]
        await cluster.kill(leader.node_id)
        await cluster.propose(10)
        await cluster.start(leader.node_id)
        await cluster.converge()

    play(scenario)


def test_a_voter_that_lost_its_disk_votes_again_only_when_it_was_added() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.until_active()
        await cluster.propose(10)
        wiped = (await others_of(cluster, leader))[0]
        old_key = wiped.key
        await cluster.kill(wiped.node_id)
        cluster.wipe(wiped.node_id)
        await cluster.start(wiped.node_id)
        await cluster.until(lambda: machine_of(wiped).history)
        third = next(m for m in await others_of(cluster, leader) if m is not wiped)
        await cluster.kill(third.node_id)
        await asyncio.sleep(5)
        assert cluster.active is None, "two of three voters are gone"
        await cluster.start(third.node_id)
        leader = await cluster.until_active()
        await cluster.run_in(leader.node_id, quorum_of(leader).remove_voter(old_key))
        await cluster.until(lambda: wiped.key in replicas_of(leader))
        await cluster.run_in(leader.node_id, quorum_of(leader).add_voter(wiped.key))
        await cluster.kill(third.node_id)
        await cluster.propose(10)
        await cluster.start(third.node_id)
        await cluster.converge()

    play(scenario)


def test_changes_that_cannot_be_are_refused_with_a_reason() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.until_active()
        await cluster.propose()
        stranger = cluster.add_host(9)
        voter = (await others_of(cluster, leader))[0]
        quorum = quorum_of(leader)
        for work, reason in (
            (quorum.add_voter(voter.key), RejectReason.ALREADY_VOTER),
            (quorum.add_voter(stranger.key), RejectReason.UNKNOWN_LEARNER),
            (quorum.remove_voter(stranger.key), RejectReason.NOT_A_VOTER),
            (quorum.transfer_leadership(NodeId(9)), RejectReason.NOT_A_VOTER),
        ):
            with pytest.raises(RequestRefused) as refused:
                await cluster.run_in(leader.node_id, work)
            assert refused.value.reason is reason

    play(scenario)


def test_leadership_is_handed_over() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.until_active()
        await cluster.propose(10)
        target = (await others_of(cluster, leader))[0]
        work = quorum_of(leader).transfer_leadership(target.node_id)
        await cluster.run_in(leader.node_id, work)
        await cluster.until(lambda: cluster.active is target)
        assert not machine_of(leader).is_active
        await cluster.converge()

    play(scenario)


def test_a_leader_that_stops_in_good_order_hands_on_at_once() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.until_active()
        await cluster.propose()
        await cluster.run_in(leader.node_id, member_quorum(leader).close())
        before_s = cluster.world.loop.time()
        await cluster.until(lambda: cluster.active not in (None, leader))
        assert cluster.world.loop.time() - before_s < 0.2
        await cluster.kill(leader.node_id)
        await cluster.start(leader.node_id)
        await cluster.converge()

    play(scenario)


def test_the_leader_knows_how_far_its_replicas_are() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.until_active()
        last = await cluster.propose(10)
        await asyncio.sleep(1)
        status = quorum_of(leader).status()
        assert (status.leader_id, status.term) == (leader.node_id, quorum_of(leader).term)
        assert [row.replica for row in status.replicas] == [
            member.key for member in cluster.members.values()
        ]
        now_ms = cluster.world.clock.wall_ms()
        for row in status.replicas:
            assert (row.log_end_offset, row.lag, row.is_voter) == (last + 1, 0, True)
            assert now_ms - 400 <= row.last_fetch_ms <= now_ms
            assert now_ms - 400 <= row.last_caught_up_ms <= now_ms
        other = (await others_of(cluster, leader))[0]
        assert quorum_of(other).status().replicas == ()

    play(scenario)


def test_a_replica_that_a_new_leader_has_not_heard_from_has_no_times() -> None:
    """Kafka says -1; the moment of the election would make a dead node look alive."""

    async def scenario(cluster: QuorumCluster) -> None:
        first = await cluster.until_active()
        await cluster.kill(first.node_id)
        await cluster.propose()
        second = await cluster.until_active()

        def dead() -> ReplicaStatus:
            rows = quorum_of(second).status().replicas
            (row,) = (row for row in rows if row.replica == first.key)
            return row

        assert (dead().last_fetch_ms, dead().last_caught_up_ms) == (-1, -1)
        await cluster.start(first.node_id)
        await cluster.converge()
        assert min(dead().last_fetch_ms, dead().last_caught_up_ms) > 0

    play(scenario)


# --- halting -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "path"), [("sync", ".log"), ("write", ".log"), ("rename", "quorum-state")]
)
def test_an_error_of_the_metadata_directory_halts_the_member(kind: str, path: str) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.until_active()
        await cluster.propose()
        leader.disk.faults.fail(kind, path)  # type: ignore[arg-type]
        if path == "quorum-state":
            target = (await others_of(cluster, leader))[0]
            await cluster.run_in(
                leader.node_id, quorum_of(leader).transfer_leadership(target.node_id)
            )
        await cluster.propose()
        await cluster.until(lambda: leader.fatal)
        assert not leader.is_active
        with pytest.raises(NotController):
            quorum_of(leader).propose([record("x", 1)])
        await cluster.propose()
        leader.disk.faults.heal()
        await cluster.kill(leader.node_id)
        await cluster.start(leader.node_id)
        await cluster.converge()

    play(scenario)


def test_a_state_machine_that_fails_halts_the_member() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.until_active()
        victim = (await others_of(cluster, leader))[0]

        def fail(_: object) -> None:
            raise RuntimeError("a defect")

        machine_of(victim).on_applied = fail
        await cluster.propose()
        await cluster.until(lambda: victim.fatal)
        await cluster.propose()

    play(scenario)


@pytest.mark.parametrize("when", ["at a tick", "at a proposal"])
def test_a_broken_invariant_halts_the_member(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.until_active()
        await cluster.propose()
        node = member_quorum(leader)._node
        step = node.step

        def broken(now_ms: float, event: Event) -> list[Effect]:
            if isinstance(event, Tick if when == "at a tick" else Proposed):
                raise BrokenInvariant("two leaders in one term")
            return step(now_ms, event)

        monkeypatch.setattr(node, "step", broken)
        if when == "at a proposal":
            with pytest.raises(NotController):
                quorum_of(leader).propose([record("x", 1)])
        await cluster.until(lambda: leader.fatal)
        assert not machine_of(leader).is_active
        await cluster.propose()

    play(scenario)


def test_a_damaged_directory_keeps_its_member_from_starting() -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        await cluster.propose(20)
        await asyncio.sleep(2)
        await cluster.kill(1)
        path = "/data/metadata/__cluster_metadata-0/00000000000000000000.log"
        cluster.member(1).disk.flip_bit(path, 200, 0)
        with pytest.raises(RefusedToStart):
            await cluster.start(1)
        await cluster.propose()

    play(scenario)


# --- an unquiet world ----------------------------------------------------------------------------


def test_a_stalled_leader_keeps_its_place_if_nobody_else_can_take_it() -> None:
    """Late ticks move deadlines: after a stop of everything nothing has expired."""

    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.until_active()
        await cluster.propose()
        term = quorum_of(leader).term
        for node in cluster.members:
            cluster.network.pause(node)
        await asyncio.sleep(2.5)
        for node in cluster.members:
            cluster.network.resume(node)
        await cluster.propose()
        assert quorum_of(leader).term == term
        assert cluster.active is leader

    play(scenario)


def test_the_same_seed_gives_the_same_run() -> None:
    def digest() -> tuple[str, float]:
        async def main(world: World) -> tuple[str, float]:
            cluster = QuorumCluster(world, settings=SMALL)
            await cluster.start()
            for _ in range(10):
                await cluster.propose(10)
            await cluster.kill(1)
            await cluster.propose()
            return cluster.network.trace.digest(), world.loop.time()

        return run_simulation(main, 7)

    assert digest() == digest()


def test_disks_differ_from_node_to_node() -> None:
    """The harness itself: nobody reads another's disk."""

    async def scenario(cluster: QuorumCluster) -> None:
        disks: list[SimDisk] = [member.disk for member in cluster.members.values()]
        assert len({id(disk) for disk in disks}) == 3

    play(scenario)
