"""DescribeTopicPartitions: partitions in pages, with their eligible leaders (KIP-966).

Topics come in the order of their names. A page ends after so many partitions, and says where the
next one begins; that page then starts with the partition that the cursor names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.advertised import ListenerView
from tidelog.broker.calls import Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.handlers.internal_topics import is_internal
from tidelog.broker.handlers.metadata import why_missing
from tidelog.broker.handlers.operations import NOT_ASKED, TOPIC_OPERATIONS
from tidelog.controller.metadata.partitions import PartitionState
from tidelog.controller.metadata.topics import TopicImage
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import PartitionIndex
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32, to_kio_uuid
from tidelog.wire.protocol.responses import ResponseStructs, encode_response, response_structs

if TYPE_CHECKING:
    from kio.static.protocol import ResponsePayload


class Cursor(NamedTuple):
    topic: str
    partition: int


class DescribeTopicPartitions:
    api_key = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    is_pipelined = False

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def begin(self, call: Call) -> ResponseFrame:
        request: Any = call.request
        structs = response_structs(self.api_key, call.version)
        cursor = request.cursor and Cursor(
            request.cursor.topic_name, request.cursor.partition_index
        )
        named = {topic.name for topic in request.topics}
        if cursor is not None and (cursor.partition < 0 or (named and cursor.topic not in named)):
            message = _refused(structs, request)
        else:
            message = self._page(call, structs, named, cursor)
        return encode_response(self.api_key, call.version, call.correlation_id, message)

    def _page(
        self, call: Call, structs: ResponseStructs, named: set[str], cursor: Cursor | None
    ) -> ResponsePayload:
        request: Any = call.request
        most = self._context.settings.get_int("max.request.partition.size.limit")
        page = _Page(
            structs,
            self._context.view(call.client.listener_name),
            room=max(min(most, request.response_partition_limit), 1),
        )
        topics = self._context.image.topics
        for name in sorted(named or topics.by_name):
            if cursor is not None and name < cursor.topic:
                continue
            first = cursor.partition if cursor is not None and name == cursor.topic else 0
            if not page.add(name, topics.named(name), first):
                break
        return page.response()


def _refused(structs: ResponseStructs, request: Any) -> ResponsePayload:
    topics = (
        _topic(structs, ErrorCode.INVALID_REQUEST, topic.name, operations=NOT_ASKED)
        for topic in request.topics
    )
    return structs.response(throttle_time=duration_i32(0), topics=tuple(topics), next_cursor=None)


def _topic(
    structs: ResponseStructs,
    error: ErrorCode,
    name: str,
    *,
    operations: int = TOPIC_OPERATIONS,
    **values: Any,
) -> Any:
    return structs.struct(
        "DescribeTopicPartitionsResponseTopic",
        error_code=error,
        name=name,
        topic_id=values.get("topic_id"),
        is_internal=error is not ErrorCode.INVALID_REQUEST and is_internal(name),
        partitions=values.get("partitions", ()),
        topic_authorized_operations=operations,
    )


class _Page:
    """A response in the making, with room for so many partitions."""

    def __init__(self, structs: ResponseStructs, view: ListenerView, room: int) -> None:
        self._structs = structs
        self._view = view
        self._room = room
        self._topics: list[Any] = []
        self._next: Cursor | None = None

    def add(self, name: str, topic: TopicImage | None, first: int) -> bool:
        """Whether there may be more on this page."""
        if self._room == 0:
            self._next = Cursor(name, 0)
            return False
        if topic is None:
            self._topics.append(_topic(self._structs, why_missing(name), name))
            return True
        indexes = [index for index in sorted(topic.partitions) if index >= first]
        fitting, left = indexes[: self._room], indexes[self._room :]
        partitions = tuple(self._partition(index, topic.partitions[index]) for index in fitting)
        described = _topic(
            self._structs,
            ErrorCode.NONE,
            name,
            topic_id=to_kio_uuid(topic.topic_id),
            partitions=partitions,
        )
        self._topics.append(described)
        self._room -= len(fitting)
        if left:
            self._next = Cursor(name, left[0])
        return not left

    def response(self) -> ResponsePayload:
        following = self._next and self._structs.struct(
            "Cursor", topic_name=self._next.topic, partition_index=self._next.partition
        )
        return self._structs.response(
            throttle_time=duration_i32(0), topics=tuple(self._topics), next_cursor=following
        )

    def _partition(self, index: PartitionIndex, state: PartitionState) -> Any:
        return self._structs.struct(
            "DescribeTopicPartitionsResponsePartition",
            error_code=ErrorCode.NONE,
            partition_index=index,
            leader_id=self._view.leader(state),
            leader_epoch=state.leader_epoch,
            replica_nodes=state.replicas,
            isr_nodes=state.isr,
            eligible_leader_replicas=state.elr,
            last_known_elr=state.last_known_elr,
            offline_replicas=self._view.offline(state),
        )
