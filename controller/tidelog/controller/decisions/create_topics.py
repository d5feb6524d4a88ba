"""CreateTopics: every topic of a request stands for itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelog.controller.decisions.assignments import check_assignment, new_partition
from tidelog.controller.decisions.outcome import (
    MAX_RECORDS_PER_DECISION,
    NO_ERROR,
    ApiError,
    Decision,
    Refused,
)
from tidelog.controller.decisions.placement import candidates, place_replicas
from tidelog.controller.decisions.policy import ControllerPolicy
from tidelog.controller.decisions.topic_names import (
    METADATA_TOPIC,
    check_topic_is_new,
    check_topic_name,
    draw_topic_id,
)
from tidelog.controller.decisions.topic_settings import check_topic_settings
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import (
    Config,
    MetadataRecord,
    NodeIds,
    ResourceType,
    Topic,
)
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ZERO_UUID, PartitionIndex, TopicId
from tidelog.kernel.ports import Random

USE_DEFAULT = -1
NO_TOPIC = TopicId(ZERO_UUID)


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: tuple[tuple[int, NodeIds], ...] = ()
    """Replicas by partition; excludes the two numbers."""
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    name: str
    error: ApiError
    topic_id: TopicId = NO_TOPIC
    partitions: int = -1
    replication_factor: int = -1


def decide_create_topics(
    image: MetadataImage,
    policy: ControllerPolicy,
    topics: Sequence[NewTopic],
    random: Random,
    *,
    validate_only: bool = False,
) -> Decision[tuple[CreatedTopic, ...]]:
    if _partitions_asked_for(policy, topics) > MAX_RECORDS_PER_DECISION:
        return _refuse_all(topics, "Excessively large number of partitions per request.")
    names = Counter(topic.name for topic in topics)
    records: list[MetadataRecord] = []
    results: dict[str, CreatedTopic] = {}
    for topic in topics:
        try:
            if names[topic.name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            created = _create(image, policy, topic, random)
        except Refused as refused:
            results[topic.name] = CreatedTopic(topic.name, refused.error)
            continue
        records += created.records
        results[topic.name] = created.response
    if len(records) > MAX_RECORDS_PER_DECISION:
        return _refuse_all(topics, "Unable to perform excessively large batch operation.")
    answers = tuple(results.values())
    if validate_only:
        return Decision((), answers)
    return Decision(tuple(records), answers)


def _partitions_asked_for(policy: ControllerPolicy, topics: Iterable[NewTopic]) -> int:
    total = 0
    for topic in topics:
        wanted = len(topic.assignments) or topic.partitions
        total += policy.default_partitions if wanted == USE_DEFAULT else max(wanted, 0)
    return total


def _refuse_all(topics: Sequence[NewTopic], message: str) -> Decision[tuple[CreatedTopic, ...]]:
    error = ApiError(ErrorCode.POLICY_VIOLATION, message)
    return Decision((), tuple(CreatedTopic(topic.name, error) for topic in topics))


def _create(
    image: MetadataImage, policy: ControllerPolicy, topic: NewTopic, random: Random
) -> Decision[CreatedTopic]:
    if topic.name == METADATA_TOPIC:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited."
        )
    check_topic_name(topic.name)
    check_topic_is_new(image, topic.name)
    configs = _checked_configs(image, policy, topic)
    replica_lists = _replica_lists(image, policy, topic, random)
    topic_id = draw_topic_id(image, random)
    partitions = [
        new_partition(image, topic_id, PartitionIndex(index), replicas)
        for index, replicas in enumerate(replica_lists)
    ]
    settings = [
        Config(ResourceType.TOPIC, topic.name, name, value) for name, value in configs.items()
    ]
    created = CreatedTopic(
        name=topic.name,
        error=NO_ERROR,
        topic_id=topic_id,
        partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
    )
    return Decision((Topic(topic.name, topic_id), *settings, *partitions), created)


def _checked_configs(
    image: MetadataImage, policy: ControllerPolicy, topic: NewTopic
) -> dict[str, str]:
    configs: dict[str, str] = {}
    for name, value in topic.configs:
        if value is None:
            raise Refused(
                ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}"
            )
        configs[name] = value
    check_topic_settings(image, policy, configs)
    return configs


def _replica_lists(
    image: MetadataImage, policy: ControllerPolicy, topic: NewTopic, random: Random
) -> list[NodeIds]:
    if topic.assignments:
        return _manual_lists(image, topic)
    factor, partitions = topic.replication_factor, topic.partitions
    if factor == 0 or factor < USE_DEFAULT:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if partitions == 0 or partitions < USE_DEFAULT:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if factor == USE_DEFAULT:
        factor = policy.default_replication_factor
    if partitions == USE_DEFAULT:
        partitions = policy.default_partitions
    return place_replicas(candidates(image), partitions, factor, random)


def _manual_lists(image: MetadataImage, topic: NewTopic) -> list[NodeIds]:
    given = "A manual partition assignment was specified, but"
    if topic.replication_factor != USE_DEFAULT:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{given} replication factor was not set to -1.")
    if topic.partitions != USE_DEFAULT:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{given} numPartitions was not set to -1.")
    lists: dict[int, NodeIds] = {}
    factor: int | None = None
    for index, replicas in topic.assignments:
        if index in lists:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        check_assignment(image, replicas, factor)
        lists[index] = replicas
        factor = len(replicas)
    if sorted(lists) != list(range(len(lists))):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [lists[index] for index in sorted(lists)]
