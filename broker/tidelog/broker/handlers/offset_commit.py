"""OffsetCommit: how far a group has read, for each partition by itself.

Topics are named, or (from version 10 on) given by id. The commit is appended when the request is
begun, so that the commits of one connection take effect in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tidelog.broker.calls import Begun, Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.groups import Groups
from tidelog.coordinator.commit_checks import Committer
from tidelog.coordinator.offsets import OffsetToCommit
from tidelog.coordinator.runtime.group_shard import Codes
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ZERO_UUID, TopicId, Uuid
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import (
    duration_i32,
    duration_i64,
    field_of,
    from_kio_uuid,
    milliseconds,
)
from tidelog.wire.protocol.responses import encode_response, response_structs

_FIRST_WITH_IDS: Final = 10


class _Row(NamedTuple):
    """One partition asked for; no name: there is no topic of that id."""

    topic: str | None
    topic_id: Uuid
    wanted: Any


class OffsetCommit:
    api_key = ApiKey.OFFSET_COMMIT
    is_pipelined = True

    def __init__(self, context: BrokerContext, groups: Groups) -> None:
        self._context = context
        self._groups = groups

    def begin(self, call: Call) -> Begun:
        request: Any = call.request
        rows = [
            _Row(*self._topic(call, topic), one)
            for topic in request.topics
            for one in topic.partitions
        ]
        shard = self._groups.find(request.group_id)
        if isinstance(shard, ErrorCode):
            return _response(call, [shard] * len(rows))
        known = [row for row in rows if row.topic is not None]
        if rows and not known:
            return _response(call, [ErrorCode.UNKNOWN_TOPIC_ID] * len(rows))
        codes = shard.commit(
            request.group_id,
            Committer(
                request.member_id,
                field_of(request, "group_instance_id", None),
                request.generation_id_or_member_epoch,
            ),
            [_offset(row) for row in known],
            version=call.version,
            retention_ms=_retention_ms(request),
        )
        if isinstance(codes, asyncio.Future):
            return _wait(call, rows, codes)
        return _response(call, _all_codes(rows, codes))

    def _topic(self, call: Call, topic: Any) -> tuple[str | None, Uuid]:
        """Its name and id; offsets are kept under the name, with the id to tell it from others."""
        topics = self._context.image.topics
        if call.version < _FIRST_WITH_IDS:
            found = topics.named(topic.name)
            return topic.name, ZERO_UUID if found is None else found.topic_id
        topic_id = from_kio_uuid(topic.topic_id)
        known = topics.by_id.get(TopicId(topic_id))
        return None if known is None else known.name, topic_id


def _offset(row: _Row) -> OffsetToCommit:
    assert row.topic is not None
    one = row.wanted
    return OffsetToCommit(
        row.topic,
        one.partition_index,
        one.committed_offset,
        field_of(one, "committed_leader_epoch", -1),
        one.committed_metadata,
        row.topic_id,
    )


def _retention_ms(request: Any) -> int | None:
    """Only clients of old ask for a time of their own; −1 means that they do not."""
    asked_ms = milliseconds(field_of(request, "retention_time", duration_i64(-1)))
    return None if asked_ms < 0 else asked_ms


async def _wait(call: Call, rows: Sequence[_Row], codes: asyncio.Future[Codes]) -> ResponseFrame:
    return _response(call, _all_codes(rows, await codes))


def _all_codes(rows: Sequence[_Row], codes: Codes) -> list[ErrorCode]:
    """Of every partition asked for, from those of the partitions whose topic is known."""
    given = iter(codes)
    return [ErrorCode.UNKNOWN_TOPIC_ID if row.topic is None else next(given) for row in rows]


def _response(call: Call, codes: Sequence[ErrorCode]) -> ResponseFrame:
    request: Any = call.request
    structs = response_structs(call.api.key, call.version)
    given = iter(codes)
    topics = [
        structs.struct(
            "OffsetCommitResponseTopic",
            name=field_of(topic, "name", ""),
            topic_id=field_of(topic, "topic_id", None),
            partitions=tuple(
                structs.struct(
                    "OffsetCommitResponsePartition",
                    partition_index=one.partition_index,
                    error_code=next(given),
                )
                for one in topic.partitions
            ),
        )
        for topic in request.topics
    ]
    message = structs.response(throttle_time=duration_i32(0), topics=tuple(topics))
    return encode_response(call.api.key, call.version, call.correlation_id, message)
