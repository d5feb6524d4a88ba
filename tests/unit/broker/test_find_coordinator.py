"""FindCoordinator: who coordinates, and how the offsets topic comes into being."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from admin_desk import Desk, at_desk, filled

from tidelog.broker.handlers.find_coordinator import GROUP, FindCoordinator
from tidelog.broker.handlers.internal_topic_creation import InternalTopicCreation
from tidelog.broker.handlers.internal_topics import CONSUMER_OFFSETS
from tidelog.coordinator.partitioning import coordinator_partition
from tidelog.kernel.ids import NodeId
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import frame_request, parse_response_header
from tidelog.wire.protocol.kio_codec import kio_bytes
from tidelog.wire.protocol.responses import decode_response

NOT_AVAILABLE = 15
INVALID_REQUEST = 42


def serve(desk: Desk, *, expected_brokers: int = 1, topics: dict[int, str] | None = None) -> None:
    creation = InternalTopicCreation(
        desk.context, desk.administration.auto_creation, desk.world.clock, expected_brokers
    )
    known = {GROUP: CONSUMER_OFFSETS} if topics is None else topics
    desk.handlers[int(ApiKey.FIND_COORDINATOR)] = FindCoordinator(desk.context, creation, known)


async def find(desk: Desk, *keys: str, version: int = 6, key_type: int = 0) -> list[Any]:
    answer = await desk.ask(
        ApiKey.FIND_COORDINATOR, version, key_type=key_type, coordinator_keys=list(keys)
    )
    return list(answer.coordinators)


async def settled() -> None:
    await asyncio.sleep(1)


def replication_factor(desk: Desk) -> int:
    topic = desk.cluster.image.topics.named(CONSUMER_OFFSETS)
    assert topic is not None
    [factor] = {len(state.replicas) for state in topic.partitions.values()}
    return factor


def test_the_first_client_makes_the_topic_and_is_asked_to_come_back() -> None:
    async def scenario(desk: Desk) -> None:
        serve(desk)
        [first] = await find(desk, "g")
        assert (first.error_code.value, first.node_id) == (NOT_AVAILABLE, -1)
        await settled()
        [second] = await find(desk, "g")
        assert (second.error_code.value, second.node_id) == (0, 1)
        topic = desk.cluster.image.topics.named(CONSUMER_OFFSETS)
        assert topic is not None and len(topic.partitions) == 50
        assert replication_factor(desk) == 1

    at_desk(scenario)


def test_brokers_that_are_about_to_start_get_replicas_too() -> None:
    async def scenario(desk: Desk) -> None:
        serve(desk)
        await desk.cluster.start(2, 3, fenced=True)
        [row] = await find(desk, "g")
        await settled()
        assert row.error_code.value == NOT_AVAILABLE
        assert desk.cluster.image.topics.named(CONSUMER_OFFSETS) is None
        await desk.cluster.start(2, 3)
        await find(desk, "g")
        await settled()
        assert replication_factor(desk) == 3

    at_desk(scenario)


def test_voters_that_never_registered_are_expected_for_a_while() -> None:
    async def scenario(desk: Desk) -> None:
        serve(desk, expected_brokers=3)
        await find(desk, "g")
        await settled()
        assert desk.cluster.image.topics.named(CONSUMER_OFFSETS) is None
        await asyncio.sleep(10)  # they may be controllers and nothing else
        await find(desk, "g")
        await settled()
        assert replication_factor(desk) == 1

    at_desk(scenario)


def test_no_more_replicas_than_are_configured() -> None:
    async def scenario(desk: Desk) -> None:
        serve(desk)
        await find(desk, "g")
        await settled()
        assert replication_factor(desk) == 2

    at_desk(scenario, 1, 2, 3, offsets_topic_replication_factor="2")


def test_the_coordinator_is_the_leader_of_the_groups_partition() -> None:
    async def scenario(desk: Desk) -> None:
        serve(desk)
        await desk.cluster.create(CONSUMER_OFFSETS, (1,), (2,), (1, 2), (2, 1))
        names = ["a", "b", "g-1", "ünï", ""]
        rows = await find(desk, *names)
        leaders = [1, 2, 1, 2]
        assert [row.node_id for row in rows] == [
            leaders[coordinator_partition(name, 4)] for name in names
        ]
        assert [row.key for row in rows] == names
        await desk.cluster.fence(2)
        codes = {row.node_id: row.error_code.value for row in await find(desk, *names)}
        assert codes == {1: 0, -1: NOT_AVAILABLE}

    at_desk(scenario, 1, 2)


@pytest.mark.parametrize(("version", "key_type"), [(4, 5), (6, -1), (6, 1), (5, 2)])
def test_types_that_there_are_not_are_refused(version: int, key_type: int) -> None:
    async def scenario(desk: Desk) -> None:
        serve(desk)
        [row] = await find(desk, "a:b:c", version=version, key_type=key_type)
        assert (row.error_code.value, row.node_id) == (INVALID_REQUEST, -1)

    at_desk(scenario)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_versions_ask_for_one(version: int) -> None:
    async def scenario(desk: Desk) -> None:
        serve(desk)
        await desk.cluster.create(CONSUMER_OFFSETS, (1,))
        request_type: Any = APIS[ApiKey.FIND_COORDINATOR].load_request_type(version)
        body = kio_bytes(filled(request_type, {"key": "g", "key_type": 0}))
        connection = desk.connect()
        connection.send(frame_request(APIS[ApiKey.FIND_COORDINATOR], version, 1, "desk", body))
        frame = await connection.receive()
        assert frame is not None
        _, view = parse_response_header(APIS[ApiKey.FIND_COORDINATOR], version, frame)
        answer: Any = decode_response(ApiKey.FIND_COORDINATOR, version, view)
        assert (answer.error_code.value, answer.node_id) == (0, NodeId(1))

    at_desk(scenario)
