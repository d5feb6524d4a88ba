"""OffsetFetch over a shard whose log replicates when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from shard_lab import MemoryPartition, in_world, loaded, shard_set

from tidelog.broker.calls import Begun, Call, Client
from tidelog.broker.context import BrokerContext
from tidelog.broker.groups import Groups
from tidelog.broker.handlers.offset_fetch import OffsetFetch
from tidelog.coordinator.classic_group import GroupSettings
from tidelog.coordinator.commit_checks import Committer
from tidelog.coordinator.consumer.context import ConsumerGroupSettings
from tidelog.coordinator.consumer.topics import KnownTopics, TopicInfo
from tidelog.coordinator.offsets import OffsetSettings, OffsetToCommit
from tidelog.coordinator.runtime.former_rebalances import FormerRebalances
from tidelog.coordinator.runtime.group_shard import GroupShard, GroupShardSettings
from tidelog.coordinator.runtime.shard_log import ShardLog
from tidelog.coordinator.runtime.shard_set import ShardSet
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Uuid
from tidelog.simulation import World
from tidelog.simulation.kafka_messages import Structs
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import SIZE_BYTES, ResponseFrame, parse_response_header
from tidelog.wire.protocol.responses import decode_response

VERSION = 9
SETTINGS = GroupShardSettings(GroupSettings(), ConsumerGroupSettings(), OffsetSettings())


class OneShard:
    """In place of all groups of a broker; an error: the group is not served here and now."""

    def __init__(self, shard: GroupShard | ErrorCode) -> None:
        self._shard = shard

    def find(self, group_id: str) -> GroupShard | ErrorCode:
        return self._shard


def ask(shard: GroupShard | ErrorCode, *, require_stable: bool) -> Begun:
    s = Structs(ApiKey.OFFSET_FETCH, VERSION)
    topic = s.OffsetFetchRequestTopics(name="t", partition_indexes=(0,))
    group = s.OffsetFetchRequestGroup(group_id="g", topics=(topic,))
    request = s.OffsetFetchRequest(groups=(group,), require_stable=require_stable)
    client = Client(SocketAddress("127.0.0.1", 1), "PLAINTEXT", 1)
    call = Call(APIS[ApiKey.OFFSET_FETCH], VERSION, 7, "c", client, request, 0)
    # Topics are asked for by name, so that nobody looks at the metadata.
    context = cast(BrokerContext, None)
    return OffsetFetch(context, cast(Groups, OneShard(shard))).begin(call)


def decoded(frame: ResponseFrame) -> Any:
    """What is said of the only group."""
    data = b"".join(bytes(segment) for segment in cast(Any, frame.segments))[SIZE_BYTES:]
    _, body = parse_response_header(APIS[ApiKey.OFFSET_FETCH], VERSION, bytearray(data))
    answer: Any = decode_response(ApiKey.OFFSET_FETCH, VERSION, body)
    (group,) = answer.groups
    return group


def rows(frame: ResponseFrame) -> list[tuple[str, int, int, int]]:
    """Topic, partition, error and offset of all that an answer names."""
    return [
        (str(topic.name), int(one.partition_index), int(one.error_code), int(one.committed_offset))
        for topic in decoded(frame).topics
        for one in topic.partitions
    ]


def told(frame: ResponseFrame) -> tuple[int, int]:
    """The group's error and the offset."""
    group = decoded(frame)
    if group.error_code:
        return int(group.error_code), -1
    return 0, int(group.topics[0].partitions[0].committed_offset)


def make_shard(writer: ShardLog, watch: Callable[[], None]) -> GroupShard:
    topics = KnownTopics([TopicInfo(Uuid(bytes(range(16))), "t", 1)], version=1)
    return GroupShard(writer, watch, SETTINGS, topics, FormerRebalances())


def test_stable_offsets_wait_for_commits_that_are_being_replicated() -> None:
    """Hazard 33: or the next owner starts from an offset that is about to be replaced."""

    async def scenario(world: World) -> None:
        partition = MemoryPartition()
        shards = shard_set(world, make_shard)
        shards.lead(0, partition, partition.leader_epoch)
        shard = await loaded(shards)
        partition.is_automatic = False
        committing = shard.commit("g", Committer(), [OffsetToCommit("t", 0, 42)], version=VERSION)
        assert isinstance(committing, asyncio.Future)
        at_once = ask(shard, require_stable=False)
        assert isinstance(at_once, ResponseFrame)
        assert told(at_once) == (0, -1)
        begun: Any = ask(shard, require_stable=True)
        assert not isinstance(begun, ResponseFrame)
        waiting = asyncio.ensure_future(begun)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        partition.replicate()
        assert told(await waiting) == (0, 42)
        settled = ask(shard, require_stable=True)
        assert isinstance(settled, ResponseFrame)
        assert told(settled) == (0, 42)

    in_world(scenario)


UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.mark.parametrize(
    ("error", "of_partition"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, UNSTABLE),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, UNSTABLE),
        (ErrorCode.NOT_COORDINATOR, UNSTABLE),
        (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.STALE_MEMBER_EPOCH),
    ],
)
def test_an_error_that_passes_names_the_partitions_that_were_asked_for(
    error: ErrorCode, of_partition: ErrorCode
) -> None:
    """Or librdkafka keeps a partition and never reads it: it asks again only for what is named."""
    refused = ask(error, require_stable=True)
    assert isinstance(refused, ResponseFrame)
    assert told(refused) == (error, -1)
    assert rows(refused) == [("t", 0, of_partition, -1)]


@pytest.mark.parametrize(
    ("error", "require_stable"),
    [(ErrorCode.NOT_COORDINATOR, False), (ErrorCode.UNKNOWN_MEMBER_ID, True)],
)
def test_other_errors_of_a_group_stand_alone(error: ErrorCode, require_stable: bool) -> None:
    refused = ask(error, require_stable=require_stable)
    assert isinstance(refused, ResponseFrame)
    assert told(refused) == (error, -1)
    assert rows(refused) == []


async def with_a_commit_under_way(world: World) -> tuple[ShardSet[GroupShard], GroupShard]:
    """One that is not replicated."""
    partition = MemoryPartition()
    shards = shard_set(world, make_shard)
    shards.lead(0, partition, partition.leader_epoch)
    shard = await loaded(shards)
    partition.is_automatic = False
    shard.commit("g", Committer(), [OffsetToCommit("t", 0, 42)], version=VERSION)
    return shards, shard


def test_nobody_waits_long_for_stable_offsets() -> None:
    """A member's heartbeats wait behind this answer, and it may be given up and never repeated."""

    async def scenario(world: World) -> None:
        _, shard = await with_a_commit_under_way(world)
        begin_s = world.loop.time()
        answer = await cast(Any, ask(shard, require_stable=True))
        assert world.loop.time() - begin_s == pytest.approx(1.0)
        assert decoded(answer).error_code == 0
        assert rows(answer) == [("t", 0, UNSTABLE, -1)]

    in_world(scenario)


def test_offsets_in_doubt_are_asked_for_again() -> None:
    """A coordinator that is cut off cannot replicate a commit, and is replaced meanwhile."""

    async def scenario(world: World) -> None:
        shards, shard = await with_a_commit_under_way(world)
        waiting = asyncio.ensure_future(cast(Any, ask(shard, require_stable=True)))
        await asyncio.sleep(0.1)
        shards.resign(0)
        answer = await waiting
        assert told(answer) == (ErrorCode.NOT_COORDINATOR, -1)
        assert rows(answer) == [("t", 0, UNSTABLE, -1)]

    in_world(scenario)
