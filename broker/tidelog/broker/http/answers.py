"""What ``/v1`` answers: the node's facts as JSON values. Pure.

A list may be long, so it is made item by item and the server puts pauses between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidelog.broker.handlers.internal_topics import is_internal
from tidelog.broker.metrics.facts import CompactionFacts, GroupFacts, NodeView, ReplicaFacts
from tidelog.controller.metadata.brokers import BrokerRegistration
from tidelog.controller.metadata.partitions import PartitionState
from tidelog.controller.metadata.records import LEADERLESS
from tidelog.controller.metadata.topics import TopicImage
from tidelog.coordinator.classic.history import Rebalance

Json: TypeAlias = Mapping[str, Any]
Arguments: TypeAlias = Mapping[str, str]


class NotFound(Exception):
    """There is no such thing; the text says what was looked for."""


@dataclass(frozen=True, slots=True)
class Listing:
    """An object with one list in it."""

    key: str
    items: Iterator[Json]


Answer: TypeAlias = Callable[[NodeView, Arguments], Json | Listing]


def cluster(view: NodeView, arguments: Arguments) -> Json:
    image = view.image
    return {
        "cluster_id": view.cluster_id,
        "node_id": view.node_id,
        "roles": list(view.roles),
        "active_controller": view.active_controller,
        "metadata_offset": image.offset,
        "brokers": len(image.brokers),
        "brokers_fenced": sum(one.fenced for one in image.brokers.values()),
        "topics": len(image.topics.by_id),
        "partitions": sum(len(topic.partitions) for topic in image.topics.by_id.values()),
        "partitions_without_leader": len(image.topics.indexes.leading.get(LEADERLESS, ())),
        "features": dict(sorted(image.features.items())),
    }


def brokers(view: NodeView, arguments: Arguments) -> Listing:
    known = view.image.brokers
    return Listing("brokers", (_broker(known[node]) for node in sorted(known)))


def _broker(one: BrokerRegistration) -> Json:
    return {
        "id": one.broker_id,
        "epoch": one.epoch,
        "rack": one.rack,
        "fenced": one.fenced,
        "in_controlled_shutdown": one.in_controlled_shutdown,
        "listeners": {e.name: {"host": e.host, "port": e.port} for e in one.endpoints},
        "log_directories": [str(directory) for directory in one.log_dirs],
    }


def topics(view: NodeView, arguments: Arguments) -> Listing:
    return Listing("topics", (_topic(topic) for topic in view.image.topics))


def _topic(topic: TopicImage) -> Json:
    states = topic.partitions.values()
    return {
        "name": topic.name,
        "id": str(topic.topic_id),
        "internal": is_internal(topic.name),
        "partitions": len(topic.partitions),
        "replication_factor": max((len(state.replicas) for state in states), default=0),
        "under_replicated": sum(len(state.isr) < len(state.replicas) for state in states),
        "without_leader": sum(not state.has_leader for state in states),
    }


def topic(view: NodeView, arguments: Arguments) -> Json:
    found = view.image.topics.named(arguments["topic"])
    if found is None:
        raise NotFound(f"this node knows of no topic {arguments['topic']!r}")
    partitions = [
        {"partition": index, **_state(found.partitions[index])}
        for index in sorted(found.partitions)
    ]
    return {**_topic(found), "partitions": partitions}


def _state(state: PartitionState) -> Json:
    return {
        "leader": state.leader if state.has_leader else None,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "replicas": list(state.replicas),
        "isr": list(state.isr),
        "eligible_leader_replicas": list(state.elr),
        "adding": list(state.adding),
        "removing": list(state.removing),
    }


def partitions(view: NodeView, arguments: Arguments) -> Listing:
    """Replicas on this node, of one topic or of all."""
    wanted = arguments.get("topic")
    held = iter(()) if view.broker is None else view.broker.replicas()
    return Listing("partitions", (_replica(one) for one in held if wanted in (None, one.topic)))


def _replica(one: ReplicaFacts) -> Json:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "role": one.role,
        "leader": None if one.leader < 0 else one.leader,
        "leader_epoch": one.leader_epoch,
        "replicas": list(one.replicas),
        "isr": list(one.isr),
        "min_isr": one.min_isr,
        "log_start_offset": one.log_start,
        "high_watermark": one.high_watermark,
        "last_stable_offset": one.last_stable_offset,
        "log_end_offset": one.log_end,
        "flushed_end_offset": one.flushed_end,
        "size_bytes": one.size,
        "segments": one.segments,
        "lag": one.lag,
        "followers": [
            {"id": f.node_id, "lag": f.lag, "in_sync": f.is_in_sync} for f in one.followers
        ],
    }


def compaction(view: NodeView, arguments: Arguments) -> Listing:
    """Replicas of one topic on this node; whoever wants to know of all asks all nodes."""
    topic = arguments["topic"]
    if view.image.topics.named(topic) is None:
        raise NotFound(f"there is no topic {topic!r}")
    held = iter(()) if view.broker is None else view.broker.compaction(topic)
    return Listing("replicas", (_compaction(one) for one in held))


def _compaction(one: CompactionFacts) -> Json:
    return {
        "partition": one.partition,
        "role": one.role,
        "log_start_offset": one.log_start,
        "log_end_offset": one.log_end,
        "clean_point": one.clean_point,
        "first_uncleanable": one.first_uncleanable,
        "clean_bytes": one.clean_bytes,
        "cleanable_bytes": one.cleanable_bytes,
        "dirty_ratio": one.dirty_ratio,
        "due": one.is_due,
        "in_progress": one.is_in_progress,
        "clean_floor": one.clean_floor,
        "reasons": [
            {
                "hold": reason.hold.value,
                "offset": reason.offset,
                "detail": reason.detail,
                "setting": reason.setting,
            }
            for reason in one.reasons
        ],
        "waits_for": list(one.waits_for),
        "last_outcome": one.last_outcome,
        "next_horizon_ms": one.next_horizon_ms,
    }


def groups(view: NodeView, arguments: Arguments) -> Listing:
    """Groups that this node coordinates."""
    held = iter(()) if view.broker is None else view.broker.groups()
    return Listing("groups", (_group(one) for one in held))


def _group(one: GroupFacts) -> Json:
    known = [offset.lag for offset in one.offsets if offset.lag is not None]
    return {
        "id": one.group_id,
        "type": one.kind,
        "state": one.state,
        "members": one.members,
        "lag": sum(known) if len(known) == len(one.offsets) else None,
        "offsets": [
            {
                "topic": offset.topic,
                "partition": offset.partition,
                "committed": offset.offset,
                "high_watermark": offset.high_watermark,
                "lag": offset.lag,
            }
            for offset in one.offsets
        ],
    }


def rebalances(view: NodeView, arguments: Arguments) -> Json:
    """Whoever wants to know asks all nodes: one of them coordinates the group."""
    found = None if view.broker is None else view.broker.rebalances(arguments["group"])
    return {
        "group": arguments["group"],
        "coordinated_here": found is not None,
        "rebalances": [_rebalance(one) for one in found or ()],
    }


def _rebalance(one: Rebalance) -> Json:
    return {
        "started_ms": one.started_ms,
        "joined_ms": one.joined_ms,
        "ended_ms": one.ended_ms,
        "generation": one.generation,
        "causes": [
            {"at_ms": cause.at_ms, "member_id": cause.member_id, "kind": cause.kind.value}
            for cause in one.causes
        ],
        "causes_left_out": one.causes_left_out,
        "last_to_join": one.last_to_join,
        "dropped": list(one.dropped),
    }


def quorum(view: NodeView, arguments: Arguments) -> Json:
    if view.controller is None:
        return {"active_controller": view.active_controller, "role": None}
    status = view.controller.quorum
    if status is None:
        raise NotFound("the quorum has not started on this node yet")
    return {
        "active_controller": status.leader_id,
        "role": status.role.name.lower(),
        "term": status.term,
        "high_watermark": status.high_watermark,
        "log_start_offset": status.log_start,
        "log_end_offset": status.log_end,
        "voters": sorted(voter.node_id for voter in status.voters),
        "members": [
            {
                "id": one.key.node_id,
                "voter": one.is_voter,
                "log_end_offset": one.match_end,
                "lag": max(0, status.log_end - one.match_end),
                "silent_ms": None if one.silent_ms is None else round(one.silent_ms),
            }
            for one in status.replicas
        ],
    }


def health(view: NodeView, arguments: Arguments) -> Json:
    """That this is answered is the whole of it: the event loop turns."""
    return {"status": "alive", "node_id": view.node_id}


def readiness(view: NodeView) -> tuple[bool, Json]:
    found = view.readiness()
    return found.is_ready, {
        "status": "ready" if found.is_ready else "not ready",
        "node_id": view.node_id,
        "reasons": list(found.reasons),
    }
