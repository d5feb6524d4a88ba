"""The simulated cluster that tests are given: time, faults, and the same again from a seed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidelog.simulation import kafka_messages, transaction_messages
from tidelog.simulation.group_messages import TRANSACTION_KEY
from tidelog.simulation.sim_answers import CallFailed
from tidelog.simulation.sim_client import NoAnswer, SimKafkaClient
from tidelog.simulation.sim_coordination import Coordinator
from tidelog.simulation.simulated_cluster import AsyncView, SimulatedCluster
from tidelog.wire.records import Record, build_batch

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def story(seed: int) -> list[Any]:
    """What a test may see of a run."""
    with SimulatedCluster(seed) as cluster:
        configs = {"retention.ms": str(HOUR_MS), "segment.ms": str(HOUR_MS // 6)}
        cluster.create_topic("t", configs=configs)
        found: list[Any] = [cluster.produce("t", b"%d" % n, key=b"k") for n in range(2)]
        first = cluster.leader_of("t")
        cluster.kill(first)
        found.append(cluster.produce("t", b"2"))
        assert cluster.leader_of("t") != first
        cluster.restart(first)
        cluster.advance(minutes=30)
        cluster.produce("t", b"3")
        assert [one.value for one in cluster.read("t")] == [b"0", b"1", b"2", b"3"]
        cluster.advance(minutes=45)
        found += [cluster.first_offset("t"), cluster.read("t"), cluster.now_ms]
        return found


def test_retention_and_failover_in_virtual_time_and_again_from_the_same_seed() -> None:
    once = story(5)
    assert once[:4] == [0, 1, 2, 3]
    assert [one.value for one in once[4]] == [b"3"]
    assert story(5) == once


def test_a_week_fires_retention_sessions_offsets_and_transactions_at_once() -> None:
    with SimulatedCluster(2) as cluster:
        configs = {"retention.ms": str(7 * DAY_MS), "segment.ms": str(DAY_MS)}
        cluster.create_topic("t", configs=configs)
        cluster.produce("t", b"old")
        member = cluster.join_group("readers")
        cluster.commit("others", "t", 1)
        begin_transaction(cluster, "writer", "t")
        assert cluster.group_members("readers") == (member,)
        assert cluster.committed("others", "t") == 1
        assert first_unstable(cluster, 0) == 1  # the open transaction holds up its readers
        cluster.advance(days=7)
        assert cluster.group_members("readers") == ()
        assert cluster.committed("others", "t") is None
        offset = cluster.produce("t", b"young")
        assert first_unstable(cluster, offset) == offset + 1
        assert [one.value for one in cluster.read("t")] == [b"young"]


def test_a_silent_member_is_there_until_its_session_is_over() -> None:
    with SimulatedCluster(4, nodes=1) as cluster:
        first = cluster.join_group("g", session_timeout_ms=30_000)
        cluster.advance(seconds=25)
        assert cluster.group_members("g") == (first,)
        second = cluster.join_group("g")  # waits for the other one, in virtual time
        assert cluster.group_members("g") == (second,)
        assert cluster.group_members("no such group") == ()
        cluster.create_topic("t")
        assert cluster.committed("g", "t") is None
        with pytest.raises(CallFailed, match="UNKNOWN_MEMBER_ID"):
            cluster.commit("g", "t", 1)  # it has a member


def begin_transaction(cluster: SimulatedCluster, name: str, topic: str) -> None:
    """One that nobody ends; its time is a minute."""

    async def write(client: SimKafkaClient) -> None:
        request = transaction_messages.init_producer_id(name, 60_000)
        while True:
            try:
                given = await Coordinator(client, TRANSACTION_KEY, name).ask(request, 5.0)
            except NoAnswer:
                await asyncio.sleep(0.1)
                continue
            if int(given.error_code) == 0:
                break
        who = transaction_messages.Producer(name, int(given.producer_id), int(given.producer_epoch))
        batch = build_batch(
            [Record(0, cluster.now_ms, None, b"open")],
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        await client.refresh([topic])
        produce = transaction_messages.produce(who, topic, 0, batch, is_new=True)
        answer = await client.call(client.leaders[topic, 0].leader, produce, 5.0)
        assert int(answer.responses[0].partition_responses[0].error_code) == 0

    cluster.run(write)


def first_unstable(cluster: SimulatedCluster, offset: int) -> int:
    """As a fetch at some offset is told."""

    async def ask(client: SimKafkaClient) -> int:
        await client.refresh(["t"])
        known = client.leaders["t", 0]
        request = kafka_messages.fetch(
            known.topic_id, 0, offset, leader_epoch=-1, last_epoch=-1, max_wait_ms=0, max_bytes=999
        )
        answer = await client.call(known.leader, request, 5.0)
        (row,) = answer.responses[0].partitions
        return int(row.last_stable_offset)

    return cluster.run(ask)


@pytest.mark.asyncio
async def test_a_test_may_have_an_event_loop_of_its_own() -> None:
    with SimulatedCluster(1, nodes=1) as cluster:
        await cluster.aio.create_topic("t", 2)
        assert await cluster.aio.produce("t", b"x", partition=1) == 0
        assert cluster.produce("t", b"y", partition=1) == 1  # blocking, inside of a running loop
        before_ms = cluster.now_ms
        await cluster.aio.advance(days=1)
        assert cluster.now_ms >= before_ms + 24 * HOUR_MS
        await cluster.healthy()
        assert [one.value for one in await cluster.aio.read("t", 1, 1)] == [b"y"]


def test_what_it_refuses() -> None:
    cluster = SimulatedCluster(1, nodes=1)
    with cluster:
        with pytest.raises(ValueError, match="there is no node 2; there are 1"):
            cluster.kill(2)
        with pytest.raises(ValueError, match="time does not go back"):
            cluster.advance(seconds=-1)
        cluster.create_topic("t")
        with pytest.raises(CallFailed, match="TOPIC_ALREADY_EXISTS"):
            cluster.create_topic("t")
        with pytest.raises(CallFailed, match="OFFSET_OUT_OF_RANGE"):
            cluster.read("t", offset=7)
    with pytest.raises(RuntimeError, match="is closed"):
        cluster.leader_of("t")


def test_every_method_that_waits_has_an_asynchronous_form() -> None:
    methods = {
        name for name, one in vars(SimulatedCluster).items() if callable(one) and name[0] != "_"
    }
    view = {name for name in vars(AsyncView) if name[0] != "_"}
    assert methods - {"close", "healthy"} == view
