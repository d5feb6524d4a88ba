"""Offsets by kind and by time, as each client asks for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import aiokafka
import kafka
import kafka.admin
import pytest
from client_kits import Confluent, Kcat, Sent
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tidelog.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.xdist_group("cluster")

TOPIC = "offsets"
T0 = 1_790_000_000_000
TIMES = [T0, T0 + 10, T0 + 5, T0 + 30, T0 + 20]
"""Not in order: look-ups find the first record in the log that is late enough."""
LOOK_UPS = {T0 - 1: 0, T0: 0, T0 + 6: 1, T0 + 11: 3, T0 + 30: 3, T0 + 31: -1}
"""Where the first record at or after a time lies; −1: there is none."""
EARLIEST, LATEST, NEWEST = 0, len(TIMES), 3


@pytest.fixture(scope="module")
def bootstrap(cluster: LocalCluster) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 3, config={"retention.ms": "-1"})])[TOPIC].result(30)
    kit = Confluent(cluster.bootstrap)
    for time in TIMES:
        kit.produce(TOPIC, [Sent(None, b"x", (), time)])
    return cluster.bootstrap


def test_confluent_consumer(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    assert consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), 10) == (EARLIEST, LATEST)
    for time, offset in LOOK_UPS.items():
        [found] = consumer.offsets_for_times([TopicPartition(TOPIC, 0, time)], 10)
        assert found.offset == offset, time
    consumer.close()


def test_confluent_admin(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    where = TopicPartition(TOPIC, 0)
    wanted = {
        OffsetSpec.earliest(): EARLIEST,
        OffsetSpec.latest(): LATEST,
        OffsetSpec.max_timestamp(): NEWEST,
        OffsetSpec.for_timestamp(T0 + 6): 1,
    }
    for spec, offset in wanted.items():
        assert admin.list_offsets({where: spec})[where].result(30).offset == offset


def test_kafka_python(bootstrap: str) -> None:
    where = kafka.TopicPartition(TOPIC, 0)
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap.split(","))
    assert consumer.beginning_offsets([where]) == {where: EARLIEST}
    assert consumer.end_offsets([where]) == {where: LATEST}
    for time, offset in LOOK_UPS.items():
        found = consumer.offsets_for_times({where: time})[where]
        assert (-1 if found is None else found.offset) == offset, time
    consumer.close()
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
    newest = admin.list_partition_offsets({where: kafka.admin.OffsetSpec.MAX_TIMESTAMP})[where]
    assert (newest.offset, newest.timestamp) == (NEWEST, T0 + 30)
    admin.close()


def test_aiokafka(bootstrap: str) -> None:
    async def ask() -> None:
        where = aiokafka.TopicPartition(TOPIC, 0)
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        try:
            assert await consumer.beginning_offsets([where]) == {where: EARLIEST}
            assert await consumer.end_offsets([where]) == {where: LATEST}
            for time, offset in LOOK_UPS.items():
                found = (await consumer.offsets_for_times({where: time}))[where]
                assert (-1 if found is None else found.offset) == offset, time
        finally:
            await consumer.stop()

    asyncio.run(ask())


def test_kcat(bootstrap: str, require: Callable[[str], None]) -> None:
    require("kcat")
    kit = Kcat(bootstrap)
    for time, offset in {**LOOK_UPS, -1: LATEST, -2: EARLIEST}.items():
        printed = kit.run("-Q", "-t", f"{TOPIC}:0:{time}", "-J")
        assert json.loads(printed)[TOPIC]["0"]["offset"] == offset, time
    read = kit.run("-C", "-t", TOPIC, "-p", "0", "-o", "-2", "-e", "-f", "%o ")
    assert read.split() == [b"3", b"4"]
