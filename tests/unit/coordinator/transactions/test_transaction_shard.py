"""The transactional ids of one partition over a log in memory: what is replicated counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from shard_lab import MemoryPartition, in_world, loaded, shard_set

from tidelog.coordinator.runtime.shard_log import ShardLog
from tidelog.coordinator.runtime.shard_set import ShardSet
from tidelog.coordinator.runtime.transaction_shard import (
    TellOutcome,
    TransactionPorts,
    TransactionShard,
)
from tidelog.coordinator.transactions import events as e
from tidelog.coordinator.transactions.states import TransactionState
from tidelog.coordinator.transactions.transaction import TransactionSettings
from tidelog.coordinator.transactions.transaction_records import TransactionValue
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import PartitionIndex, ProducerEpoch, ProducerId, TopicPartition
from tidelog.simulation import World

GOLDEN = Path(__file__).parents[3] / "data/golden/txn-topic"
A = TopicPartition("a", PartitionIndex(0))
S = TransactionState
NONE = ErrorCode.NONE


class Lab:
    """One shard; it can be lost and loaded again. Markers are answered by the test."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.partition = MemoryPartition()
        self.level = 2
        self.is_cut_off = False
        self.ids = iter(range(7, 1_000))
        self.sent: list[tuple[e.SendMarkers, TellOutcome]] = []
        self.ports = TransactionPorts(
            TransactionSettings,
            lambda: self.level,
            lambda: ProducerId(next(self.ids)),
            lambda effect, tell: self.sent.append((effect, tell)),
            lambda: not self.is_cut_off,
        )
        self.shards: ShardSet[TransactionShard] = shard_set(
            world, self._make, is_cut_off=lambda: self.is_cut_off
        )

    def _make(self, writer: ShardLog, watch: Callable[[], None]) -> TransactionShard:
        return TransactionShard(writer, watch, self.ports)

    async def load(self) -> TransactionShard:
        self.shards.resign(0)
        self.shards.lead(0, self.partition, self.partition.leader_epoch)
        return await loaded(self.shards)

    def mark(self, code: ErrorCode = NONE) -> e.SendMarkers:
        """The leaders answer the oldest markers."""
        effect, tell = self.sent.pop(0)
        outcomes = tuple((place, code) for place in effect.partitions)
        tell(e.MarkersAnswered(effect.producer_id, effect.producer_epoch, outcomes))
        return effect


def in_lab(scenario: Callable[[Lab], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        await scenario(Lab(world))

    in_world(main)


def init(shard: TransactionShard) -> asyncio.Future[e.Result]:
    return shard.ask("tx", e.InitProducerId(0, 5_000))


def add(shard: TransactionShard) -> asyncio.Future[e.Result]:
    return shard.ask("tx", e.AddPartitions(0, ProducerId(7), ProducerEpoch(0), (A,)))


def end(shard: TransactionShard) -> asyncio.Future[e.Result]:
    return shard.ask("tx", e.EndTxn(0, ProducerId(7), ProducerEpoch(0), True))


def value(shard: TransactionShard) -> TransactionValue:
    found = shard.transactions.describe("tx")
    assert isinstance(found, TransactionValue)
    return found


async def settled() -> None:
    await asyncio.sleep(0.01)


def test_a_transaction_goes_through_and_is_there_after_a_reload() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        assert await init(shard) == e.InitResult(NONE, ProducerId(7), ProducerEpoch(0))
        assert await add(shard) == e.PartitionsResult(NONE)
        assert await end(shard) == e.EndResult(NONE, ProducerId(7), ProducerEpoch(0))
        sent = lab.mark()
        assert (sent.partitions, sent.coordinator_epoch, sent.committed) == ((A,), 5, True)
        await settled()
        before = value(shard)
        assert before.state is S.COMPLETE_COMMIT
        assert value(await lab.load()) == before
        assert not lab.sent

    in_lab(scenario)


def test_nobody_is_answered_before_the_record_is_replicated() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        lab.partition.is_automatic = False
        answer = init(shard)
        await settled()
        assert not answer.done()
        lab.partition.replicate()
        assert (await answer).error is NONE

    in_lab(scenario)


def test_a_slow_write_is_answered_in_time_and_counts_when_it_is_replicated() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        await init(shard)
        await add(shard)
        lab.partition.is_automatic = False
        assert (await end(shard)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await end(shard)).error is ErrorCode.CONCURRENT_TRANSACTIONS
        assert value(shard).state is S.ONGOING
        lab.partition.replicate()
        await settled()
        assert value(shard).state is S.PREPARE_COMMIT
        assert lab.sent

    in_lab(scenario)


def test_a_coordinator_that_is_cut_off_sends_everybody_to_look_for_another() -> None:
    """Also those who would be told to come again: they would come here."""

    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        await init(shard)
        await add(shard)
        lab.partition.is_automatic = False
        waiting = end(shard)
        await settled()
        assert (await end(shard)).error is ErrorCode.CONCURRENT_TRANSACTIONS
        lab.is_cut_off = True
        assert (await waiting).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        for request in (init, add, end):
            assert (await request(shard)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        lab.is_cut_off = False
        assert (await end(shard)).error is ErrorCode.CONCURRENT_TRANSACTIONS
        lab.partition.replicate()
        await settled()
        assert value(shard).state is S.PREPARE_COMMIT

    in_lab(scenario)


def test_what_the_partition_refuses_leaves_everything_as_it_was() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        await init(shard)
        lab.partition.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await add(shard)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        lab.partition.refusal = None
        assert (await add(shard)).error is NONE

    in_lab(scenario)


def test_markers_are_sent_again_after_a_pause_and_by_the_next_coordinator() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        for request in (init, add, end):
            await request(shard)
        lab.mark(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await asyncio.sleep(0.05)
        assert not lab.sent
        await asyncio.sleep(0.1)
        assert len(lab.sent) == 1
        lab.sent.clear()
        lab.partition.leader_epoch = 6
        shard = await lab.load()
        await settled()
        assert lab.mark().coordinator_epoch == 6
        await settled()
        assert value(shard).state is S.COMPLETE_COMMIT

    in_lab(scenario)


def test_a_leader_that_is_elected_again_sends_markers_in_its_new_epoch() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        await init(shard)
        await add(shard)
        lab.partition.leader_epoch = 9
        lab.shards.lead(0, lab.partition, 9)
        assert await loaded(lab.shards) is shard
        await end(shard)
        assert lab.mark().coordinator_epoch == 9

    in_lab(scenario)


def test_an_overdue_transaction_ends_by_itself() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        await init(shard)
        await add(shard)
        await asyncio.sleep(4.9)
        assert not lab.sent
        await asyncio.sleep(0.2)
        assert not lab.mark().committed
        await settled()
        assert (value(shard).state, value(shard).producer_epoch) == (S.COMPLETE_ABORT, 1)

    in_lab(scenario)


def test_whoever_waits_when_leadership_is_lost_is_sent_away() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        await init(shard)
        await add(shard)
        await end(shard)
        effect, tell = lab.sent[0]
        lab.partition.is_automatic = False
        waiting = shard.ask("other", e.InitProducerId(0, 5_000))
        await settled()
        lab.shards.resign(0)
        assert (await waiting).error is ErrorCode.NOT_COORDINATOR
        tell(e.MarkersAnswered(effect.producer_id, effect.producer_epoch, ((A, NONE),)))
        await settled()  # nothing happens in a shard that is closed

    in_lab(scenario)


def test_records_are_of_the_version_that_the_cluster_agreed_on() -> None:
    async def scenario(lab: Lab) -> None:
        shard = await lab.load()
        lab.level = 0
        await init(shard)
        lab.level = 1
        await add(shard)
        versions = [value[:2] for batch in lab.partition.batches for _, value in batch if value]
        assert versions == [b"\0\0", b"\0\1"]

    in_lab(scenario)


def test_kafkas_own_log_is_loaded() -> None:
    async def scenario(lab: Lab) -> None:
        path = GOLDEN / "__transaction_state-22" / "00000000000000000000.log"
        lab.partition.store_log(path.read_bytes())
        shard = await lab.load()
        found = shard.transactions.describe("cf-tx")
        assert isinstance(found, TransactionValue)
        assert (found.producer_id, found.state) == (4, S.COMPLETE_ABORT)

    in_lab(scenario)


def test_a_record_that_cannot_be_read_is_skipped() -> None:
    async def scenario(lab: Lab) -> None:
        lab.partition.store_records([(b"\0\0\0\2tx", b"\0\1rubbish"), (b"\0\5", b"")])
        shard = await lab.load()
        assert len(shard.transactions) == 0

    in_lab(scenario)
