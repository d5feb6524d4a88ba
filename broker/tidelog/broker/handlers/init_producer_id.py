"""InitProducerId: an id for an idempotent producer, or an id and epoch for a transactional one.

Without a transactional id any broker hands out an id nobody had before. While no block of ids is
there, the client is told that the coordinator still loads, which it takes as "ask again". With one
the coordinator of that id decides; the broker role introduces it (``transactions``).
"""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog.broker.calls import Begun, Call
from tidelog.broker.handlers.producer_id_blocks import ProducerIdBlocks
from tidelog.broker.handlers.transactional_errors import for_version
from tidelog.broker.transactions import Transactions
from tidelog.coordinator.transactions.events import InitProducerId as InitRequest
from tidelog.coordinator.transactions.events import InitResult, Result
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32, field_of, milliseconds
from tidelog.wire.protocol.responses import encode_response, response_structs

FIRST_EPOCH = ProducerEpoch(0)


class InitProducerId:
    api_key = ApiKey.INIT_PRODUCER_ID
    is_pipelined = False

    def __init__(self, producer_ids: ProducerIdBlocks) -> None:
        self._producer_ids = producer_ids
        self.transactions: Transactions | None = None

    def begin(self, call: Call) -> Begun:
        request: Any = call.request
        has_id = field_of(request, "producer_id", NO_PRODUCER_ID) != NO_PRODUCER_ID
        has_epoch = field_of(request, "producer_epoch", NO_PRODUCER_EPOCH) != NO_PRODUCER_EPOCH
        if has_id != has_epoch:
            return _response(call, InitResult(ErrorCode.INVALID_REQUEST))
        if request.transactional_id is None:
            return _response(call, self._fresh())
        if request.transactional_id == "":
            return _response(call, InitResult(ErrorCode.INVALID_REQUEST))
        return self._begin_transactional(call)

    def _fresh(self) -> InitResult:
        producer_id = self._producer_ids.take()
        if producer_id is None:
            return InitResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return InitResult(ErrorCode.NONE, producer_id, FIRST_EPOCH)

    def _begin_transactional(self, call: Call) -> Begun:
        request: Any = call.request
        if self.transactions is None:
            return _response(call, InitResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        shard = self.transactions.find(request.transactional_id)
        if isinstance(shard, ErrorCode):
            return _response(call, InitResult(shard))
        answer = shard.ask(
            request.transactional_id,
            InitRequest(
                0,
                milliseconds(request.transaction_timeout),
                ProducerId(field_of(request, "producer_id", NO_PRODUCER_ID)),
                ProducerEpoch(field_of(request, "producer_epoch", NO_PRODUCER_EPOCH)),
            ),
        )
        return _wait(call, answer)


async def _wait(call: Call, answer: asyncio.Future[Result]) -> ResponseFrame:
    result = await answer
    assert isinstance(result, InitResult)
    return _response(call, result)


def _response(call: Call, result: InitResult) -> ResponseFrame:
    message = response_structs(call.api.key, call.version).response(
        throttle_time=duration_i32(0),
        error_code=for_version(result.error, InitProducerId.api_key, call.version),
        producer_id=result.producer_id,
        producer_epoch=result.producer_epoch,
    )
    return encode_response(call.api.key, call.version, call.correlation_id, message)
