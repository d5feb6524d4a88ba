"""The cleaner on replicas: who is cleaned, what holds tombstones back, what ends a pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from near_workers import NearWorkers
from replica_lab import Lab, LabNode, in_lab

from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import LeaderEpoch, NodeId, Offset, PartitionIndex, TopicPartition
from tidelog.kernel.ports import WorkerLost, Workers
from tidelog.replication.cleaners import LogCleaners
from tidelog.replication.follower import Fetched, FollowerPartition, LocalLog
from tidelog.simulation.random import SimRandom
from tidelog.storage.cleaner.pass_messages import Begin, Question, Work
from tidelog.storage.cleaner.plan import Hold
from tidelog.storage.epoch_cache import UNDEFINED_END, EpochEnd
from tidelog.storage.names import LOG_SUFFIX
from tidelog.wire.records import Record, build_batch

COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": "100",
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": "1000",
}


class Cleaned:
    """A lab whose nodes clean; every write closes the segment before it."""

    def __init__(self, lab: Lab, *, begins: bool = True) -> None:
        self.lab = lab
        self.cleaners: dict[int, LogCleaners] = {}
        for number, node in lab.nodes.items():
            if begins:
                self.begin(number, node)

    def begin(self, number: int, node: LabNode, workers: Workers | None = None) -> None:
        cleaners = LogCleaners(node.replicas, SimRandom(number), workers)
        self.cleaners[number] = cleaners
        node.tasks.append(asyncio.get_running_loop().create_task(cleaners.run()))

    async def write(self, ref: PartitionRef, **pairs: str | None) -> None:
        await asyncio.sleep(0.2)
        now_ms = self.lab.world.clock.wall_ms()
        records = [
            Record(i, now_ms, key.encode(), None if value is None else value.encode())
            for i, (key, value) in enumerate(pairs.items())
        ]
        leader = self.lab.leader(ref).partition(ref)
        produced = await leader.append(build_batch(records), acks=-1, timeout_ms=5000)
        assert produced.code is ErrorCode.NONE

    def clean_points(self, ref: PartitionRef) -> list[int]:
        return [node.partition(ref).clean_point for node in self.lab.nodes.values() if node.is_up]

    async def until_clean(self, ref: PartitionRef, offset: int) -> None:
        await self.lab.until(lambda: min(self.clean_points(ref)) >= offset)


def with_cleaners(script: Callable[[Lab, Cleaned], Awaitable[None]]) -> None:
    async def run(lab: Lab) -> None:
        await script(lab, Cleaned(lab))

    in_lab(run, log_cleaner_backoff_ms="50", log_cleaner_dedupe_buffer_size=str(1 << 20))


def test_all_replicas_are_cleaned_and_hear_how_far_the_others_are() -> None:
    async def script(lab: Lab, cleaned: Cleaned) -> None:
        ref = await lab.create("t", (1, 2, 3), **COMPACTED)
        for turn in range(4):
            await cleaned.write(ref, a=f"a{turn}", b=f"b{turn}")
        await cleaned.until_clean(ref, 6)
        for node in lab.nodes.values():
            assert node.values(ref) == ["a2", "b2", "a3", "b3"]
        await lab.until(
            lambda: all(node.partition(ref).clean_floor() == 6 for node in lab.nodes.values())
        )

    with_cleaners(script)


def test_tombstones_wait_for_a_replica_that_is_away() -> None:
    async def script(lab: Lab, cleaned: Cleaned) -> None:
        ref = await lab.create("t", (1, 2, 3), **COMPACTED)
        await cleaned.write(ref, doomed="1", kept="1")
        await lab.equal(ref)
        await lab.nodes[3].kill()
        await lab.in_sync(ref, 2)
        await cleaned.write(ref, doomed=None)
        for turn in range(20):
            await cleaned.write(ref, other=str(turn))
        assert "" in lab.nodes[1].values(ref)  # the tombstone, long after its time
        assert lab.nodes[1].partition(ref).held_back_to == 3
        behind = cleaned.cleaners[1].view(lab.nodes[1].partition(ref)).last
        assert behind is not None and behind.held_back_reason is not None
        assert behind.held_back_reason.hold is Hold.REPLICA_BEHIND

        await lab.nodes[3].start()
        cleaned.begin(3, lab.nodes[3])
        await lab.in_sync(ref, 3)
        for turn in range(20):
            await cleaned.write(ref, other=str(turn))
        for node in lab.nodes.values():
            assert "" not in node.values(ref)
            assert "1" in node.values(ref)  # of the key that is kept
            assert node.partition(ref).held_back_to == 0

    with_cleaners(script)


def test_a_lone_replica_waits_for_its_own_clean_point() -> None:
    """A replica that is added in the middle of a pass fetches from it."""

    async def script(lab: Lab, cleaned: Cleaned) -> None:
        ref = await lab.create("t", (1,), **COMPACTED, min_insync_replicas="1")
        await cleaned.write(ref, doomed="1")
        await cleaned.write(ref, doomed=None)
        assert lab.nodes[1].partition(ref).clean_floor() <= 1  # the tombstone is not below it
        for turn in range(20):
            await cleaned.write(ref, other=str(turn))
        assert "" not in lab.nodes[1].values(ref)

    with_cleaners(script)


def test_a_replica_that_is_away_for_too_long_starts_over_empty() -> None:
    async def script(lab: Lab, cleaned: Cleaned) -> None:
        ref = await lab.create("t", (1, 2, 3), **COMPACTED)
        await cleaned.write(ref, doomed="old", kept="1")
        await lab.equal(ref)
        await lab.nodes[3].kill()
        lab.controller.fence(3)
        await lab.in_sync(ref, 2)
        await cleaned.write(ref, doomed=None)
        lab.controller.restart_empty(3, ref)
        for turn in range(20):
            await cleaned.write(ref, other=str(turn))
        assert "" not in lab.nodes[1].values(ref)  # nobody has to be waited for
        await lab.nodes[3].start()
        cleaned.begin(3, lab.nodes[3])
        await lab.in_sync(ref, 3)
        await lab.equal(ref)
        assert "old" not in lab.nodes[3].values(ref)
        assert "1" in lab.nodes[3].values(ref)

    with_cleaners(script)


def test_a_replica_that_holds_others_up_is_made_to_clean() -> None:
    async def script(lab: Lab, cleaned: Cleaned) -> None:
        ref = await lab.create("t", (1, 2, 3), **COMPACTED)
        for turn in range(3):
            await cleaned.write(ref, a=str(turn))
        await cleaned.until_clean(ref, 2)
        follower = lab.nodes[2].partition(ref)
        leader = lab.leader(ref).partition(ref)
        assert not follower.is_cleaning_wanted
        leader.held_back_to = Offset(50)  # as if a pass had found something
        leader.cleaned()
        await lab.until(lambda: follower.is_cleaning_wanted)
        assert cleaned.cleaners[2].view(follower).plan.must_clean_now

    with_cleaners(script)


def test_a_log_that_cannot_be_read_is_let_be_and_the_others_go_on() -> None:
    async def script(lab: Lab, cleaned: Cleaned) -> None:
        for one in cleaned.cleaners.values():
            one.states.pause(TopicPartition("bad", PartitionIndex(0)))
        bad = await lab.create("bad", (1, 2, 3), **COMPACTED)
        good = await lab.create("good", (1, 2, 3), **COMPACTED)
        for turn in range(3):
            await cleaned.write(bad, a=str(turn))
            await cleaned.write(good, a=str(turn))
        assert cleaned.cleaners[1].view(lab.nodes[1].partition(bad)).plan.reasons[0].hold is (
            Hold.PAUSED
        )
        log = lab.nodes[1].partition(bad).log
        file = lab.nodes[1].disk.open(log.segments[0].path(LOG_SUFFIX))
        file.pwrite(b"\xff" * 8, 60)
        file.close()
        for one in cleaned.cleaners.values():
            one.states.resume(log.tp)
        await cleaned.until_clean(good, 2)
        await lab.until(lambda: cleaned.cleaners[1].states.uncleanable(log.tp) is not None)
        assert lab.nodes[1].partition(bad).failure is None
        await cleaned.write(good, a="more")
        await cleaned.until_clean(good, 3)
        reasons = cleaned.cleaners[1].view(lab.nodes[1].partition(bad)).plan.reasons
        assert Hold.UNCLEANABLE in {reason.hold for reason in reasons}

    with_cleaners(script)


def test_a_topic_is_deleted_and_made_again_under_its_cleaner() -> None:
    async def script(lab: Lab, cleaned: Cleaned) -> None:
        for life in range(3):
            ref = await lab.create("t", (1, 2, 3), **COMPACTED)
            for turn in range(3 + life):
                await cleaned.write(ref, a=f"{life}-{turn}")
            lab.controller.delete("t")
            await lab.until(lambda: all(not n.replicas.partitions for n in lab.nodes.values()))
        ref = await lab.create("t", (1, 2, 3), **COMPACTED)
        await cleaned.write(ref, a="new")
        await lab.equal(ref)
        for node in lab.nodes.values():
            assert node.values(ref) == ["new"]
            assert node.failures == []
            assert node.partition(ref).clean_point == 0

    with_cleaners(script)


def test_a_node_stops_while_it_cleans() -> None:
    async def script(lab: Lab, cleaned: Cleaned) -> None:
        ref = await lab.create("t", (1, 2, 3), **COMPACTED)
        for turn in range(5):
            await cleaned.write(ref, a=str(turn))
        node = lab.nodes[2]
        await lab.until(lambda: bool(node.replicas.keeper.passes))
        await node.stop()
        assert node.replicas.keeper.passes == {}
        await node.start(previous_epoch=node.epoch)
        await lab.equal(ref)
        assert node.values(ref)[-1] == "4"

    with_cleaners(script)


def test_a_worker_that_dies_costs_time_and_nothing_else() -> None:
    async def script(lab: Lab, cleaned: Cleaned) -> None:
        lives, left = iter((0, 2, 1)), 0

        def mortal(question: Question) -> None:
            nonlocal left
            if isinstance(question, Begin):
                left = next(lives, 100)
            elif isinstance(question, Work):
                left -= 1
                if left < 0:
                    raise WorkerLost("it was killed")

        workers = {n: NearWorkers(node.disk, mortal) for n, node in lab.nodes.items()}
        for number, node in lab.nodes.items():
            cleaned.begin(number, node, workers[number])
        ref = await lab.create("t", (1,), **COMPACTED, min_insync_replicas="1")
        for turn in range(6):
            await cleaned.write(ref, a=f"a{turn}", b=f"b{turn}")
        await lab.until(lambda: lab.nodes[1].partition(ref).clean_point >= 10)
        assert lab.nodes[1].values(ref) == ["a4", "b4", "a5", "b5"]
        assert next(lives, None) is None  # all those deaths were died
        names = lab.nodes[1].disk.list_dir(lab.nodes[1].partition(ref).log.directory)
        assert [name for name in names if name.endswith((".cleaned", ".swap"))] == []

    async def run(lab: Lab) -> None:
        await script(lab, Cleaned(lab, begins=False))

    in_lab(run, log_cleaner_backoff_ms="50", log_cleaner_dedupe_buffer_size=str(1 << 20))


def test_a_follower_believes_only_what_its_present_leader_told() -> None:
    machine = FollowerPartition(NodeId(1), LeaderEpoch(5), 1000)
    log = LocalLog(Offset(0), Offset(9), Offset(9), Offset(9), LeaderEpoch(5))

    def answer(epoch: int, floor: int, wanted: int, diverging: EpochEnd | None = None) -> None:
        machine.stream_lost()
        machine.asked(1, Offset(9))
        told = Fetched(
            ErrorCode.NONE,
            LeaderEpoch(epoch),
            Offset(9),
            Offset(9),
            Offset(0),
            Offset(9),
            diverging,
            min_clean_point=Offset(floor),
            wanted_clean_point=Offset(wanted),
        )
        machine.answered(0.0, 1, told, log, lambda epoch: UNDEFINED_END)

    assert (machine.clean_floor, machine.wanted_clean_point) == (0, 0)
    answer(4, 7, 8)
    assert (machine.clean_floor, machine.wanted_clean_point) == (0, 0)
    answer(5, 7, 8, EpochEnd(LeaderEpoch(4), Offset(3)))
    assert (machine.clean_floor, machine.wanted_clean_point) == (0, 0)
    answer(5, 7, 8)
    assert (machine.clean_floor, machine.wanted_clean_point) == (7, 8)
    answer(5, 2, 0)  # a replica was added, which has not cleaned at all
    assert (machine.clean_floor, machine.wanted_clean_point) == (2, 0)
