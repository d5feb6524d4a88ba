"""ConsumerGroupHeartbeat at a broker that does not coordinate the group, or may not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from tidelog.broker.calls import Call, Client
from tidelog.broker.context import BrokerContext
from tidelog.broker.groups import Groups
from tidelog.broker.handlers.consumer_group_heartbeat import ConsumerGroupHeartbeat
from tidelog.controller.metadata.image import MetadataImage
from tidelog.coordinator.runtime.group_shard import GroupShard
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ports import Random
from tidelog.kernel.settings import Settings
from tidelog.simulation.group_messages import consumer_heartbeat
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import SIZE_BYTES, ResponseFrame, parse_response_header
from tidelog.wire.protocol.responses import decode_response

API = APIS[ApiKey.CONSUMER_GROUP_HEARTBEAT]
VERSION = 1


@dataclass
class Unaware:
    """The context of a broker that has heard nothing of the cluster yet."""

    settings: Settings
    image: MetadataImage


@dataclass
class Found:
    """In place of the groups of a broker."""

    shard: GroupShard | ErrorCode

    def find(self, group_id: str) -> GroupShard | ErrorCode:
        return self.shard


def told(shard: GroupShard | ErrorCode) -> int:
    context = Unaware(Settings.of({}), MetadataImage())
    handler = ConsumerGroupHeartbeat(
        cast(BrokerContext, context), cast(Groups, Found(shard)), cast(Random, None)
    )
    request: Any = consumer_heartbeat("g", "m", 3)
    client = Client(SocketAddress("127.0.0.1", 1), "PLAINTEXT", 1)
    frame = handler.begin(Call(API, VERSION, 7, "c", client, request, 0))
    assert isinstance(frame, ResponseFrame)
    data = b"".join(bytes(segment) for segment in cast(Any, frame.segments))[SIZE_BYTES:]
    _, body = parse_response_header(API, VERSION, bytearray(data))
    answer: Any = decode_response(ApiKey.CONSUMER_GROUP_HEARTBEAT, VERSION, body)
    return int(answer.error_code)


@pytest.mark.parametrize(
    "error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_who_does_not_coordinate_says_nothing_about_features(error: ErrorCode) -> None:
    """Or a member that comes to a broker that has just started gives up for good."""
    assert told(error) == error


def test_a_coordinator_refuses_what_the_cluster_has_not_agreed_to() -> None:
    assert told(cast(GroupShard, None)) == ErrorCode.UNSUPPORTED_VERSION
