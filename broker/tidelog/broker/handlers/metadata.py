"""Metadata: brokers, topics, partitions and who leads them, from the image this broker has.

Topics are asked for by name, from version 12 on also by id; no list at all means every topic (in
version 0 an empty one does). A topic that is not there may be created because it was asked for.

A response about very many partitions is built in pieces, so that other clients are served between.
What is told of a topic's partitions is kept until the topic or the brokers change: thousands of
clients ask for the same, again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from tidelog.broker.advertised import ListenerView
from tidelog.broker.calls import Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.handlers.auto_creation import TopicAutoCreation
from tidelog.broker.handlers.internal_topics import is_internal
from tidelog.broker.handlers.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from tidelog.controller.decisions.outcome import Refused
from tidelog.controller.decisions.topic_names import check_topic_name
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionState
from tidelog.controller.metadata.topics import TopicImage
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_NODE, ZERO_UUID, PartitionIndex, TopicId
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.hot_responses.metadata import (
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
    encode_metadata,
)
from tidelog.wire.protocol.kio_values import field_of, from_kio_uuid

_PARTITIONS_AT_A_TIME: Final = 2000
_MAX_ROWS: Final = 10_000
"""Topics whose rows are kept."""
_FIRST_WITH_IDS: Final = 12
_FIRST_WITH_LISTENER_ERRORS: Final = 6
NO_TOPIC: Final = TopicId(ZERO_UUID)


class Metadata:
    api_key = ApiKey.METADATA
    is_pipelined = False

    def __init__(self, context: BrokerContext, auto_creation: TopicAutoCreation) -> None:
        self._context = context
        self._auto_creation = auto_creation
        self._rows = _PartitionRows()

    def begin(self, call: Call) -> ResponseFrame | Awaitable[ResponseFrame]:
        problem = _problem(call)
        if problem is not None:
            return encode_metadata(call.version, call.correlation_id, problem)
        image = self._context.image
        listed = _listed_topics(image, call)
        self._create_missing(call, listed)
        view = self._context.view(call.client.listener_name)
        if sum(len(topic.partitions) for topic in listed) > _PARTITIONS_AT_A_TIME:
            return self._answer_in_pieces(call, view, listed)
        topics = [self._described(call, view, topic) for topic in listed]
        return self._framed(call, view, topics)

    async def _answer_in_pieces(
        self, call: Call, view: ListenerView, listed: list[TopicImage | MetadataTopic]
    ) -> ResponseFrame:
        topics: list[MetadataTopic] = []
        since_pause = 0
        for topic in listed:
            topics.append(self._described(call, view, topic))
            since_pause += len(topic.partitions)
            if since_pause >= _PARTITIONS_AT_A_TIME:
                since_pause = 0
                await asyncio.sleep(0)
        return self._framed(call, view, topics)

    def _create_missing(self, call: Call, listed: list[TopicImage | MetadataTopic]) -> None:
        if not field_of(call.request, "allow_auto_topic_creation", True):
            return
        if not self._context.settings.get_bool("auto.create.topics.enable"):
            return
        missing = [
            topic.name
            for topic in listed
            if isinstance(topic, MetadataTopic)
            and topic.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            and topic.name is not None
        ]
        if missing:
            self._auto_creation.request(missing, call.client, call.client_id)

    def _described(
        self, call: Call, view: ListenerView, topic: TopicImage | MetadataTopic
    ) -> MetadataTopic:
        asked = field_of(call.request, "include_topic_authorized_operations", False)
        operations = TOPIC_OPERATIONS if asked else NOT_ASKED
        if isinstance(topic, MetadataTopic):
            return topic if topic.name is None else topic._replace(authorized_operations=operations)
        return MetadataTopic(
            ErrorCode.NONE,
            topic.name,
            topic.topic_id,
            self._rows.of(topic, view, call),
            is_internal(topic.name),
            operations,
        )

    def _framed(self, call: Call, view: ListenerView, topics: list[MetadataTopic]) -> ResponseFrame:
        asked = field_of(call.request, "include_cluster_authorized_operations", False)
        response = MetadataResponse(
            view.live,
            self._context.cluster_id,
            view.controller_id,
            topics,
            cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
        )
        return encode_metadata(call.version, call.correlation_id, response)


class _PartitionRows:
    """Rows that were made before, with the topic and the brokers they were made of."""

    def __init__(self) -> None:
        self._known: dict[tuple[TopicId, str, int], _Rows] = {}

    def of(self, topic: TopicImage, view: ListenerView, call: Call) -> Sequence[MetadataPartition]:
        kind = min(call.version, 1) + (call.version >= _FIRST_WITH_LISTENER_ERRORS)
        key = (topic.topic_id, call.client.listener_name, kind)
        known = self._known.get(key)
        if known is not None and known.topic is topic and known.view is view:
            return known.partitions
        if len(self._known) >= _MAX_ROWS:
            self._known.clear()  # deleted topics would stay for ever
        made = tuple(_partitions(topic, view, call.version))
        self._known[key] = _Rows(topic, view, made)
        return made


class _Rows(NamedTuple):
    topic: TopicImage
    view: ListenerView
    partitions: Sequence[MetadataPartition]


def _wants_all(call: Call) -> bool:
    request: Any = call.request
    return request.topics is None or (call.version == 0 and not request.topics)


def _problem(call: Call) -> MetadataResponse | None:
    """A request that names topics in a way its version does not have gets errors only."""
    request: Any = call.request
    for topic in request.topics or ():
        topic_id = field_of(topic, "topic_id", None)
        if call.version < _FIRST_WITH_IDS:
            is_wrong = topic.name is None or topic_id is not None
        else:
            is_wrong = topic.name is None and topic_id is None
        if is_wrong:
            break
    else:
        return None
    code = ErrorCode.INVALID_REQUEST
    topics = [
        MetadataTopic(code, one.name or "", TopicId(from_kio_uuid(field_of(one, "topic_id", None))))
        for one in request.topics
    ]
    return MetadataResponse((), None, NO_NODE, topics, error_code=code)


def _listed_topics(image: MetadataImage, call: Call) -> list[TopicImage | MetadataTopic]:
    """The topics asked for, each once: as they are, or the error in their place.

    If any id is given, only ids count: that is how Kafka reads a mixed list.
    """
    if _wants_all(call):
        return list(image.topics)
    request: Any = call.request
    ids = [field_of(topic, "topic_id", None) for topic in request.topics]
    wanted = dict.fromkeys(TopicId(from_kio_uuid(one)) for one in ids if one is not None)
    if wanted:
        return [
            image.topics.by_id.get(topic_id)
            or MetadataTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
            for topic_id in wanted
        ]
    names = dict.fromkeys(topic.name for topic in request.topics)
    return [image.topics.named(name) or missing_topic(name) for name in names]


def missing_topic(name: str) -> MetadataTopic:
    return MetadataTopic(why_missing(name), name, NO_TOPIC, is_internal=is_internal(name))


def why_missing(name: str) -> ErrorCode:
    """Why there is no topic of this name: there never could be one, or it is not there."""
    try:
        check_topic_name(name)
    except Refused as refused:
        return refused.error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _partitions(topic: TopicImage, view: ListenerView, version: int) -> Iterator[MetadataPartition]:
    for index in sorted(topic.partitions):
        state = topic.partitions[index]
        if version == 0:
            yield _partition_v0(index, state, view)
            continue
        leader = view.leader(state)
        error = ErrorCode.NONE if leader != NO_NODE else _why_leaderless(state, view, version)
        yield MetadataPartition(
            error,
            index,
            leader,
            state.leader_epoch,
            state.replicas,
            state.isr,
            view.offline(state),
        )


def _why_leaderless(state: PartitionState, view: ListenerView, version: int) -> ErrorCode:
    if state.leader in view.brokers and version >= _FIRST_WITH_LISTENER_ERRORS:
        return ErrorCode.LISTENER_NOT_FOUND
    return ErrorCode.LEADER_NOT_AVAILABLE


def _partition_v0(
    index: PartitionIndex, state: PartitionState, view: ListenerView
) -> MetadataPartition:
    """The oldest clients want to know every node they are told of."""
    replicas, in_sync = view.known(state.replicas), view.known(state.isr)
    error = ErrorCode.NONE
    if view.leader(state) == NO_NODE:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    elif len(replicas) < len(state.replicas) or len(in_sync) < len(state.isr):
        error = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataPartition(
        error, index, view.leader(state), state.leader_epoch, replicas, in_sync
    )
