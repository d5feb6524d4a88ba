"""A node that is not there, as the metrics and the HTTP side see nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from immutables import Map

from tidelog.broker.metrics.facts import (
    CleaningFacts,
    CommittedFacts,
    CompactionFacts,
    DirectoryFacts,
    FollowerFacts,
    GroupFacts,
    Readiness,
    ReplicaFacts,
)
from tidelog.broker.metrics.requests import RequestMeters
from tidelog.controller.metadata.brokers import BrokerRegistration
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import UNASSIGNED, PartitionRef, PartitionState
from tidelog.controller.metadata.records import Endpoint
from tidelog.controller.metadata.topics import TopicsImage
from tidelog.controller.quorum.meters import QuorumMeters
from tidelog.controller.raft.model import ReplicaKey, Term, Voters
from tidelog.controller.raft.node import QuorumStatus, ReplicaStatus
from tidelog.controller.raft.roles import Role
from tidelog.controller.service.meters import ControllerMeters
from tidelog.coordinator.classic.history import Cause, CauseKind, Rebalance
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    NO_OFFSET,
    BrokerEpoch,
    DirectoryId,
    IncarnationId,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    TopicId,
    Uuid,
)
from tidelog.kernel.meters import Spread
from tidelog.replication.meters import TopicMeters
from tidelog.storage.cleaner.plan import Hold, Reason
from tidelog.wire.protocol.apis import APIS, ApiKey

ZERO = Uuid(bytes(16))


def replica(topic: str, partition: int, role: str = "leader", isr: int = 3) -> ReplicaFacts:
    return ReplicaFacts(
        topic, partition, role, 1, 4, (1, 2, 3), (1, 2, 3)[:isr], 2, False,
        log_start=10, high_watermark=90, last_stable_offset=80, log_end=100, flushed_end=100,
        size=12345, segments=2, lag=5 if role == "follower" else 0,
        followers=(FollowerFacts(2, 0, True), FollowerFacts(3, 7, isr == 3))
        if role == "leader" else (),
        waiting_produces=1, has_late_transaction=isr == 2,
    )  # fmt: skip


def group(name: str) -> GroupFacts:
    offsets = (CommittedFacts("t", 0, 70, 90), CommittedFacts("far", 0, 5, None))
    return GroupFacts(name, "classic", "Stable", 2, offsets)


def meters() -> tuple[RequestMeters, TopicMeters]:
    requests, topics = RequestMeters(), TopicMeters()
    for key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA):
        requests.of(APIS[key]).answered(3.0, 100)
    requests.failed(APIS[ApiKey.PRODUCE], ErrorCode.NOT_ENOUGH_REPLICAS)
    topics.of("t").bytes_in += 1000
    topics.of('odd"name').messages_in += 3
    return requests, topics


class PretendedBroker:
    state = 3
    connections = 4
    waiting_fetches = 2
    metadata_offset = 77

    def __init__(self, held: Sequence[ReplicaFacts], groups: Sequence[GroupFacts]) -> None:
        self.held = held
        self.coordinated = groups
        self.requests, self.topics = meters()
        self.flush_durations_ms = Spread()
        self.flush_durations_ms.observe(2.0)

    def replicas(self) -> Iterator[ReplicaFacts]:
        return iter(self.held)

    def groups(self) -> Iterator[GroupFacts]:
        return iter(self.coordinated)

    def rebalances(self, group_id: str) -> tuple[Rebalance, ...] | None:
        if group_id not in {one.group_id for one in self.coordinated}:
            return None
        cause = Cause(5, CauseKind.JOINED, "m-1")
        return (Rebalance(5, [cause], 0, 3, "m-1", ("m-0",), 9, 11), Rebalance(20, [cause]))

    cleaning = CleaningFacts(3, 1000, 400, 60, 1, 5, {2: 1})

    def compaction(self, topic: str) -> Iterator[CompactionFacts]:
        reasons = (
            Reason(Hold.BELOW_RATIO, None, "0.25, must be above 0.50", "min.cleanable.dirty.ratio"),
            Reason(Hold.ACTIVE_SEGMENT, Offset(80), "77 bytes", "segment.ms"),
        )
        yield CompactionFacts(
            0, "leader", 0, 100, 40, 80, 300, 100, 0.25, False, False, 40, reasons, (2,), "cleaned"
        )

    def directories(self) -> Sequence[DirectoryFacts]:
        return [
            DirectoryFacts("/data/a", None, 5_000, 10_000),
            DirectoryFacts("/data/b", "it broke", 0, 0),
        ]


class PretendedController:
    is_active = True

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.meters = ControllerMeters()
        self.quorum_meters = QuorumMeters(0.0)
        self.quorum_meters.leader_changed(20.0, NodeId(1))
        keys = [ReplicaKey(NodeId(n), DirectoryId(ZERO)) for n in (1, 2, 3)]
        self.quorum: QuorumStatus | None = QuorumStatus(
            Role.LEADER, Term(2), keys[0], NodeId(1), Voters.of(keys), Offset(0), Offset(78),
            Offset(78), Offset(78), None,
            tuple(ReplicaStatus(key, True, Offset(70), 12.0) for key in keys[1:]),
        )  # fmt: skip


def pretended_image() -> MetadataImage:
    brokers = {
        NodeId(n): BrokerRegistration(
            NodeId(n), IncarnationId(ZERO), BrokerEpoch(n), (Endpoint("PLAINTEXT", "h", 9090 + n),),
            (), "r1" if n == 1 else None, n == 3, False, NO_OFFSET, (), None,
        )
        for n in (1, 2, 3)
    }  # fmt: skip
    state = PartitionState(
        (NodeId(1), NodeId(2)), (NodeId(1),), NodeId(1), LeaderEpoch(4), PartitionEpoch(9),
        (UNASSIGNED,) * 2,
    )  # fmt: skip
    topic_id = TopicId(Uuid(bytes(15) + b"\7"))
    topics = TopicsImage().with_topic("t", topic_id)
    topics = topics.with_partition(PartitionRef(topic_id, PartitionIndex(0)), state)
    return MetadataImage(Offset(77), brokers=Map(brokers), topics=topics, features=Map({"f": 1}))


@dataclass
class PretendedNode:
    """A ``NodeView`` with both roles; take away what a test does not want."""

    held: Sequence[ReplicaFacts] = (
        replica("t", 0), replica("t", 1, isr=2), replica("t", 2, isr=1),
        replica("t", 3, "follower"), replica("t", 4, "offline"),
    )  # fmt: skip
    coordinated: Sequence[GroupFacts] = (group("g"), group('odd"group'))
    node_id: int = 1
    cluster_id: str = "pretended"
    roles: tuple[str, ...] = ("broker", "controller")
    active_controller: int | None = 1
    reasons: tuple[str, ...] = ()
    image: MetadataImage = field(default_factory=pretended_image)
    broker: PretendedBroker | None = None
    controller: PretendedController | None = None
    sync_durations_ms: Spread | None = field(default_factory=Spread)

    def __post_init__(self) -> None:
        self.broker = PretendedBroker(self.held, self.coordinated)
        self.controller = PretendedController(self.image)

    def readiness(self) -> Readiness:
        return Readiness(self.reasons)
