"""ConsumerGroupHeartbeat: joining, staying in and leaving a group of the consumer protocol.

One request does it all (KIP-848): in goes what a member wants and has, out what it shall have.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tidelog.broker.calls import Begun, Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.group_settings import has_consumer_protocol
from tidelog.broker.groups import Groups
from tidelog.coordinator.consumer.events import ConsumerHeartbeat, ConsumerHeartbeatResult
from tidelog.coordinator.runtime.group_shard import Answer
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Uuid
from tidelog.kernel.ports import Random
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import (
    duration_i32,
    field_of,
    from_kio_uuid,
    milliseconds,
    to_kio_uuid,
)
from tidelog.wire.protocol.responses import encode_response, response_structs

_FIRST_WITH_OWN_ID: Final = 1


class ConsumerGroupHeartbeat:
    api_key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    is_pipelined = False

    def __init__(self, context: BrokerContext, groups: Groups, random: Random) -> None:
        self._context = context
        self._groups = groups
        self._random = random

    def begin(self, call: Call) -> Begun:
        request: Any = call.request
        shard = self._groups.find(request.group_id)
        if isinstance(shard, ErrorCode):
            if not request.group_id:
                shard = ErrorCode.INVALID_REQUEST
            return _response(call, ConsumerHeartbeatResult(shard))
        # Only now: a broker that has just started knows no features yet, and clients take this
        # error for the last word.
        if not has_consumer_protocol(self._context.settings, self._context.image):
            return _response(call, ConsumerHeartbeatResult(ErrorCode.UNSUPPORTED_VERSION))
        fresh_id = str(Uuid(self._random.randbytes(16)))
        answer = shard.ask(request.group_id, lambda asked: _event(call, asked, fresh_id))
        return _wait(call, answer)


def _event(call: Call, request_id: int, fresh_id: str) -> ConsumerHeartbeat:
    request: Any = call.request
    no_regex: str | None = None
    names = request.subscribed_topic_names
    return ConsumerHeartbeat(
        request_id,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        milliseconds(request.rebalance_timeout),
        None if names is None else tuple(names),
        field_of(request, "subscribed_topic_regex", no_regex),
        request.server_assignor,
        _owned(request.topic_partitions),
        client_id=call.client_id or "",
        client_host=f"/{call.client.address.host}",
        fresh_id=fresh_id,
        has_own_id=call.version >= _FIRST_WITH_OWN_ID,
    )


def _owned(topics: Any) -> tuple[tuple[Uuid, tuple[int, ...]], ...] | None:
    if topics is None:
        return None
    return tuple((from_kio_uuid(one.topic_id), tuple(one.partitions)) for one in topics)


async def _wait(call: Call, answer: asyncio.Future[Answer]) -> ResponseFrame:
    result = await answer
    assert isinstance(result, ConsumerHeartbeatResult)
    return _response(call, result)


def _response(call: Call, result: ConsumerHeartbeatResult) -> ResponseFrame:
    structs = response_structs(call.api.key, call.version)
    assignment = None
    if result.assignment is not None:
        topics = [
            structs.struct(
                "TopicPartitions",
                topic_id=to_kio_uuid(one.topic_id),
                partitions=tuple(one.partitions),
            )
            for one in result.assignment
        ]
        assignment = structs.struct("Assignment", topic_partitions=tuple(topics))
    message = structs.response(
        throttle_time=duration_i32(0),
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval=duration_i32(result.heartbeat_interval_ms),
        assignment=assignment,
    )
    return encode_response(call.api.key, call.version, call.correlation_id, message)
