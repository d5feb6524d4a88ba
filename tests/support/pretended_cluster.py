"""A cluster for handlers: a real controller that decides, over a quorum that commits at once.

There are no processes and no network. Brokers are there because a record says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controller_cluster import CLUSTER_ID, FEATURES, QuorumLog, directory, uuid

from tidelog.broker.context import (
    BrokerContext,
    ControllerRefused,
    QuorumDescription,
    QuorumMember,
)
from tidelog.controller.client.answers import ForwardedRequest, forward_message
from tidelog.controller.decisions.outcome import ApiError, Decision
from tidelog.controller.decisions.policy import ControllerPolicy
from tidelog.controller.decisions.producer_ids import decide_producer_ids
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import (
    BrokerRegistrationChange,
    Config,
    Endpoint,
    MetadataRecord,
    NoOp,
    Partition,
    RegisterBroker,
    ResourceType,
    Topic,
)
from tidelog.controller.service.controller import Cause, Controller
from tidelog.controller.service.forwarding import Forwarding
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    BrokerEpoch,
    IncarnationId,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    TimestampMs,
    TopicId,
    Uuid,
)
from tidelog.kernel.settings import Settings
from tidelog.simulation import SimRandom, World

_SET_UP = Cause("set the scene", "a test begins")


def address_of(broker: int, listener: str = "PLAINTEXT") -> SocketAddress:
    return SocketAddress(f"{listener.lower()}{broker}", 9090 + broker)


@dataclass(slots=True)
class PretendedCluster:
    """A ``Cluster``; what was asked of it is noted, and it may be made to refuse."""

    controller: Controller
    forwarded: list[ForwardedRequest] = field(default_factory=list)
    timeouts_ms: list[float] = field(default_factory=list)
    refusal: ControllerRefused | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Calls wait for it; open from the start."""
    blocks: int = 0
    cut_off: bool = False

    @property
    def image(self) -> MetadataImage:
        return self.controller.committed

    def is_in_touch(self) -> bool:
        return not self.cut_off

    def is_cut_off(self) -> bool:
        return self.cut_off

    async def forward(self, request: ForwardedRequest, *, timeout_ms: float) -> bytes:
        self.forwarded.append(request)
        await self._asked(timeout_ms)
        answer = await Forwarding(self.controller).handle(forward_message(request))
        if isinstance(answer, ApiError):
            raise ControllerRefused(answer.code, answer.message)
        return answer

    async def allocate_producer_ids(self, *, timeout_ms: float) -> range:
        self.blocks += 1
        await self._asked(timeout_ms)
        broker = self.image.brokers[NodeId(1)]
        block = await self.controller.change(
            _SET_UP, lambda basis: decide_producer_ids(basis.image, broker.broker_id, broker.epoch)
        )
        return range(block.first, block.first + block.size)

    async def describe_quorum(self, *, timeout_ms: float) -> QuorumDescription:
        await self._asked(timeout_ms)
        end = Offset(self.image.offset + 1)
        address = address_of(1, "CONTROLLER")
        member = QuorumMember(NodeId(1), directory(0), end, TimestampMs(7), TimestampMs(8), address)
        return QuorumDescription(NodeId(1), 1, end, (member,))

    async def _asked(self, timeout_ms: float) -> None:
        self.timeouts_ms.append(timeout_ms)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.gate.wait()
        except TimeoutError as late:
            raise ControllerRefused(ErrorCode.REQUEST_TIMED_OUT) from late
        if self.refusal is not None:
            raise self.refusal

    # Setting the scene.

    async def take(self, *records: MetadataRecord) -> None:
        await self.controller.change(_SET_UP, lambda _: Decision(records, None))

    async def start(
        self,
        *brokers: int,
        listeners: Sequence[str] = ("PLAINTEXT",),
        rack: str | None = None,
        fenced: bool = False,
        addresses: Mapping[str, SocketAddress] | None = None,
    ) -> None:
        for broker in brokers:
            told = addresses or {name: address_of(broker, name) for name in listeners}
            await self.take(
                RegisterBroker(
                    NodeId(broker),
                    IncarnationId(uuid(broker)),
                    BrokerEpoch(self.image.offset + 1),
                    tuple(Endpoint(name, at.host, at.port) for name, at in told.items()),
                    FEATURES,
                    rack=rack,
                    fenced=fenced,
                    log_dirs=(directory(100 + broker),),
                )
            )

    async def fence(self, broker: int) -> None:
        epoch = self.image.brokers[NodeId(broker)].epoch
        await self.take(BrokerRegistrationChange(NodeId(broker), epoch, fenced=True))

    async def create(
        self,
        name: str,
        *replicas: tuple[int, ...],
        topic_id: Uuid | None = None,
        leader: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> TopicId:
        """A topic with these replicas of each partition; led by the first, or by ``leader``."""
        chosen = TopicId(topic_id or uuid(0x70_0000 + len(self.image.topics.by_name)))
        partitions = [
            Partition(
                topic_id=chosen,
                partition=PartitionIndex(index),
                replicas=tuple(map(NodeId, nodes)),
                isr=tuple(map(NodeId, nodes)),
                leader=NodeId(nodes[0] if leader is None else leader),
                leader_epoch=LeaderEpoch(0),
                partition_epoch=PartitionEpoch(0),
                directories=tuple(directory(100 + broker) for broker in nodes),
            )
            for index, nodes in enumerate(replicas)
        ]
        settings = [Config(ResourceType.TOPIC, name, k, v) for k, v in (configs or {}).items()]
        await self.take(Topic(name, chosen), *settings, *partitions)
        return chosen


async def pretended_cluster(
    world: World, cluster_id: str = CLUSTER_ID, **settings: str
) -> PretendedCluster:
    """An active controller with nothing to control yet."""
    values = {name.replace("_", "."): value for name, value in settings.items()}
    controller = Controller(
        ControllerPolicy(cluster_id, NodeId(1), Settings.of(values)),
        clock=world.clock,
        random=SimRandom(7),
        halt=_fail,
    )
    log = QuorumLog(follower_delay_s=0)
    log.join(controller)
    log.elect(NodeId(1))
    cluster = PretendedCluster(controller)
    cluster.gate.set()
    await cluster.take(NoOp())  # committed after what the controller began its term with
    return cluster


def _fail(why: str, error: BaseException) -> None:
    raise AssertionError(why) from error


def context_of(
    cluster: PretendedCluster,
    broker: int = 1,
    cluster_id: str = CLUSTER_ID,
    settings: Settings | None = None,
) -> BrokerContext:
    given = cluster.controller.policy.settings if settings is None else settings
    return BrokerContext(NodeId(broker), cluster_id, cluster, given)
