"""DeleteRecords: move the start of a log, on all its replicas."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tidelog.broker.calls import Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.handlers.internal_topics import is_internal
from tidelog.broker.partitions import PartitionFinder, Replicas
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ZERO_UUID, Offset, PartitionIndex, TopicId
from tidelog.replication.outcomes import DeletedRecords
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32, milliseconds
from tidelog.wire.protocol.responses import encode_response, response_structs

_NO_TOPIC_ID: Final = TopicId(ZERO_UUID)


class DeleteRecords:
    api_key = ApiKey.DELETE_RECORDS
    is_pipelined = False

    def __init__(self, context: BrokerContext, replicas: Replicas) -> None:
        self._finder = PartitionFinder(context, replicas)

    async def begin(self, call: Call) -> ResponseFrame:
        request: Any = call.request
        timeout_ms = milliseconds(request.timeout)
        offsets = {
            (topic.name, one.partition_index): one
            for topic in request.topics
            for one in topic.partitions
        }
        asked = [
            (name, index, self._delete(name, one, timeout_ms))
            for (name, index), one in offsets.items()
        ]
        await asyncio.gather(*(row for _, _, row in asked if isinstance(row, asyncio.Future)))
        structs = response_structs(self.api_key, call.version)
        rows: dict[str, list[Any]] = {topic.name: [] for topic in request.topics}
        for name, index, row in asked:
            deleted = row.result() if isinstance(row, asyncio.Future) else row
            rows[name].append(
                structs.struct(
                    "DeleteRecordsPartitionResult",
                    partition_index=index,
                    low_watermark=deleted.low_watermark,
                    error_code=deleted.code,
                )
            )
        topics = [
            structs.struct("DeleteRecordsTopicResult", name=name, partitions=tuple(partitions))
            for name, partitions in rows.items()
        ]
        message = structs.response(throttle_time=duration_i32(0), topics=tuple(topics))
        return encode_response(self.api_key, call.version, call.correlation_id, message)

    def _delete(
        self, topic: str, one: Any, timeout_ms: int
    ) -> asyncio.Future[DeletedRecords] | DeletedRecords:
        if is_internal(topic):
            return DeletedRecords(ErrorCode.INVALID_TOPIC_EXCEPTION)
        found = self._finder.find(topic, _NO_TOPIC_ID, PartitionIndex(one.partition_index))
        if isinstance(found, ErrorCode):
            return DeletedRecords(found)
        return found.delete_records(Offset(one.offset), timeout_ms=timeout_ms)
