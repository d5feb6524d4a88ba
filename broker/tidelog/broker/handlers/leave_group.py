"""LeaveGroup: members of a classic group go, one or (from version 3 on) many at a time."""

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
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import encode_response, response_structs

_FIRST_WITH_MEMBERS: Final = 3


class LeaveGroup:
    api_key = ApiKey.LEAVE_GROUP
    is_pipelined = False

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def begin(self, call: Call) -> Begun:
        request: Any = call.request
        if not request.group_id:
            return _response(call, e.LeaveResult(ErrorCode.INVALID_GROUP_ID))
        shard = self._groups.find(request.group_id)
        if isinstance(shard, ErrorCode):
            return _response(call, e.LeaveResult(shard))
        leavers = tuple(_leavers(call))
        return _wait(call, shard.ask(request.group_id, lambda asked: e.LeaveGroup(asked, leavers)))


def _leavers(call: Call) -> list[e.Leaver]:
    request: Any = call.request
    if call.version < _FIRST_WITH_MEMBERS:
        return [e.Leaver(request.member_id)]
    return [e.Leaver(one.member_id, one.group_instance_id) for one in request.members]


async def _wait(call: Call, answer: asyncio.Future[Answer]) -> ResponseFrame:
    result = await answer
    assert isinstance(result, e.LeaveResult)
    return _response(call, result)


def _response(call: Call, result: e.LeaveResult) -> ResponseFrame:
    structs = response_structs(call.api.key, call.version)
    code = result.error
    if call.version < _FIRST_WITH_MEMBERS and code is ErrorCode.NONE and result.members:
        code = result.members[0].error  # there is only one, and no list to put it in
    members = () if call.version < _FIRST_WITH_MEMBERS else result.members
    message = structs.response(
        throttle_time=duration_i32(0),
        error_code=code,
        members=tuple(
            structs.struct(
                "MemberResponse",
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                error_code=one.error,
            )
            for one in members
        ),
    )
    return encode_response(call.api.key, call.version, call.correlation_id, message)
