"""Every record of the metadata log.

A record states a fact that a majority of the controllers has agreed on. Type ids below 128 are
those of Kafka's records with the same meaning; ids from 128 on are Tidelog's own. How a record
becomes bytes, and what may change in one without breaking older nodes, is `codec`'s business.

In the records that change something, ``None`` means "as it was".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, TypeAlias

from tidelog.kernel.ids import (
    NO_NODE,
    NO_OFFSET,
    BrokerEpoch,
    DirectoryId,
    IncarnationId,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    ProducerId,
    TopicId,
    Uuid,
)

NodeIds: TypeAlias = tuple[NodeId, ...]
LEADERLESS: Final = NO_NODE
FIRST_LEADER_EPOCH: Final = LeaderEpoch(0)
FIRST_PARTITION_EPOCH: Final = PartitionEpoch(0)


class LeaderRecovery(IntEnum):
    """Whether a leader may still have to repair what an unclean election broke."""

    RECOVERED = 0
    RECOVERING = 1


class ResourceType(IntEnum):
    """What a configuration belongs to; the numbers are those of the protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


CLUSTER_DEFAULT: Final = ""
"""The name of the BROKER resource that stands for all brokers."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a listener of a node can be reached."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class FeatureRange:
    """The levels of a feature that a node can run."""

    name: str
    min_level: int
    max_level: int


@dataclass(frozen=True, slots=True)
class SuspectReplica:
    """A replica whose recovery cut off bytes that may have been acknowledged (hazard 41)."""

    broker: NodeId
    last_epoch: LeaderEpoch
    end: Offset


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """One part of whom a quota is for; no name stands for the default of the type."""

    entity_type: str
    entity_name: str | None = None


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    type_id: ClassVar[int] = 0
    version: ClassVar[int] = 0
    broker_id: NodeId
    incarnation_id: IncarnationId
    broker_epoch: BrokerEpoch
    endpoints: tuple[Endpoint, ...] = ()
    features: tuple[FeatureRange, ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    controlled_shutdown_at: Offset = NO_OFFSET
    log_dirs: tuple[DirectoryId, ...] = ()
    peer_endpoint: Endpoint | None = None
    """Where other nodes reach this one over gRPC."""


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    type_id: ClassVar[int] = 1
    version: ClassVar[int] = 0
    broker_id: NodeId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class Topic:
    type_id: ClassVar[int] = 2
    version: ClassVar[int] = 0
    name: str
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class Partition:
    """A new partition, or, in a snapshot, all there is to know about one."""

    type_id: ClassVar[int] = 3
    version: ClassVar[int] = 0
    topic_id: TopicId
    partition: PartitionIndex
    replicas: NodeIds
    isr: NodeIds
    leader: NodeId
    leader_epoch: LeaderEpoch = FIRST_LEADER_EPOCH
    partition_epoch: PartitionEpoch = FIRST_PARTITION_EPOCH
    directories: tuple[DirectoryId, ...] = ()
    removing: NodeIds = ()
    adding: NodeIds = ()
    elr: NodeIds = ()
    last_known_elr: NodeIds = ()
    leader_recovery: int = LeaderRecovery.RECOVERED.value
    suspects: tuple[SuspectReplica, ...] = ()
    restarts_empty: NodeIds = ()


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration value of a resource; no value takes it back."""

    type_id: ClassVar[int] = 4
    version: ClassVar[int] = 0
    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """Changes some of a partition. A ``leader`` given bumps the leader epoch, even if it is
    the same one; the partition epoch is always bumped."""

    type_id: ClassVar[int] = 5
    version: ClassVar[int] = 0
    topic_id: TopicId
    partition: PartitionIndex
    isr: NodeIds | None = None
    leader: NodeId | None = None
    replicas: NodeIds | None = None
    removing: NodeIds | None = None
    adding: NodeIds | None = None
    leader_recovery: int | None = None
    elr: NodeIds | None = None
    last_known_elr: NodeIds | None = None
    directories: tuple[DirectoryId, ...] | None = None
    suspects: tuple[SuspectReplica, ...] | None = None


@dataclass(frozen=True, slots=True)
class RemoveTopic:
    """The only reason for which a topic's data is deleted (hazard 15)."""

    type_id: ClassVar[int] = 9
    version: ClassVar[int] = 0
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class UserScramCredential:
    type_id: ClassVar[int] = 11
    version: ClassVar[int] = 0
    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class FeatureLevel:
    type_id: ClassVar[int] = 12
    version: ClassVar[int] = 0
    name: str
    level: int


@dataclass(frozen=True, slots=True)
class ClientQuota:
    type_id: ClassVar[int] = 14
    version: ClassVar[int] = 0
    entity: tuple[QuotaEntity, ...]
    key: str
    value: float
    remove: bool = False


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """All producer ids below ``next_producer_id`` have been handed out."""

    type_id: ClassVar[int] = 15
    version: ClassVar[int] = 0
    broker_id: NodeId
    broker_epoch: BrokerEpoch
    next_producer_id: ProducerId


@dataclass(frozen=True, slots=True)
class BrokerRegistrationChange:
    type_id: ClassVar[int] = 17
    version: ClassVar[int] = 0
    broker_id: NodeId
    broker_epoch: BrokerEpoch
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    log_dirs: tuple[DirectoryId, ...] | None = None


@dataclass(frozen=True, slots=True)
class AccessControlEntry:
    type_id: ClassVar[int] = 18
    version: ClassVar[int] = 0
    id: Uuid
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class RemoveAccessControlEntry:
    type_id: ClassVar[int] = 19
    version: ClassVar[int] = 0
    id: Uuid


@dataclass(frozen=True, slots=True)
class NoOp:
    """Keeps the log moving, so that a silent leader can be told from an idle one."""

    type_id: ClassVar[int] = 20
    version: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class RemoveUserScramCredential:
    type_id: ClassVar[int] = 22
    version: ClassVar[int] = 0
    name: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class RegisterController:
    type_id: ClassVar[int] = 27
    version: ClassVar[int] = 0
    controller_id: NodeId
    incarnation_id: IncarnationId
    endpoints: tuple[Endpoint, ...] = ()
    features: tuple[FeatureRange, ...] = ()


@dataclass(frozen=True, slots=True)
class ClearElr:
    """Forgets the eligible replicas of a topic, or of all topics when the name is empty.

    It follows a change of min.insync.replicas: a smaller ISR may then advance the high watermark
    past what eligible replicas hold. Where the ISR is empty nobody can advance anything, so there
    the eligible replicas keep their place.
    """

    type_id: ClassVar[int] = 28
    version: ClassVar[int] = 0
    topic_name: str


@dataclass(frozen=True, slots=True)
class ReplicaRestartsEmpty:
    """This replica must discard its log before it takes part again; ``emptied`` says it has.

    A replica that missed the removal of tombstones would bring deleted keys back (hazard 23).
    """

    type_id: ClassVar[int] = 128
    version: ClassVar[int] = 0
    topic_id: TopicId
    partition: PartitionIndex
    broker: NodeId
    emptied: bool = False


@dataclass(frozen=True, slots=True)
class EndOfImage:
    """The last record of a snapshot; its counts show that nothing before it is missing."""

    type_id: ClassVar[int] = 129
    version: ClassVar[int] = 0
    records: int
    topics: int
    partitions: int
    brokers: int


MetadataRecord: TypeAlias = (
    RegisterBroker
    | UnregisterBroker
    | Topic
    | Partition
    | Config
    | PartitionChange
    | RemoveTopic
    | UserScramCredential
    | FeatureLevel
    | ClientQuota
    | ProducerIds
    | BrokerRegistrationChange
    | AccessControlEntry
    | RemoveAccessControlEntry
    | NoOp
    | RemoveUserScramCredential
    | RegisterController
    | ClearElr
    | ReplicaRestartsEmpty
    | EndOfImage
)
