"""What a node knows of itself, as values: for the metrics, and for the JSON of ``/v1``.

``NodeView`` is all that either of them sees of a node; ``node_facts`` reads a real one, tests
pretend one. Everything is read on the event loop and nothing awaits, so what one call returns
belongs together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
