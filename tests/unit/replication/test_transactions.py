"""Transactions on the leader of a partition: who may write, and what markers do."""

from __future__ import annotations

import asyncio

from replica_lab import Lab, batch, in_lab

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import CoordinatorEpoch, Offset, ProducerEpoch, ProducerId
from tidelog.replication.outcomes import IsolationLevel, Produced
from tidelog.replication.partition import Partition
from tidelog.storage.txn_verification import Verification
from tidelog.wire.batch import read_header
from tidelog.wire.control import ControlType, EndTxnMarker

E = ErrorCode
PRODUCER = ProducerId(9)


def write(seq: int = 0, epoch: int = 0, *, is_transactional: bool = True) -> bytes:
    return batch(
        "a",
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=seq,
        is_transactional=is_transactional,
    )


def begin(partition: Partition, data: bytes) -> Verification | ErrorCode | None:
    header = read_header(data)
    return partition.begin_verification(
        header.producer_id, header.producer_epoch, header.base_sequence, begins_epoch=False
    )


def verified(partition: Partition, data: bytes) -> Verification:
    held = begin(partition, data)
    assert isinstance(held, Verification)
    return held


async def open_transaction(partition: Partition, seq: int = 0, epoch: int = 0) -> Produced:
    data = write(seq, epoch)
    held = verified(partition, data)
    return await partition.append(data, acks=-1, timeout_ms=5_000, verification=held)


def mark(
    partition: Partition,
    epoch: int = 0,
    *,
    commit: bool = True,
    coordinator: int = 0,
    begins_epoch: bool = False,
    timeout_ms: float = 5_000,
) -> asyncio.Future[Produced]:
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    return partition.append_marker(
        PRODUCER,
        ProducerEpoch(epoch),
        EndTxnMarker(kind, CoordinatorEpoch(coordinator)),
        timeout_ms=timeout_ms,
        begins_epoch=begins_epoch,
    )


def test_a_late_write_opens_no_transaction() -> None:
    """Hazard 28: it was sent before the end of its transaction, and came after it."""

    async def script(lab: Lab) -> None:
        partition = lab.nodes[1].partition(await lab.create("t", (1, 2, 3)))
        late = await partition.append(write(), acks=-1, timeout_ms=5_000)
        assert late.code is E.INVALID_TXN_STATE
        held = verified(partition, write())
        assert (await mark(partition, commit=False)).code is E.NONE
        late = await partition.append(write(), acks=-1, timeout_ms=5_000, verification=held)
        assert late.code is E.INVALID_TXN_STATE
        assert partition.log.last_stable_offset == partition.log.high_watermark == 1

    in_lab(script)


def test_an_open_transaction_goes_on_without_another_question_and_after_a_failover() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        assert (await open_transaction(lab.nodes[1].partition(ref))).code is E.NONE
        lab.controller.fence(1)
        await lab.until(lambda: lab.leader(ref).id != 1)
        await lab.until(lambda: lab.leader(ref).partition(ref).leader is not None)
        leader = lab.leader(ref).partition(ref)
        assert begin(leader, write(1)) is None
        assert (await leader.append(write(1), acks=-1, timeout_ms=5_000)).code is E.NONE
        resent = await leader.append(write(0), acks=-1, timeout_ms=5_000)
        assert (resent.code, resent.base_offset) == (E.NONE, 0)

    in_lab(script)


def test_a_replica_that_does_not_lead_verifies_nothing() -> None:
    async def script(lab: Lab) -> None:
        follower = lab.nodes[2].partition(await lab.create("t", (1, 2, 3)))
        assert begin(follower, write()) is E.NOT_LEADER_OR_FOLLOWER

    in_lab(script)


def test_markers_of_old_coordinators_and_epochs_are_refused() -> None:
    async def script(lab: Lab) -> None:
        partition = lab.nodes[1].partition(await lab.create("t", (1, 2, 3)))
        await open_transaction(partition, epoch=2)
        assert (await mark(partition, 1)).code is E.INVALID_PRODUCER_EPOCH
        assert (await mark(partition, 2, coordinator=5)).code is E.NONE
        fenced = await mark(partition, 2, coordinator=4)
        assert fenced.code is E.TRANSACTION_COORDINATOR_FENCED

    in_lab(script)


def test_a_marker_that_comes_again_does_not_end_the_next_transaction() -> None:
    """Hazards 29 and 30: it is acknowledged, and changes nothing."""

    async def script(lab: Lab) -> None:
        partition = lab.nodes[1].partition(await lab.create("t", (1, 2, 3)))
        await open_transaction(partition, epoch=0)
        assert (await mark(partition, 1, begins_epoch=True)).code is E.NONE
        assert (await open_transaction(partition, epoch=1)).code is E.NONE
        end = partition.log.end_offset
        assert (await mark(partition, 1, begins_epoch=True)).code is E.NONE
        assert partition.log.end_offset == end
        assert partition.log.last_stable_offset == 2
        assert (await mark(partition, 2, begins_epoch=True, commit=False)).code is E.NONE
        read = partition.read_for_consumer(Offset(2), 1 << 20, IsolationLevel.READ_COMMITTED)
        assert [txn.first_offset for txn in read.aborted] == [2]

    in_lab(script)


def test_a_marker_that_comes_again_waits_until_the_first_is_replicated() -> None:
    """As hazard 39: else the coordinator would believe in a marker that a failover undoes."""

    async def script(lab: Lab) -> None:
        partition = lab.nodes[1].partition(await lab.create("t", (1, 2, 3)))
        await open_transaction(partition)
        lab.network.cut(1, 2)
        lab.network.cut(1, 3)
        first = mark(partition, 1, begins_epoch=True)
        again = mark(partition, 1, begins_epoch=True)
        await asyncio.sleep(0.2)
        assert not first.done() and not again.done()
        lab.network.heal()
        assert (await first).code is (await again).code is E.NONE

    in_lab(script)


def test_no_marker_is_written_below_min_isr() -> None:
    """It would be written again and again, and never be acknowledged."""

    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        partition = lab.nodes[1].partition(ref)
        await open_transaction(partition)
        lab.network.cut(1, 2)
        lab.network.cut(1, 3)
        await lab.until(lambda: partition.leader is None or partition.leader.is_under_min_isr)
        end = partition.log.end_offset
        assert (await mark(partition)).code is E.NOT_ENOUGH_REPLICAS
        assert partition.log.end_offset == end

    in_lab(script)
