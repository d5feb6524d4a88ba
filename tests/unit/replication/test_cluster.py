"""Three nodes with simulated disks replicate a partition: produce, failover, truncation, ISR."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from replica_lab import Lab, batch, in_lab

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NodeId, PartitionEpoch
from tidelog.kernel.peers import StreamReset
from tidelog.replication.fetch_messages import FETCH


def test_an_acknowledged_batch_is_flushed_on_every_replica() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        produced = await lab.produce(ref, "a", "b")
        assert (produced.code, produced.base_offset) == (ErrorCode.NONE, 0)
        for node in lab.nodes.values():
            assert node.partition(ref).log.flushed_end >= 2
        await lab.equal(ref)
        assert all(node.values(ref) == ["a", "b"] for node in lab.nodes.values())

    in_lab(script)


def test_an_acknowledgement_needs_one_message_each_way() -> None:
    """Append, data to the parked fetch, progress back: no timer and no further round trip."""

    async def script(lab: Lab) -> None:
        lab.network.latency_ms = 50.0
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "warm up")
        await asyncio.sleep(2)
        loop = asyncio.get_running_loop()
        before = loop.time()
        assert (await lab.produce(ref, "a")).code is ErrorCode.NONE
        flush_s = 0.030  # a few drawn steps of at most 5 ms
        assert 0.100 <= loop.time() - before < 0.100 + flush_s

    in_lab(script)


def test_produce_without_waiting() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        partition = lab.leader(ref).partition(ref)
        for acks in (0, 1):
            future = partition.append(batch("a"), acks=acks, timeout_ms=1000)
            assert future.done() and future.result().code is ErrorCode.NONE
        assert (partition.log.end_offset, partition.log.high_watermark) == (2, 0)
        await lab.equal(ref)

    in_lab(script)


def test_a_batch_that_is_refused_is_not_written() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        partition = lab.leader(ref).partition(ref)
        damaged = bytearray(batch("a"))
        damaged[-1] ^= 1
        refused = await partition.append(bytes(damaged), acks=-1, timeout_ms=1000)
        assert refused.code is ErrorCode.CORRUPT_MESSAGE
        follower = lab.nodes[2].partition(ref)
        refused = await follower.append(batch("a"), acks=-1, timeout_ms=1000)
        assert refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.log.end_offset == 0

    in_lab(script)


@pytest.mark.parametrize("power_loss", [False, True])
def test_another_replica_leads_when_the_leader_dies(power_loss: bool) -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        for i in range(20):
            assert (await lab.produce(ref, f"v{i}")).code is ErrorCode.NONE
        await lab.nodes[1].kill(power_loss=power_loss)
        lab.controller.fence(1)
        await lab.until(lambda: lab.leader(ref).partition(ref).leader is not None)
        assert lab.leader(ref).id != 1
        new = lab.leader(ref).partition(ref)
        # On record before anything is written in it, so that others can ask about it.
        assert new.log.epochs.latest_entry == (new.leader_epoch, 20)
        assert (await lab.produce(ref, "after")).code is ErrorCode.NONE
        await lab.nodes[1].start()
        await lab.in_sync(ref, 3)
        await lab.equal(ref)
        expected = [*(f"v{i}" for i in range(20)), "after"]
        assert all(node.values(ref) == expected for node in lab.nodes.values())

    in_lab(script)


def test_power_loss_on_all_nodes_loses_nothing_acknowledged() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        partition = lab.leader(ref).partition(ref)
        waiting = [partition.append(batch(f"v{i}"), acks=-1, timeout_ms=9000) for i in range(60)]
        await asyncio.sleep(0.012)
        acknowledged = [f"v{i}" for i, future in enumerate(waiting) if future.done()]
        await asyncio.gather(*(node.kill(power_loss=True) for node in lab.nodes.values()))
        for i in (1, 2, 3):
            lab.controller.fence(i)
        for node in lab.nodes.values():
            await node.start()
        await lab.in_sync(ref, 3)
        await lab.equal(ref)
        values = lab.leader(ref).values(ref)
        assert values[: len(acknowledged)] == acknowledged
        assert values == [f"v{i}" for i in range(len(values))]

    for seed in range(8):
        in_lab(script, seed=seed)


def test_the_former_leader_cuts_what_nobody_acknowledged() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "kept")
        await lab.equal(ref)
        lab.network.cut(1, 2)
        lab.network.cut(1, 3)
        old = lab.nodes[1].partition(ref)
        lost = old.append(batch("lost"), acks=-1, timeout_ms=60_000)
        old.append(batch("lost too"), acks=1, timeout_ms=1000)
        lab.controller.fence(1)
        await lab.until(lambda: lab.leader(ref).id != 1)
        # It has heard of its fall: whoever waits is told at once.
        await lab.until(lambda: old.leader is None)
        assert lost.result().code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await lab.until(lambda: lab.leader(ref).partition(ref).leader is not None)
        assert (await lab.produce(ref, "new")).code is ErrorCode.NONE
        lab.network.heal()
        lab.controller.unfence(1)
        await lab.in_sync(ref, 3)
        await lab.equal(ref)
        assert all(node.values(ref) == ["kept", "new"] for node in lab.nodes.values())

    in_lab(script)


def test_fast_elections_in_a_row_leave_one_history() -> None:
    """KIP-279: leaders that wrote alone, one after the other, in the same offsets."""

    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3), unclean_leader_election_enable="false")
        await lab.produce(ref, "base")
        await lab.equal(ref)
        for round_ in range(6):
            leader = lab.leader(ref)
            for other in lab.nodes.values():
                if other is not leader:
                    lab.network.cut(leader.id, other.id)
            leader.partition(ref).append(batch(f"alone {round_}"), acks=1, timeout_ms=100)
            lab.controller.fence(leader.id)
            await lab.until(
                lambda old=leader: (  # type: ignore[misc]
                    lab.leader(ref) is not old and lab.leader(ref).partition(ref).leader is not None
                )
            )
            lab.network.heal()
            lab.controller.unfence(leader.id)
            await lab.in_sync(ref, 3)
        assert (await lab.produce(ref, "end")).code is ErrorCode.NONE
        await lab.equal(ref)
        assert lab.nodes[1].values(ref) == lab.nodes[2].values(ref) == lab.nodes[3].values(ref)
        assert lab.nodes[1].values(ref)[0] == "base"

    in_lab(script)


def test_below_min_isr_acks_all_is_refused_and_the_watermark_frozen() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "a")
        await lab.nodes[2].kill()
        await lab.nodes[3].kill()
        waiting = lab.nodes[1].partition(ref).append(batch("b"), acks=-1, timeout_ms=1000)
        await lab.in_sync(ref, 1)  # by silence; the controller has not noticed
        await lab.until(lambda: lab.nodes[1].partition(ref).leader is not None)
        assert (await waiting).code is ErrorCode.REQUEST_TIMED_OUT
        assert (await lab.produce(ref, "c")).code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await lab.produce(ref, "d", acks=1)).code is ErrorCode.NONE
        await asyncio.sleep(1)
        log = lab.nodes[1].partition(ref).log
        assert (log.high_watermark, log.end_offset) == (1, 3)
        await lab.nodes[2].start()
        await lab.in_sync(ref, 2)
        assert (await lab.produce(ref, "e")).code is ErrorCode.NONE
        assert lab.nodes[2].values(ref) == ["a", "b", "d", "e"]

    in_lab(script)


def test_lowering_min_isr_takes_effect_at_once() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3), min_insync_replicas="3")
        await lab.nodes[3].kill()
        await lab.in_sync(ref, 2)
        assert (await lab.produce(ref, "a")).code is ErrorCode.NOT_ENOUGH_REPLICAS
        lab.controller.configure("t", min_insync_replicas="2")
        await asyncio.sleep(0.1)
        assert (await lab.produce(ref, "a")).code is ErrorCode.NONE

    in_lab(script)


def test_a_duplicate_waits_like_the_original() -> None:
    """Hazard 39, and hazard 24: after a failover the last five batches are still known."""

    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        batches = [
            batch(f"v{i}", producer_id=7, producer_epoch=0, base_sequence=i) for i in range(6)
        ]
        first = lab.nodes[1].partition(ref)
        for data in batches[:5]:
            assert (await first.append(data, acks=-1, timeout_ms=5000)).code is ErrorCode.NONE
        lab.network.cut(1, 2)
        lab.network.cut(1, 3)
        original = first.append(batches[5], acks=-1, timeout_ms=900)
        duplicate = first.append(batches[5], acks=-1, timeout_ms=900)
        await asyncio.sleep(0.5)
        assert not original.done() and not duplicate.done()
        lab.network.heal()
        assert (await duplicate).base_offset == (await original).base_offset == 5
        assert first.log.end_offset == 6
        await lab.nodes[1].kill()
        lab.controller.fence(1)
        await lab.until(lambda: lab.leader(ref).partition(ref).leader is not None)
        second = lab.leader(ref).partition(ref)
        for i in range(1, 6):
            again = await second.append(batches[i], acks=-1, timeout_ms=5000)
            assert (again.code, again.base_offset) == (ErrorCode.NONE, i)
        assert second.log.end_offset == 6

    in_lab(script)


def test_restarted_replicas_know_the_last_batches_of_a_producer() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        batches = [
            batch(f"v{i}", producer_id=7, producer_epoch=0, base_sequence=i) for i in range(5)
        ]
        for data in batches:
            await lab.nodes[1].partition(ref).append(data, acks=-1, timeout_ms=5000)
        for node in lab.nodes.values():
            await node.stop()
            lab.controller.fence(node.id)
        for node in lab.nodes.values():
            await node.start(previous_epoch=node.epoch)
        await lab.in_sync(ref, 3)
        await lab.until(lambda: lab.leader(ref).partition(ref).leader is not None)
        partition = lab.leader(ref).partition(ref)
        for i, data in enumerate(batches):
            again = await partition.append(data, acks=-1, timeout_ms=5000)
            assert (again.code, again.base_offset) == (ErrorCode.NONE, i)

    in_lab(script)


def test_a_report_survives_an_absent_controller() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        lab.is_controller_cut = True
        await lab.nodes[3].kill()
        await asyncio.sleep(4)
        leader = lab.nodes[1].partition(ref).leader
        assert leader is not None and leader.pending_report is not None
        assert leader.maximal_isr == {1, 2, 3}
        lab.is_controller_cut = False
        lab.metadata_delay_ms = 10_000
        await asyncio.sleep(0.01)
        await lab.in_sync(ref, 2)
        await lab.until(lambda: leader.pending_report is None)
        # The answer is enough: metadata that says the same comes later, or says less.
        partition = lab.nodes[1].partition(ref)
        assert partition.state is not None and set(partition.state.isr) == {1, 2}
        older = dataclasses.replace(
            partition.state, isr=partition.state.replicas, partition_epoch=PartitionEpoch(0)
        )
        partition.assume(older)
        assert partition.state.isr == leader.isr
        assert len({id(report) for report in lab.reports}) == 1

    in_lab(script)


def test_a_second_stream_of_a_follower_takes_the_place_of_the_first() -> None:
    async def script(lab: Lab) -> None:
        await lab.create("t", (1, 2, 3))
        service = lab.nodes[1].replicas.fetch_service
        first = service.streams[NodeId(2)]
        [link] = [ends for ends in lab.network.links if (ends[0].node, ends[1].node) == (2, 1)]
        stream = lab.network.peers(NodeId(2)).open_stream(NodeId(1), FETCH)
        await asyncio.sleep(0.01)
        assert service.streams[NodeId(2)] is not first
        assert isinstance(link[1].failure, StreamReset)
        stream.close()
        await asyncio.sleep(1)
        assert service.streams[NodeId(2)] is not first  # the follower came back by itself

    in_lab(script)


def test_a_clean_restart_of_everybody() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        for i in range(5):
            await lab.produce(ref, f"v{i}")
        await lab.equal(ref)
        for node in lab.nodes.values():
            await node.stop()
            lab.controller.fence(node.id)
        for node in lab.nodes.values():
            await node.start(previous_epoch=node.epoch)
            assert [r.report.end_offset for r in node.recovered] == [5]
        await lab.in_sync(ref, 3)
        await lab.until(lambda: lab.leader(ref).partition(ref).leader is not None)
        assert (await lab.produce(ref, "more")).base_offset == 5

    in_lab(script)


def test_batches_larger_than_a_message_are_replicated() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3), max_message_bytes=str(5 << 20))
        big = "x" * (3 << 20)
        assert (await lab.produce(ref, big)).code is ErrorCode.NONE
        for i in range(4):
            assert (await lab.produce(ref, str(i) * (700 << 10))).code is ErrorCode.NONE
        await lab.equal(ref)
        values = lab.nodes[3].values(ref)
        assert [len(value) for value in values] == [3 << 20, *[700 << 10] * 4]

    in_lab(script)


def test_the_same_seed_gives_the_same_run() -> None:
    seen: list[list[float]] = []

    async def script(lab: Lab) -> None:
        times: list[float] = []
        ref = await lab.create("t", (1, 2, 3))
        for i in range(5):
            await lab.produce(ref, f"v{i}")
            times.append(asyncio.get_running_loop().time())
        seen.append([*times, float(lab.network.messages)])

    in_lab(script, seed=3)
    in_lab(script, seed=3)
    assert seen[0] == seen[1]
