"""Plans to move replicas, in the JSON of kafka-reassign-partitions.

Pure: what a plan's text means, what a new plan for some brokers looks like, which settings slow a
move down, and what has become of a plan.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from tidelog.cli.brokers import BrokerNode, Place
from tidelog.cli.failures import CommandFailed, WrongUse
from tidelog.cli.partition_files import partitions_of
from tidelog.cli.topics import Topic

Assignment = Mapping[Place, tuple[int, ...]]
"""The replicas of partitions; the first of each leads by preference."""

EXAMPLE: Final = (
    '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}'
)
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
_SEED: Final = 4_294_967_291
"""Asked twice, the same plan comes out."""


class Status(StrEnum):
    COMPLETED = "completed"
    IN_PROGRESS = "in progress"
    DIFFERENT = "different"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Throttles:
    """Settings by topic: which replicas are slowed down, at leaders and at followers."""

    leaders: Mapping[str, str]
    followers: Mapping[str, str]
    brokers: tuple[int, ...]


def parse_plan(document: Any, path: Path) -> dict[Place, tuple[int, ...]]:
    def replicas(entry: Mapping[str, Any]) -> tuple[int, ...]:
        nodes = entry["replicas"]
        whole = isinstance(nodes, list) and all(type(node) is int and node >= 0 for node in nodes)
        if not whole or not nodes:
            raise ValueError(f"{entry}: replicas must be a list of broker ids")
        if len(set(nodes)) < len(nodes):
            raise ValueError(f"{entry}: names a broker twice")
        directories = entry.get("log_dirs", [])
        if any(one != "any" for one in directories):
            raise ValueError(f"{entry}: directories cannot be chosen; leave out log_dirs")
        return tuple(nodes)

    return partitions_of(document, path, EXAMPLE, replicas)


def parse_topics(document: Any, path: Path) -> list[str]:
    """``{"topics": [{"topic": "orders"}], "version": 1}``."""
    try:
        names = [entry["topic"] for entry in document["topics"]]
    except (KeyError, TypeError) as error:
        example = '{"topics": [{"topic": "orders"}], "version": 1}'
        raise WrongUse(f"{path}: {error}; it must look like {example}") from None
    return [str(name) for name in names]


def plan_json(assignment: Assignment) -> str:
    partitions = [
        {
            "topic": topic,
            "partition": index,
            "replicas": list(nodes),
            "log_dirs": ["any"] * len(nodes),
        }
        for (topic, index), nodes in sorted(assignment.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions})


def current_assignment(topics: Sequence[Topic]) -> dict[Place, tuple[int, ...]]:
    """Without replicas that are on their way in, so that it can serve to go back."""
    return {
        (topic.name, one.index): tuple(node for node in one.replicas if node not in one.adding)
        for topic in topics
        for one in topic.partitions
    }


def propose(
    topics: Sequence[Topic],
    brokers: Mapping[int, BrokerNode],
    chosen: Sequence[int],
    *,
    uses_racks: bool,
    factor: int | None = None,
) -> dict[Place, tuple[int, ...]]:
    """Spread the partitions evenly over the chosen brokers, and over their racks."""
    from tidelog.controller.decisions.outcome import Refused
    from tidelog.controller.decisions.placement import Candidate, place_replicas
    from tidelog.kernel.ids import NodeId

    if missing := [node for node in chosen if node not in brokers]:
        there = ", ".join(map(str, brokers))
        raise CommandFailed(f"there is no broker {missing[0]}; there are {there}")
    candidates = [
        Candidate(NodeId(node), brokers[node].rack if uses_racks else None, True)
        for node in sorted(set(chosen))
    ]
    proposed: dict[Place, tuple[int, ...]] = {}
    for topic in topics:
        wanted = factor or topic.partitions[0].replication_factor
        try:
            placed = place_replicas(candidates, len(topic.partitions), wanted, random.Random(_SEED))
        except Refused as refused:
            raise CommandFailed(f"topic {topic.name!r}: {refused.error.message}") from None
        for partition, nodes in zip(topic.partitions, placed, strict=True):
            proposed[topic.name, partition.index] = tuple(int(node) for node in nodes)
    return proposed


def throttles(current: Assignment, target: Assignment) -> Throttles:
    """KIP-73: the replicas there are send slowly, the replicas to come fetch slowly."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    involved: set[int] = set()
    for place in sorted(target):
        topic, index = place
        added = [node for node in target[place] if node not in current[place]]
        if not added:
            continue
        involved |= {*current[place], *added}
        leaders.setdefault(topic, []).extend(f"{index}:{node}" for node in current[place])
        followers.setdefault(topic, []).extend(f"{index}:{node}" for node in added)
    return Throttles(
        {topic: ",".join(entries) for topic, entries in leaders.items()},
        {topic: ",".join(entries) for topic, entries in followers.items()},
        tuple(sorted(involved)),
    )


def statuses(target: Assignment, topics: Sequence[Topic]) -> dict[Place, Status]:
    there = {(topic.name, one.index): one for topic in topics for one in topic.partitions}
    found: dict[Place, Status] = {}
    for place, wanted in sorted(target.items()):
        partition = there.get(place)
        if partition is None:
            found[place] = Status.MISSING
        elif partition.adding or partition.removing:
            found[place] = Status.IN_PROGRESS
        elif partition.replicas == wanted:
            found[place] = Status.COMPLETED
        else:
            found[place] = Status.DIFFERENT
    return found


def status_line(
    place: Place, status: Status, replicas: Sequence[int], wanted: Sequence[int]
) -> str:
    name = f"{place[0]}-{place[1]}"
    match status:
        case Status.COMPLETED:
            return f"Reassignment of partition {name} is completed."
        case Status.IN_PROGRESS:
            return f"Reassignment of partition {name} is still in progress."
        case Status.MISSING:
            return f"Partition {name} does not exist."
        case Status.DIFFERENT:
            return (
                f"There is no active reassignment of partition {name}, but replica set is "
                f"{','.join(map(str, replicas))} rather than {','.join(map(str, wanted))}."
            )
