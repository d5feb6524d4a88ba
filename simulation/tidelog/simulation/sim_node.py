"""One node of a simulated cluster: its disk, its clock, and the process that runs on them.

A node's life is that of ``tidelog server``: the identity is read from the disk, the ports are
opened, ``Node`` starts and runs until it fails, is stopped or killed. Only the ports are simulated.
When a node gives up by itself (``NodeFailed``) it is stopped as the real process would be, and its
process ends; ``last_words`` says why.

Owner: the ``SimCluster``, which kills, restarts and replaces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.broker.directories import all_directories, metadata_directory
from tidelog.broker.node import Node, NodeFailed
from tidelog.broker.ports import NodePorts
from tidelog.kernel.addresses import AddressBook, SocketAddress
from tidelog.kernel.ids import ZERO_UUID, DirectoryId, IncarnationId, NodeId, Uuid
from tidelog.kernel.peers import PeerIdentity
from tidelog.kernel.settings import Settings
from tidelog.kernel.settings.checks import endpoints
from tidelog.simulation.clock import SimClock
from tidelog.simulation.disk import SimDisk
from tidelog.simulation.event_loop import World
from tidelog.simulation.network import SimNetwork, host_name
from tidelog.simulation.offload import SimOffload
from tidelog.simulation.processes import SimProcess
from tidelog.simulation.random import SimRandom
from tidelog.simulation.sim_listener import SimListener
from tidelog.simulation.sim_peer_server import SimPeerServer
from tidelog.simulation.sim_peers import SimPeers
from tidelog.storage.format import NotFormatted, format_directories, required_identity
from tidelog.storage.node_files import CorruptNodeFile, InconsistentDirectory

CLUSTER_ID: Final = "U2ltdWxhdGVkQ2x1c3RlcQ"
CLIENT_PORT: Final = 9092
PEER_PORT: Final = 9093


def client_address(node: int) -> SocketAddress:
    return SocketAddress(host_name(node), CLIENT_PORT)


def peer_address(node: int) -> SocketAddress:
    return SocketAddress(host_name(node), PEER_PORT)


class CannotStart(Exception):
    """What lies on the disk does not let the node start."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What a node is started with, every time."""

    node_id: int
    roles: tuple[str, ...]
    settings: Settings
    max_disk_delay_ms: float


def plan_node(
    node_id: int,
    roles: tuple[str, ...],
    voters: tuple[int, ...],
    values: Mapping[str, str],
    max_disk_delay_ms: float,
) -> NodePlan:
    """The settings a configuration file of this node would have."""
    listeners = [f"CONTROLLER://{peer_address(node_id)}"]
    if "broker" in roles:
        listeners.insert(0, f"PLAINTEXT://{client_address(node_id)}")
    told = {
        "process.roles": ",".join(roles),
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(f"{n}@{peer_address(n)}" for n in voters),
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(listeners),
        "log.dirs": "/data/logs",
        "metadata.log.dir": "/data/metadata",
    }
    return NodePlan(node_id, roles, Settings.of({**told, **values}), max_disk_delay_ms)


class SimNode:
    """Made down; ``start`` begins a life."""

    def __init__(self, world: World, network: SimNetwork, plan: NodePlan) -> None:
        self.plan = plan
        self.clock = SimClock(elapsed_ms=world.loop.elapsed_ms)
        self.disk = SimDisk(clock=self.clock)
        self.node: Node | None = None
        """Of the present life, from its first moment on; None while there is none."""
        self.process: SimProcess | None = None
        self.is_serving = False
        self.last_words: str | None = None
        """Why the last life ended by itself; None if it was killed or stopped, or goes on."""
        self.directory_ids: dict[str, DirectoryId] = {}
        """Of the present disk, by path."""
        self._random = world.random.fork(f"node {plan.node_id}")
        self._network = network
        self._endpoints = endpoints(plan.settings)
        self._stop = asyncio.Event()
        self._disks = 0
        self._format()

    @property
    def number(self) -> int:
        return self.plan.node_id

    @property
    def metadata_dir(self) -> str:
        return metadata_directory(self.plan.settings)

    @property
    def metadata_directory_id(self) -> DirectoryId:
        return self.directory_ids.get(self.metadata_dir, DirectoryId(ZERO_UUID))

    def replace_disk(self) -> None:
        """Empty hardware, with the identity of the node and new directory ids."""
        self.disk = SimDisk(clock=self.clock)
        self._format()

    def _format(self) -> None:
        self._disks += 1
        formatted = format_directories(
            self.disk,
            all_directories(self.plan.settings),
            self._random.fork(f"format {self._disks}"),
            cluster_id=CLUSTER_ID,
            node_id=NodeId(self.number),
        )
        self.directory_ids = {one.path: DirectoryId(one.meta.directory_id) for one in formatted}

    # --- life --------------------------------------------------------------------------

    def start(self) -> asyncio.Task[None]:
        """A new life; the task ends when it does, unless it is killed."""
        self.process = self._network.boot(self.number)
        self.node, self.is_serving, self.last_words = None, False, None
        self._stop = asyncio.Event()
        return self.process.start(self._live(self.process), f"life of {self.process.name}")

    def stop(self) -> None:
        """SIGTERM."""
        self._stop.set()

    def end(self) -> None:
        """The process is gone, and what it knew with it."""
        self.node, self.process, self.is_serving = None, None, False

    async def _live(self, process: SimProcess) -> None:
        random = self._random.fork(process.name)
        try:
            identity = self._identity(random)
        except CannotStart as problem:
            self.last_words = str(problem)
            return
        addresses = AddressBook(self._endpoints.voters, self._endpoints.dial_overrides)
        peers = SimPeers(self._network, process, identity, addresses)
        ports = self._ports(process, identity, addresses, peers)
        node = self.node = Node(self.plan.settings, identity, ports)
        try:
            await node.start()
            self.is_serving = True
            await node.run(self._stop)
        except NodeFailed as failure:
            self.last_words = str(failure)
        finally:
            self.is_serving = False
        await node.stop()
        await peers.close()

    def _identity(self, random: SimRandom) -> PeerIdentity:
        try:
            meta = required_identity(self.disk, all_directories(self.plan.settings))
        except (NotFormatted, CorruptNodeFile, InconsistentDirectory, OSError) as problem:
            raise CannotStart(f"cannot start: {problem}") from problem
        incarnation = IncarnationId(Uuid(random.randbytes(16)))
        return PeerIdentity(NodeId(self.number), meta.cluster_id, incarnation)

    def _ports(
        self, process: SimProcess, identity: PeerIdentity, addresses: AddressBook, peers: SimPeers
    ) -> NodePorts:
        random = self._random.fork(f"{process.name} ports")
        offload = SimOffload(
            random.fork("offload"), self.disk.faults, max_delay_ms=self.plan.max_disk_delay_ms
        )
        return NodePorts(
            self.clock,
            random.fork("node"),
            self.disk,
            offload,
            peers,
            SimPeerServer(self._network, process, identity),
            addresses,
            SimListener(self._network, process),
        )
