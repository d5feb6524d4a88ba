"""EndTxn: commit or abort.

It is answered when the outcome is on record; the markers follow. From version 5 on it tells the
producer under which id and epoch to go on (KIP-890).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tidelog.broker.calls import Begun, Call
from tidelog.broker.handlers.transactional_errors import for_version
from tidelog.broker.transactions import IMPLICIT_ADDING, Transactions
from tidelog.coordinator.transactions.events import EndResult, Result
from tidelog.coordinator.transactions.events import EndTxn as EndTxnRequest
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ProducerEpoch, ProducerId
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import encode_response, response_structs

_FIRST_WITH_EPOCHS: Final = 5


class EndTxn:
    api_key = ApiKey.END_TXN
    is_pipelined = False

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def begin(self, call: Call) -> Begun:
        request: Any = call.request
        if not request.transactional_id:
            return _response(call, EndResult(ErrorCode.INVALID_REQUEST))
        shard = self._transactions.find(request.transactional_id)
        if isinstance(shard, ErrorCode):
            return _response(call, EndResult(shard))
        answer = shard.ask(
            request.transactional_id,
            EndTxnRequest(
                0,
                ProducerId(request.producer_id),
                ProducerEpoch(request.producer_epoch),
                request.committed,
                self._client_version(call.version),
            ),
        )
        return _wait(call, answer)

    def _client_version(self, version: int) -> int:
        """New rules hold for clients that know them, once the cluster has agreed on them."""
        is_new = version >= _FIRST_WITH_EPOCHS
        level = self._transactions.feature_level()
        return IMPLICIT_ADDING if is_new and level >= IMPLICIT_ADDING else 0


async def _wait(call: Call, answer: asyncio.Future[Result]) -> ResponseFrame:
    result = await answer
    assert isinstance(result, EndResult)
    return _response(call, result)


def _response(call: Call, result: EndResult) -> ResponseFrame:
    structs = response_structs(call.api.key, call.version)
    message = structs.response(
        throttle_time=duration_i32(0),
        error_code=for_version(result.error, EndTxn.api_key, call.version),
        producer_id=result.producer_id,
        producer_epoch=result.producer_epoch,
    )
    return encode_response(call.api.key, call.version, call.correlation_id, message)
