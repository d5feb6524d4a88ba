"""What a node knows of itself, as values: for the metrics, and for the JSON of ``/v1``.

``NodeView`` is all that either of them sees of a node; ``node_facts`` reads a real one, tests
pretend one. Everything is read on the event loop and nothing awaits, so what one call returns
belongs together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidelog.broker.metrics.requests import RequestMeters
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.quorum.meters import QuorumMeters
from tidelog.controller.raft.node import QuorumStatus
from tidelog.controller.service.meters import ControllerMeters
from tidelog.coordinator.classic.history import Rebalance
from tidelog.kernel.meters import Spread
from tidelog.replication.meters import TopicMeters
from tidelog.storage.cleaner.plan import Reason


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a node does what it is there for; if not, every reason why."""

    reasons: tuple[str, ...] = ()

    @property
    def is_ready(self) -> bool:
        return not self.reasons


@dataclass(frozen=True, slots=True)
class FollowerFacts:
    """A follower as its leader sees it; ``lag`` counts records that it has not flushed."""

    node_id: int
    lag: int
    is_in_sync: bool


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """One replica on this node."""

    topic: str
    partition: int
    role: str
    """leader, follower, offline, or none while there is no leader to follow."""
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int
    is_reassigning: bool
    log_start: int
    high_watermark: int
    last_stable_offset: int
    log_end: int
    flushed_end: int
    size: int
    segments: int
    lag: int = 0
    """Of a follower, in records behind its leader."""
    followers: tuple[FollowerFacts, ...] = ()
    """Of a leader."""
    waiting_produces: int = 0
    has_late_transaction: bool = False
    """One is open that its coordinator should have ended long ago (KIP-664)."""

    @property
    def is_leader(self) -> bool:
        return self.role == "leader"

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class CommittedFacts:
    """An offset of a group; the end is not known of partitions that have no replica here."""

    topic: str
    partition: int
    offset: int
    high_watermark: int | None

    @property
    def lag(self) -> int | None:
        return None if self.high_watermark is None else max(0, self.high_watermark - self.offset)


@dataclass(frozen=True, slots=True)
class GroupFacts:
    group_id: str
    kind: str
    state: str
    members: int
    offsets: tuple[CommittedFacts, ...]


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    path: str
    failure: str | None
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class CompactionFacts:
    """How compaction stands for one replica on this node."""

    partition: int
    role: str
    log_start: int
    log_end: int
    clean_point: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    dirty_ratio: float
    is_due: bool
    is_in_progress: bool
    clean_floor: int
    """Below it tombstones and markers may go when their time is over."""
    reasons: tuple[Reason, ...]
    waits_for: tuple[int, ...] = ()
    """Brokers that have to clean before what has outlived its time may go; a leader knows."""
    last_outcome: str | None = None
    next_horizon_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CleaningFacts:
    """The cleaner of a node, since it started."""

    passes: int
    bytes_read: int
    bytes_written: int
    records_dropped: int
    uncleanable: int
    idle_ms: int | None
    """Since the last pass; None before the first."""
    waits_for: Mapping[int, int]
    """In how many partitions led here each broker is waited for."""


class BrokerView(Protocol):
    """The broker role of a node."""

    @property
    def state(self) -> int:
        """Kafka's number of it."""
        ...

    @property
    def connections(self) -> int: ...

    @property
    def requests(self) -> RequestMeters: ...

    @property
    def topics(self) -> TopicMeters: ...

    @property
    def flush_durations_ms(self) -> Spread: ...

    @property
    def waiting_fetches(self) -> int: ...

    @property
    def metadata_offset(self) -> int: ...

    def replicas(self) -> Iterator[ReplicaFacts]: ...

    def groups(self) -> Iterator[GroupFacts]: ...

    def rebalances(self, group_id: str) -> tuple[Rebalance, ...] | None:
        """The last ones of a group, oldest first; None if it is not coordinated here."""
        ...

    def directories(self) -> Sequence[DirectoryFacts]: ...

    @property
    def cleaning(self) -> CleaningFacts: ...

    def compaction(self, topic: str) -> Iterator[CompactionFacts]: ...


class ControllerView(Protocol):
    """The controller role of a node."""

    @property
    def is_active(self) -> bool: ...

    @property
    def image(self) -> MetadataImage: ...

    @property
    def meters(self) -> ControllerMeters: ...

    @property
    def quorum_meters(self) -> QuorumMeters: ...

    @property
    def quorum(self) -> QuorumStatus | None:
        """None while the node starts."""
        ...


class NodeView(Protocol):
    @property
    def node_id(self) -> int: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def roles(self) -> tuple[str, ...]: ...

    @property
    def broker(self) -> BrokerView | None: ...

    @property
    def controller(self) -> ControllerView | None: ...

    @property
    def image(self) -> MetadataImage:
        """The newest metadata that this node has applied."""
        ...

    @property
    def active_controller(self) -> int | None:
        """Who is believed to be active."""
        ...

    @property
    def sync_durations_ms(self) -> Spread | None: ...

    def readiness(self) -> Readiness: ...
