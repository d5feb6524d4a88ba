"""What clients take and give back: records, positions, and what a cluster says of itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeAlias

from typing_extensions import TypeVar

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)
"""A client that is given no serializer takes bytes, also in the eyes of a type checker."""

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
GivenHeaders: TypeAlias = Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]]


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class RecordMetadata(NamedTuple):
    """Where an acknowledged record is."""

    topic: str
    partition: int
    offset: int
    """−1 if the producer asked for no acknowledgement (``acks=0``)."""
    timestamp_ms: int


class TimestampType(Enum):
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"
    NONE = "NoTimestampType"


class ConsumerRecord(NamedTuple, Generic[K, V]):
    topic: str
    partition: int
    offset: int
    key: K | None
    value: V | None
    """None is a tombstone: no deserializer is asked."""
    headers: Headers
    timestamp_ms: int
    timestamp_type: TimestampType
    leader_epoch: int | None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def by_partition(
    records: Iterable[ConsumerRecord[K, V]],
) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
    """The records of one poll by the partition they come from, in their order."""
    found: dict[TopicPartition, list[ConsumerRecord[K, V]]] = {}
    for record in records:
        found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
    return found


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """The next record a group wants of a partition, and what it noted there."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


GivenOffsets: TypeAlias = Mapping[TopicPartition, "int | OffsetAndMetadata"]


class Edge(Enum):
    """Where a partition begins and ends at the moment somebody seeks there."""

    BEGINNING = "beginning"
    END = "end"


BEGINNING: Final = Edge.BEGINNING
END: Final = Edge.END


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record that is not older than this; the end if there is none."""

    timestamp_ms: int


Position: TypeAlias = int | Edge | AtTime

ConfigValue: TypeAlias = object
"""Of a topic or a broker: text, a number, true or false. To a type checker a dictionary of some of
each is one of objects."""


# --- what an administrator is told -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Node:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    """None if it is sensitive."""
    is_default: bool
    is_read_only: bool
    is_sensitive: bool


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    partition: int
    leader: int | None
    """None while there is none."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]
    configs: Mapping[str, ConfigEntry]


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    controller: int | None
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    assignment: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    state: str
    """Kafka's name in capitals, such as STABLE or EMPTY."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    state: str
    assignor: str
    coordinator: Node | None
    members: tuple[GroupMember, ...] = field(default=())
