"""OffsetFetch over a shard whose log replicates when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

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
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.ids import Uuid
from tidelog.simulation import World
from tidelog.simulation.kafka_messages import Structs
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import SIZE_BYTES, ResponseFrame, parse_response_header
from tidelog.wire.protocol.responses import decode_response

VERSION = 9
SETTINGS = GroupShardSettings(GroupSettings(), ConsumerGroupSettings(), OffsetSettings())


class OneShard:
    """In place of all groups of a broker."""

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard

    def find(self, group_id: str) -> GroupShard:
        return self._shard


def ask(shard: GroupShard, *, require_stable: bool) -> Begun:
    s = Structs(ApiKey.OFFSET_FETCH, VERSION)
    topic = s.OffsetFetchRequestTopics(name="t", partition_indexes=(0,))
    group = s.OffsetFetchRequestGroup(group_id="g", topics=(topic,))
    request = s.OffsetFetchRequest(groups=(group,), require_stable=require_stable)
    client = Client(SocketAddress("127.0.0.1", 1), "PLAINTEXT", 1)
    call = Call(APIS[ApiKey.OFFSET_FETCH], VERSION, 7, "c", client, request, 0)
    # Topics are asked for by name, so that nobody looks at the metadata.
    context = cast(BrokerContext, None)
    return OffsetFetch(context, cast(Groups, OneShard(shard))).begin(call)


def told(frame: ResponseFrame) -> tuple[int, int]:
    """The group's error and the offset."""
    data = b"".join(bytes(segment) for segment in cast(Any, frame.segments))[SIZE_BYTES:]
    _, body = parse_response_header(APIS[ApiKey.OFFSET_FETCH], VERSION, bytearray(data))
    answer: Any = decode_response(ApiKey.OFFSET_FETCH, VERSION, body)
    (group,) = answer.groups
    if group.error_code:
        return int(group.error_code), -1
    return 0, int(group.topics[0].partitions[0].committed_offset)


def test_stable_offsets_wait_for_commits_that_are_being_replicated() -> None:
    """Hazard 33: or the next owner starts from an offset that is about to be replaced."""

    async def scenario(world: World) -> None:
        partition = MemoryPartition()

        def make(writer: ShardLog, watch: Callable[[], None]) -> GroupShard:
            topics = KnownTopics([TopicInfo(Uuid(bytes(range(16))), "t", 1)], version=1)
            return GroupShard(writer, watch, SETTINGS, topics, FormerRebalances())

        shards = shard_set(world, make)
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
