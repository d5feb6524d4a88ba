"""A member of a group of the consumer protocol, and how it stands in the records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from tidelog.coordinator.consumer_records import (
    AssignedTopic,
    ConsumerMember,
    CurrentAssignment,
    TargetAssignment,
)
from tidelog.coordinator.server_assignors import Share
from tidelog.kernel.ids import Uuid

JOINING: Final = 0
LEAVING: Final = -1
AWAY: Final = -2
"""The epoch of a static member that said it will be back (KIP-345)."""

Held = Mapping[Uuid, Mapping[int, int]]
"""Partitions by topic, each with the member epoch since which it is held; never changed."""
NO_PARTITIONS: Final[Held] = MappingProxyType({})
Owned = Mapping[Uuid, frozenset[int]]
"""What a client says that it has."""


class MemberState(IntEnum):
    """The numbers are those of the records."""

    STABLE = 0
    """Has what its epoch gives it."""
    UNREVOKED_PARTITIONS = 1
    """Has to give up partitions before it may go on to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """Is at its epoch, but others still have some of its partitions."""
    UNKNOWN = 127
    """Of a version to come: the member has to start anew."""


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    metadata: ConsumerMember
    epoch: int = JOINING
    previous_epoch: int = JOINING
    state: MemberState = MemberState.STABLE
    assigned: Held = field(default_factory=lambda: NO_PARTITIONS)
    revoking: Held = field(default_factory=lambda: NO_PARTITIONS)

    @property
    def is_classic(self) -> bool:
        return self.metadata.classic is not None

    def is_at(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def places(self) -> set[tuple[Uuid, int]]:
        """All partitions that nobody else may have: its own, and those it is giving up."""
        both = (self.assigned, self.revoking)
        return {(topic, index) for held in both for topic in held for index in held[topic]}

    def current(self) -> CurrentAssignment:
        return CurrentAssignment(
            self.epoch,
            self.previous_epoch,
            int(self.state),
            _topics_of(self.assigned),
            _topics_of(self.revoking),
        )


NEW: Final = ConsumerMember(None, None, "", "", (), "", -1, None)
"""What is known of somebody before its first request is looked at."""
NOT_YET: Final = CurrentAssignment(JOINING, JOINING, 0, (), ())


def read_state(number: int) -> MemberState:
    try:
        return MemberState(number)
    except ValueError:
        return MemberState.UNKNOWN


def held_of(topics: Iterable[AssignedTopic]) -> Held:
    """What a record gives; records from before the epochs were written have none: 0."""
    found: dict[Uuid, dict[int, int]] = {}
    for each in topics:
        epochs = each.epochs or (0,) * len(each.partitions)
        found[each.topic_id] = dict(zip(each.partitions, epochs, strict=False))
    return found


def _topics_of(held: Held) -> tuple[AssignedTopic, ...]:
    return tuple(
        AssignedTopic(topic, indexes, tuple(held[topic][index] for index in indexes))
        for topic in sorted(held)
        for indexes in [tuple(sorted(held[topic]))]
    )


def share_of(target: TargetAssignment) -> Share:
    return {each.topic_id: frozenset(each.partitions) for each in target.topics}


def target_of(share: Share) -> TargetAssignment:
    return TargetAssignment(
        tuple(AssignedTopic(topic, tuple(sorted(share[topic]))) for topic in sorted(share))
    )


def owned_from(pairs: Iterable[tuple[Uuid, Iterable[int]]]) -> Owned:
    found: dict[Uuid, set[int]] = {}
    for topic, indexes in pairs:
        found.setdefault(topic, set()).update(indexes)
    return {topic: frozenset(indexes) for topic, indexes in found.items()}


def is_part_of(owned: Owned, held: Held) -> bool:
    nothing: Mapping[int, int] = {}
    return all(indexes <= held.get(topic, nothing).keys() for topic, indexes in owned.items())


def overlap(owned: Owned, held: Held) -> bool:
    nothing: Mapping[int, int] = {}
    return any(indexes & held.get(topic, nothing).keys() for topic, indexes in owned.items())
