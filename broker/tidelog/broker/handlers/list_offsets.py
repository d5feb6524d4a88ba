"""ListOffsets: the first, the last, the newest record, or the first at or after a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from tidelog.broker.calls import Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.partitions import PartitionFinder, Replicas
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ZERO_UUID, PartitionIndex, TopicId
from tidelog.replication.outcomes import (
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    IsolationLevel,
    ListedOffset,
)
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32, field_of
from tidelog.wire.protocol.responses import encode_response, response_structs

_NO_TOPIC_ID: Final = TopicId(ZERO_UUID)
_FIRST_VERSION_OF: Final = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_LEAST_TIMESTAMP: Final = EARLIEST_PENDING_UPLOAD
_ANY_EPOCH: Final = -1
_FIRST_WITH_OFFSET_NOT_AVAILABLE: Final = 5


class ListOffsets:
    api_key = ApiKey.LIST_OFFSETS
    is_pipelined = False

    def __init__(self, context: BrokerContext, replicas: Replicas) -> None:
        self._finder = PartitionFinder(context, replicas)

    def begin(self, call: Call) -> ResponseFrame:
        request: Any = call.request
        structs = response_structs(self.api_key, call.version)
        named = Counter(
            (topic.name, one.partition_index)
            for topic in request.topics
            for one in topic.partitions
        )
        topics = [
            structs.struct(
                "ListOffsetsTopicResponse",
                name=topic.name,
                partitions=tuple(
                    self._row(call, topic.name, one, named[topic.name, one.partition_index] > 1)
                    for one in _once_each(topic.partitions)
                ),
            )
            for topic in request.topics
        ]
        message = structs.response(throttle_time=duration_i32(0), topics=tuple(topics))
        return encode_response(self.api_key, call.version, call.correlation_id, message)

    def _row(self, call: Call, topic: str, one: Any, is_repeated: bool) -> Any:
        listed = (
            ListedOffset(ErrorCode.INVALID_REQUEST)
            if is_repeated
            else self._look_up(call, topic, one)
        )
        code = listed.code
        if (
            code is ErrorCode.OFFSET_NOT_AVAILABLE
            and call.version < _FIRST_WITH_OFFSET_NOT_AVAILABLE
        ):
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return response_structs(self.api_key, call.version).struct(
            "ListOffsetsPartitionResponse",
            partition_index=one.partition_index,
            error_code=code,
            timestamp=listed.timestamp,
            offset=listed.offset,
            leader_epoch=listed.leader_epoch,
        )

    def _look_up(self, call: Call, topic: str, one: Any) -> ListedOffset:
        timestamp = int(one.timestamp)
        is_unknown = timestamp < _LEAST_TIMESTAMP
        if is_unknown or call.version < _FIRST_VERSION_OF.get(timestamp, 0):
            return ListedOffset(ErrorCode.UNSUPPORTED_VERSION)
        isolation = field_of(call.request, "isolation_level", 0)
        if isolation not in tuple(IsolationLevel):
            return ListedOffset(ErrorCode.INVALID_REQUEST)
        found = self._finder.find(topic, _NO_TOPIC_ID, PartitionIndex(one.partition_index))
        if isinstance(found, ErrorCode):
            return ListedOffset(found)
        epoch = field_of(one, "current_leader_epoch", _ANY_EPOCH)
        if epoch < _ANY_EPOCH:
            return ListedOffset(ErrorCode.FENCED_LEADER_EPOCH)
        return found.list_offset(timestamp, IsolationLevel(isolation), current_leader_epoch=epoch)


def _once_each(partitions: Iterable[Any]) -> Iterable[Any]:
    """A partition that was named twice is answered once, with an error."""
    return {one.partition_index: one for one in partitions}.values()
