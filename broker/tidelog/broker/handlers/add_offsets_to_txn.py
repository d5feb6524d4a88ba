"""AddOffsetsToTxn: the transaction will commit offsets of a group.

That is, it will write to the group's partition of the offsets topic.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog.broker.calls import Begun, Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.handlers.internal_topics import CONSUMER_OFFSETS
from tidelog.broker.handlers.transactional_errors import for_version
from tidelog.broker.transactions import Transactions
from tidelog.coordinator.partitioning import coordinator_partition
from tidelog.coordinator.transactions.events import AddPartitions, PartitionsResult, Result
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ProducerEpoch, ProducerId, TopicPartition
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import encode_response, response_structs


class AddOffsetsToTxn:
    api_key = ApiKey.ADD_OFFSETS_TO_TXN
    is_pipelined = False

    def __init__(self, context: BrokerContext, transactions: Transactions) -> None:
        self._context = context
        self._transactions = transactions

    def begin(self, call: Call) -> Begun:
        request: Any = call.request
        if not request.transactional_id:
            return _response(call, ErrorCode.INVALID_REQUEST)
        shard = self._transactions.find(request.transactional_id)
        if isinstance(shard, ErrorCode):
            return _response(call, shard)
        answer = shard.ask(
            request.transactional_id,
            AddPartitions(
                0,
                ProducerId(request.producer_id),
                ProducerEpoch(request.producer_epoch),
                (self._place(request.group_id),),
            ),
        )
        return _wait(call, answer)

    def _place(self, group_id: str) -> TopicPartition:
        """Where the group's offsets are, or will be once the topic is made."""
        topic = self._context.image.topics.named(CONSUMER_OFFSETS)
        count = len(topic.partitions) if topic is not None else 0
        count = count or self._context.settings.get_int("offsets.topic.num.partitions")
        return TopicPartition(CONSUMER_OFFSETS, coordinator_partition(group_id, count))


async def _wait(call: Call, answer: asyncio.Future[Result]) -> ResponseFrame:
    result = await answer
    assert isinstance(result, PartitionsResult)
    return _response(call, for_version(result.error, AddOffsetsToTxn.api_key, call.version))


def _response(call: Call, code: ErrorCode) -> ResponseFrame:
    structs = response_structs(call.api.key, call.version)
    message = structs.response(throttle_time=duration_i32(0), error_code=code)
    return encode_response(call.api.key, call.version, call.correlation_id, message)
