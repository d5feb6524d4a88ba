"""CreatePartitions: more partitions for topics that exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
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
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import NodeIds, Partition
from tidelog.controller.metadata.topics import TopicImage
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import PartitionIndex
from tidelog.kernel.ports import Random


@dataclass(frozen=True, slots=True)
class MorePartitions:
    topic: str
    count: int
    """How many partitions the topic shall have."""
    assignments: tuple[NodeIds, ...] | None = None
    """Replicas of the new partitions; None leaves the choice to the controller."""


@dataclass(frozen=True, slots=True)
class GrownTopic:
    topic: str
    error: ApiError


def decide_add_partitions(
    image: MetadataImage,
    requests: Sequence[MorePartitions],
    random: Random,
    *,
    validate_only: bool = False,
) -> Decision[tuple[GrownTopic, ...]]:
    names = Counter(request.topic for request in requests)
    records: list[Partition] = []
    results: dict[str, GrownTopic] = {}
    for request in requests:
        try:
            if names[request.topic] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            added = _add(image, request, random, MAX_RECORDS_PER_DECISION - len(records))
        except Refused as refused:
            results[request.topic] = GrownTopic(request.topic, refused.error)
            continue
        records += added
        results[request.topic] = GrownTopic(request.topic, NO_ERROR)
    return Decision(() if validate_only else tuple(records), tuple(results.values()))


def _add(
    image: MetadataImage, request: MorePartitions, random: Random, room: int
) -> list[Partition]:
    topic = image.topics.named(request.topic)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    current, wanted = len(topic.partitions), request.count
    if wanted == current:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if wanted < current:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {current} partition(s); {wanted} would not be"
            " an increase.",
        )
    if wanted - current > room:
        raise Refused(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )
    lists = _replica_lists(image, topic, wanted - current, request.assignments, random)
    return [
        new_partition(image, topic.topic_id, PartitionIndex(current + i), replicas)
        for i, replicas in enumerate(lists)
    ]


def _replica_lists(
    image: MetadataImage,
    topic: TopicImage,
    additional: int,
    assignments: tuple[NodeIds, ...] | None,
    random: Random,
) -> Sequence[NodeIds]:
    factor = len(topic.partitions[PartitionIndex(0)].replicas)
    if assignments is None:
        return place_replicas(candidates(image), additional, factor, random)
    if len(assignments) != additional:
        only = "only " if len(assignments) < additional else ""
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but {only}{len(assignments)}"
            " assignment(s) were specified.",
        )
    for replicas in assignments:
        check_assignment(image, replicas, factor)
    return assignments
