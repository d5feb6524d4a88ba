"""Produce: append batches to the partitions this node leads.

The batches of a request are appended when it is begun, so that requests of one connection are
appended in the order they came; what is left is waiting for replicas. Each partition of a request
succeeds or fails by itself. Transactional ones go through the transaction gate, which may have to
ask their coordinator first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from tidelog.broker.calls import Answer, Call, CloseConnection
from tidelog.broker.context import BrokerContext
from tidelog.broker.handlers.internal_topics import is_internal
from tidelog.broker.handlers.parked_produces import ParkedProduces
from tidelog.broker.partitions import LeaderHints, PartitionFinder, Replicas
from tidelog.broker.transaction_gate import GateRequest, TransactionGate, Writer
from tidelog.broker.transactions import FEATURE, IMPLICIT_ADDING
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ZERO_UUID
from tidelog.replication.outcomes import Produced
from tidelog.wire.batch import HEADER_SIZE, Codec, is_transactional, read_header
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
_LEADER_ONLY: Final = 1
_ACKS: Final = (-1, 0, 1)
_FIRST_WITH_ZSTD: Final = 7
_FIRST_WITH_LEADERS: Final = 10
_FIRST_WITH_ABORTABLE: Final = 11
_FIRST_WITH_ADDING: Final = 12
_FIRST_WITH_IDS: Final = 13
_ADMIN_CLIENT: Final = "__admin_client"
"""Kafka's own tools may write to internal topics under this client id."""

_Pending = tuple[ProduceTopic, list[tuple[ProducePartition, "asyncio.Future[Produced] | Produced"]]]


class Produce:
    api_key = ApiKey.PRODUCE
    is_pipelined = True

    def __init__(
        self,
        context: BrokerContext,
        replicas: Replicas,
        gate: TransactionGate,
        parked: ParkedProduces,
        *,
        acknowledges_early: bool = False,
    ) -> None:
        """``acknowledges_early``: see ``NodePorts``."""
        self._acknowledges_early = acknowledges_early
        self._context = context
        self._finder = PartitionFinder(context, replicas)
        self._gate = gate
        self._parked = parked

    def begin(self, call: Call) -> ResponseFrame | Awaitable[Answer] | None:
        request = call.request
        assert isinstance(request, ProduceRequest)
        gate = self._transactional(call, request)
        pending: list[_Pending] = [
            (
                topic,
                [(one, self._append(call, request, topic, one, gate)) for one in topic.partitions],
            )
            for topic in request.topics
        ]
        if isinstance(gate, GateRequest):
            gate.ask()
        if request.acks == _NO_ACKS:
            _hang_up_on_error(pending)
            return None
        if all(_is_done(outcome) for _, rows in pending for _, outcome in rows):
            return self._answer(call, pending)
        return self._wait(call, pending)

    def _transactional(self, call: Call, request: ProduceRequest) -> GateRequest | Produced | None:
        """Where transactional batches of the request go, or why nowhere; None: there are none."""
        producers = {
            read_header(one.records).producer_id
            for topic in request.topics
            for one in topic.partitions
            if one.records is not None and is_transactional(one.records)
        }
        if not producers:
            return None
        if request.transactional_id is None:
            return Produced(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if len(producers) > 1:
            return Produced(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                message="Transactional records contained more than one producer ID",
            )
        level = self._context.image.features.get(FEATURE, 0)
        return self._gate.request(
            Writer(
                request.transactional_id,
                adds_partitions=call.version >= _FIRST_WITH_ADDING and level >= IMPLICIT_ADDING,
                knows_abortable=call.version >= _FIRST_WITH_ABORTABLE,
            )
        )

    def _append(
        self,
        call: Call,
        request: ProduceRequest,
        topic: ProduceTopic,
        one: ProducePartition,
        gate: GateRequest | Produced | None,
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
        acks = _LEADER_ONLY if self._acknowledges_early else request.acks
        if gate is None or not is_transactional(one.records):
            return partition.append(one.records, acks=acks, timeout_ms=request.timeout_ms)
        if isinstance(gate, Produced):
            return gate
        return gate.append(
            partition,
            read_header(one.records),
            one.records,
            acks=acks,
            timeout_ms=request.timeout_ms,
        )

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
        return None

    async def _wait(self, call: Call, pending: list[_Pending]) -> ResponseFrame:
        waiting = [
            outcome
            for _, rows in pending
            for _, outcome in rows
            if not isinstance(outcome, Produced)
        ]
        with self._parked.parked(waiting):
            for outcome in waiting:
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
        if produced.code is not ErrorCode.NONE:
            self._context.requests.failed(call.api, produced.code)
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
