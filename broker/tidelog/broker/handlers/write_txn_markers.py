"""WriteTxnMarkers: an administrator ends a transaction on partitions that this node leads.

For transactions that their coordinator does not know any more; Kafka's admin client sends it after
it has looked at DescribeProducers. Our own coordinators use gRPC.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.calls import Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.transaction_markers import MarkerWriter
from tidelog.broker.transaction_messages import Marker
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import CoordinatorEpoch, PartitionIndex, ProducerEpoch, ProducerId
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import field_of
from tidelog.wire.protocol.responses import encode_response, response_structs


class WriteTxnMarkers:
    api_key = ApiKey.WRITE_TXN_MARKERS
    is_pipelined = False

    def __init__(self, context: BrokerContext, writer: MarkerWriter) -> None:
        self._context = context
        self._writer = writer

    async def begin(self, call: Call) -> ResponseFrame:
        request: Any = call.request
        structs = response_structs(self.api_key, call.version)
        rows = []
        for one in request.markers:
            topics = [await self._topic(structs, _marker(one), topic) for topic in one.topics]
            if topics:
                rows.append(
                    structs.struct(
                        "WritableTxnMarkerResult",
                        producer_id=one.producer_id,
                        topics=tuple(topics),
                    )
                )
        message = structs.response(markers=tuple(rows))
        return encode_response(self.api_key, call.version, call.correlation_id, message)

    async def _topic(self, structs: Any, marker: Marker, topic: Any) -> Any:
        return structs.struct(
            "WritableTxnMarkerTopicResult",
            name=topic.name,
            partitions=tuple(
                [
                    structs.struct(
                        "WritableTxnMarkerPartitionResult",
                        partition_index=index,
                        error_code=await self._write(marker, topic.name, PartitionIndex(index)),
                    )
                    for index in topic.partition_indexes
                ]
            ),
        )

    async def _write(self, marker: Marker, topic: str, index: PartitionIndex) -> ErrorCode:
        found = self._context.image.topics.named(topic)
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        code = await self._writer.write(marker, PartitionRef(found.topic_id, index))
        is_unknown = code is ErrorCode.UNKNOWN_TOPIC_ID
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_unknown else code


def _marker(one: Any) -> Marker:
    return Marker(
        ProducerId(one.producer_id),
        ProducerEpoch(one.producer_epoch),
        one.transaction_result,
        CoordinatorEpoch(one.coordinator_epoch),
        field_of(one, "transaction_version", 0),
    )
