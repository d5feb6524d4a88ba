"""OffsetDelete: forget offsets of topics that a group does not use any more."""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog.broker.calls import Begun, Call
from tidelog.broker.groups import Groups
from tidelog.coordinator.runtime.group_shard import OffsetsDeleted
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import encode_response, response_structs


class OffsetDelete:
    api_key = ApiKey.OFFSET_DELETE
    is_pipelined = False

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def begin(self, call: Call) -> Begun:
        request: Any = call.request
        if not request.group_id:
            return _response(call, OffsetsDeleted(ErrorCode.INVALID_GROUP_ID))
        shard = self._groups.find(request.group_id)
        if isinstance(shard, ErrorCode):
            return _response(call, OffsetsDeleted(shard))
        places = [
            (topic.name, one.partition_index)
            for topic in request.topics
            for one in topic.partitions
        ]
        deleted = shard.delete_offsets(request.group_id, places)
        if isinstance(deleted, asyncio.Future):
            return _wait(call, deleted)
        return _response(call, deleted)


async def _wait(call: Call, deleted: asyncio.Future[OffsetsDeleted]) -> ResponseFrame:
    return _response(call, await deleted)


def _response(call: Call, deleted: OffsetsDeleted) -> ResponseFrame:
    request: Any = call.request
    structs = response_structs(call.api.key, call.version)
    codes = iter(deleted.codes)
    topics = [
        structs.struct(
            "OffsetDeleteResponseTopic",
            name=topic.name,
            partitions=tuple(
                structs.struct(
                    "OffsetDeleteResponsePartition",
                    partition_index=one.partition_index,
                    error_code=next(codes),
                )
                for one in topic.partitions
            ),
        )
        for topic in (request.topics if deleted.error is ErrorCode.NONE else ())
    ]
    message = structs.response(
        error_code=deleted.error, throttle_time=duration_i32(0), topics=tuple(topics)
    )
    return encode_response(call.api.key, call.version, call.correlation_id, message)
