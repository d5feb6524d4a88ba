"""Tests with the fixtures that come with tidelog."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from orders import invoice, price_orders

from tidelog.client import Consumer, Producer, TopicPartition, sync
from tidelog.testing.fixture_cluster import FixtureCluster

DAY_MS = 24 * 3600 * 1000


def test_an_invoice_adds_up() -> None:
    assert invoice({"id": 7, "items": {"apple": 2, "pear": 1}}) == {"order": 7, "cents": 105}


async def invoices(bootstrap: str, topic: str, count: int) -> list[Any]:
    reading = {
        "bootstrap.servers": bootstrap,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    found: list[Any] = []
    async with Consumer(reading) as consumer:
        await consumer.assign([TopicPartition(topic, 0)])
        async for record in consumer:
            found.append(json.loads(record.value or b"null")["order"])
            if len(found) == count:
                return found
    return found


@pytest.mark.asyncio
async def test_every_order_is_priced_once_although_a_node_dies(
    tidelog_cluster: FixtureCluster, tidelog_topic: str
) -> None:
    target = f"{tidelog_topic}-invoices"
    await tidelog_cluster.aio.create_topic(target)
    async with Producer({"bootstrap.servers": tidelog_cluster.bootstrap}) as producer:
        for number in range(50):
            order = {"id": number, "items": {"apple": 1}}
            await producer.enqueue(tidelog_topic, json.dumps(order).encode())
        await producer.flush()
    pricing = asyncio.ensure_future(
        price_orders(tidelog_cluster.bootstrap, tidelog_topic, target, count=50)
    )
    await invoices(tidelog_cluster.bootstrap, target, 1)  # it is under way
    await tidelog_cluster.aio.kill(await tidelog_cluster.aio.leader_of(target))
    await pricing
    assert await invoices(tidelog_cluster.bootstrap, target, 50) == list(range(50))


def test_the_cluster_is_whole_again_for_the_next_test(tidelog_cluster: FixtureCluster) -> None:
    assert tidelog_cluster.living == (1, 2, 3)


def test_one_node_is_enough_for_much(tidelog_broker: FixtureCluster, tidelog_topic: str) -> None:
    with sync.Producer({"bootstrap.servers": tidelog_broker.bootstrap}) as producer:
        assert producer.send(tidelog_topic, b"hello").offset == 0


def test_orders_are_kept_for_a_week(simulated_cluster: Any) -> None:
    cluster = simulated_cluster(seed=42)
    configs = {"retention.ms": str(7 * DAY_MS), "segment.ms": str(DAY_MS)}
    cluster.create_topic("orders", configs=configs)
    cluster.produce("orders", b"first")
    cluster.advance(days=5)
    cluster.produce("orders", b"second")
    cluster.kill(cluster.leader_of("orders"))
    cluster.advance(days=3)
    assert [record.value for record in cluster.read("orders")] == [b"second"]
