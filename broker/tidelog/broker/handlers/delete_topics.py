"""DeleteTopics, decided by the active controller. From version 6 on topics may be given by id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.handlers.forwarding import ForwardedApi, Refusal
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import ResponseStructs

if TYPE_CHECKING:
    from kio.static.protocol import ResponsePayload


class DeleteTopics(ForwardedApi):
    api_key = ApiKey.DELETE_TOPICS

    def refused(self, structs: ResponseStructs, request: Any, refusal: Refusal) -> ResponsePayload:
        if hasattr(request, "topics"):
            wanted = [(topic.name, topic.topic_id) for topic in request.topics]
        else:
            wanted = [(name, None) for name in request.topic_names]
        results = (
            structs.struct(
                "DeletableTopicResult",
                name=name,
                topic_id=topic_id,
                error_code=refusal.code,
                error_message=refusal.message,
            )
            for name, topic_id in wanted
        )
        return structs.response(throttle_time=duration_i32(0), responses=tuple(results))
