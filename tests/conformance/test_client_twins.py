"""tidelog.client against a cluster: one suite for the asynchronous client and its twin."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from client_twins import Kit
from kafka.partitioner.default import murmur2

from tidelog import client
from tidelog.client import BEGINNING, END, AtTime, OffsetAndMetadata, TopicPartition
from tidelog.testing.local_cluster import LocalCluster

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.asyncio]

WAIT_S = 30.0


@pytest.fixture(params=["asyncio", "sync"])
def kit(request: pytest.FixtureRequest) -> Kit:
    return Kit(request.param)


@pytest.fixture
def at(cluster: LocalCluster) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap}


@pytest_asyncio.fixture
async def topic(kit: Kit, at: dict[str, Any]) -> AsyncIterator[str]:
    name = f"client-{uuid4().hex[:10]}"
    async with kit.Admin(at) as admin:
        await admin.create_topic(name, 2)
        yield name
        await admin.delete_topic(name)


def reading(at: dict[str, Any], topic: str, **more: Any) -> dict[str, Any]:
    return {**at, "group.id": f"g-{topic}", "auto.offset.reset": "earliest", **more}


async def write(kit: Kit, at: dict[str, Any], topic: str, count: int, partition: int = 0) -> None:
    async with kit.Producer(at) as producer:
        futures = [
            await producer.enqueue(topic, b"%d" % n, partition=partition, timestamp=1000 + n)
            for n in range(count)
        ]
        for n, delivered in enumerate(futures):
            assert (await delivered)[:3] == (topic, partition, n)


async def read(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        found += await consumer.poll(1.0, max_records=count - len(found))
    return found


# --- producing ---------------------------------------------------------------------------


async def test_a_record_comes_back_as_it_was_sent(kit: Kit, at: dict[str, Any], topic: str) -> None:
    headers = [("a", b"1"), ("empty", b""), ("none", None), ("a", b"2")]
    async with kit.Producer(
        at, key_serializer=client.str_serializer, value_serializer=client.json_serializer
    ) as producer:
        sent = await producer.send(
            topic, {"ü": [1, None]}, key="k", headers=headers, partition=1, timestamp=77
        )
        await producer.send(topic, None, key="k", partition=1)
    assert sent == (topic, 1, 0, 77)
    async with kit.Consumer(
        reading(at, topic),
        key_deserializer=client.str_deserializer,
        value_deserializer=client.json_deserializer,
    ) as consumer:
        await consumer.subscribe([topic])
        full, tombstone = await read(consumer, 2)
    assert (full.topic, full.partition, full.offset) == (topic, 1, 0)
    assert (full.key, full.value, list(full.headers)) == ("k", {"ü": [1, None]}, headers)
    assert (full.timestamp_ms, full.timestamp_type) == (77, client.TimestampType.CREATE_TIME)
    assert full.topic_partition == TopicPartition(topic, 1)
    assert (tombstone.key, tombstone.value, tombstone.headers) == ("k", None, ())


async def test_keys_land_where_java_puts_them(kit: Kit, at: dict[str, Any], topic: str) -> None:
    keys = [f"key-{n}".encode() for n in range(30)]
    async with kit.Producer(at) as producer:
        sent = await asyncio.gather(*(producer.send(topic, b"", key=key) for key in keys))
    expected = [(murmur2(key) & 0x7FFFFFFF) % 2 for key in keys]
    assert [one.partition for one in sent] == expected
    assert set(expected) == {0, 1}


async def test_a_small_buffer_makes_senders_wait_and_nothing_is_lost(
    kit: Kit, at: dict[str, Any], topic: str
) -> None:
    config = {**at, "buffer.memory": 20_000, "linger.ms": 1}
    async with kit.Producer(config) as producer:
        futures = [
            await producer.enqueue(topic, b"x" * 1000, partition=0, timestamp=1 + n)
            for n in range(300)
        ]
        sent = [await delivered for delivered in futures]
    assert [one.offset for one in sent] == list(range(300))


async def test_the_first_record_is_not_held_up(kit: Kit, at: dict[str, Any], topic: str) -> None:
    """Left alone, librdkafka has its producers and consumers wait for half a second at first."""
    partition = TopicPartition(topic, 0)
    sent_s, read_s = [], []
    for _ in range(6):
        begun = time.monotonic()
        async with kit.Producer({**at, "linger.ms": 0}) as producer:
            await producer.send(topic, b"x", partition=0)
            sent_s.append(time.monotonic() - begun)
        begun = time.monotonic()
        async with kit.Consumer({**at, "auto.offset.reset": "earliest"}) as consumer:
            await consumer.assign([partition])
            await read(consumer, 1)
            read_s.append(time.monotonic() - begun)
    assert min(sent_s) < 0.4 and min(read_s) < 0.4


async def test_what_a_broker_refuses(kit: Kit, at: dict[str, Any], topic: str) -> None:
    async with kit.Producer({**at, "max.request.size": 5_000_000}) as producer:
        with pytest.raises(client.RequestFailed) as caught:
            await producer.send(topic, b"x" * 3_000_000)
        assert (caught.value.code, caught.value.name) == (10, "MESSAGE_TOO_LARGE")
        assert not caught.value.retriable
        with pytest.raises(client.RequestFailed) as caught:
            await producer.send(topic, b"", partition=9)
        assert caught.value.name == "_UNKNOWN_PARTITION"
    async with kit.Producer(at) as producer:
        with pytest.raises(client.RequestFailed) as caught:
            await producer.send(topic, b"x" * 1_100_000)
        assert caught.value.code == 10  # found before anything was sent


# --- consuming ---------------------------------------------------------------------------


async def test_positions_are_committed_and_the_next_member_goes_on(
    kit: Kit, at: dict[str, Any], topic: str
) -> None:
    await write(kit, at, topic, 10)
    partition = TopicPartition(topic, 0)
    config = reading(at, topic, **{"enable.auto.commit": False})
    async with kit.Consumer(config) as consumer:
        await consumer.subscribe(topic)
        assert [one.value for one in await read(consumer, 4)] == [b"0", b"1", b"2", b"3"]
        assert consumer.positions()[partition].offset == 4
        assert await consumer.position(partition) == 4
        await consumer.commit()
        await read(consumer, 2)  # handed out, and not committed
        assert (await consumer.committed([partition]))[partition].offset == 4
        await consumer.commit({partition: OffsetAndMetadata(5, "half way")})
        await consumer.commit_soon({partition: OffsetAndMetadata(6, "a little further")})
    async with kit.Consumer(config) as consumer:
        await consumer.subscribe(topic)
        assert [one.offset for one in await read(consumer, 4)] == [6, 7, 8, 9]
        known = await consumer.committed([partition, TopicPartition(topic, 1)])
    assert known[partition].metadata == "a little further"
    assert known[TopicPartition(topic, 1)] is None


async def test_iteration_commits_what_was_handed_out(
    kit: Kit, at: dict[str, Any], topic: str
) -> None:
    await write(kit, at, topic, 10)
    found = []
    async with kit.Consumer(reading(at, topic)) as consumer:
        await consumer.subscribe(re.compile(re.escape(topic)))
        async for record in consumer:
            found.append(record.offset)
            if len(found) == 3:
                break
    assert found == [0, 1, 2]
    async with kit.Consumer(reading(at, topic)) as consumer:
        await consumer.subscribe(topic)
        assert [one.offset for one in await read(consumer, 7)] == list(range(3, 10))


async def test_seeking(kit: Kit, at: dict[str, Any], topic: str) -> None:
    await write(kit, at, topic, 10)
    partition = TopicPartition(topic, 0)
    config = {**at, "auto.offset.reset": "earliest", "fetch.max.wait.ms": 50}
    async with kit.Consumer(config) as consumer:
        await consumer.assign([partition])
        await consumer.seek(partition, 7)  # before anything was fetched
        assert [one.offset for one in await read(consumer, 2)] == [7, 8]
        await consumer.seek(partition, BEGINNING)
        assert [one.offset for one in await read(consumer, 2)] == [0, 1]
        await consumer.seek(partition, END)
        assert await consumer.position(partition) == 10
        assert await consumer.poll(0.2) == []
        await consumer.seek(partition, AtTime(1004))
        assert [one.offset for one in await read(consumer, 1)] == [4]
        await consumer.seek(partition, AtTime(9999))
        assert await consumer.position(partition) == 10
        assert await consumer.beginning_offset(partition) == 0
        assert await consumer.end_offset(partition) == 10
        assert await consumer.offset_at(partition, 1002) == 2
        assert await consumer.offset_at(partition, 9999) is None


async def test_a_paused_partition_waits_with_what_was_fetched_of_it(
    kit: Kit, at: dict[str, Any], topic: str
) -> None:
    await write(kit, at, topic, 5, partition=0)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with kit.Consumer({**at, "auto.offset.reset": "earliest"}) as consumer:
        await consumer.assign([zero, one])
        assert consumer.assignment() == {zero, one}
        assert [found.offset for found in await read(consumer, 2)] == [0, 1]
        await consumer.pause(zero)
        assert consumer.paused() == {zero}
        await write(kit, at, topic, 3, partition=1)
        assert [found[1:3] for found in await read(consumer, 3)] == [(1, 0), (1, 1), (1, 2)]
        await consumer.resume(zero)
        assert [found[1:3] for found in await read(consumer, 3)] == [(0, 2), (0, 3), (0, 4)]


async def test_a_record_that_cannot_be_read_is_named_and_can_be_left_out(
    kit: Kit, at: dict[str, Any], topic: str
) -> None:
    partition = TopicPartition(topic, 0)
    async with kit.Producer(at) as producer:
        for value in (b"1", b"{", b"3"):
            await producer.send(topic, value, partition=0)
    async with kit.Consumer(
        {**at, "auto.offset.reset": "earliest"}, value_deserializer=client.json_deserializer
    ) as consumer:
        await consumer.assign([partition])
        assert [one.value for one in await read(consumer, 1)] == [1]
        for _ in range(2):  # it stays where it is
            with pytest.raises(client.DeserializationFailed) as caught:
                await read(consumer, 1)
            assert (caught.value.topic, caught.value.partition, caught.value.offset) == (
                topic,
                0,
                1,
            )
        await consumer.seek(partition, caught.value.offset + 1)
        assert [one.value for one in await read(consumer, 1)] == [3]


async def test_a_listener_says_where_to_begin_and_commits_at_the_end(
    kit: Kit, at: dict[str, Any], topic: str
) -> None:
    await write(kit, at, topic, 10)
    partition = TopicPartition(topic, 0)
    told: list[tuple[str, list[TopicPartition]]] = []
    consumer = kit.Consumer(reading(at, topic, **{"enable.auto.commit": False}))

    async def on_assigned(partitions: list[TopicPartition]) -> None:
        told.append(("assigned", partitions))
        native = getattr(consumer, "native", None)
        if native is None:
            await consumer.seek(partition, 8)
        else:
            native.seek(partition, 8)

    async def on_revoked(partitions: list[TopicPartition]) -> None:
        told.append(("revoked", partitions))
        native = getattr(consumer, "native", None)
        if native is None:
            await consumer.commit()
            with pytest.raises(client.WrongState, match="a listener cannot poll"):
                await consumer.poll()
        else:
            native.commit()
            with pytest.raises(client.WrongState, match="a listener cannot poll"):
                native.poll()

    async with consumer:
        await consumer.subscribe(
            topic, kit.listener(on_assigned=on_assigned, on_revoked=on_revoked)
        )
        assert [one.offset for one in await read(consumer, 2)] == [8, 9]
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert told == [("assigned", both), ("revoked", both)]
    async with kit.Admin(at) as admin:
        assert (await admin.group_offsets(f"g-{topic}"))[partition].offset == 10


async def test_a_pattern_means_what_it_means_in_python(
    kit: Kit, at: dict[str, Any], topic: str
) -> None:
    await write(kit, at, topic, 1)
    begin = re.escape(topic[:-4])
    async with kit.Consumer(reading(at, topic)) as consumer:
        await consumer.subscribe(re.compile(rf"(?:{begin}\w+|other-\d+)"))
        assert [one.topic for one in await read(consumer, 1)] == [topic]
        assert {one.topic for one in consumer.assignment()} == {topic}


async def test_after_unsubscribe_nothing_more_is_handed_out(
    kit: Kit, at: dict[str, Any], topic: str
) -> None:
    await write(kit, at, topic, 5)
    async with kit.Consumer(reading(at, topic)) as consumer:
        await consumer.subscribe(topic)
        assert [one.offset for one in await read(consumer, 2)] == [0, 1]
        await consumer.unsubscribe()
        assert await consumer.poll(0.3) == []
        assert consumer.assignment() == frozenset()


async def test_two_members_share(kit: Kit, at: dict[str, Any], topic: str) -> None:
    await share(kit, at, topic, {"partition.assignment.strategy": "cooperative-sticky"})


@pytest.mark.parametrize("kit", ["asyncio"], indirect=True)  # slow: the broker sets the pace
async def test_two_members_of_the_new_protocol_share(
    kit: Kit, at: dict[str, Any], topic: str
) -> None:
    await share(kit, at, topic, {"group.protocol": "consumer"})


async def share(kit: Kit, at: dict[str, Any], topic: str, more: dict[str, Any]) -> None:
    config = reading(at, topic, **more)
    both = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    async with kit.Consumer(config) as first, kit.Consumer(config) as second:
        await first.subscribe(topic)
        await second.subscribe(topic)
        deadline = time.monotonic() + WAIT_S
        while (
            not (first.assignment() and second.assignment())
            or first.assignment() | second.assignment() != both
        ):
            assert time.monotonic() < deadline
            await asyncio.gather(first.poll(0.2), second.poll(0.2))
        await write(kit, at, topic, 3, partition=0)
        await write(kit, at, topic, 3, partition=1)
        found = [await read(one, 3) for one in (first, second)]
    assert [{record.partition for record in records} for records in found] in (
        [{0}, {1}],
        [{1}, {0}],
    )


# --- transactions ------------------------------------------------------------------------


async def test_a_transaction_is_all_or_nothing_and_takes_offsets_along(
    kit: Kit, at: dict[str, Any], topic: str
) -> None:
    await write(kit, at, topic, 3)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    # Markers follow a commit; whoever reads committed waits for those of offsets, too (KIP-447).
    config = reading(
        at, topic, **{"enable.auto.commit": False, "isolation.level": "read_committed"}
    )
    async with (
        kit.Consumer(config) as consumer,
        kit.TransactionalProducer({**at, "transactional.id": f"t-{topic}"}) as producer,
    ):
        await consumer.assign([zero])
        with pytest.raises(KeyError):
            async with producer.transaction() as transaction:
                await transaction.send(topic, b"never", partition=1)
                await read(consumer, 1)
                await transaction.send_offsets(consumer)
                raise KeyError("changed my mind")
        assert (await consumer.committed([zero]))[zero] is None
        async with producer.transaction() as transaction:
            await read(consumer, 1)
            await transaction.enqueue(topic, b"kept", partition=1)
            await transaction.send_offsets(consumer)
        assert (await consumer.committed([zero]))[zero].offset == 2
        with pytest.raises(client.WrongState, match="only inside of a transaction"):
            await producer.send(topic, b"")
    committed = {**at, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    async with kit.Consumer(committed) as consumer:
        await consumer.assign([one])
        assert [record.value for record in await read(consumer, 1)] == [b"kept"]
        assert await consumer.poll(0.2) == []


async def test_the_younger_of_two_with_one_name_wins(
    kit: Kit, at: dict[str, Any], topic: str
) -> None:
    config = {**at, "transactional.id": f"t-{topic}"}
    async with kit.TransactionalProducer(config) as old, kit.TransactionalProducer(config) as new:
        async with old.transaction() as transaction:
            await transaction.send(topic, b"1")
        async with new.transaction() as transaction:
            await transaction.send(topic, b"2")
        with pytest.raises(client.Fenced) as caught:
            async with old.transaction() as transaction:
                await transaction.send(topic, b"3")
        assert caught.value.fatal and not caught.value.retriable
        async with new.transaction() as transaction:
            await transaction.send(topic, b"4")


# --- administration ----------------------------------------------------------------------


async def test_topics_and_their_settings(kit: Kit, at: dict[str, Any], topic: str) -> None:
    async with kit.Admin(at) as admin:
        assert topic in await admin.list_topics()
        with pytest.raises(client.RequestFailed) as caught:
            await admin.create_topic(topic)
        assert (caught.value.name, caught.value.retriable) == ("TOPIC_ALREADY_EXISTS", False)
        await admin.create_partitions(topic, 3)
        with pytest.raises(client.RequestFailed) as caught:
            await admin.create_partitions(topic, 2)
        assert caught.value.name == "INVALID_PARTITIONS"
        await admin.set_topic_configs(
            topic, {"retention.ms": 5000, "max.message.bytes": "2000", "preallocate": True}
        )
        await admin.set_topic_configs(topic, {"max.message.bytes": None})
        await admin.set_topic_configs(topic, {})
        found = await admin.describe_topic(topic)
        assert [one.partition for one in found.partitions] == [0, 1, 2]
        assert all(len(one.replicas) == 3 and one.leader in one.isr for one in found.partitions)
        assert found.configs["retention.ms"].value == "5000"
        assert not found.configs["retention.ms"].is_default
        assert found.configs["preallocate"].value == "true"
        assert found.configs["max.message.bytes"].is_default
        assert (await admin.topic_configs(topic)).keys() == found.configs.keys()
        with pytest.raises(client.RequestFailed) as caught:
            await admin.describe_topic("no-such-topic")
        assert (caught.value.name, caught.value.retriable) == ("UNKNOWN_TOPIC_OR_PARTITION", True)
        cluster = await admin.describe_cluster()
        assert [node.node_id for node in cluster.nodes] == [1, 2, 3] and cluster.cluster_id
        assert (await admin.broker_configs(1))["node.id"].value == "1"
        await admin.set_broker_configs(1, {"log.cleaner.backoff.ms": 14_000})
        assert (await admin.broker_configs(1))["log.cleaner.backoff.ms"].value == "14000"
        await admin.set_broker_configs(1, {"log.cleaner.backoff.ms": None})
        assert (await admin.broker_configs(1))["log.cleaner.backoff.ms"].is_default
        other = f"{topic}-placed"
        await admin.create_topic(
            other, assignments=[[2, 1], [3, 1]], configs={"segment.ms": "9000"}
        )
        placed = await admin.describe_topic(other)
        assert [one.replicas for one in placed.partitions] == [(2, 1), (3, 1)]
        await admin.delete_topic(other)


async def test_groups(kit: Kit, at: dict[str, Any], topic: str) -> None:
    await write(kit, at, topic, 5)
    group, zero = f"g-{topic}", TopicPartition(topic, 0)
    async with kit.Admin(at) as admin:
        async with kit.Consumer(reading(at, topic, **{"client.id": "me"})) as consumer:
            await consumer.subscribe(topic)
            await read(consumer, 5)
            await consumer.commit()
            found = await admin.describe_group(group)
            assert (found.state, found.assignor) == ("STABLE", "range")
            (member,) = found.members
            assert member.client_id == "me" and zero in member.assignment
            assert any(one.group_id == group for one in await admin.list_groups())
            with pytest.raises(client.RequestFailed) as caught:
                await admin.delete_group(group)
            assert caught.value.name == "NON_EMPTY_GROUP"
        assert (await admin.group_offsets(group))[zero].offset == 5
        await admin.set_group_offsets(group, {zero: 2})
        assert (await admin.group_offsets(group))[zero].offset == 2
        assert await admin.delete_records({zero: 3}) == {zero: 3}
        assert await admin.delete_records({zero: END}) == {zero: 5}
        await admin.delete_group(group)
        assert await admin.group_offsets(group) == {}
