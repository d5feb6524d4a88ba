"""Topics as the cluster describes them: read from one node, and chosen by name or pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidelog.cli.ask import Connection
from tidelog.cli.failures import CommandFailed, WrongUse
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.kio_values import duration_i32, from_kio_uuid

NO_LEADER: Final = -1
TOPIC_RESOURCE: Final = 2
_DEFAULT_CONFIG: Final = 5
_PAGE: Final = 2000
_TIMEOUT_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Partition:
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] | None = None
    """None if the node does not tell."""
    last_known_elr: tuple[int, ...] | None = None
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def replication_factor(self) -> int:
        """Replicas on their way in do not count yet."""
        return len(self.replicas) - len(self.adding)


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[Partition, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    """What differs from the defaults."""
    min_insync_replicas: int = 1


def list_topics(connection: Connection) -> dict[str, bool]:
    """Every topic's name, and whether it is internal; in order of names."""
    from kio.schema.metadata.v12.request import MetadataRequest

    request = MetadataRequest(
        topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    answer = connection.ask(request)
    return {topic.name: topic.is_internal for topic in sorted(answer.topics, key=_name)}


def _name(topic: Any) -> str:
    return str(topic.name)


def select(
    there: Mapping[str, bool], wanted: Sequence[str], *, exclude_internal: bool = False
) -> list[str]:
    """The names that are wanted: one that is a topic's name means that topic, others are patterns.

    A pattern has to match a whole name; without any, all topics are wanted.
    """
    names = [name for name, is_internal in there.items() if not (exclude_internal and is_internal)]
    if not wanted:
        return names
    chosen: set[str] = set()
    for one in wanted:
        chosen |= {one} if one in names else _matching(names, one)
    return [name for name in names if name in chosen]


def _matching(names: Iterable[str], pattern: str) -> set[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise WrongUse(
            f"{pattern!r} is neither a topic nor a regular expression: {error}"
        ) from None
    return {name for name in names if compiled.fullmatch(name)}


def describe_topics(connection: Connection, names: Sequence[str]) -> list[Topic]:
    """The topics named, in order of names."""
    if not names:
        return []
    topics = _describe_partitions(connection, names)
    reassignments = _reassignments(connection)
    configs = _configs(connection, names)
    described = []
    for topic in sorted(topics.values(), key=lambda topic: topic.name):
        values, min_insync_replicas = configs.get(topic.name, ({}, 1))
        partitions = tuple(
            _with_reassignment(partition, reassignments.get((topic.name, partition.index)))
            for partition in topic.partitions
        )
        described.append(
            replace(
                topic,
                partitions=partitions,
                configs=values,
                min_insync_replicas=min_insync_replicas,
            )
        )
    return described


def _describe_partitions(connection: Connection, names: Sequence[str]) -> dict[str, Topic]:
    from kio.schema.describe_topic_partitions.v0.request import (
        Cursor,
        DescribeTopicPartitionsRequest,
        TopicRequest,
    )
    from kio.schema.types import TopicName
    from kio.static.primitive import i32

    asked = tuple(TopicRequest(name=TopicName(name)) for name in sorted(names))
    found: dict[str, Topic] = {}
    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=asked, response_partition_limit=i32(_PAGE), cursor=cursor
        )
        answer = connection.ask(request)
        for topic in answer.topics:
            _take_page(found, topic)
        if answer.next_cursor is None:
            return found
        cursor = Cursor(
            topic_name=answer.next_cursor.topic_name,
            partition_index=answer.next_cursor.partition_index,
        )


def _take_page(found: dict[str, Topic], topic: Any) -> None:
    code = ErrorCode(int(topic.error_code))
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return  # deleted since it was listed
    if code != ErrorCode.NONE:
        raise CommandFailed(f"topic {topic.name!r}: {code.message}")
    name = str(topic.name)
    page = tuple(_partition(partition) for partition in topic.partitions)
    before = found[name].partitions if name in found else ()
    topic_id = str(from_kio_uuid(topic.topic_id))
    found[name] = Topic(name, topic_id, topic.is_internal, (*before, *page))


def _partition(partition: Any) -> Partition:
    def ids(nodes: Iterable[int] | None) -> tuple[int, ...] | None:
        return None if nodes is None else tuple(int(node) for node in nodes)

    return Partition(
        int(partition.partition_index),
        int(partition.leader_id),
        int(partition.leader_epoch),
        ids(partition.replica_nodes) or (),
        ids(partition.isr_nodes) or (),
        ids(partition.eligible_leader_replicas),
        ids(partition.last_known_elr),
    )


def _with_reassignment(partition: Partition, ongoing: Any) -> Partition:
    if ongoing is None:
        return partition
    return replace(
        partition,
        adding=tuple(int(node) for node in ongoing.adding_replicas),
        removing=tuple(int(node) for node in ongoing.removing_replicas),
    )


def _reassignments(connection: Connection) -> dict[tuple[str, int], Any]:
    from kio.schema.list_partition_reassignments.v0.request import (
        ListPartitionReassignmentsRequest,
    )

    if not connection.serves(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0):
        return {}
    request = ListPartitionReassignmentsRequest(timeout=duration_i32(_TIMEOUT_MS), topics=None)
    answer = connection.ask(request)
    code = ErrorCode(int(answer.error_code))
    if code != ErrorCode.NONE:
        raise CommandFailed(f"ongoing reassignments: {answer.error_message or code.message}")
    return {
        (str(topic.name), int(partition.partition_index)): partition
        for topic in answer.topics
        for partition in topic.partitions
    }


def _configs(connection: Connection, names: Sequence[str]) -> dict[str, tuple[dict[str, str], int]]:
    """Per topic what differs from the defaults, and min.insync.replicas in any case."""
    from kio.schema.describe_configs.v4.request import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
    )
    from kio.static.primitive import i8

    resources = tuple(
        DescribeConfigsResource(
            resource_type=i8(TOPIC_RESOURCE), resource_name=name, configuration_keys=None
        )
        for name in names
    )
    request = DescribeConfigsRequest(
        resources=resources, include_synonyms=False, include_documentation=False
    )
    found = {}
    for result in connection.ask(request).results:
        if int(result.error_code) == ErrorCode.NONE:
            found[str(result.resource_name)] = _config_values(result.configs)
    return found


def _config_values(configs: Iterable[Any]) -> tuple[dict[str, str], int]:
    values: dict[str, str] = {}
    min_insync_replicas = 1
    for config in configs:
        if config.name == "min.insync.replicas" and config.value is not None:
            min_insync_replicas = int(config.value)
        if int(config.config_source) != _DEFAULT_CONFIG and config.value is not None:
            values[str(config.name)] = str(config.value)
    return values, min_insync_replicas
