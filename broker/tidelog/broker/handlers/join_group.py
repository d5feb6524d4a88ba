"""JoinGroup: become a member of a classic group, and wait for everybody else.

The answer comes when the join phase ends. Until then nothing else is read from the connection;
clients keep one for their coordinator.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tidelog.broker.calls import Begun, Call
from tidelog.broker.groups import Groups
from tidelog.coordinator.classic import events as e
from tidelog.coordinator.runtime.group_shard import Answer
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ports import Random
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32, field_of, milliseconds
from tidelog.wire.protocol.responses import encode_response, response_structs

_FIRST_WITH_REBALANCE_TIMEOUT: Final = 1
_FIRST_WITH_MEMBER_ID_ROUND: Final = 4
_FIRST_WITH_NULL_PROTOCOL: Final = 7
_FIRST_WITH_SKIPPED_ASSIGNMENT: Final = 9


class JoinGroup:
    api_key = ApiKey.JOIN_GROUP
    is_pipelined = False

    def __init__(self, groups: Groups, random: Random) -> None:
        self._groups = groups
        self._random = random

    def begin(self, call: Call) -> Begun:
        request: Any = call.request
        shard = self._groups.find(request.group_id)
        if not request.group_id:
            return _response(call, e.JoinResult(ErrorCode.INVALID_GROUP_ID, request.member_id))
        if isinstance(shard, ErrorCode):
            return _response(call, e.JoinResult(shard, request.member_id))
        fresh_id = _uuid_text(self._random.randbytes(16))
        answer = shard.ask(request.group_id, lambda asked: _event(call, asked, fresh_id))
        return _wait(call, answer)


def _event(call: Call, request_id: int, fresh_id: str) -> e.JoinGroup:
    request: Any = call.request
    session_timeout_ms = milliseconds(request.session_timeout)
    rebalance_timeout_ms = (
        milliseconds(request.rebalance_timeout)
        if call.version >= _FIRST_WITH_REBALANCE_TIMEOUT
        else session_timeout_ms
    )
    return e.JoinGroup(
        request_id,
        request.member_id,
        field_of(request, "group_instance_id", None),
        call.client_id or "",
        f"/{call.client.address.host}",
        session_timeout_ms,
        rebalance_timeout_ms,
        request.protocol_type,
        tuple(e.Protocol(one.name, bytes(one.metadata)) for one in request.protocols),
        fresh_id,
        needs_member_id=call.version >= _FIRST_WITH_MEMBER_ID_ROUND,
        can_skip_assignment=call.version >= _FIRST_WITH_SKIPPED_ASSIGNMENT,
    )


async def _wait(call: Call, answer: asyncio.Future[Answer]) -> ResponseFrame:
    result = await answer
    assert isinstance(result, e.JoinResult)
    return _response(call, result)


def _response(call: Call, result: e.JoinResult) -> ResponseFrame:
    structs = response_structs(call.api.key, call.version)
    protocol = result.protocol
    if protocol is None and call.version < _FIRST_WITH_NULL_PROTOCOL:
        protocol = ""
    message = structs.response(
        throttle_time=duration_i32(0),
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=protocol,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=tuple(
            structs.struct(
                "JoinGroupResponseMember",
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in result.members
        ),
    )
    return encode_response(call.api.key, call.version, call.correlation_id, message)


def _uuid_text(raw: bytes) -> str:
    """A random uuid in the form that Kafka's member ids end with."""
    marked = bytearray(raw)
    marked[6] = marked[6] & 0x0F | 0x40
    marked[8] = marked[8] & 0x3F | 0x80
    digits = marked.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
