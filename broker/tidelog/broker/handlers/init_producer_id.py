"""InitProducerId without a transactional id: an id for an idempotent producer.

While no block of ids is there, the client is told that the coordinator still loads, which it takes
as "ask again". There is no transaction coordinator: a transactional id is refused with
UNSUPPORTED_VERSION, which clients take as final. A retriable error would have them try for ever.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.calls import Call
from tidelog.broker.handlers.producer_id_blocks import ProducerIdBlocks
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32, field_of
from tidelog.wire.protocol.responses import encode_response, response_structs

FIRST_EPOCH = ProducerEpoch(0)


class InitProducerId:
    api_key = ApiKey.INIT_PRODUCER_ID
    is_pipelined = False

    def __init__(self, producer_ids: ProducerIdBlocks) -> None:
        self._producer_ids = producer_ids

    def begin(self, call: Call) -> ResponseFrame:
        problem = _problem(call.request)
        if problem is not None:
            return _response(call, problem)
        producer_id = self._producer_ids.take()
        if producer_id is None:
            return _response(call, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return _response(call, ErrorCode.NONE, producer_id, FIRST_EPOCH)


def _problem(request: Any) -> ErrorCode | None:
    if request.transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id is not None:
        return ErrorCode.UNSUPPORTED_VERSION
    has_id = field_of(request, "producer_id", NO_PRODUCER_ID) != NO_PRODUCER_ID
    has_epoch = field_of(request, "producer_epoch", NO_PRODUCER_EPOCH) != NO_PRODUCER_EPOCH
    return ErrorCode.INVALID_REQUEST if has_id != has_epoch else None


def _response(
    call: Call,
    code: ErrorCode,
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
) -> ResponseFrame:
    message = response_structs(call.api.key, call.version).response(
        throttle_time=duration_i32(0),
        error_code=code,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    return encode_response(call.api.key, call.version, call.correlation_id, message)
