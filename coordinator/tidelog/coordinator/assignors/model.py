"""What an assignor knows and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tidelog.kernel.ids import PartitionIndex, TopicPartition

PartitionCounts = Mapping[str, int]
Shares = dict[str, tuple[TopicPartition, ...]]


@dataclass(frozen=True, slots=True)
class AssignorMember:
    """``owned`` and ``generation`` are what a sticky member says it had, and since when."""

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1


Assign = Callable[[PartitionCounts, Iterable[AssignorMember]], Shares]


def in_order(members: Iterable[AssignorMember]) -> list[AssignorMember]:
    """Static members first by their instance, so that a restart changes nothing; then the rest."""
    return sorted(
        members,
        key=lambda each: (each.instance_id is None, each.instance_id or "", each.member_id),
    )


def partitions_of(topic: str, counts: PartitionCounts) -> list[TopicPartition]:
    return [TopicPartition(topic, PartitionIndex(index)) for index in range(counts.get(topic, 0))]


def wanted_partitions(
    counts: PartitionCounts, members: Iterable[AssignorMember]
) -> list[TopicPartition]:
    """All partitions that somebody subscribes to, by topic and index."""
    topics = sorted(frozenset[str]().union(*(each.topics for each in members)))
    return [partition for topic in topics for partition in partitions_of(topic, counts)]
