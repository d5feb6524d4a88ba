"""What only the asynchronous client promises: cancellation, cheap sending, its listeners."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any
from uuid import uuid4

import pytest

from tidelog import client
from tidelog.client import Admin, Consumer, Producer, TopicPartition
from tidelog.testing.local_cluster import LocalCluster

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.asyncio]


async def new_topic(cluster: LocalCluster) -> tuple[dict[str, Any], str]:
    at: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap}
    name = f"asyncio-{uuid4().hex[:10]}"
    async with Admin(at) as admin:
        await admin.create_topic(name, 1)
    return at, name


async def test_a_poll_that_is_cancelled_loses_nothing(cluster: LocalCluster) -> None:
    at, topic = await new_topic(cluster)
    found: list[int] = []
    async with (
        Producer({**at, "linger.ms": 0}) as producer,
        Consumer({**at, "auto.offset.reset": "earliest"}) as consumer,
    ):
        await consumer.assign([TopicPartition(topic, 0)])
        for n in range(40):
            sending = asyncio.ensure_future(producer.send(topic, b"%d" % n))
            polling = asyncio.ensure_future(consumer.poll(5.0))
            await asyncio.sleep(0.001 * (n % 10))
            if polling.cancel():
                await asyncio.wait([polling])
            if not polling.cancelled():
                found += [int(record.value or b"") for record in polling.result()]
            await sending
        deadline = time.monotonic() + 20
        while len(found) < 40 and time.monotonic() < deadline:
            found += [int(record.value or b"") for record in await consumer.poll(1.0)]
    assert found == list(range(40))


async def test_sending_costs_little_and_no_threads(cluster: LocalCluster) -> None:
    at, topic = await new_topic(cluster)
    count = 10_000
    async with Producer(at) as producer:
        await producer.send(topic, b"first")
        threads = threading.active_count()
        begun_s = time.thread_time()
        futures = [await producer.enqueue(topic, b"x" * 100) for _ in range(count)]
        spent_s = time.thread_time() - begun_s
        assert threading.active_count() <= threads
        offsets = [(await delivered).offset for delivered in futures]
    assert offsets == list(range(1, count + 1))
    # About 10 µs of this thread on an idle machine; the bound only notices a change of kind.
    assert spent_s / count < 100e-6


async def test_a_listener_runs_on_the_event_loop(cluster: LocalCluster) -> None:
    at, topic = await new_topic(cluster)
    here, told = threading.get_ident(), []

    class Listener(client.RebalanceListener):
        def on_assigned(self, partitions: list[TopicPartition]) -> None:
            told.append(threading.get_ident())

    async with Consumer({**at, "group.id": topic}) as consumer:
        await consumer.subscribe(topic, Listener())
        deadline = time.monotonic() + 20
        while not told and time.monotonic() < deadline:
            await consumer.poll(0.1)
    assert told == [here]


async def test_who_cancels_a_poll_may_poll_and_close_although_a_listener_still_runs(
    cluster: LocalCluster,
) -> None:
    at, topic = await new_topic(cluster)
    is_told, may_go_on = asyncio.Event(), asyncio.Event()

    class Listener(client.RebalanceListener):
        async def on_assigned(self, partitions: list[TopicPartition]) -> None:
            is_told.set()
            await may_go_on.wait()
            with pytest.raises(client.WrongState, match="a listener cannot poll"):
                await consumer.poll(0)
            with pytest.raises(client.WrongState, match="a listener cannot close"):
                await consumer.close()

    async with Producer(at) as producer:
        await producer.send(topic, b"x")
    consumer = Consumer({**at, "group.id": topic, "auto.offset.reset": "earliest"})
    await consumer.subscribe(topic, Listener())
    polling = asyncio.ensure_future(consumer.poll(30))
    async with asyncio.timeout(30):
        await is_told.wait()
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
        again = asyncio.ensure_future(consumer.poll(30))
        await asyncio.sleep(0.05)
        assert not again.done()  # it waits for the listener
        may_go_on.set()
        assert [record.value for record in await again] == [b"x"]
        await consumer.close()


async def test_what_a_listener_raises_comes_out_of_poll(cluster: LocalCluster) -> None:
    at, topic = await new_topic(cluster)

    class Listener(client.RebalanceListener):
        async def on_assigned(self, partitions: list[TopicPartition]) -> None:
            raise KeyError("the program's own")

    async with Consumer({**at, "group.id": topic}) as consumer:
        await consumer.subscribe(topic, Listener())
        with pytest.raises(KeyError, match="the program's own"):
            while True:
                await consumer.poll(1.0)
        assert consumer.assignment() == {TopicPartition(topic, 0)}  # librdkafka was answered
