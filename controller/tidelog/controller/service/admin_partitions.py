"""ElectLeaders and the reassignment of partitions as clients send them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from tidelog.controller.decisions.leaders import (
    ElectionAnswer,
    TopicElections,
    decide_elections,
)
from tidelog.controller.decisions.outcome import NO_ERROR, Decision
from tidelog.controller.decisions.reassignment import (
    OngoingReassignment,
    ReassignmentRequest,
    ReassignmentResult,
    decide_reassignments,
    ongoing_reassignments,
)
from tidelog.controller.service.admin_codec import Reply
from tidelog.controller.service.admin_topics import few, node_ids
from tidelog.controller.service.controller import Basis, Cause, Controller
from tidelog.kernel.ids import PartitionIndex, TopicPartition
from tidelog.wire.protocol.kio_values import field_of


async def elect_leaders(controller: Controller, request: Any, reply: Reply, who: str) -> bytes:
    wanted = _topic_partitions(request.topic_partitions, "topic", "partitions")
    election_type = int(field_of(request, "election_type", 0))

    def decide(basis: Basis) -> Decision[ElectionAnswer]:
        return decide_elections(basis.image, basis.policy, election_type, wanted)

    names = "all partitions" if wanted is None else few(list(map(str, wanted)))
    answer = await controller.change(Cause(f"elect leaders of {names}", f"{who} asked"), decide)
    return reply.body(
        error=answer.error,
        replica_election_results=tuple(
            _elections(reply, topic) for topic in _as_asked(answer.topics, request.topic_partitions)
        ),
    )


def _as_asked(
    answered: Sequence[TopicElections], asked: Iterable[Any] | None
) -> Iterable[TopicElections]:
    """Every topic that was asked for, also one of which no partition was."""
    if asked is None:
        return answered
    by_name = {topic.topic: topic for topic in answered}
    names = dict.fromkeys(str(topic.topic) for topic in asked)
    return (by_name.get(name, TopicElections(name, ())) for name in names)


def _topic_partitions(
    topics: Iterable[Any] | None, name: str, indexes: str
) -> list[TopicPartition] | None:
    if topics is None:
        return None
    return [
        TopicPartition(str(getattr(topic, name)), PartitionIndex(int(index)))
        for topic in topics
        for index in getattr(topic, indexes)
    ]


def _elections(reply: Reply, topic: TopicElections) -> Any:
    return reply.item(
        "ReplicaElectionResult",
        topic=topic.topic,
        partition_result=tuple(
            reply.item("PartitionResult", error=one.error, partition_id=one.partition)
            for one in topic.partitions
        ),
    )


async def alter_reassignments(
    controller: Controller, request: Any, reply: Reply, who: str
) -> bytes:
    wanted = [
        ReassignmentRequest(
            TopicPartition(str(topic.name), PartitionIndex(int(one.partition_index))),
            None if one.replicas is None else node_ids(one.replicas),
        )
        for topic in request.topics
        for one in topic.partitions
    ]
    may_change = field_of(request, "allow_replication_factor_change", True)

    def decide(basis: Basis) -> Decision[tuple[ReassignmentResult, ...]]:
        return decide_reassignments(basis.image, basis.policy, wanted, may_change_factor=may_change)

    names = few([str(one.partition) for one in wanted])
    cause = Cause(f"reassign {names}", f"{who} asked for it")
    results = await controller.change(cause, decide)
    topics = tuple(
        reply.item(
            "ReassignableTopicResponse",
            name=name,
            partitions=tuple(_reassigned(reply, one) for one in group),
        )
        for name, group in groupby(results, key=lambda one: one.partition.topic)
    )
    return reply.body(error=NO_ERROR, allow_replication_factor_change=may_change, responses=topics)


def _reassigned(reply: Reply, result: ReassignmentResult) -> Any:
    return reply.item(
        "ReassignablePartitionResponse",
        error=result.error,
        partition_index=result.partition.partition,
    )


async def list_reassignments(controller: Controller, request: Any, reply: Reply, who: str) -> bytes:
    wanted = _topic_partitions(request.topics, "name", "partition_indexes")

    def look(basis: Basis) -> Decision[tuple[OngoingReassignment, ...]]:
        return Decision((), ongoing_reassignments(basis.image, wanted))

    found = await controller.change(Cause("list reassignments", f"{who} asked"), look)
    topics = tuple(
        reply.item(
            "OngoingTopicReassignment",
            name=name,
            partitions=tuple(_ongoing(reply, one) for one in group),
        )
        for name, group in groupby(found, key=lambda one: one.partition.topic)
    )
    return reply.body(error=NO_ERROR, topics=topics)


def _ongoing(reply: Reply, reassignment: OngoingReassignment) -> Any:
    return reply.item(
        "OngoingPartitionReassignment",
        partition_index=reassignment.partition.partition,
        replicas=reassignment.replicas,
        adding_replicas=reassignment.adding,
        removing_replicas=reassignment.removing,
    )
