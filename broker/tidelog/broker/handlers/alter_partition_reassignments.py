"""AlterPartitionReassignments, decided by the active controller (KIP-455)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.handlers.forwarding import ForwardedApi, Refusal
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.kio_values import duration_i32, field_of
from tidelog.wire.protocol.responses import ResponseStructs

if TYPE_CHECKING:
    from kio.static.protocol import ResponsePayload


class AlterPartitionReassignments(ForwardedApi):
    api_key = ApiKey.ALTER_PARTITION_REASSIGNMENTS

    def refused(self, structs: ResponseStructs, request: Any, refusal: Refusal) -> ResponsePayload:
        def partition_result(partition: Any) -> Any:
            return structs.struct(
                "ReassignablePartitionResponse",
                partition_index=partition.partition_index,
                error_code=refusal.code,
                error_message=refusal.message,
            )

        topics = (
            structs.struct(
                "ReassignableTopicResponse",
                name=topic.name,
                partitions=tuple(map(partition_result, topic.partitions)),
            )
            for topic in request.topics
        )
        return structs.response(
            throttle_time=duration_i32(0),
            allow_replication_factor_change=field_of(
                request, "allow_replication_factor_change", True
            ),
            error_code=refusal.code,
            error_message=refusal.message,
            responses=tuple(topics),
        )
