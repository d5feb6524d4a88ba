"""Shards on a partition in memory: loading, writing, time, and losing leadership."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from shard_lab import MemoryPartition, in_world, loaded, shard_set

from tidelog.coordinator.runtime.ports import LogEntry
from tidelog.coordinator.runtime.shard_log import Producer, ShardLog
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import CoordinatorEpoch, ProducerEpoch, ProducerId
from tidelog.simulation import World
from tidelog.wire.batch import read_header
from tidelog.wire.control import ControlType, EndTxnMarker

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NOT_HERE = ErrorCode.NOT_COORDINATOR


@dataclass
class Notebook:
    """A machine that writes down what it hears."""

    writer: ShardLog
    watch: Callable[[], None]
    heard: list[str] = field(default_factory=list)
    deadline_ms: int | None = None

    def replay(self, entry: LogEntry) -> None:
        whose = f" of {entry.producer_id}" if entry.producer_id >= 0 else ""
        self.heard.append(f"{entry.offset}: {entry.key.decode()}{whose}")

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        self.heard.append(f"{producer_id} {'committed' if committed else 'aborted'}")

    def finish_loading(self) -> Iterator[None]:
        yield
        self.heard.append("loaded")

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms

    def expire(self) -> None:
        self.deadline_ms = None
        self.heard.append("time")

    def close(self) -> None:
        self.heard.append("closed")

    def write(self, *keys: str, producer: Producer | None = None) -> asyncio.Future[ErrorCode]:
        records = [(key.encode(), b"v") for key in keys]
        return self.writer.write(
            records,
            lambda position: self.heard.append(f"{position}! {','.join(keys)}"),
            producer or Producer(),
        )


def test_only_what_is_replicated_is_loaded_and_all_of_it() -> None:
    async def scenario(world: World) -> None:
        partition = MemoryPartition()
        partition.store_records([(b"a", b"1"), (b"b", None)])
        partition.store_records([(b"c", b"1")])
        partition.high_watermark = partition.log_start
        shards = shard_set(world, Notebook)
        shards.lead(0, partition, 5)
        await asyncio.sleep(1)
        assert shards.find(0) is LOADING
        assert shards.find(1) is NOT_HERE
        partition.high_watermark = partition.log_end
        shard = await loaded(shards)
        assert shard.heard == ["0: a", "1: b", "2: c", "loaded"]

    in_world(scenario)


def test_transactions_are_loaded_with_their_markers() -> None:
    async def scenario(world: World) -> None:
        partition = MemoryPartition()
        partition.store_records([(b"a", b"1")], producer_id=7, producer_epoch=0,
                                base_sequence=-1, is_transactional=True)  # fmt: skip
        partition.store_marker(7, EndTxnMarker(ControlType.COMMIT, CoordinatorEpoch(3)))
        partition.store_marker(8, EndTxnMarker(ControlType.ABORT, CoordinatorEpoch(3)))
        shards = shard_set(world, Notebook)
        shards.lead(0, partition, 5)
        shard = await loaded(shards)
        assert shard.heard == ["0: a of 7", "7 committed", "8 aborted", "loaded"]

    in_world(scenario)


def test_a_log_that_cannot_be_read_is_not_served() -> None:
    async def scenario(world: World) -> None:
        partition = MemoryPartition()
        partition.store_records([(b"a", b"1")])
        partition.broken = True
        shards = shard_set(world, Notebook)
        shards.lead(0, partition, 5)
        await asyncio.sleep(1)
        assert shards.find(0) is NOT_HERE
        assert list(shards.active()) == []

    in_world(scenario)


def test_writes_of_one_turn_share_a_batch_and_are_answered_when_it_is_replicated() -> None:
    async def scenario(world: World) -> None:
        partition = MemoryPartition(is_automatic=False)
        shards = shard_set(world, Notebook)
        shards.lead(0, partition, 5)
        shard = await loaded(shards)
        first, second = shard.write("a", "b"), shard.write("c")
        await asyncio.sleep(0.1)
        third = shard.write("d")
        await asyncio.sleep(0.1)
        assert [[key for key, _ in batch] for batch in partition.batches] == [
            [b"a", b"b", b"c"],
            [b"d"],
        ]
        assert not first.done() and shard.heard == ["loaded"]
        partition.replicate()
        assert [await first, await second, await third] == [ErrorCode.NONE] * 3
        assert shard.heard == ["loaded", "0! a,b", "2! c", "3! d"]

    in_world(scenario)


def test_who_waited_in_vain_is_told_so_and_the_records_count_when_they_are_replicated() -> None:
    async def scenario(world: World) -> None:
        partition = MemoryPartition(is_automatic=False)
        shards = shard_set(world, Notebook, timeout_ms=2_000)
        shards.lead(0, partition, 5)
        shard = await loaded(shards)
        assert await shard.write("a") is ErrorCode.REQUEST_TIMED_OUT
        assert shard.heard == ["loaded"]
        partition.replicate()
        assert shard.heard == ["loaded", "0! a"]

    in_world(scenario)


def test_who_waits_at_a_broker_that_is_cut_off_is_sent_away_long_before_the_time_out() -> None:
    cut_off: list[bool] = []

    async def scenario(world: World) -> None:
        partition = MemoryPartition(is_automatic=False)
        shards = shard_set(world, Notebook, timeout_ms=30_000, is_cut_off=lambda: bool(cut_off))
        shards.lead(0, partition, 5)
        shard = await loaded(shards)
        early = shard.write("a")
        await asyncio.sleep(2.9)
        assert not early.done()
        cut_off.append(True)
        began_ms = world.clock.monotonic_ms()
        assert await early is ErrorCode.REQUEST_TIMED_OUT
        assert world.clock.monotonic_ms() - began_ms <= 300
        began_ms = world.clock.monotonic_ms()
        assert await shard.write("b") is ErrorCode.REQUEST_TIMED_OUT
        assert 400 <= world.clock.monotonic_ms() - began_ms <= 600
        partition.replicate()
        assert shard.heard == ["loaded", "0! a", "1! b"], "they count when they are replicated"

    in_world(scenario)


def test_what_goes_through_is_served_though_no_controller_answers() -> None:
    async def scenario(world: World) -> None:
        partition = MemoryPartition()
        shards = shard_set(world, Notebook, is_cut_off=lambda: True)
        shards.lead(0, partition, 5)
        shard = await loaded(shards)
        assert await shard.write("a") is ErrorCode.NONE
        await asyncio.sleep(1)
        assert shard.heard == ["loaded", "0! a"]

    in_world(scenario)


def test_records_below_the_watermark_count_though_the_isr_is_small() -> None:
    async def scenario(world: World) -> None:
        partition = MemoryPartition(is_automatic=False)
        shards = shard_set(world, Notebook)
        shards.lead(0, partition, 5)
        shard = await loaded(shards)
        written = shard.write("a")
        await asyncio.sleep(0.1)
        partition.replicate(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        assert await written is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert shard.heard == ["loaded", "0! a"]

    in_world(scenario)


def test_a_refused_or_lost_write_changes_nothing() -> None:
    async def scenario(world: World) -> None:
        partition = MemoryPartition(is_automatic=False)
        shards = shard_set(world, Notebook)
        shards.lead(0, partition, 5)
        shard = await loaded(shards)
        partition.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        assert await shard.write("a") is ErrorCode.NOT_ENOUGH_REPLICAS
        partition.refusal = None
        lost = shard.write("b")
        await asyncio.sleep(0.1)
        partition.replicate(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert await lost is ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition.max_batch_bytes = 200
        assert await shard.write("c" * 300) is ErrorCode.RECORD_LIST_TOO_LARGE
        assert await shard.write() is ErrorCode.NONE
        assert shard.heard == ["loaded"]

    in_world(scenario)


def test_batches_are_no_larger_than_the_topic_allows() -> None:
    async def scenario(world: World) -> None:
        partition = MemoryPartition()
        partition.max_batch_bytes = 300
        shards = shard_set(world, Notebook)
        shards.lead(0, partition, 5)
        shard = await loaded(shards)
        written = [shard.write(f"{i:03}" * 20) for i in range(9)]
        assert set(await asyncio.gather(*written)) == {ErrorCode.NONE}
        assert [len(batch) for batch in partition.batches] == [2, 2, 2, 2, 1]
        assert max(map(len, partition.raw)) <= 300

    in_world(scenario)


def test_a_transaction_has_a_batch_of_its_own() -> None:
    async def scenario(world: World) -> None:
        partition = MemoryPartition()
        shards = shard_set(world, Notebook)
        shards.lead(0, partition, 5)
        shard = await loaded(shards)
        producer = Producer(ProducerId(7), ProducerEpoch(2))
        await asyncio.gather(
            shard.write("a"), shard.write("b", producer=producer), shard.write("c")
        )
        assert [[key for key, _ in batch] for batch in partition.batches] == [
            [b"a"],
            [b"b"],
            [b"c"],
        ]
        header = read_header(partition.raw[1])
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, -1)
        assert header.is_transactional

    in_world(scenario)


def test_whoever_waits_is_told_when_leadership_is_lost() -> None:
    async def scenario(world: World) -> None:
        partition = MemoryPartition(is_automatic=False)
        shards = shard_set(world, Notebook)
        shards.lead(0, partition, 5)
        shard = await loaded(shards)
        written = shard.write("a")
        await asyncio.sleep(0.1)
        queued = shard.write("b")
        shards.resign(0)
        assert shards.find(0) is NOT_HERE
        assert await written is await queued is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await shard.write("c") is ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition.replicate()
        await asyncio.sleep(0.1)
        assert shard.heard == ["loaded", "closed"]
        assert len(partition.batches) == 1

    in_world(scenario)


def test_leadership_lost_while_loading_leaves_nothing_behind() -> None:
    async def scenario(world: World) -> None:
        partition = MemoryPartition()
        partition.store_records([(b"a", b"1")])
        shards = shard_set(world, Notebook)
        shards.lead(0, partition, 5)
        shards.resign(0)
        await asyncio.sleep(1)
        assert shards.find(0) is NOT_HERE
        shards.lead(0, partition, 6)
        assert (await loaded(shards)).heard == ["0: a", "loaded"]

    in_world(scenario)


def test_a_leader_that_is_elected_again_goes_on_in_the_new_epoch() -> None:
    async def scenario(world: World) -> None:
        partition = MemoryPartition()
        shards = shard_set(world, Notebook)
        shards.lead(0, partition, 5)
        shard = await loaded(shards)
        partition.leader_epoch = 6
        assert await shard.write("a") is ErrorCode.NOT_LEADER_OR_FOLLOWER
        shards.lead(0, partition, 6)
        assert shards.find(0) is shard
        assert await shard.write("b") is ErrorCode.NONE

    in_world(scenario)


def test_another_replica_of_the_same_number_is_loaded_anew() -> None:
    async def scenario(world: World) -> None:
        shards = shard_set(world, Notebook)
        shards.lead(0, MemoryPartition(), 5)
        shard = await loaded(shards)
        shards.lead(0, MemoryPartition(), 5)
        assert shards.find(0) is LOADING
        assert shard.heard == ["loaded", "closed"]

    in_world(scenario)


def test_news_reach_a_shard_that_loads_when_it_is_done() -> None:
    async def scenario(world: World) -> None:
        partition = MemoryPartition()
        partition.store_records([(b"a", b"1")])
        shards = shard_set(world, Notebook)
        shards.lead(0, partition, 5)
        shards.tell(lambda shard: shard.heard.append("news"))
        shard = await loaded(shards)
        shards.tell(lambda shard: shard.heard.append("more"))
        assert shard.heard == ["0: a", "loaded", "news", "more"]

    in_world(scenario)


def test_the_alarm_rings_at_the_earliest_deadline() -> None:
    async def scenario(world: World) -> None:
        shards = shard_set(world, Notebook)
        shards.lead(0, MemoryPartition(), 5)
        shard = await loaded(shards)
        now_ms = shard.writer.clock.now_ms()
        for after_ms in (60_000, 10_000):
            shard.deadline_ms = now_ms + after_ms
            shard.watch()
        await asyncio.sleep(9.9)
        assert shard.heard == ["loaded"]
        shard.deadline_ms = (
            now_ms + 15_000
        )  # put off: the alarm rings for nothing, and is set again
        await asyncio.sleep(1)
        assert shard.heard == ["loaded"]
        await asyncio.sleep(5)
        assert shard.heard == ["loaded", "time"]

    in_world(scenario)


def test_time_in_which_the_process_stood_still_ends_no_session() -> None:
    async def scenario(world: World) -> None:
        shards = shard_set(world, Notebook)
        shards.lead(0, MemoryPartition(), 5)
        shard = await loaded(shards)
        shard.deadline_ms = shard.writer.clock.now_ms() + 10_000
        other_ms = shard.deadline_ms + 5_000
        shard.watch()
        world.clock.advance(60_000)  # the loop's timers know nothing of it: they ring late
        await asyncio.sleep(10.5)
        assert shard.heard == ["loaded", "time"]
        assert shard.writer.clock.now_ms() < other_ms

    in_world(scenario)


def test_a_calendar_that_jumps_ends_no_session() -> None:
    async def scenario(world: World) -> None:
        shards = shard_set(world, Notebook)
        shards.lead(0, MemoryPartition(), 5)
        shard = await loaded(shards)
        before_ms = shard.writer.clock.now_ms()
        world.clock.skew_ms += 3_600_000
        assert shard.writer.clock.now_ms() - before_ms < 100
        assert shard.writer.clock.wall_ms() - before_ms > 3_000_000

    in_world(scenario)
