"""DescribeTopicPartitions: pages that together have every partition once."""

from __future__ import annotations

from typing import Any

import pytest
from admin_desk import Desk, at_desk
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.controller.metadata.records import LEADERLESS, PartitionChange
from tidelog.kernel.ids import NodeId, PartitionIndex
from tidelog.wire.protocol.apis import ApiKey

Cursor = tuple[str, int]


async def page(
    desk: Desk, names: list[str], limit: int = 2000, cursor: Cursor | None = None
) -> Any:
    following = cursor and {"topic_name": cursor[0], "partition_index": cursor[1]}
    return await desk.ask(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=following,
    )


def next_cursor(response: Any) -> Cursor | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


def rows(response: Any) -> list[tuple[str, int, list[int]]]:
    return [
        (topic.name, topic.error_code.value, [p.partition_index for p in topic.partitions])
        for topic in response.topics
    ]


@given(
    counts=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 5), min_size=1),
    limit=st.integers(-1, 7),
    all_topics=st.booleans(),
)
@settings(derandomize=True, max_examples=40, deadline=None)
def test_walking_the_pages_meets_every_partition_once(
    counts: dict[str, int], limit: int, all_topics: bool
) -> None:
    async def scenario(desk: Desk) -> None:
        for name, count in counts.items():
            await desk.cluster.create(name, *[(1,)] * count)
        names = [] if all_topics else list(counts)
        met: list[tuple[str, int]] = []
        cursor: Cursor | None = None
        for _ in range(sum(counts.values()) + 1):
            response = await page(desk, names, limit, cursor)
            found = [(name, i) for name, _, indexes in rows(response) for i in indexes]
            assert 1 <= len(found) <= max(limit, 1)
            met += found
            cursor = next_cursor(response)
            if cursor is None:
                break
        assert met == [(name, i) for name in sorted(counts) for i in range(counts[name])]

    at_desk(scenario)


def test_topics_come_by_name_and_unknown_ones_with_their_error() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("t", (1,))
        response = await page(desk, ["t", "nope", "bad name", "t"])
        assert rows(response) == [("bad name", 17, []), ("nope", 3, []), ("t", 0, [0])]
        assert {topic.topic_authorized_operations for topic in response.topics} == {3576}

    at_desk(scenario)


def test_a_page_is_never_larger_than_the_broker_allows() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("t", *[(1,)] * 9)
        response = await page(desk, ["t"], limit=100)
        assert rows(response) == [("t", 0, [0, 1, 2, 3])]
        assert next_cursor(response) == ("t", 4)

    at_desk(scenario, max_request_partition_size_limit="4")


def test_a_full_page_points_to_the_next_topic() -> None:
    async def scenario(desk: Desk) -> None:
        for name in ("a", "b"):
            await desk.cluster.create(name, (1,), (1,))
        response = await page(desk, [], limit=2)
        assert rows(response) == [("a", 0, [0, 1])]
        assert next_cursor(response) == ("b", 0)

    at_desk(scenario)


def test_a_cursor_into_a_topic_that_is_gone_goes_on_behind_it() -> None:
    async def scenario(desk: Desk) -> None:
        for name in ("a", "c"):
            await desk.cluster.create(name, (1,), (1,))
        assert rows(await page(desk, [], cursor=("b", 1))) == [("c", 0, [0, 1])]
        assert rows(await page(desk, [], cursor=("c", 7))) == [("c", 0, [])]
        assert rows(await page(desk, [], cursor=("d", 0))) == []

    at_desk(scenario)


@pytest.mark.parametrize("cursor", [("t", -1), ("u", 0)])
def test_a_cursor_must_fit_the_request(cursor: Cursor) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.cluster.create("t", (1,))
        response = await page(desk, ["t"], cursor=cursor)
        assert rows(response) == [("t", 42, [])]
        assert response.topics[0].topic_authorized_operations == -(2**31)

    at_desk(scenario)


def test_replicas_and_eligible_leaders_are_told() -> None:
    async def scenario(desk: Desk) -> None:
        topic_id = await desk.cluster.create("t", (1, 2, 3))
        change = PartitionChange(
            topic_id,
            PartitionIndex(0),
            isr=(),
            leader=LEADERLESS,
            elr=(NodeId(2),),
            last_known_elr=(NodeId(1),),
        )
        await desk.cluster.take(change)
        await desk.cluster.fence(3)
        [topic] = (await page(desk, ["t"])).topics
        [partition] = topic.partitions
        assert (partition.leader_id, partition.leader_epoch) == (-1, 1)
        assert partition.replica_nodes == (1, 2, 3)
        assert partition.isr_nodes == ()
        assert partition.eligible_leader_replicas == (2,)
        assert partition.last_known_elr == (1,)
        assert partition.offline_replicas == (3,)

    at_desk(scenario, 1, 2, 3)
