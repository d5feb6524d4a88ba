"""ElectLeaders, decided by the active controller (KIP-460)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.handlers.forwarding import ForwardedApi, Refusal
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import ResponseStructs

if TYPE_CHECKING:
    from kio.static.protocol import ResponsePayload


class ElectLeaders(ForwardedApi):
    api_key = ApiKey.ELECT_LEADERS

    def refused(self, structs: ResponseStructs, request: Any, refusal: Refusal) -> ResponsePayload:
        def partition_result(index: int) -> Any:
            return structs.struct(
                "PartitionResult",
                partition_id=index,
                error_code=refusal.code,
                error_message=refusal.message,
            )

        results = (
            structs.struct(
                "ReplicaElectionResult",
                topic=topic.topic,
                partition_result=tuple(map(partition_result, topic.partitions)),
            )
            for topic in request.topic_partitions or ()
        )
        return structs.response(
            throttle_time=duration_i32(0),
            error_code=refusal.code,
            replica_election_results=tuple(results),
        )
