"""Disks that fail, hang, fill up or flip bits, followers that fall silent: what becomes of it."""

from __future__ import annotations

import asyncio

import pytest
from replica_lab import Lab, batch, in_lab

from tidelog.kernel.errors import ErrorCode
from tidelog.replication.follower import Phase


def test_a_failed_flush_of_the_leader_costs_its_directory() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "a")
        lab.nodes[1].disk.faults.fail("sync", "t-0")
        partition = lab.nodes[1].partition(ref)
        waiting = partition.append(batch("b"), acks=-1, timeout_ms=5000)
        assert (await waiting).code is ErrorCode.KAFKA_STORAGE_ERROR
        assert len(lab.nodes[1].failures) == 1
        refused = await partition.append(batch("c"), acks=1, timeout_ms=5000)
        assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert lab.nodes[1].replicas.lookup("t", 0) is partition
        await lab.until(lambda: lab.leader(ref).id != 1)
        await lab.until(lambda: lab.leader(ref).partition(ref).leader is not None)
        assert (await lab.produce(ref, "d")).code is ErrorCode.NONE
        await lab.nodes[1].kill()

    in_lab(script)


def test_a_failed_flush_of_a_follower_takes_it_out_of_the_isr() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        lab.nodes[2].disk.faults.fail("sync", "t-0")
        assert (await lab.produce(ref, "a")).code is ErrorCode.NONE
        assert set(lab.controller.state(ref).isr) == {1, 3}
        assert lab.nodes[2].partition(ref).failure is not None
        # After a restart its log is cut to the recovery point and fetched again before it counts.
        await lab.nodes[2].kill()
        lab.nodes[2].disk.faults.heal()
        await lab.nodes[2].start()
        await lab.in_sync(ref, 3)
        await lab.equal(ref)
        assert lab.nodes[2].values(ref) == ["a"]

    in_lab(script)


@pytest.mark.parametrize("node", [1, 2])
def test_a_failed_write_costs_the_directory(node: int) -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "a")
        lab.nodes[node].disk.faults.fail("write", "t-0")
        produced = await lab.produce(ref, "b")
        expected = ErrorCode.KAFKA_STORAGE_ERROR if node == 1 else ErrorCode.NONE
        assert produced.code is expected
        await lab.until(lambda: node not in lab.controller.state(ref).isr)
        assert len(lab.nodes[node].failures) == 1
        await lab.until(lambda: lab.leader(ref).partition(ref).leader is not None)
        assert (await lab.produce(ref, "c")).code is ErrorCode.NONE
        await lab.nodes[node].kill()

    in_lab(script)


def test_a_disk_that_cannot_be_read_costs_the_directory() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "a")
        lab.nodes[1].disk.faults.fail("read", ".log")
        partition = lab.nodes[1].partition(ref)
        partition.append(batch("b"), acks=1, timeout_ms=1000)  # to be read for a follower
        await lab.until(lambda: lab.leader(ref).id != 1)
        assert len(lab.nodes[1].failures) == 1
        await lab.nodes[1].kill()

    in_lab(script)


def test_a_flush_that_hangs_costs_the_directory_too() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "a")
        lab.nodes[1].disk.faults.stalled = True
        waiting = lab.nodes[1].partition(ref).append(batch("b"), acks=-1, timeout_ms=60_000)
        assert (await waiting).code is ErrorCode.KAFKA_STORAGE_ERROR
        await lab.until(lambda: lab.leader(ref).id != 1)
        lab.nodes[1].disk.faults.stalled = False
        await lab.nodes[1].kill()

    in_lab(script, log_flush_stall_timeout_ms="3000")


def test_a_slow_disk_does_not_push_a_follower_out() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        lab.nodes[3].disk.faults.step_delay_ms = 100
        partition = lab.nodes[1].partition(ref)
        futures = []
        for i in range(200):
            futures.append(partition.append(batch(f"v{i}"), acks=-1, timeout_ms=30_000))
            await asyncio.sleep(0.02)
        assert {(await future).code for future in futures} == {ErrorCode.NONE}
        assert lab.reports == []

    in_lab(script)


def test_a_full_disk_is_survived() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "a")
        for node in (lab.nodes[1], lab.nodes[3]):
            node.disk.faults.capacity_bytes = node.disk.used_bytes + 2000
        assert (await lab.produce(ref, "x" * 3000)).code is ErrorCode.KAFKA_STORAGE_ERROR
        assert (await lab.produce(ref, "b")).code is ErrorCode.NONE
        lab.nodes[1].disk.faults.capacity_bytes = None
        waiting = lab.nodes[1].partition(ref).append(batch("y" * 3000), acks=-1, timeout_ms=60_000)
        await asyncio.sleep(1)
        follower = lab.nodes[3].partition(ref).follower
        assert follower is not None and follower.phase is Phase.BACKING_OFF
        lab.nodes[3].disk.faults.capacity_bytes = None
        assert (await waiting).code is ErrorCode.NONE
        assert not lab.nodes[3].failures

    in_lab(script)


@pytest.mark.parametrize("byte", [-5, 1, 13], ids=["a record", "the base offset", "the epoch"])
def test_damaged_records_are_never_taken_in(byte: int) -> None:
    """Hazard 14: a bit flipped on the leader's disk is found by the follower's checksum, and
    where that does not look by the bounds of the leader's log."""

    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3), flush_policy="page-cache")
        await lab.nodes[3].kill()
        for i in range(3):
            await lab.produce(ref, f"v{i}")
        log = lab.nodes[1].partition(ref).log
        path = f"{log.directory}/00000000000000000000.log"
        size = lab.nodes[1].disk.open(path, read_only=True).size()
        position = (size if byte < 0 else size // 3 * 2) + byte
        lab.nodes[1].disk.flip_bit(path, position, 3)
        await lab.nodes[3].start()
        await asyncio.sleep(3)
        bad = lab.nodes[3].partition(ref)
        assert bad.log.end_offset == 2 and lab.nodes[3].values(ref) == ["v0", "v1"]
        assert bad.follower is not None and bad.follower.phase is Phase.BACKING_OFF
        assert 3 not in lab.controller.state(ref).isr
        lab.nodes[1].disk.flip_bit(path, position, 3)
        await lab.in_sync(ref, 3)
        assert lab.nodes[3].values(ref) == ["v0", "v1", "v2"]

    in_lab(script)


def test_a_silent_follower_leaves_and_comes_back() -> None:
    """Cut off without a reset: the stream stays, nothing comes over it (DESIGN 2.3)."""

    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "a")
        lab.network.cut(1, 3)
        before = asyncio.get_running_loop().time()
        await lab.in_sync(ref, 2)
        assert 1.0 <= asyncio.get_running_loop().time() - before <= 2.0
        assert (await lab.produce(ref, "b")).code is ErrorCode.NONE
        lab.network.heal()
        await lab.in_sync(ref, 3)
        await lab.equal(ref)

    in_lab(script)


def test_an_idle_follower_that_was_fenced_comes_back_without_a_record() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "a")
        await lab.equal(ref)
        lab.controller.fence(3)
        await lab.in_sync(ref, 2)
        await asyncio.sleep(1)
        lab.controller.unfence(3)
        before = asyncio.get_running_loop().time()
        await lab.in_sync(ref, 3)
        assert asyncio.get_running_loop().time() - before < 0.05

    in_lab(script)


def test_a_leader_that_stood_still_does_not_blame_its_followers() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "a")
        await asyncio.sleep(5)
        lab.world.clock.advance(20_000)  # nothing ran, nothing was read
        lab.nodes[1].replicas.check_isr(lab.world.clock.monotonic_ms())
        await asyncio.sleep(5)
        assert lab.reports == []
        assert (await lab.produce(ref, "b")).code is ErrorCode.NONE

    in_lab(script)


def test_a_wiped_node_is_filled_again() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        for i in range(50):
            await lab.produce(ref, f"v{i}")
        await lab.nodes[2].kill()
        lab.controller.fence(2)
        lab.nodes[2].disk.remove_tree("/data0")
        await lab.nodes[2].start()
        await lab.in_sync(ref, 3)
        await lab.equal(ref)
        assert lab.nodes[2].values(ref) == [f"v{i}" for i in range(50)]

    in_lab(script)


def test_a_replica_that_was_away_for_too_long_starts_over_empty() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "a")
        await lab.equal(ref)
        await lab.nodes[3].kill()
        lab.controller.fence(3)
        lab.controller.restart_empty(3, ref)
        await lab.produce(ref, "b")
        lab.nodes[1].partition(ref).log.raise_log_start(
            lab.nodes[1].partition(ref).log.high_watermark
        )
        await lab.nodes[3].start()
        await lab.in_sync(ref, 3)
        assert lab.controller.state(ref).restarts_empty == ()
        await lab.produce(ref, "c")
        assert lab.nodes[3].values(ref) == ["c"]

    in_lab(script)
