"""Metadata: every version, every way to name topics, and topics made on demand."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any

import pytest
from admin_desk import Desk, at_desk
from pretended_cluster import address_of

from tidelog.broker.context import ControllerRefused
from tidelog.controller.metadata.records import LEADERLESS, PartitionChange, UnregisterBroker
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NodeId, PartitionIndex, TopicId, Uuid
from tidelog.wire.protocol.apis import APIS, ApiKey

VERSIONS = range(APIS[ApiKey.METADATA].max_version + 1)
NEWEST = VERSIONS[-1]
NO_AUTO_CREATION: Any = {"auto_create_topics_enable": "false"}


async def ask(desk: Desk, version: int, *names: str | None, **fields: Any) -> Any:
    """By name; no names at all with ``topics=None``."""
    topics = [{"name": name, "topic_id": None} for name in names]
    given = {"topics": topics, **ASKING, **fields}
    return await desk.ask(ApiKey.METADATA, version, **given)


ASKING: dict[str, Any] = {
    "allow_auto_topic_creation": True,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


async def ask_ids(desk: Desk, version: int, *ids: TopicId | None, **fields: Any) -> Any:
    topics = [
        {"name": None, "topic_id": None if one is None else uuid.UUID(bytes=one.raw)} for one in ids
    ]
    return await desk.ask(ApiKey.METADATA, version, topics=topics, **{**ASKING, **fields})


def errors(response: Any) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code.value) for topic in response.topics]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_tells_brokers_topics_and_partitions(version: int) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("t", (1, 2), (2, 1))
        response = await ask(desk, version, "t", "nope")
        assert [node.node_id for node in response.brokers] == [1, 2]
        assert (response.brokers[0].host, response.brokers[0].port) == (
            address_of(1).host,
            address_of(1).port,
        )
        assert errors(response) == [("t", 0), ("nope", 3)]
        partitions = response.topics[0].partitions
        assert [p.leader_id for p in partitions] == [1, 2]
        assert [p.replica_nodes for p in partitions] == [(1, 2), (2, 1)]
        if version >= 1:
            assert response.controller_id == 1
        if version >= 2:
            assert response.cluster_id == desk.context.cluster_id

    at_desk(scenario, 1, 2, **NO_AUTO_CREATION)


def test_all_topics_or_none() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("b", (1,))
        await desk.cluster.create("a", (1,))
        await desk.cluster.create("__consumer_offsets", (1,))
        everything = [("__consumer_offsets", 0), ("a", 0), ("b", 0)]
        assert errors(await ask(desk, 0)) == everything
        assert errors(await ask(desk, 1)) == []
        response = await ask(desk, 1, topics=None)
        assert errors(response) == everything
        assert [topic.is_internal for topic in response.topics] == [True, False, False]

    at_desk(scenario)


def test_names_are_answered_once_and_say_what_is_wrong_with_them() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("t", (1,))
        response = await ask(desk, NEWEST, "t", "t", "bad name", "", "__transaction_state")
        assert errors(response) == [
            ("t", 0), ("bad name", 17), ("", 17), ("__transaction_state", 3),
        ]  # fmt: skip
        assert response.topics[-1].is_internal

    at_desk(scenario, **NO_AUTO_CREATION)


def test_ids_count_if_there_are_any() -> None:
    async def scenario(desk: Desk) -> None:
        known = await desk.cluster.create("t", (1,))
        unknown = TopicId(Uuid(b"\x07" * 16))
        response = await ask_ids(desk, 12, known, unknown, known)
        assert errors(response) == [("t", 0), (None, 100)]
        mixed = [
            {"name": "other", "topic_id": None},
            {"name": None, "topic_id": uuid.UUID(bytes=known.raw)},
        ]
        response = await desk.ask(ApiKey.METADATA, 13, topics=mixed, **ASKING)
        assert errors(response) == [("t", 0)]
        assert response.error_code.value == 0

    at_desk(scenario)


def test_topics_named_in_a_way_the_version_does_not_have_are_refused() -> None:
    async def scenario(desk: Desk) -> None:
        topic_id = await desk.cluster.create("t", (1,))
        assert errors(await ask_ids(desk, 10, topic_id)) == [("", 42)]
        response = await ask_ids(desk, 13, None)
        assert errors(response) == [("", 42)]
        assert response.error_code.value == 42
        assert response.brokers == ()

    at_desk(scenario)


# Leaders and replicas.


@pytest.mark.parametrize(("version", "code"), [(1, 5), (5, 5), (6, 72), (NEWEST, 72)])
def test_a_leader_without_this_listener_cannot_be_named(version: int, code: int) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.start(2, listeners=("INSIDE",))
        await desk.cluster.create("t", (2, 1))
        [partition] = (await ask(desk, version, "t")).topics[0].partitions
        assert (partition.error_code.value, partition.leader_id) == (code, -1)
        assert partition.replica_nodes == (2, 1)

    at_desk(scenario)


def test_a_partition_without_a_leader_says_so() -> None:
    async def scenario(desk: Desk) -> None:
        topic_id = await desk.cluster.create("t", (1, 2))
        change = PartitionChange(topic_id, PartitionIndex(0), leader=LEADERLESS)
        await desk.cluster.take(change)
        [partition] = (await ask(desk, NEWEST, "t")).topics[0].partitions
        assert (partition.error_code.value, partition.leader_id) == (5, -1)
        assert partition.leader_epoch == 1

    at_desk(scenario, 1, 2)


def test_offline_replicas_are_named_and_fenced_brokers_are_not() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("t", (1, 2, 3))
        await desk.cluster.fence(2)
        epoch = desk.cluster.image.brokers[NodeId(3)].epoch
        await desk.cluster.take(UnregisterBroker(NodeId(3), epoch))
        response = await ask(desk, NEWEST, "t")
        [partition] = response.topics[0].partitions
        assert partition.offline_replicas == (2, 3)
        assert [node.node_id for node in response.brokers] == [1]

    at_desk(scenario, 1, 2, 3)


def test_version_0_names_only_brokers_it_knows() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("t", (1, 2))
        await desk.cluster.create("u", (2, 1))
        epoch = desk.cluster.image.brokers[NodeId(2)].epoch
        await desk.cluster.take(UnregisterBroker(NodeId(2), epoch))
        response = await ask(desk, 0, "t", "u")
        found = [
            (p.error_code.value, p.leader_id, p.replica_nodes, p.isr_nodes)
            for topic in response.topics
            for p in topic.partitions
        ]
        assert found == [(9, 1, (1,), (1,)), (5, -1, (1,), (1,))]

    at_desk(scenario, 1, 2)


def test_addresses_are_those_of_the_listener_the_client_came_by() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.start(2, listeners=("PLAINTEXT", "EXTERNAL"))
        outside = desk.connect("EXTERNAL")
        response = await ask(desk, NEWEST, connection=outside)
        assert [(node.node_id, node.host) for node in response.brokers] == [(2, "external2")]
        assert response.controller_id == 2

    at_desk(scenario)


def test_operations_are_told_when_asked_for() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("t", (1,))
        wanted = {
            "include_cluster_authorized_operations": True,
            "include_topic_authorized_operations": True,
        }
        response = await ask(desk, 8, "t", "nope", **wanted)
        assert response.cluster_authorized_operations == 8096
        assert [t.topic_authorized_operations for t in response.topics] == [3576, 3576]
        response = await ask(desk, 8, "t")
        assert response.cluster_authorized_operations == -(2**31)
        assert response.topics[0].topic_authorized_operations == -(2**31)

    at_desk(scenario, **NO_AUTO_CREATION)


def test_a_large_answer_is_made_in_pieces_and_lets_others_in_between() -> None:
    async def scenario(desk: Desk) -> None:
        for number in range(30):
            await desk.cluster.create(f"t{number:02}", *[(1,)] * 200)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async def turns_during(*names: str, **fields: Any) -> int:
            before = turns
            response = await ask(desk, NEWEST, *names, **fields)
            assert [len(t.partitions) for t in response.topics] == [200] * len(response.topics)
            return turns - before

        other = asyncio.get_running_loop().create_task(count())
        few = await turns_during("t01")
        many = await turns_during(topics=None)
        other.cancel()
        assert many >= few + 3

    at_desk(scenario)


def test_what_was_told_before_is_told_again_only_while_it_is_true() -> None:
    async def scenario(desk: Desk) -> None:
        topic_id = await desk.cluster.create("t", (1, 2))

        async def told() -> tuple[int, int, tuple[int, ...]]:
            [partition] = (await ask(desk, NEWEST, "t")).topics[0].partitions
            return partition.error_code.value, partition.leader_id, partition.offline_replicas

        assert [await told(), await told()] == [(0, 1, ()), (0, 1, ())]
        await desk.cluster.fence(2)
        assert await told() == (0, 1, (2,))
        await desk.cluster.take(PartitionChange(topic_id, PartitionIndex(0), leader=NodeId(2)))
        assert await told() == (0, 2, (2,))
        epoch = desk.cluster.image.brokers[NodeId(2)].epoch
        await desk.cluster.take(UnregisterBroker(NodeId(2), epoch))
        assert await told() == (5, -1, (2,))

    at_desk(scenario, 1, 2)


@pytest.mark.parametrize("order", [(0, 5, 6, NEWEST), (NEWEST, 6, 5, 0)])
def test_versions_do_not_see_what_was_made_for_others(order: tuple[int, ...]) -> None:
    expected = {0: (5, (1,)), 5: (5, (2, 1)), 6: (72, (2, 1)), NEWEST: (72, (2, 1))}

    async def scenario(desk: Desk) -> None:
        await desk.cluster.start(2, listeners=("INSIDE",))
        await desk.cluster.create("t", (2, 1))
        for version in order:
            [partition] = (await ask(desk, version, "t")).topics[0].partitions
            found = (partition.error_code.value, partition.replica_nodes)
            assert found == expected[version]
        [partition] = (
            (await ask(desk, 6, "t", connection=desk.connect("INSIDE"))).topics[0].partitions
        )
        assert (partition.error_code.value, partition.leader_id) == (0, 2)

    at_desk(scenario)


# Topics made because they were asked for.


def created(desk: Desk) -> list[str]:
    return [topic.name for topic in desk.cluster.image.topics]


async def settled() -> None:
    await asyncio.sleep(0.01)


@pytest.mark.parametrize("version", [0, 3, 4, NEWEST])
def test_a_missing_topic_is_created_and_there_the_next_time(version: int) -> None:
    async def scenario(desk: Desk) -> None:
        assert errors(await ask(desk, version, "new")) == [("new", 3)]
        await settled()
        assert errors(await ask(desk, version, "new")) == [("new", 0)]
        [request] = desk.cluster.forwarded
        assert (request.client_id, request.client_address) == ("desk", "10.0.0.7:50000")

    at_desk(scenario, num_partitions="3")


def test_a_new_topic_gets_the_defaults_of_the_cluster() -> None:
    async def scenario(desk: Desk) -> None:
        await ask(desk, NEWEST, "new")
        await settled()
        [topic] = (await ask(desk, NEWEST, "new")).topics
        assert [len(p.replica_nodes) for p in topic.partitions] == [2, 2, 2]

    at_desk(scenario, 1, 2, num_partitions="3", default_replication_factor="2")


@pytest.mark.parametrize(
    ("settings", "fields", "names"),
    [
        (NO_AUTO_CREATION, {}, ("new",)),
        ({}, {"allow_auto_topic_creation": False}, ("new",)),
        ({}, {"topics": None}, ()),
        ({}, {}, ("bad name", "")),
    ],
    ids=["the broker does not", "the client does not want it", "all topics", "illegal names"],
)
def test_topics_are_not_created(
    settings: Any, fields: dict[str, Any], names: tuple[str, ...]
) -> None:
    async def scenario(desk: Desk) -> None:
        await ask(desk, NEWEST, *names, **fields)
        await settled()
        assert desk.cluster.forwarded == []

    at_desk(scenario, **settings)


def test_a_topic_is_asked_for_once_at_a_time() -> None:
    async def scenario(desk: Desk) -> None:
        desk.cluster.gate.clear()
        await ask(desk, NEWEST, "a", "b")
        await ask(desk, NEWEST, "b", "c")
        await ask(desk, NEWEST, "a")
        await settled()
        assert len(desk.cluster.forwarded) == 2
        desk.cluster.gate.set()
        await settled()
        assert created(desk) == ["a", "b", "c"]

    at_desk(scenario)


def test_after_a_failure_the_next_asker_tries_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(desk: Desk) -> None:
        desk.cluster.refusal = ControllerRefused(ErrorCode.NOT_CONTROLLER, "nobody is active")
        await ask(desk, NEWEST, "new")
        await settled()
        desk.cluster.refusal = None
        await ask(desk, NEWEST, "new")
        await settled()
        assert created(desk) == ["new"]

    with caplog.at_level(logging.INFO):
        at_desk(scenario)
    assert "could not create new on demand: NOT_CONTROLLER: nobody is active" in caplog.text
    assert "created topic new" in caplog.text


def test_why_a_topic_could_not_be_created_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(desk: Desk) -> None:
        await ask(desk, NEWEST, "new")
        await settled()
        assert created(desk) == []

    at_desk(scenario, default_replication_factor="3")
    assert "could not create topic new on demand" in caplog.text


def test_internal_topics_are_created_as_configured() -> None:
    async def scenario(desk: Desk) -> None:
        await ask(desk, NEWEST, "__consumer_offsets", "__transaction_state")
        await settled()
        image = desk.cluster.image
        counts = {topic.name: len(topic.partitions) for topic in image.topics}
        assert counts == {"__consumer_offsets": 4, "__transaction_state": 5}
        assert dict(image.config(2, "__consumer_offsets")) == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }
        assert dict(image.config(2, "__transaction_state")) == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        }

    at_desk(
        scenario,
        offsets_topic_num_partitions="4",
        offsets_topic_replication_factor="1",
        transaction_state_log_num_partitions="5",
        transaction_state_log_replication_factor="1",
        transaction_state_log_min_isr="1",
    )


def test_closing_ends_what_is_under_way() -> None:
    async def scenario(desk: Desk) -> None:
        desk.cluster.gate.clear()
        await ask(desk, NEWEST, "new")
        await settled()
        await desk.administration.close()
        desk.cluster.gate.set()
        await settled()
        assert created(desk) == []

    at_desk(scenario)
