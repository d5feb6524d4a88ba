"""Elections that are not the answer to a failure: on request, for balance, for the leaderless."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.controller.decisions.outcome import NO_ERROR, ApiError, Decision
from tidelog.controller.decisions.partition_plan import (
    Election,
    ElectionContext,
    planned_change,
)
from tidelog.controller.decisions.policy import ControllerPolicy
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef, PartitionState
from tidelog.controller.metadata.records import LEADERLESS, PartitionChange
from tidelog.controller.metadata.topics import in_order
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import PartitionIndex, TopicPartition

MAX_ELECTIONS_PER_BALANCE: Final = 1000

_ELECTION_TYPES: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}


@dataclass(frozen=True, slots=True)
class PartitionElection:
    partition: PartitionIndex
    error: ApiError


@dataclass(frozen=True, slots=True)
class TopicElections:
    topic: str
    partitions: tuple[PartitionElection, ...]


@dataclass(frozen=True, slots=True)
class ElectionAnswer:
    error: ApiError
    topics: tuple[TopicElections, ...] = ()


def decide_elections(
    image: MetadataImage,
    policy: ControllerPolicy,
    election_type: int,
    partitions: Sequence[TopicPartition] | None,
) -> Decision[ElectionAnswer]:
    """ElectLeaders. No partitions means all of them; those that need none are then left out."""
    election = _ELECTION_TYPES.get(election_type)
    if election is None:
        error = ApiError(ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}")
        return Decision((), _answer(error, [(p, error) for p in partitions or ()], image, False))
    wanted = _all_partitions(image) if partitions is None else list(partitions)
    context = ElectionContext(image, policy)
    changes: dict[TopicPartition, PartitionChange] = {}
    results = []
    for partition in wanted:
        error = _elect(context, election, partition, changes)
        if partitions is None and error.code is ErrorCode.ELECTION_NOT_NEEDED:
            continue
        results.append((partition, error))
    answer = _answer(NO_ERROR, results, image, partitions is None)
    return Decision(tuple(changes.values()), answer)


def _all_partitions(image: MetadataImage) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index)
        for topic in image.topics
        for index in sorted(topic.partitions)
    ]


def _elect(
    context: ElectionContext,
    election: Election,
    partition: TopicPartition,
    changes: dict[TopicPartition, PartitionChange],
) -> ApiError:
    topic = context.image.topics.named(partition.topic)
    if topic is None:
        return _unknown(f"No such topic as {partition.topic}")
    state = topic.partitions.get(partition.partition)
    if state is None:
        return _unknown(f"No such partition as {partition}")
    if _is_not_needed(election, state):
        return ApiError(
            ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
        )
    plan = context.plan(PartitionRef(topic.topic_id, partition.partition))
    change = planned_change(dataclasses.replace(plan, election=election))
    if change is not None:
        changes[partition] = change
        return NO_ERROR
    if election is Election.PREFERRED:
        return ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
        )
    return ApiError(
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "Eligible topic partition leaders are not available.",
    )


def _unknown(message: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


def _is_not_needed(election: Election, state: PartitionState) -> bool:
    if election is Election.PREFERRED:
        return state.has_preferred_leader
    return state.has_leader


def _answer(
    error: ApiError,
    results: list[tuple[TopicPartition, ApiError]],
    image: MetadataImage,
    name_all_topics: bool,
) -> ElectionAnswer:
    grouped: dict[str, list[PartitionElection]] = {}
    if name_all_topics:
        grouped = {topic.name: [] for topic in image.topics}
    for partition, outcome in results:
        entries = grouped.setdefault(partition.topic, [])
        entries.append(PartitionElection(partition.partition, outcome))
    topics = tuple(TopicElections(name, tuple(entries)) for name, entries in grouped.items())
    return ElectionAnswer(error, topics)


@dataclass(frozen=True, slots=True)
class Progress:
    """Whether a run stopped at its limit and another one should follow."""

    is_complete: bool


def decide_balancing(
    image: MetadataImage, policy: ControllerPolicy, limit: int = MAX_ELECTIONS_PER_BALANCE
) -> Decision[Progress]:
    """Gives leadership back to preferred replicas that are in sync."""
    return _changes(image, policy, in_order(image.topics.indexes.unbalanced), limit, preferred=True)


def decide_leaderless(
    image: MetadataImage, policy: ControllerPolicy, limit: int = MAX_ELECTIONS_PER_BALANCE
) -> Decision[Progress]:
    """Elects leaders where there are none and settings changed so that there may be one."""
    return _changes(image, policy, image.topics.led_by(LEADERLESS), limit, preferred=False)


def _changes(
    image: MetadataImage,
    policy: ControllerPolicy,
    refs: list[PartitionRef],
    limit: int,
    *,
    preferred: bool,
) -> Decision[Progress]:
    context = ElectionContext(image, policy)
    changes: list[PartitionChange] = []
    for ref in refs:
        if len(changes) >= limit:
            return Decision(tuple(changes), Progress(is_complete=False))
        plan = context.plan(ref)
        if preferred:
            plan = dataclasses.replace(plan, election=Election.PREFERRED)
        change = planned_change(plan)
        if change is not None:
            changes.append(change)
    return Decision(tuple(changes), Progress(is_complete=True))
