"""DescribeProducers: who writes to partitions of which this node has a replica, and what is open.

A follower knows what its leader knows, as far as it has come.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.calls import Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.partitions import Replicas
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_OFFSET
from tidelog.replication.partition import Partition
from tidelog.storage.producer_state import ProducerEntry
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import encode_response, response_structs


class DescribeProducers:
    api_key = ApiKey.DESCRIBE_PRODUCERS
    is_pipelined = False

    def __init__(self, context: BrokerContext, replicas: Replicas) -> None:
        self._context = context
        self._replicas = replicas

    def begin(self, call: Call) -> ResponseFrame:
        request: Any = call.request
        structs = response_structs(self.api_key, call.version)
        topics = [
            structs.struct(
                "TopicResponse",
                name=topic.name,
                partitions=tuple(
                    self._row(structs, topic.name, index) for index in topic.partition_indexes
                ),
            )
            for topic in request.topics
        ]
        message = structs.response(throttle_time=duration_i32(0), topics=tuple(topics))
        return encode_response(self.api_key, call.version, call.correlation_id, message)

    def _row(self, structs: Any, topic: str, index: int) -> Any:
        is_known = self._context.image.topics.named(topic) is not None
        found = self._find(topic, index)
        if isinstance(found, ErrorCode):
            return structs.struct(
                "PartitionResponse",
                partition_index=index,
                error_code=found,
                error_message=None if is_known else found.message,
                active_producers=(),
            )
        entries = found.log.producers.states.entries()
        return structs.struct(
            "PartitionResponse",
            partition_index=index,
            error_code=ErrorCode.NONE,
            error_message=None,
            active_producers=tuple(_producer(structs, entry) for entry in entries),
        )

    def _find(self, topic: str, index: int) -> Partition | ErrorCode:
        found = self._replicas.lookup(topic, index)
        if isinstance(found, ErrorCode):
            is_unknown = found is ErrorCode.UNKNOWN_TOPIC_ID
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_unknown else found
        code = found.fence(-1, leader_only=False)
        return found if code is ErrorCode.NONE else code


def _producer(structs: Any, entry: ProducerEntry) -> Any:
    first_open = entry.current_txn_first_offset
    return structs.struct(
        "ProducerState",
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=NO_OFFSET if first_open is None else first_open,
    )
