"""CreateTopics, decided by the active controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.handlers.forwarding import ForwardedApi, Refusal
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import ResponseStructs

if TYPE_CHECKING:
    from kio.static.protocol import ResponsePayload


class CreateTopics(ForwardedApi):
    api_key = ApiKey.CREATE_TOPICS

    def refused(self, structs: ResponseStructs, request: Any, refusal: Refusal) -> ResponsePayload:
        topics = (
            structs.struct(
                "CreatableTopicResult",
                name=topic.name,
                topic_id=None,
                error_code=refusal.code,
                error_message=refusal.message,
                num_partitions=-1,
                replication_factor=-1,
                configs=(),
            )
            for topic in request.topics
        )
        return structs.response(throttle_time=duration_i32(0), topics=tuple(topics))
