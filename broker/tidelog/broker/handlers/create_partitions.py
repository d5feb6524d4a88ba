"""CreatePartitions, decided by the active controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.handlers.forwarding import ForwardedApi, Refusal
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import ResponseStructs

if TYPE_CHECKING:
    from kio.static.protocol import ResponsePayload


class CreatePartitions(ForwardedApi):
    api_key = ApiKey.CREATE_PARTITIONS

    def refused(self, structs: ResponseStructs, request: Any, refusal: Refusal) -> ResponsePayload:
        results = (
            structs.struct(
                "CreatePartitionsTopicResult",
                name=topic.name,
                error_code=refusal.code,
                error_message=refusal.message,
            )
            for topic in request.topics
        )
        return structs.response(throttle_time=duration_i32(0), results=tuple(results))
