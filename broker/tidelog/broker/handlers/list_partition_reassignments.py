"""ListPartitionReassignments, answered by the active controller: whoever waits for the end of a
reassignment must not be told of it by a broker that has not even heard of its beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.handlers.forwarding import ForwardedApi, Refusal
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import ResponseStructs

if TYPE_CHECKING:
    from kio.static.protocol import ResponsePayload


class ListPartitionReassignments(ForwardedApi):
    api_key = ApiKey.LIST_PARTITION_REASSIGNMENTS

    def refused(self, structs: ResponseStructs, _: Any, refusal: Refusal) -> ResponsePayload:
        return structs.response(
            throttle_time=duration_i32(0),
            error_code=refusal.code,
            error_message=refusal.message,
            topics=(),
        )
