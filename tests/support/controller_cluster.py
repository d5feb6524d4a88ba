"""Controllers and brokers on a simulated network, with a quorum that does as the test says.

The quorum has one log and no disk. It commits at once, or when told to, or never; elections happen
by word of command. Every election puts a record of the quorum's own into the log, which controllers
are not shown, so that offsets have gaps as they really do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tidelog.controller.client.controller_client import ControllerClient
from tidelog.controller.client.lifecycle import BrokerState
from tidelog.controller.decisions.policy import SUPPORTED_FEATURES, ControllerPolicy
from tidelog.controller.decisions.registration import RegistrationRequest
from tidelog.controller.metadata.records import (
    BrokerRegistrationChange,
    Endpoint,
    FeatureRange,
    MetadataRecord,
)
from tidelog.controller.quorum.interface import (
    CommittedBatch,
    NotController,
    Proposal,
    QuorumOverloaded,
    QuorumStatus,
    ReplicaStatus,
)
from tidelog.controller.raft.model import ReplicaKey, Term
from tidelog.controller.service.controller import Controller
from tidelog.controller.service.node import ControllerService
from tidelog.kernel.addresses import AddressBook, SocketAddress
from tidelog.kernel.ids import DirectoryId, IncarnationId, NodeId, Offset, Uuid
from tidelog.kernel.peers import CallContext, PeerIdentity
from tidelog.kernel.settings import Settings
from tidelog.simulation import SimNetwork, SimPeers, SimPeerServer, World, run_simulation
from tidelog.simulation.processes import SimProcess

T = TypeVar("T")
CLUSTER_ID = "0123456789abcdefghijkl"
FEATURES = tuple(FeatureRange(n, low, high) for n, (low, high) in SUPPORTED_FEATURES.items())
PORT = 9093


def node(number: int) -> NodeId:
    return NodeId(number)


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def directory(number: int) -> DirectoryId:
    return DirectoryId(uuid(number))


def context_of(number: int, cluster_id: str = CLUSTER_ID) -> CallContext:
    identity = PeerIdentity(node(number), cluster_id, IncarnationId(uuid(number)))
    return CallContext(identity, "sim")


class FakeQuorum:
    """One member, as its controller sees it."""

    def __init__(self, log: QuorumLog, node_id: NodeId, machine: Controller) -> None:
        self.log = log
        self.node_id = node_id
        self.machine = machine
        self.applied = 0
        self.changes: list[tuple[str, ReplicaKey]] = []

    @property
    def leader_id(self) -> NodeId | None:
        return self.log.leader

    @property
    def term(self) -> Term:
        return Term(self.log.term)

    @property
    def is_active(self) -> bool:
        return self.log.leader == self.node_id

    @property
    def high_watermark(self) -> Offset:
        return self.log.high_watermark

    def propose(self, records: Sequence[MetadataRecord]) -> Proposal:
        if not self.is_active:
            raise NotController(self.leader_id, f"node {self.node_id} does not lead")
        if self.log.is_overloaded:
            raise QuorumOverloaded("too much is uncommitted")
        return self.log.append(tuple(records))

    def status(self) -> QuorumStatus:
        rows = tuple(
            ReplicaStatus(ReplicaKey(n, directory(n)), True, self.high_watermark, 0, 1, 1)
            for n in sorted(self.log.members)
        )
        return QuorumStatus(self.leader_id, self.term, self.high_watermark, rows)

    async def add_voter(self, voter: ReplicaKey) -> None:
        self.changes.append(("add", voter))

    async def remove_voter(self, voter: ReplicaKey) -> None:
        self.changes.append(("remove", voter))

    async def transfer_leadership(self, target: NodeId | None) -> None:
        self.log.elect(target)

    def catch_up(self) -> None:
        while self.applied < len(self.log.committed):
            batch = self.log.committed[self.applied]
            self.applied += 1
            self.machine.apply(batch)


@dataclass(slots=True)
class QuorumLog:
    """What the members agree on. ``follower_delay_s`` is how much later followers apply."""

    follower_delay_s: float = 0.005
    leader: NodeId | None = None
    term: int = 0
    end: Offset = Offset(0)
    high_watermark: Offset = Offset(0)
    commits: bool = True
    is_overloaded: bool = False
    members: dict[NodeId, FakeQuorum] = field(default_factory=dict)
    committed: list[CommittedBatch] = field(default_factory=list)
    uncommitted: list[tuple[CommittedBatch, asyncio.Future[None]]] = field(default_factory=list)

    def join(self, controller: Controller) -> FakeQuorum:
        member = FakeQuorum(self, controller.node_id, controller)
        self.members[controller.node_id] = member
        controller.attach(member)
        member.catch_up()
        return member

    def append(self, records: tuple[MetadataRecord, ...]) -> Proposal:
        base, self.end = self.end, Offset(self.end + len(records))
        last = Offset(self.end - 1)
        batch = CommittedBatch(base, last, Term(self.term), records)
        committed = asyncio.get_running_loop().create_future()
        self.uncommitted.append((batch, committed))
        if self.commits:
            asyncio.get_running_loop().call_soon(self.commit_all)
        return Proposal(base, last, Term(self.term), committed)

    def commit_all(self) -> None:
        waiting, self.uncommitted = self.uncommitted, []
        for batch, future in waiting:
            self.committed.append(batch)
            self.high_watermark = Offset(batch.last_offset + 1)
            if self.leader in self.members:
                self.members[self.leader].catch_up()
            if not future.done():
                future.set_result(None)
        for member in self.members.values():
            if member.node_id != self.leader:
                asyncio.get_running_loop().call_later(self.follower_delay_s, member.catch_up)

    def hold(self) -> None:
        self.commits = False

    def release(self) -> None:
        self.commits = True
        self.commit_all()

    def depose(self, *, keep_uncommitted: bool = False) -> None:
        """Nobody leads. What is uncommitted is lost, or the next leader's to commit."""
        old, self.leader = self.leader, None
        waiting, self.uncommitted = self.uncommitted, []
        if keep_uncommitted:
            self.committed += [batch for batch, _ in waiting]
        for _, future in waiting:
            future.set_exception(NotController(None, "leadership was lost"))
            future.exception()
        if old in self.members:
            self.members[old].machine.became_standby()

    def elect(self, leader: NodeId | None) -> None:
        if self.leader is not None:
            self.depose()
        self.leader = leader
        if leader is None:
            return
        self.term += 1
        last = self.committed[-1].last_offset if self.committed else -1
        self.end = self.high_watermark = Offset(max(self.high_watermark, last + 1) + 1)
        member = self.members[leader]
        member.catch_up()
        member.machine.became_active(Term(self.term))


class SimController:
    """A controller node: its process, its state machine and its server."""

    def __init__(self, cluster: SimCluster, number: int) -> None:
        self.number = node(number)
        self.process: SimProcess = cluster.network.boot(number)
        self.halted: list[str] = []
        policy = ControllerPolicy(CLUSTER_ID, self.number, cluster.settings)
        self.controller = Controller(
            policy,
            clock=cluster.world.clock,
            random=cluster.world.random.fork(f"controller {number}"),
            halt=lambda why, error: self.halted.append(f"{why}: {error}"),
        )
        self.service = ControllerService(self.controller)
        identity = PeerIdentity(self.number, CLUSTER_ID, IncarnationId(uuid(100 + number)))
        self.server = SimPeerServer(cluster.network, self.process, identity)

    async def start(self) -> None:
        self.service.serve(self.server)
        await self.server.start(SocketAddress(f"node-{self.number}", PORT))
        self.process.start(self.service.run())


class SimBroker:
    """A broker without logs: what it has of a client, and nothing behind it."""

    def __init__(
        self, cluster: SimCluster, number: int, incarnation: int, host: str | None = None
    ) -> None:
        self.number = number
        self.cluster = cluster
        self.process = cluster.network.boot(host or number)
        self.incarnation = IncarnationId(uuid(1000 * number + incarnation))
        identity = PeerIdentity(node(number), CLUSTER_ID, self.incarnation)
        addresses = AddressBook(
            voters={node(n): SocketAddress(f"node-{n}", PORT) for n in cluster.controller_ids}
        )
        self.peers = SimPeers(cluster.network, self.process, identity, addresses)
        self.client = ControllerClient(
            node(number),
            peers=self.peers,
            controllers=[node(n) for n in cluster.controller_ids],
            clock=cluster.world.clock,
            random=cluster.world.random.fork(f"broker {number}/{incarnation}"),
            settings=cluster.settings,
        )

    def request(self, **changes: object) -> RegistrationRequest:
        values: dict[str, object] = {
            "broker_id": node(self.number),
            "cluster_id": CLUSTER_ID,
            "incarnation_id": self.incarnation,
            "log_dirs": (directory(self.number),),
            "endpoints": (Endpoint("PLAINTEXT", f"node-{self.number}", 9092),),
            "features": FEATURES,
        }
        return RegistrationRequest(**(values | changes))  # type: ignore[arg-type]

    def run(self) -> asyncio.Task[None]:
        return self.process.start(self.client.run(), name=f"client of broker {self.number}")

    async def begin(self) -> None:
        """Start, register, become ready; return when it runs."""
        self.run()
        await self.process.start(self._begin())

    async def _begin(self) -> None:
        epoch = await self.client.register(self.request())
        await self.client.feed.wait_for(lambda image: image.offset >= epoch)
        self.client.become_ready()
        await self.client.wait_for_state(BrokerState.RUNNING)


class SimCluster:
    """Controllers have the numbers from 1 on, brokers those from 11 on."""

    def __init__(self, world: World, controllers: int = 3, **settings: str) -> None:
        values = {name.replace("_", "."): value for name, value in settings.items()}
        self.world = world
        self.settings = Settings.of(values)
        self.network = SimNetwork(world)
        self.controller_ids = tuple(range(1, controllers + 1))
        self.log = QuorumLog()
        self.controllers: dict[int, SimController] = {}
        self.brokers: dict[int, SimBroker] = {}
        self._incarnations = 0

    async def start(self, *brokers: int, leader: int = 1) -> None:
        for number in self.controller_ids:
            await self.start_controller(number)
        self.log.elect(node(leader))
        await asyncio.gather(*(self.start_broker(number) for number in brokers))

    async def start_controller(self, number: int) -> SimController:
        made = self.controllers[number] = SimController(self, number)
        self.log.join(made.controller)
        await made.start()
        return made

    def new_broker(self, number: int, host: str | None = None) -> SimBroker:
        self._incarnations += 1
        made = self.brokers[number] = SimBroker(self, number, self._incarnations, host)
        return made

    async def start_broker(self, number: int) -> SimBroker:
        broker = self.new_broker(number)
        await broker.begin()
        return broker

    async def kill_controller(self, number: int, *, leader: int | None = None) -> None:
        """Kill it; what it had not committed is lost. ``leader`` is elected next."""
        if self.log.leader == number:
            self.log.depose()
        del self.log.members[node(number)]
        await self.network.kill(number)
        if leader is not None:
            self.log.elect(node(leader))

    @property
    def active(self) -> Controller:
        assert self.log.leader is not None
        return self.log.members[self.log.leader].machine

    def is_fenced(self, broker: int) -> bool:
        return self.active.committed.brokers[node(broker)].fenced

    @property
    def records(self) -> list[MetadataRecord]:
        """All that was ever committed."""
        return [record for batch in self.log.committed for record in batch.records]

    @property
    def fencings(self) -> list[int]:
        """Brokers that were fenced after they had been unfenced, in order."""
        return [
            record.broker_id
            for record in self.records
            if isinstance(record, BrokerRegistrationChange) and record.fenced
        ]

    def now_ms(self) -> float:
        return self.world.loop.elapsed_ms()

    async def until(self, condition: Callable[[], bool], *, within_ms: float) -> float:
        """Wait for a condition; how long it took, in milliseconds."""
        start_ms = self.now_ms()
        while not condition():
            assert self.now_ms() - start_ms <= within_ms, f"not within {within_ms} ms"
            await asyncio.sleep(0.005)
        return self.now_ms() - start_ms


def simulate(
    scenario: Callable[[SimCluster], Awaitable[T]],
    *,
    seed: int = 1,
    controllers: int = 3,
    **settings: str,
) -> T:
    """Run a scenario on a cluster that is not started yet."""

    async def main(world: World) -> T:
        return await scenario(SimCluster(world, controllers, **settings))

    return run_simulation(main, seed, time_limit_s=4000)
