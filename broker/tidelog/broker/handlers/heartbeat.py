"""Heartbeat: a member of a classic group is alive, and hears whether a rebalance is under way."""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog.broker.calls import Begun, Call
from tidelog.broker.groups import Groups
from tidelog.coordinator.classic import events as e
from tidelog.coordinator.runtime.group_shard import Answer
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32, field_of
from tidelog.wire.protocol.responses import encode_response, response_structs


class Heartbeat:
    api_key = ApiKey.HEARTBEAT
    is_pipelined = False

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def begin(self, call: Call) -> Begun:
        request: Any = call.request
        if not request.group_id:
            return _response(call, ErrorCode.INVALID_GROUP_ID)
        shard = self._groups.find(request.group_id)
        if shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return _response(call, ErrorCode.NONE)  # its session starts when loading ends
        if isinstance(shard, ErrorCode):
            return _response(call, shard)
        return _wait(call, shard.ask(request.group_id, lambda asked: _event(request, asked)))


def _event(request: Any, request_id: int) -> e.Heartbeat:
    instance_id = field_of(request, "group_instance_id", None)
    return e.Heartbeat(request_id, request.member_id, instance_id, request.generation_id)


async def _wait(call: Call, answer: asyncio.Future[Answer]) -> ResponseFrame:
    result = await answer
    assert isinstance(result, e.HeartbeatResult)
    return _response(call, result.error)


def _response(call: Call, code: ErrorCode) -> ResponseFrame:
    message = response_structs(call.api.key, call.version).response(
        throttle_time=duration_i32(0), error_code=code
    )
    return encode_response(call.api.key, call.version, call.correlation_id, message)
