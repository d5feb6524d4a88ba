"""Consumers: what they see, how they wait, where they are sent; offsets by time and by epoch."""

from __future__ import annotations

import asyncio

import pytest
from replica_lab import Lab, LabNode, batch, in_lab

from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import CoordinatorEpoch, Offset, ProducerEpoch, ProducerId, Sequence
from tidelog.replication.outcomes import (
    EARLIEST,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ClientMetadata,
    IsolationLevel,
)
from tidelog.replication.partition import Partition
from tidelog.replication.waiting import FetchWaiter, Want
from tidelog.storage.txn_verification import Verification
from tidelog.wire.control import ControlType, EndTxnMarker
from tidelog.wire.records import decode_records

UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
COMMITTED = IsolationLevel.READ_COMMITTED


def now() -> float:
    return asyncio.get_running_loop().time()


async def wait_for(
    partition: Partition,
    offset: int,
    *,
    min_bytes: int = 1,
    max_wait_ms: float = 5000,
    isolation: IsolationLevel = UNCOMMITTED,
) -> list[bytes | None]:
    """A fetch as a handler does it: read, wait, read again."""
    read = partition.read_for_consumer(Offset(offset), 1 << 20, isolation)
    if read.size < min_bytes and not read.is_urgent:
        waiter = FetchWaiter(min_bytes)
        waiter.attach(partition, Want(Offset(offset), isolation, 1 << 20, read.size))
        await waiter.wait(max_wait_ms)
        read = partition.read_for_consumer(Offset(offset), 1 << 20, isolation)
    if read.records is None:
        return []
    data, values = read.records.read(), []
    position = 0
    while position < len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        values += [record.value for record in decode_records(data[position : position + size])]
        position += size
    return values


def test_a_consumer_sees_only_what_is_committed() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        partition = lab.nodes[1].partition(ref)
        lab.network.cut(1, 2)
        future = partition.append(batch("a"), acks=-1, timeout_ms=9000)
        await asyncio.sleep(0.1)
        read = partition.read_for_consumer(Offset(0), 1 << 20, UNCOMMITTED)
        assert (read.code, read.size, read.high_watermark) == (ErrorCode.NONE, 0, 0)
        lab.network.heal()
        await future
        read = partition.read_for_consumer(Offset(0), 1 << 20, UNCOMMITTED)
        assert read.size > 0 and read.high_watermark == 1
        assert partition.read_for_consumer(Offset(2), 100, UNCOMMITTED).code == (
            ErrorCode.OFFSET_OUT_OF_RANGE
        )

    in_lab(script)


def test_a_waiting_fetch_is_answered_when_the_watermark_moves() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        partition = lab.nodes[1].partition(ref)
        fetch = asyncio.create_task(wait_for(partition, 0))
        await asyncio.sleep(1)
        assert not fetch.done()
        await lab.produce(ref, "a")
        assert await asyncio.wait_for(fetch, 0.001) == [b"a"]

    in_lab(script)


def test_a_waiting_fetch_wants_its_bytes_or_its_time() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        partition = lab.nodes[1].partition(ref)
        fetch = asyncio.create_task(wait_for(partition, 0, min_bytes=1000))
        await asyncio.sleep(0)
        for _ in range(9):
            await lab.produce(ref, "x" * 50)  # 119 bytes each
            size = partition.log.size
            await asyncio.sleep(0)
            assert fetch.done() is (size >= 1000)
        before = now()
        assert await wait_for(partition, 9, max_wait_ms=700) == []
        assert now() - before == pytest.approx(0.7)
        assert partition._waiters == {}

    in_lab(script)


def test_bytes_of_several_partitions_count_together() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3), (1, 2, 3))
        other = PartitionRef(ref.topic_id, lab.controller.ref("t", 1).partition)
        await lab.until(lambda: other in lab.nodes[1].replicas.partitions)
        one, two = lab.nodes[1].partition(ref), lab.nodes[1].partition(other)
        waiter = FetchWaiter(200)
        for partition in (one, two):
            waiter.attach(partition, Want(Offset(0), UNCOMMITTED, 1 << 20))
        waiting = asyncio.create_task(waiter.wait(9000))
        await one.append(batch("x" * 50), acks=-1, timeout_ms=5000)
        assert not waiting.done()
        await two.append(batch("x" * 50), acks=-1, timeout_ms=5000)
        await asyncio.wait_for(waiting, 0.001)

    in_lab(script)


def test_a_waiting_fetch_hears_of_an_election() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        partition = lab.nodes[1].partition(ref)
        fetch = asyncio.create_task(wait_for(partition, 0, max_wait_ms=60_000))
        await asyncio.sleep(0.1)
        lab.controller.fence(1)
        await asyncio.wait_for(fetch, 0.1)
        read = partition.read_for_consumer(Offset(0), 100, UNCOMMITTED)
        assert read.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    in_lab(script)


def test_a_transaction_is_readable_when_its_marker_is_committed() -> None:
    """Hazard 32: not before the marker is below the high watermark."""

    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        partition = lab.nodes[1].partition(ref)
        data = batch("a", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=1)
        held = partition.begin_verification(
            ProducerId(9), ProducerEpoch(0), Sequence(0), begins_epoch=False
        )
        assert isinstance(held, Verification)
        appended = partition.append(data, acks=-1, timeout_ms=5000, verification=held)
        assert (await appended).code is ErrorCode.NONE
        read = partition.read_for_consumer(Offset(0), 1 << 20, COMMITTED)
        assert (read.size, read.high_watermark, read.last_stable_offset) == (0, 1, 0)
        fetch = asyncio.create_task(wait_for(partition, 0, isolation=COMMITTED))
        await asyncio.sleep(0)
        lab.network.cut(1, 3)
        marker = EndTxnMarker(ControlType.ABORT, CoordinatorEpoch(0))
        ended = partition.append_marker(ProducerId(9), ProducerEpoch(0), marker, timeout_ms=5000)
        await asyncio.sleep(0.5)
        assert not fetch.done() and not ended.done()
        lab.network.heal()
        assert (await ended).code is ErrorCode.NONE
        await fetch
        read = partition.read_for_consumer(Offset(0), 1 << 20, COMMITTED)
        assert [(t.producer_id, t.first_offset) for t in read.aborted] == [(9, 0)]
        assert read.last_stable_offset == 2

    in_lab(script)


def test_epochs_are_fenced() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        lab.controller.fence(1)
        await lab.until(lambda: lab.leader(ref).id != 1)
        await lab.until(lambda: lab.leader(ref).partition(ref).leader is not None)
        await lab.produce(ref, "a")
        leader = lab.leader(ref).partition(ref)
        epoch = leader.leader_epoch

        def code(current: int) -> ErrorCode:
            return leader.read_for_consumer(
                Offset(0), 100, UNCOMMITTED, current_leader_epoch=current
            ).code

        assert code(epoch - 1) is ErrorCode.FENCED_LEADER_EPOCH
        assert code(epoch + 1) is ErrorCode.UNKNOWN_LEADER_EPOCH
        assert code(epoch) is code(-1) is ErrorCode.NONE
        read = leader.read_for_consumer(Offset(1), 100, UNCOMMITTED, last_fetched_epoch=0)
        assert read.diverging == (0, 0) and read.is_urgent
        answer = leader.end_of_epoch(epoch)
        assert (answer.code, answer.end) == (ErrorCode.NONE, (epoch, 1))
        assert leader.end_of_epoch(epoch + 5).end == (-1, -1)
        follower = lab.nodes[3].partition(ref)
        assert follower.end_of_epoch(0).code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    in_lab(script)


def test_offsets_by_time() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "a", "b", "c")
        leader = lab.nodes[1].partition(ref)

        def listed(timestamp: int) -> tuple[int, int, int]:
            found = leader.list_offset(timestamp, UNCOMMITTED)
            assert found.code is ErrorCode.NONE
            return found.offset, found.timestamp, found.leader_epoch

        assert listed(LATEST) == (3, -1, 0)
        assert listed(EARLIEST) == (0, -1, 0)
        assert listed(1001) == (1, 1001, 0)
        assert listed(MAX_TIMESTAMP) == (2, 1002, 0)
        assert listed(5000) == (-1, -1, -1)
        assert listed(LATEST_TIERED) == (-1, -1, -1)
        follower = lab.nodes[2].partition(ref)
        refused = follower.list_offset(LATEST, UNCOMMITTED)
        assert refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    in_lab(script)


def test_a_new_leader_tells_no_offset_before_it_is_established() -> None:
    """Hazard 8: its own high watermark may lag behind what the old one has shown."""

    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "a")
        await lab.equal(ref)
        await lab.produce(ref, "b")
        # Node 2 has the record but has not heard that it is committed.
        await lab.nodes[1].kill()
        lab.network.cut(2, 3)
        lab.controller.fence(1)
        new = lab.leader(ref).partition(ref)
        await lab.until(lambda: new.leader is not None)
        assert new.log.high_watermark == 1
        assert new.list_offset(LATEST, UNCOMMITTED).code is ErrorCode.OFFSET_NOT_AVAILABLE
        assert new.list_offset(5000, UNCOMMITTED).code is ErrorCode.OFFSET_NOT_AVAILABLE
        assert new.list_offset(1000, UNCOMMITTED).offset == 0
        assert new.list_offset(EARLIEST, UNCOMMITTED).offset == 0
        assert new.list_offset(LATEST, None).offset == 2
        lab.network.heal()
        await lab.until(lambda: new.log.high_watermark == 2)
        assert new.list_offset(LATEST, UNCOMMITTED).offset == 2

    in_lab(script)


def test_a_consumer_is_sent_to_its_rack() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "a", "b")
        await lab.equal(ref)
        await asyncio.sleep(1)

        def preferred(node: LabNode, rack: str, offset: int = 1, *, aware: bool = True) -> int:
            read = node.partition(ref).read_for_consumer(
                Offset(offset), 100, UNCOMMITTED, client=ClientMetadata(rack), is_rack_aware=aware
            )
            assert read.code is ErrorCode.NONE and (read.preferred_read_replica < 0) == (
                read.size > 0
            )
            return read.preferred_read_replica

        leader = lab.nodes[1]
        assert preferred(leader, "b") == 2
        assert (
            preferred(leader, "a") == preferred(leader, "elsewhere") == preferred(leader, "") == -1
        )
        assert preferred(leader, "b", aware=False) == -1
        assert preferred(lab.nodes[2], "b") == -1  # a follower serves, and sends nobody on
        old_client = lab.nodes[2].partition(ref).read_for_consumer(Offset(0), 100, UNCOMMITTED)
        assert old_client.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await lab.nodes[2].kill()
        await lab.in_sync(ref, 2)
        assert preferred(leader, "b") == -1

    in_lab(script, racks=("a", "b", "c"))


def test_a_follower_hears_of_the_watermark_soon() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        fetching = asyncio.create_task(_follow(lab, ref))
        await asyncio.sleep(0.1)
        before = now()
        await lab.produce(ref, "a")
        await fetching
        assert now() - before < 0.1

    async def _follow(lab: Lab, ref: PartitionRef) -> None:
        partition = lab.nodes[2].partition(ref)
        waiter = FetchWaiter(1)
        waiter.attach(partition, Want(Offset(0), UNCOMMITTED, 1 << 20))
        await waiter.wait(60_000)
        client = ClientMetadata("b")
        assert partition.read_for_consumer(Offset(0), 100, UNCOMMITTED, client=client).size > 0

    in_lab(script)


def test_records_are_deleted_on_all_replicas() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "a", "b", "c")
        leader = lab.nodes[1].partition(ref)

        async def delete(offset: int, partition: Partition = leader) -> tuple[ErrorCode, int]:
            gone = await partition.delete_records(Offset(offset), timeout_ms=3000)
            return gone.code, gone.low_watermark

        assert await delete(4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(2) == (ErrorCode.NONE, 2)
        assert [node.partition(ref).log.log_start for node in lab.nodes.values()] == [2, 2, 2]
        assert await delete(1) == (ErrorCode.NONE, 2)
        follower = lab.nodes[2].partition(ref)
        assert await delete(1, follower) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        lab.network.cut(1, 3)
        assert await delete(-1) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        lab.network.heal()
        lab.controller.fence(3)
        await lab.nodes[3].kill()
        await asyncio.sleep(0.1)
        assert await delete(-1) == (ErrorCode.NONE, 3)  # nobody waits for the dead
        lab.controller.configure("t", cleanup_policy="compact")
        await asyncio.sleep(0.1)
        assert await delete(-1) == (ErrorCode.POLICY_VIOLATION, -1)

    in_lab(script)
