"""SyncGroup: the leader of a classic group hands in the assignment, everybody gets its part."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tidelog.broker.calls import Begun, Call
from tidelog.broker.groups import Groups
from tidelog.coordinator.classic import events as e
from tidelog.coordinator.runtime.group_shard import Answer
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32, field_of
from tidelog.wire.protocol.responses import encode_response, response_structs

_FIRST_WITH_PROTOCOL: Final = 5


class SyncGroup:
    api_key = ApiKey.SYNC_GROUP
    is_pipelined = False

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def begin(self, call: Call) -> Begun:
        request: Any = call.request
        if not request.group_id:
            return _response(call, e.SyncResult(ErrorCode.INVALID_GROUP_ID))
        if call.version >= _FIRST_WITH_PROTOCOL and not _names_protocol(request):
            return _response(call, e.SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        shard = self._groups.find(request.group_id)
        if isinstance(shard, ErrorCode):
            # A member that syncs shall not think that its assignment is lost: it joins again.
            loading = shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            code = ErrorCode.REBALANCE_IN_PROGRESS if loading else shard
            return _response(call, e.SyncResult(code))
        return _wait(call, shard.ask(request.group_id, lambda asked: _event(request, asked)))


def _names_protocol(request: Any) -> bool:
    return request.protocol_type is not None and request.protocol_name is not None


def _event(request: Any, request_id: int) -> e.SyncGroup:
    return e.SyncGroup(
        request_id,
        request.member_id,
        field_of(request, "group_instance_id", None),
        request.generation_id,
        field_of(request, "protocol_type", None),
        field_of(request, "protocol_name", None),
        tuple((one.member_id, bytes(one.assignment)) for one in request.assignments),
    )


async def _wait(call: Call, answer: asyncio.Future[Answer]) -> ResponseFrame:
    result = await answer
    assert isinstance(result, e.SyncResult)
    return _response(call, result)


def _response(call: Call, result: e.SyncResult) -> ResponseFrame:
    message = response_structs(call.api.key, call.version).response(
        throttle_time=duration_i32(0),
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )
    return encode_response(call.api.key, call.version, call.correlation_id, message)
