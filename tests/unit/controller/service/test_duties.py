"""What the active controller does by itself, and when."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from controller_cluster import context_of, node

from tidelog.controller.decisions.create_topics import NewTopic, decide_create_topics
from tidelog.controller.decisions.outcome import Decision
from tidelog.controller.liveness import BrokerLost, LivenessEvent, Tick
from tidelog.controller.metadata.partitions import PartitionState
from tidelog.controller.metadata.records import (
    BrokerRegistrationChange,
    Config,
    NoOp,
    PartitionChange,
    ReplicaRestartsEmpty,
    ResourceType,
)
from tidelog.controller.service.controller import Cause
from tidelog.kernel.ids import BrokerEpoch, PartitionIndex
from tidelog.v1 import controller_pb2 as pb

if TYPE_CHECKING:
    from tests.unit.controller.service.conftest import Desk, ScriptedStream

AtTheDesk = Callable[..., Any]
CAUSE = Cause("test", "test")


async def keep_alive(
    desk: Desk, epoch: int, stream: ScriptedStream, interval_s: float = 0.5
) -> None:
    while True:
        stream.put(desk.heartbeat(epoch))
        await asyncio.sleep(interval_s)


async def create(desk: Desk, name: str, *replicas: tuple[int, ...], **configs: str) -> None:
    topic = NewTopic(
        name,
        assignments=tuple((i, tuple(map(node, r))) for i, r in enumerate(replicas)),
        configs=tuple((key.replace("_", "."), value) for key, value in configs.items()),
    )
    [made] = await desk.controller.change(
        CAUSE, lambda b: decide_create_topics(b.image, b.policy, [topic], b.random)
    )
    assert not made.error.is_error, made


async def put(desk: Desk, value: str) -> None:
    record = Config(ResourceType.BROKER, "", "x", value)
    await desk.controller.change(CAUSE, lambda _: Decision((record,), None))


def state(desk: Desk, name: str, partition: int = 0) -> PartitionState:
    topic = desk.controller.committed.topics.named(name)
    assert topic is not None
    return topic.partitions[PartitionIndex(partition)]


def records_since(desk: Desk, start: int) -> list[Any]:
    return [record for batch in desk.log.committed[start:] for record in batch.records]


def start(desk: Desk) -> asyncio.Task[None]:
    return asyncio.ensure_future(desk.duties.run())


def test_an_idle_log_is_kept_moving(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        duties = start(desk)
        await asyncio.sleep(0.1)
        before = len(desk.log.committed)
        await asyncio.sleep(100)
        idle = records_since(desk, before)
        assert set(idle) == {NoOp()} and 18 <= len(idle) <= 21
        duties.cancel()

    at_the_desk(scenario)


def test_nothing_is_written_into_a_busy_log_or_by_a_standby(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        duties = start(desk)
        await asyncio.sleep(0.1)
        before = len(desk.log.committed)
        for value in range(30):
            await put(desk, str(value))
            await asyncio.sleep(0.3)
        assert NoOp() not in records_since(desk, before)
        desk.log.depose()
        before = len(desk.log.committed)
        await asyncio.sleep(5)
        assert records_since(desk, before) == []
        duties.cancel()

    at_the_desk(scenario)


def test_a_lost_broker_with_many_partitions_is_fenced_in_steps(
    at_the_desk: AtTheDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tidelog.controller.decisions.broker_states.decide_fencing.__defaults__", (2,)
    )

    async def scenario(desk: Desk) -> None:
        duties = start(desk)
        epoch, stream = await desk.add_broker(11)
        other, beating = await desk.add_broker(12)
        alive = asyncio.ensure_future(keep_alive(desk, other, beating))
        await create(desk, "t", *[(11, 12)] * 5)
        before = len(desk.log.committed)
        stream.reset()
        await asyncio.sleep(0.5)
        batches = [
            batch.records
            for batch in desk.log.committed[before:]
            if not isinstance(batch.records[0], NoOp)
        ]
        assert [len(records) for records in batches] == [2, 2, 2]
        assert batches[-1][-1] == BrokerRegistrationChange(
            node(11), BrokerEpoch(epoch), fenced=True
        )
        assert all(isinstance(record, PartitionChange) for record in batches[0])
        assert {state(desk, "t", i).leader for i in range(5)} == {12}
        alive.cancel()
        duties.cancel()

    at_the_desk(scenario)


def test_a_broker_lost_while_the_quorum_is_overloaded_is_fenced_later(
    at_the_desk: AtTheDesk,
) -> None:
    async def scenario(desk: Desk) -> None:
        duties = start(desk)
        _, stream = await desk.add_broker(11)
        desk.log.is_overloaded = True
        stream.reset()
        await asyncio.sleep(2)
        assert not desk.controller.committed.brokers[node(11)].fenced
        desk.log.is_overloaded = False
        await asyncio.sleep(0.2)
        assert desk.controller.committed.brokers[node(11)].fenced
        duties.cancel()

    at_the_desk(scenario)


def test_a_late_tick_moves_the_deadlines(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        duties = start(desk)
        epoch, stream = await desk.add_broker(11)
        await asyncio.sleep(1)
        desk.world.clock.advance(2500)  # this process stood still
        await asyncio.sleep(0.5)
        stream.put(desk.heartbeat(epoch))
        await asyncio.sleep(0.5)
        assert not desk.controller.image.brokers[node(11)].fenced
        await asyncio.sleep(2.7)
        assert desk.controller.image.brokers[node(11)].fenced  # of its own silence
        duties.cancel()

    at_the_desk(scenario)


def test_what_is_on_its_way_in_is_heard_before_anybody_is_judged(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        duties = start(desk)
        epoch, stream = await desk.add_broker(11)
        liveness, loop = desk.controller.liveness, asyncio.get_running_loop()
        judge = liveness.step

        def arrive(hops: int) -> None:
            if hops:
                loop.call_soon(arrive, hops - 1)
            else:
                stream.put(desk.heartbeat(epoch))

        def step(now_ms: float, event: LivenessEvent) -> list[BrokerLost]:
            is_about_to_judge = isinstance(event, Tick) and not event.drained
            if is_about_to_judge and now_ms >= (liveness.next_deadline_ms() or math.inf):
                arrive(2)  # it was there in time, but not handed in yet
            return judge(now_ms, event)

        liveness.step = step  # type: ignore[method-assign]
        await asyncio.sleep(20)
        fenced = BrokerRegistrationChange(node(11), BrokerEpoch(epoch), fenced=True)
        assert fenced not in records_since(desk, 0)
        duties.cancel()

    at_the_desk(scenario)


def test_a_slow_commit_does_not_delay_the_judging_of_others(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        duties = start(desk)
        streams = [(await desk.add_broker(broker))[1] for broker in (11, 12)]
        desk.log.hold()
        for stream in streams:
            await asyncio.sleep(1)
            stream.reset()
        await asyncio.sleep(0.4)
        decided = desk.controller.image.brokers
        assert [decided[node(b)].fenced for b in (11, 12)] == [True, True]
        duties.cancel()

    at_the_desk(scenario)


def test_leadership_goes_back_to_preferred_replicas(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        duties = start(desk)
        epoch, stream = await desk.add_broker(11)
        other, beating = await desk.add_broker(12)
        tasks = [asyncio.ensure_future(keep_alive(desk, other, beating))]
        await create(desk, "t", (11, 12))
        stream.put(desk.heartbeat(epoch, want_fence=True))
        await asyncio.sleep(0.1)
        tasks.append(asyncio.ensure_future(keep_alive(desk, epoch, stream)))
        await asyncio.sleep(1)
        partition = state(desk, "t")
        assert partition.leader == 12
        proposed = pb.ProposedIsr(
            partition={
                "topic_id": desk.controller.committed.topics.by_name["t"].raw,
                "partition": 0,
            },
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr=[
                pb.IsrMember(broker_id=11, broker_epoch=epoch),
                pb.IsrMember(broker_id=12, broker_epoch=other),
            ],
        )
        request = pb.AlterPartitionRequest(broker_id=12, broker_epoch=other, partitions=[proposed])
        answer = await desk.handlers.alter_partition(context_of(12), request)
        assert answer.partitions[0].error_code == 0, answer
        await asyncio.sleep(20)
        assert state(desk, "t").leader == 12  # the interval is not over
        await asyncio.sleep(12)
        assert state(desk, "t").leader == 11
        for task in (*tasks, duties):
            task.cancel()

    at_the_desk(scenario, leader_imbalance_check_interval_seconds="30")


def test_a_leaderless_partition_gets_an_unclean_leader_when_that_is_allowed(
    at_the_desk: AtTheDesk,
) -> None:
    async def scenario(desk: Desk) -> None:
        duties = start(desk)
        _, stream = await desk.add_broker(11)
        other, beating = await desk.add_broker(12)
        await create(desk, "t", (11, 12))
        beating.put(desk.heartbeat(other, want_fence=True))
        await asyncio.sleep(0.1)
        alive = asyncio.ensure_future(keep_alive(desk, other, beating))
        stream.reset()
        await asyncio.sleep(1)
        assert not state(desk, "t").has_leader
        # Nobody may lead: 12 was never eligible again.
        ref = desk.controller.committed.topics.by_name["t"]
        change = PartitionChange(ref, PartitionIndex(0), isr=(node(11),), elr=())
        allow = Config(ResourceType.TOPIC, "t", "unclean.leader.election.enable", "true")
        await desk.controller.change(CAUSE, lambda _: Decision((change, allow), None))
        assert not state(desk, "t").has_leader
        await asyncio.sleep(11)
        assert state(desk, "t").leader == 12
        alive.cancel()
        duties.cancel()

    at_the_desk(scenario, unclean_leader_election_interval_ms="10000", min_insync_replicas="1")


def test_a_replica_that_was_away_for_too_long_restarts_empty(at_the_desk: AtTheDesk) -> None:
    async def scenario(desk: Desk) -> None:
        duties = start(desk)
        epoch, stream = await desk.add_broker(11)
        _, gone = await desk.add_broker(12)
        await create(desk, "compacted", (11, 12), cleanup_policy="compact")
        await create(desk, "plain", (11, 12))
        alive = asyncio.ensure_future(keep_alive(desk, epoch, stream))
        gone.reset()
        await asyncio.sleep(590)
        assert state(desk, "compacted").restarts_empty == ()
        await asyncio.sleep(80)
        assert state(desk, "compacted").restarts_empty == (12,)
        assert state(desk, "plain").restarts_empty == ()
        marks = [r for r in records_since(desk, 0) if isinstance(r, ReplicaRestartsEmpty)]
        assert len(marks) == 1
        alive.cancel()
        duties.cancel()

    at_the_desk(scenario, compaction_absent_replica_max_ms="600000")


def test_a_broker_that_was_back_in_between_starts_its_absence_anew(
    at_the_desk: AtTheDesk,
) -> None:
    async def scenario(desk: Desk) -> None:
        duties = start(desk)
        epoch, stream = await desk.add_broker(11)
        other, beating = await desk.add_broker(12)
        await create(desk, "t", (11, 12), cleanup_policy="compact")
        alive = asyncio.ensure_future(keep_alive(desk, epoch, stream))
        await asyncio.sleep(400)  # 12 is silent and fenced
        beating.put(desk.heartbeat(other))
        await asyncio.sleep(0.02)
        beating.put(desk.heartbeat(other, want_fence=True))
        await asyncio.sleep(400)
        assert state(desk, "t").restarts_empty == ()
        await asyncio.sleep(300)
        assert state(desk, "t").restarts_empty == (12,)
        alive.cancel()
        duties.cancel()

    at_the_desk(scenario, compaction_absent_replica_max_ms="600000")
