"""CreateTopics, DeleteTopics and CreatePartitions as clients send them."""

from __future__ import annotations

from typing import Any

from tidelog.controller.decisions.add_partitions import (
    GrownTopic,
    MorePartitions,
    decide_add_partitions,
)
from tidelog.controller.decisions.create_topics import (
    CreatedTopic,
    NewTopic,
    decide_create_topics,
)
from tidelog.controller.decisions.delete_topics import (
    NO_TOPIC,
    DeletedTopic,
    Deletion,
    decide_delete_topics,
)
from tidelog.controller.decisions.outcome import Decision
from tidelog.controller.decisions.topic_settings import settings_of_cluster
from tidelog.controller.metadata.records import NodeIds
from tidelog.controller.service.admin_codec import Reply
from tidelog.controller.service.controller import Basis, Cause, Controller
from tidelog.kernel.ids import NodeId, TopicId
from tidelog.kernel.settings import Origin, Setting, Settings, TopicConfig
from tidelog.kernel.settings.topic_table import TOPIC_SETTINGS
from tidelog.kernel.settings.types import to_text
from tidelog.wire.protocol.kio_values import field_of, from_kio_uuid, to_kio_uuid

_MAX_NAMES_IN_LOG = 5


def node_ids(numbers: Any) -> NodeIds:
    return tuple(NodeId(int(number)) for number in numbers)


def few(names: list[str]) -> str:
    """Names for a log line."""
    shown = ", ".join(names[:_MAX_NAMES_IN_LOG])
    left = len(names) - _MAX_NAMES_IN_LOG
    return f"{shown} and {left} more" if left > 0 else shown


async def create_topics(controller: Controller, request: Any, reply: Reply, who: str) -> bytes:
    topics = [_new_topic(topic) for topic in request.topics]
    validate_only = field_of(request, "validate_only", False)

    def decide(basis: Basis) -> Decision[tuple[tuple[CreatedTopic, ...], Settings]]:
        decision = decide_create_topics(
            basis.image, basis.policy, topics, basis.random, validate_only=validate_only
        )
        cluster = settings_of_cluster(basis.image, basis.policy)
        return Decision(decision.records, (decision.response, cluster))

    names = few([topic.name for topic in topics])
    cause = Cause(f"create topic {names}", f"{who} asked for it")
    created, cluster = await controller.change(cause, decide)
    asked = {topic.name: topic for topic in topics}
    return reply.body(
        topics=tuple(_created(reply, one, asked[one.name], cluster) for one in created)
    )


def _new_topic(topic: Any) -> NewTopic:
    return NewTopic(
        name=str(topic.name),
        partitions=int(topic.num_partitions),
        replication_factor=int(topic.replication_factor),
        assignments=tuple(
            (int(one.partition_index), node_ids(one.broker_ids)) for one in topic.assignments
        ),
        configs=tuple((config.name, config.value) for config in topic.configs),
    )


def _created(reply: Reply, topic: CreatedTopic, asked: NewTopic, cluster: Settings) -> Any:
    configs: tuple[Any, ...] = ()
    if reply.version >= 5 and not topic.error.is_error:
        own = {name: value for name, value in asked.configs if value is not None}
        configs = tuple(_configs(reply, own, cluster))
    return reply.item(
        "CreatableTopicResult",
        error=topic.error,
        name=topic.name,
        topic_id=to_kio_uuid(topic.topic_id),
        topic_config_error_code=0,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=configs,
    )


def _configs(reply: Reply, own: dict[str, str], cluster: Settings) -> list[Any]:
    """What the new topic runs with, as DescribeConfigs would tell."""
    effective = TopicConfig.resolve(own, cluster)
    return [
        reply.item(
            "CreatableTopicConfigs",
            name=name,
            value=to_text(getattr(effective, row.attribute)),
            read_only=False,
            config_source=_origin(row, own, cluster).config_source,
            is_sensitive=row.sensitive,
        )
        for name, row in sorted(TOPIC_SETTINGS.items())
        if not row.hidden or name in own
    ]


def _origin(row: Setting, own: dict[str, str], cluster: Settings) -> Origin:
    if row.name in own:
        return Origin.TOPIC
    found = cluster.first_given(row.synonyms)
    return Origin.DEFAULT if found is None else found[1]


async def delete_topics(controller: Controller, request: Any, reply: Reply, who: str) -> bytes:
    deletions: list[Deletion] = [
        Deletion(one.name, TopicId(from_kio_uuid(one.topic_id)))
        for one in _listed(request, "topics")
    ]
    deletions += [Deletion(str(name)) for name in _listed(request, "topic_names")]
    names = few([str(d.name if d.name is not None else d.topic_id) for d in deletions])
    deleted = await controller.change(
        Cause(f"delete topic {names}", f"{who} asked for it"),
        lambda basis: decide_delete_topics(basis.image, basis.policy, deletions),
    )
    return reply.body(responses=tuple(_deleted(reply, one) for one in deleted))


def _listed(request: Any, name: str) -> tuple[Any, ...]:
    """Versions list topics by name or by name and id, in fields of different names."""
    listed: tuple[Any, ...] = field_of(request, name, ())
    return listed


def _deleted(reply: Reply, topic: DeletedTopic) -> Any:
    return reply.item(
        "DeletableTopicResult",
        error=topic.error,
        name=topic.name,
        topic_id=None if topic.topic_id == NO_TOPIC else to_kio_uuid(topic.topic_id),
    )


async def create_partitions(controller: Controller, request: Any, reply: Reply, who: str) -> bytes:
    wanted = [_more_partitions(topic) for topic in request.topics]

    def decide(basis: Basis) -> Decision[tuple[GrownTopic, ...]]:
        return decide_add_partitions(
            basis.image, wanted, basis.random, validate_only=request.validate_only
        )

    names = few([one.topic for one in wanted])
    cause = Cause(f"add partitions to topic {names}", f"{who} asked for it")
    grown = await controller.change(cause, decide)
    return reply.body(
        results=tuple(
            reply.item("CreatePartitionsTopicResult", error=one.error, name=one.topic)
            for one in grown
        )
    )


def _more_partitions(topic: Any) -> MorePartitions:
    assignments = topic.assignments
    return MorePartitions(
        topic=str(topic.name),
        count=int(topic.count),
        assignments=None
        if assignments is None
        else tuple(node_ids(one.broker_ids) for one in assignments),
    )
