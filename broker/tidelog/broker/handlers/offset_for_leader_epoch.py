"""OffsetForLeaderEpoch: where an epoch ends, so that clients find out what they lost (KIP-320)."""

from __future__ import annotations

from typing import Any, Final

from tidelog.broker.calls import Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.partitions import PartitionFinder, Replicas
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ZERO_UUID, PartitionIndex, TopicId
from tidelog.replication.outcomes import EpochAnswer
from tidelog.storage.epoch_cache import UNDEFINED_END
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32, field_of
from tidelog.wire.protocol.responses import encode_response, response_structs

_NO_TOPIC_ID: Final = TopicId(ZERO_UUID)


class OffsetForLeaderEpoch:
    api_key = ApiKey.OFFSET_FOR_LEADER_EPOCH
    is_pipelined = False

    def __init__(self, context: BrokerContext, replicas: Replicas) -> None:
        self._finder = PartitionFinder(context, replicas)

    def begin(self, call: Call) -> ResponseFrame:
        request: Any = call.request
        structs = response_structs(self.api_key, call.version)
        topics = [
            structs.struct(
                "OffsetForLeaderTopicResult",
                topic=topic.topic,
                partitions=tuple(self._row(call, topic.topic, one) for one in topic.partitions),
            )
            for topic in request.topics
        ]
        message = structs.response(throttle_time=duration_i32(0), topics=tuple(topics))
        return encode_response(self.api_key, call.version, call.correlation_id, message)

    def _row(self, call: Call, topic: str, one: Any) -> Any:
        found = self._finder.find(topic, _NO_TOPIC_ID, PartitionIndex(one.partition))
        answer = (
            EpochAnswer(found, UNDEFINED_END)
            if isinstance(found, ErrorCode)
            else found.end_of_epoch(
                one.leader_epoch,
                current_leader_epoch=field_of(one, "current_leader_epoch", -1),
            )
        )
        return response_structs(self.api_key, call.version).struct(
            "EpochEndOffset",
            error_code=answer.code,
            partition=one.partition,
            leader_epoch=answer.end.epoch,
            end_offset=answer.end.end_offset,
        )
