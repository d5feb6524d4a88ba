"""DeleteGroups: groups without members, with all their offsets."""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog.broker.calls import Begun, Call
from tidelog.broker.groups import Groups
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import encode_response, response_structs

_Outcome = asyncio.Future[ErrorCode] | ErrorCode


class DeleteGroups:
    api_key = ApiKey.DELETE_GROUPS
    is_pipelined = False

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def begin(self, call: Call) -> Begun:
        request: Any = call.request
        names = dict.fromkeys(request.groups_names)  # a name given twice is deleted once
        return _wait(call, {name: self._delete(name) for name in names})

    def _delete(self, group_id: str) -> _Outcome:
        shard = self._groups.find(group_id)
        return shard if isinstance(shard, ErrorCode) else shard.delete_group(group_id)


async def _wait(call: Call, outcomes: dict[str, _Outcome]) -> ResponseFrame:
    structs = response_structs(call.api.key, call.version)
    results = [
        structs.struct(
            "DeletableGroupResult",
            group_id=group_id,
            error_code=await outcome if isinstance(outcome, asyncio.Future) else outcome,
        )
        for group_id, outcome in outcomes.items()
    ]
    message = structs.response(throttle_time=duration_i32(0), results=tuple(results))
    return encode_response(call.api.key, call.version, call.correlation_id, message)
