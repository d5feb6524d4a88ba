"""Topics created, altered and deleted, as kafka-topics does it: through any node."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.cli.ask import Connection
from tidelog.cli.failures import CommandFailed, WrongUse
from tidelog.cli.topics import TOPIC_RESOURCE, describe_topics
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.kio_values import duration_i32, from_kio_uuid

Assignment = Sequence[Sequence[int]]
"""The replicas of partition 0, of partition 1 and so on; the first of each leads by preference."""

_TIMEOUT_MS: Final = 30_000
_DEFAULT: Final = -1
_SET, _DELETE = 0, 1
_RETRY_S: Final = 0.2
_RETRIES: Final = 50


@dataclass(frozen=True, slots=True)
class Created:
    name: str
    topic_id: str
    partitions: int
    replication_factor: int


def parse_configs(entries: Sequence[str]) -> dict[str, str]:
    configs = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or not name.strip():
            raise WrongUse(f"--config {entry}: must be name=value")
        configs[name.strip()] = value.strip()
    return configs


def parse_assignment(text: str) -> list[list[int]]:
    """``1:2,2:3``: partition 0 on nodes 1 and 2, partition 1 on nodes 2 and 3."""
    try:
        lists = [[int(node) for node in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise WrongUse(
            f"--replica-assignment {text}: node ids joined by colons, partitions by commas: 1:2,2:3"
        ) from None
    if any(len(set(one)) < len(one) for one in lists):
        raise WrongUse(f"--replica-assignment {text}: a partition has no node twice")
    if len({len(one) for one in lists}) > 1:
        raise WrongUse(f"--replica-assignment {text}: all partitions need as many replicas")
    return lists


def create_topic(
    connection: Connection,
    name: str,
    *,
    partitions: int | None = None,
    replication_factor: int | None = None,
    assignment: Assignment | None = None,
    configs: Mapping[str, str] | None = None,
    if_not_exists: bool = False,
) -> Created | None:
    """None if it exists and that is fine."""
    from kio.schema.create_topics.v7.request import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
    )
    from kio.schema.types import BrokerId, TopicName
    from kio.static.primitive import i16, i32

    assignments = tuple(
        CreatableReplicaAssignment(
            partition_index=i32(index), broker_ids=tuple(BrokerId(node) for node in nodes)
        )
        for index, nodes in enumerate(assignment or ())
    )
    topic = CreatableTopic(
        name=TopicName(name),
        num_partitions=i32(_DEFAULT if partitions is None or assignments else partitions),
        replication_factor=i16(_DEFAULT if replication_factor is None else replication_factor),
        assignments=assignments,
        configs=tuple(
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ),
    )
    request = CreateTopicsRequest(
        topics=(topic,), timeout=duration_i32(_TIMEOUT_MS), validate_only=False
    )
    result = _patiently(lambda: connection.ask(request).topics[0])
    if if_not_exists and int(result.error_code) == ErrorCode.TOPIC_ALREADY_EXISTS:
        return None
    _fail_on(name, result)
    topic_id = str(from_kio_uuid(result.topic_id))
    return Created(name, topic_id, int(result.num_partitions), int(result.replication_factor))


def delete_topic(connection: Connection, name: str) -> None:
    from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
    from kio.schema.types import TopicName

    request = DeleteTopicsRequest(
        topics=(DeleteTopicState(name=TopicName(name), topic_id=None),),
        timeout=duration_i32(_TIMEOUT_MS),
    )
    _fail_on(name, _patiently(lambda: connection.ask(request).responses[0]))


def add_partitions(
    connection: Connection, name: str, count: int, assignment: Assignment | None
) -> None:
    """``assignment`` is that of all partitions; those that exist keep theirs."""
    from kio.schema.create_partitions.v3.request import (
        CreatePartitionsAssignment,
        CreatePartitionsRequest,
        CreatePartitionsTopic,
    )
    from kio.schema.types import BrokerId, TopicName
    from kio.static.primitive import i32

    assignments = None
    if assignment is not None:
        (topic,) = describe_topics(connection, [name])
        assignments = tuple(
            CreatePartitionsAssignment(broker_ids=tuple(BrokerId(node) for node in nodes))
            for nodes in assignment[len(topic.partitions) :]
        )
    topic_request = CreatePartitionsTopic(
        name=TopicName(name), count=i32(count), assignments=assignments
    )
    request = CreatePartitionsRequest(
        topics=(topic_request,), timeout=duration_i32(_TIMEOUT_MS), validate_only=False
    )
    _fail_on(name, _patiently(lambda: connection.ask(request).results[0]))


def alter_configs(
    connection: Connection, name: str, configs: Mapping[str, str], deleted: Sequence[str]
) -> None:
    from kio.schema.incremental_alter_configs.v1.request import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )
    from kio.static.primitive import i8

    changes = [
        AlterableConfig(name=key, config_operation=i8(_SET), value=value)
        for key, value in configs.items()
    ]
    changes += [
        AlterableConfig(name=key, config_operation=i8(_DELETE), value=None) for key in deleted
    ]
    resource = AlterConfigsResource(
        resource_type=i8(TOPIC_RESOURCE), resource_name=name, configs=tuple(changes)
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    _fail_on(name, _patiently(lambda: connection.ask(request).responses[0]))


def _patiently(ask: Callable[[], Any]) -> Any:
    """While controllers elect a leader nothing is decided and nothing is done: ask again."""
    for _ in range(_RETRIES):
        result = ask()
        if int(result.error_code) != ErrorCode.NOT_CONTROLLER:
            return result
        time.sleep(_RETRY_S)
    return result


def _fail_on(name: str, result: Any) -> None:
    code = ErrorCode(int(result.error_code))
    if code != ErrorCode.NONE:
        raise CommandFailed(result.error_message or f"topic {name!r}: {code.message}")
