"""AddPartitionsToTxn: a client says where its transaction will write (before KIP-890, part 2).

All or nothing: if one partition cannot be added, none is. Between brokers the same question goes
over gRPC, so the versions that Kafka's brokers speak among themselves are not served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tidelog.broker.calls import Begun, Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.handlers.internal_topics import is_internal
from tidelog.broker.handlers.transactional_errors import for_version
from tidelog.broker.transactions import Transactions
from tidelog.coordinator.transactions.events import AddPartitions, PartitionsResult, Result
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import PartitionIndex, ProducerEpoch, ProducerId, TopicPartition
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import encode_response, response_structs


class AddPartitionsToTxn:
    api_key = ApiKey.ADD_PARTITIONS_TO_TXN
    is_pipelined = False

    def __init__(self, context: BrokerContext, transactions: Transactions) -> None:
        self._context = context
        self._transactions = transactions

    def begin(self, call: Call) -> Begun:
        request: Any = call.request
        places = tuple(
            TopicPartition(topic.name, PartitionIndex(index))
            for topic in request.v3_and_below_topics
            for index in topic.partitions
        )
        refused = self._refused(request, places)
        if refused:
            return _response(call, refused)
        shard = self._transactions.find(request.v3_and_below_transactional_id)
        if isinstance(shard, ErrorCode):
            return _response(call, dict.fromkeys(places, shard))
        answer = shard.ask(
            request.v3_and_below_transactional_id,
            AddPartitions(
                0,
                ProducerId(request.v3_and_below_producer_id),
                ProducerEpoch(request.v3_and_below_producer_epoch),
                places,
            ),
        )
        return _wait(call, places, answer)

    def _refused(
        self, request: Any, places: tuple[TopicPartition, ...]
    ) -> dict[TopicPartition, ErrorCode]:
        """What cannot be added, and with it the rest."""
        if not request.v3_and_below_transactional_id:
            return dict.fromkeys(places, ErrorCode.INVALID_REQUEST)
        bad = {place: code for place in places if (code := self._error_of(place)) is not None}
        if not bad:
            return {}
        rest = dict.fromkeys(places, ErrorCode.OPERATION_NOT_ATTEMPTED)
        return {**bad, **{place: code for place, code in rest.items() if place not in bad}}

    def _error_of(self, place: TopicPartition) -> ErrorCode | None:
        if is_internal(place.topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = self._context.image.topics.named(place.topic)
        is_there = topic is not None and place.partition in topic.partitions
        return None if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _wait(
    call: Call, places: tuple[TopicPartition, ...], answer: asyncio.Future[Result]
) -> ResponseFrame:
    result = await answer
    assert isinstance(result, PartitionsResult)
    code = for_version(result.error, AddPartitionsToTxn.api_key, call.version)
    return _response(call, dict.fromkeys(places, code))


def _response(call: Call, codes: Mapping[TopicPartition, ErrorCode]) -> ResponseFrame:
    structs = response_structs(call.api.key, call.version)
    rows: dict[str, list[Any]] = {}
    for place, code in codes.items():
        rows.setdefault(place.topic, []).append(
            structs.struct(
                "AddPartitionsToTxnPartitionResult",
                partition_index=place.partition,
                partition_error_code=code,
            )
        )
    message = structs.response(
        throttle_time=duration_i32(0),
        results_by_topic_v3_and_below=tuple(
            structs.struct(
                "AddPartitionsToTxnTopicResult", name=topic, results_by_partition=tuple(found)
            )
            for topic, found in rows.items()
        ),
    )
    return encode_response(call.api.key, call.version, call.correlation_id, message)
