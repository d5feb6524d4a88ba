"""Produce: append batches to the partitions this node leads.

The batches of a request are appended when it is begun, so that requests of one connection are
appended in the order they came; what is left is waiting for replicas. Each partition of a request
succeeds or fails by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from tidelog.broker.calls import Answer, Call, CloseConnection
from tidelog.broker.context import BrokerContext
from tidelog.broker.handlers.internal_topics import is_internal
from tidelog.broker.partitions import LeaderHints, PartitionFinder, Replicas
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ZERO_UUID
from tidelog.replication.outcomes import Produced
from tidelog.wire.batch import HEADER_SIZE, Codec, read_header
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.hot_requests.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)
from tidelog.wire.protocol.hot_responses.leaders import UNKNOWN_LEADER
from tidelog.wire.protocol.hot_responses.produce import (
    ProducePartitionResponse,
    ProduceResponse,
    ProduceTopicResponse,
    RecordError,
    encode_produce,
)

_NO_ACKS: Final = 0
_ACKS: Final = (-1, 0, 1)
_FIRST_WITH_ZSTD: Final = 7
_FIRST_WITH_LEADERS: Final = 10
_FIRST_WITH_IDS: Final = 13
_ADMIN_CLIENT: Final = "__admin_client"
"""Kafka's own tools may write to internal topics under this client id."""

_Pending = tuple[ProduceTopic, list[tuple[ProducePartition, "asyncio.Future[Produced] | Produced"]]]


class Produce:
    api_key = ApiKey.PRODUCE
    is_pipelined = True

    def __init__(self, context: BrokerContext, replicas: Replicas) -> None:
        self._context = context
        self._finder = PartitionFinder(context, replicas)

    def begin(self, call: Call) -> ResponseFrame | Awaitable[Answer] | None:
        request = call.request
        assert isinstance(request, ProduceRequest)
        pending: list[_Pending] = [
            (topic, [(one, self._append(call, request, topic, one)) for one in topic.partitions])
            for topic in request.topics
        ]
        if request.acks == _NO_ACKS:
            _hang_up_on_error(pending)
            return None
        if all(_is_done(outcome) for _, rows in pending for _, outcome in rows):
            return self._answer(call, pending)
        return self._wait(call, pending)

    def _append(
        self, call: Call, request: ProduceRequest, topic: ProduceTopic, one: ProducePartition
    ) -> asyncio.Future[Produced] | Produced:
        refused = self._refuse(call, request, topic, one)
        if refused is not None:
            return refused
        if call.version >= _FIRST_WITH_IDS and topic.topic_id == ZERO_UUID:
            return Produced(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._finder.find(topic.name, topic.topic_id, one.partition)
        if isinstance(partition, ErrorCode):
            return Produced(partition)
        assert one.records is not None
        return partition.append(one.records, acks=request.acks, timeout_ms=request.timeout_ms)

    def _refuse(
        self, call: Call, request: ProduceRequest, topic: ProduceTopic, one: ProducePartition
    ) -> Produced | None:
        if request.acks not in _ACKS:
            return Produced(ErrorCode.INVALID_REQUIRED_ACKS)
        name = self._finder.name_of(topic.name, topic.topic_id)
        if is_internal(name) and call.client_id != _ADMIN_CLIENT:
            return Produced(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                message=f"Cannot append to internal topic {name}",
            )
        if one.records is None or len(one.records) < HEADER_SIZE:
            return Produced(ErrorCode.INVALID_RECORD, message="there is no whole batch")
        header = read_header(one.records)
        if header.codec_id == Codec.ZSTD and call.version < _FIRST_WITH_ZSTD:
            return Produced(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                message="zstd needs version 7 of Produce or a later one",
            )
        if header.is_transactional:
            code = (
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                if request.transactional_id is None
                else ErrorCode.INVALID_TXN_STATE
            )
            return Produced(code, message="no transaction of this producer is open here")
        return None

    async def _wait(self, call: Call, pending: list[_Pending]) -> ResponseFrame:
        for _, rows in pending:
            for _, outcome in rows:
                if isinstance(outcome, asyncio.Future):
                    await outcome
        return self._answer(call, pending)

    def _answer(self, call: Call, pending: list[_Pending]) -> ResponseFrame:
        hints = LeaderHints(self._context, self._finder, call.client.listener_name)
        topics = [
            ProduceTopicResponse(
                topic.name,
                topic.topic_id,
                [self._row(call, topic, one, _outcome(row), hints) for one, row in rows],
            )
            for topic, rows in pending
            if rows
        ]
        response = ProduceResponse(topics, node_endpoints=hints.endpoints())
        return encode_produce(call.version, call.correlation_id, response)

    def _row(
        self,
        call: Call,
        topic: ProduceTopic,
        one: ProducePartition,
        produced: Produced,
        hints: LeaderHints,
    ) -> ProducePartitionResponse:
        leader = None
        is_misplaced = produced.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        if is_misplaced and call.version >= _FIRST_WITH_LEADERS:
            leader = hints.of(topic.name, topic.topic_id, one.partition)
        return ProducePartitionResponse(
            one.partition,
            produced.code,
            produced.base_offset,
            produced.log_append_time_ms,
            produced.log_start,
            [RecordError(index, message) for index, message in produced.bad_records],
            produced.message,
            UNKNOWN_LEADER if leader is None else leader,
        )


def _is_done(outcome: asyncio.Future[Produced] | Produced) -> bool:
    return not isinstance(outcome, asyncio.Future) or outcome.done()


def _outcome(row: asyncio.Future[Produced] | Produced) -> Produced:
    return row.result() if isinstance(row, asyncio.Future) else row


def _hang_up_on_error(pending: list[_Pending]) -> None:
    """acks=0 has no answer; a closed connection is how the client learns that something failed."""
    for topic, rows in pending:
        for one, row in rows:
            if _is_done(row) and _outcome(row).code is not ErrorCode.NONE:
                code = _outcome(row).code
                raise CloseConnection(
                    f"acks=0 to {topic.name or topic.topic_id}-{one.partition}: {code.name}"
                )
