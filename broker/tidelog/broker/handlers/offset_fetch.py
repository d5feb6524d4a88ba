"""OffsetFetch: how far groups have read, of one group or (from version 8 on) of many.

Only what is replicated is shown. Whoever wants stable offsets gets them when all commits that were
accepted are replicated, so that nothing is about to change them; if that takes long, they are told
to come again, because heartbeats wait behind this answer. Topics are named, or (from version 10 on)
given by id; no list of topics asks for all.

An error of the group that passes is told of each partition too. librdkafka (2.16 and before) asks
again only for partitions that the answer names: left out, a member would keep them, send its
heartbeats, and read them never. Other clients look at the error of the group and no further.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tidelog.broker.calls import Begun, Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.groups import Groups
from tidelog.coordinator.offsets import Fetched
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import TopicId
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32, field_of, from_kio_uuid, to_kio_uuid
from tidelog.wire.protocol.responses import ResponseStructs, encode_response, response_structs

_FIRST_WITH_ERROR: Final = 2
_FIRST_WITH_GROUPS: Final = 8
_FIRST_WITH_IDS: Final = 10
_TOLD_OF_PARTITIONS: Final[Mapping[ErrorCode, ErrorCode]] = MappingProxyType(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NOT_COORDINATOR: ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNSTABLE_OFFSET_COMMIT: ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""What makes a client ask again, by the error of the group: at once, or after a heartbeat."""
_SETTLES_WITHIN_S: Final = 1.0
"""A client may give up a heartbeat after its interval, which is 5 s, or less if it is so set."""


class _Topic(NamedTuple):
    """One topic of an answer; no name: there is no topic of the id that was asked for."""

    name: str | None
    kio_id: Any
    rows: Sequence[Fetched]


class _Group(NamedTuple):
    code: ErrorCode
    topics: Sequence[_Topic] = ()


class OffsetFetch:
    api_key = ApiKey.OFFSET_FETCH
    is_pipelined = False

    def __init__(self, context: BrokerContext, groups: Groups) -> None:
        self._context = context
        self._groups = groups

    def begin(self, call: Call) -> Begun:
        request: Any = call.request
        if not field_of(request, "require_stable", False):
            return self._answer(call, {})
        asked = [request] if call.version < _FIRST_WITH_GROUPS else request.groups
        waits = {
            one.group_id: pending
            for one in asked
            if not isinstance(shard := self._groups.find(one.group_id), ErrorCode)
            and (pending := shard.settled()) is not None
        }
        if not waits:
            return self._answer(call, {})
        # Only partitions that were named can be told to come again.
        names_all = all(one.topics is not None for one in asked)
        return self._wait(call, waits, _SETTLES_WITHIN_S if names_all else None)

    async def _wait(
        self, call: Call, waits: Mapping[str, asyncio.Future[ErrorCode]], patience_s: float | None
    ) -> ResponseFrame:
        await asyncio.wait(waits.values(), timeout=patience_s)
        unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
        codes = {
            group_id: pending.result() if pending.done() else unstable
            for group_id, pending in waits.items()
        }
        failed = {group_id: code for group_id, code in codes.items() if code != ErrorCode.NONE}
        return self._answer(call, failed)

    def _answer(self, call: Call, failed: Mapping[str, ErrorCode]) -> ResponseFrame:
        """``failed``: groups whose offsets are in doubt."""
        request: Any = call.request
        structs = response_structs(self.api_key, call.version)
        if call.version < _FIRST_WITH_GROUPS:
            group = self._fetch(call, request, failed)
            message = structs.response(
                throttle_time=duration_i32(0),
                error_code=group.code,
                topics=_topics(structs, "", group.topics),
            )
        else:
            found = [(one, self._fetch(call, one, failed)) for one in request.groups]
            message = structs.response(
                throttle_time=duration_i32(0),
                groups=tuple(
                    structs.struct(
                        "OffsetFetchResponseGroup",
                        group_id=asked.group_id,
                        topics=_topics(structs, "s", group.topics),
                        error_code=group.code,
                    )
                    for asked, group in found
                ),
            )
        return encode_response(self.api_key, call.version, call.correlation_id, message)

    def _fetch(self, call: Call, asked: Any, failed: Mapping[str, ErrorCode]) -> _Group:
        shard = failed.get(asked.group_id) or self._groups.find(asked.group_id)
        if isinstance(shard, ErrorCode):
            return self._failed(call, asked, shard)
        topics = [self._asked(call, topic) for topic in asked.topics or ()]
        places = [
            (name, index) for name, _, indexes in topics if name is not None for index in indexes
        ]
        no_member: str | None = None
        found = shard.fetch(
            asked.group_id,
            None if asked.topics is None else places,
            require_stable=field_of(call.request, "require_stable", False),
            member_id=field_of(asked, "member_id", no_member),
            member_epoch=field_of(asked, "member_epoch", -1),
        )
        if isinstance(found, ErrorCode):
            return self._failed(call, asked, found)
        if asked.topics is None:
            return _Group(ErrorCode.NONE, list(self._by_topic(call, found)))
        rows = iter(found)
        return _Group(
            ErrorCode.NONE,
            [
                _Topic(name, kio_id, [_row(name, index, rows) for index in indexes])
                for name, kio_id, indexes in topics
            ],
        )

    def _asked(self, call: Call, topic: Any) -> tuple[str | None, Any, Sequence[int]]:
        if call.version < _FIRST_WITH_IDS:
            return topic.name, None, topic.partition_indexes
        known = self._context.image.topics.by_id.get(TopicId(from_kio_uuid(topic.topic_id)))
        name = None if known is None else known.name
        return name, topic.topic_id, topic.partition_indexes

    def _failed(self, call: Call, asked: Any, code: ErrorCode) -> _Group:
        told = _told_of_partitions(call, code)
        if told is None:
            return _Group(code)
        topics = (self._asked(call, topic) for topic in asked.topics or ())
        is_of_partitions = code is ErrorCode.UNSTABLE_OFFSET_COMMIT
        return _Group(
            ErrorCode.NONE if is_of_partitions else code,
            [
                _Topic(name, kio_id, [Fetched(name or "", index, told) for index in indexes])
                for name, kio_id, indexes in topics
            ],
        )

    def _by_topic(self, call: Call, fetched: Iterable[Fetched]) -> Iterable[_Topic]:
        """By name; a client that wants ids hears nothing of topics that are gone."""
        rows: dict[str, list[Fetched]] = {}
        for one in fetched:
            rows.setdefault(one.topic, []).append(one)
        for name, found in rows.items():
            known = self._context.image.topics.named(name)
            if known is not None:
                yield _Topic(name, to_kio_uuid(known.topic_id), found)
            elif call.version < _FIRST_WITH_IDS:
                yield _Topic(name, None, found)


def _row(name: str | None, index: int, fetched: Iterable[Fetched]) -> Fetched:
    if name is None:
        return Fetched("", index, ErrorCode.UNKNOWN_TOPIC_ID)
    return next(iter(fetched))


def _told_of_partitions(call: Call, code: ErrorCode) -> ErrorCode | None:
    """The error of each partition where that of the group is not enough."""
    if call.version < _FIRST_WITH_ERROR:
        return code  # there is no place for the group's
    wants_stable = field_of(call.request, "require_stable", False)
    return _TOLD_OF_PARTITIONS.get(code) if wants_stable else None


def _topics(structs: ResponseStructs, plural: str, topics: Iterable[_Topic]) -> tuple[Any, ...]:
    """``plural``: what the names of the structs end with where there are many groups."""
    return tuple(
        structs.struct(
            f"OffsetFetchResponseTopic{plural}",
            name=topic.name,
            topic_id=topic.kio_id,
            partitions=tuple(
                structs.struct(
                    f"OffsetFetchResponsePartition{plural}",
                    partition_index=row.partition,
                    committed_offset=row.offset,
                    committed_leader_epoch=row.leader_epoch,
                    metadata=row.metadata,
                    error_code=row.error,
                )
                for row in topic.rows
            ),
        )
        for topic in topics
    )
