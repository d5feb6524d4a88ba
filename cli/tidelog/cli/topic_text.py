"""Descriptions of topics, in the words of kafka-topics or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict
from enum import Enum
from typing import Any, Final

from tidelog.cli.topics import NO_LEADER, Partition, Topic


class Only(Enum):
    """Partitions worth a look; several of these mean any of them."""

    UNDER_REPLICATED = "under-replicated"
    UNAVAILABLE = "unavailable"
    UNDER_MIN_ISR = "under-min-isr"
    AT_MIN_ISR = "at-min-isr"


_IS: Final[dict[Only, Callable[[Topic, Partition], bool]]] = {
    Only.UNDER_REPLICATED: lambda topic, one: len(one.isr) < one.replication_factor,
    Only.UNAVAILABLE: lambda topic, one: one.leader == NO_LEADER,
    Only.UNDER_MIN_ISR: lambda topic, one: len(one.isr) < topic.min_insync_replicas,
    Only.AT_MIN_ISR: lambda topic, one: len(one.isr) == topic.min_insync_replicas,
}


def narrowed(
    topics: Iterable[Topic], only: Collection[Only]
) -> list[tuple[Topic, list[Partition]]]:
    """Each topic with the partitions asked for; topics without any are left out."""
    found = []
    for topic in topics:
        chosen = [
            one
            for one in topic.partitions
            if not only or any(_IS[which](topic, one) for which in only)
        ]
        if chosen or not only:
            found.append((topic, chosen))
    return found


def description(
    topics: Iterable[Topic], only: Collection[Only], *, with_overrides: bool
) -> list[str]:
    """Filters show partitions alone; ``with_overrides`` shows topics alone."""
    lines = []
    for topic, partitions in narrowed(topics, only):
        if with_overrides and not topic.configs:
            continue
        if not only:
            lines.append(topic_line(topic))
        if not with_overrides:
            lines += [partition_line(topic, partition) for partition in partitions]
    return lines


def topic_line(topic: Topic) -> str:
    factor = topic.partitions[0].replication_factor if topic.partitions else 0
    return "\t".join(
        (
            f"Topic: {topic.name}",
            f"TopicId: {topic.topic_id}",
            f"PartitionCount: {len(topic.partitions)}",
            f"ReplicationFactor: {factor}",
            f"Configs: {','.join(f'{name}={value}' for name, value in topic.configs.items())}",
        )
    )


def partition_line(topic: Topic, partition: Partition) -> str:
    leader = "none" if partition.leader == NO_LEADER else str(partition.leader)
    fields = [
        f"Topic: {topic.name}",
        f"Partition: {partition.index}",
        f"Leader: {leader}",
        f"Replicas: {_ids(partition.replicas)}",
        f"Isr: {_ids(partition.isr)}",
    ]
    if partition.adding or partition.removing:
        fields.append(f"Adding Replicas: {_ids(partition.adding)}")
        fields.append(f"Removing Replicas: {_ids(partition.removing)}")
    fields.append(f"Elr: {_ids(partition.elr)}")
    fields.append(f"LastKnownElr: {_ids(partition.last_known_elr)}")
    return "".join(f"\t{field}" for field in fields)


def _ids(nodes: tuple[int, ...] | None) -> str:
    return "N/A" if nodes is None else ",".join(map(str, nodes))


def as_objects(topics: Iterable[Topic], only: Collection[Only]) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": topic.is_internal,
            "configs": dict(topic.configs),
            "partitions": [asdict(partition) for partition in partitions],
        }
        for topic, partitions in narrowed(topics, only)
    ]
