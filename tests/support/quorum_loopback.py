"""Members of the metadata quorum in one process on loopback: real gRPC, real files, real fsync."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quorum_cluster import HistoryMachine, Truth, record

from tidelog.controller.quorum import NotController, Quorum, QuorumPorts, QuorumSettings
from tidelog.controller.raft.model import Identity, ReplicaKey
from tidelog.kernel.addresses import AddressBook, SocketAddress
from tidelog.kernel.ids import DirectoryId, IncarnationId, NodeId, Offset, Uuid
from tidelog.kernel.peers import PeerIdentity
from tidelog.kernel.real import OsDisk, SystemClock, SystemRandom, ThreadOffload
from tidelog.kernel.real.peer_server import GrpcPeerServer
from tidelog.kernel.real.peers import GrpcPeers
from tidelog.storage.names import META_PROPERTIES
from tidelog.storage.node_files import MetaProperties, write_meta_properties

CLUSTER_ID = "BBBBBBBBBBBBBBBBBBBBBA"
LOOPBACK = SocketAddress("127.0.0.1", 0)


@dataclass(slots=True)
class LoopbackMember:
    node_id: NodeId
    quorum: Quorum
    machine: HistoryMachine
    peers: GrpcPeers
    server: GrpcPeerServer
    offload: ThreadOffload
    fatal: list[BaseException] = field(default_factory=list)

    async def close(self, *, is_orderly: bool = True) -> None:
        """Without order as if killed: nobody is told, and the connections break."""
        if is_orderly:
            await self.quorum.close()
        else:
            self.quorum._end_all("killed")
        await self.peers.close()
        await self.server.close()
        self.offload.close()


class LoopbackCluster:
    def __init__(
        self,
        root: Path,
        node_ids: Sequence[int] = (1, 2, 3),
        settings: QuorumSettings | None = None,
    ) -> None:
        self._root = root
        self._settings = settings or QuorumSettings()
        self._addresses: dict[NodeId, SocketAddress] = {}
        self._voters = tuple(NodeId(node) for node in node_ids)
        self.truth = Truth()
        self.members: dict[NodeId, LoopbackMember] = {}
        disk = OsDisk()
        for node in self._voters:
            disk.make_dirs(self._path(node))
            meta = MetaProperties(CLUSTER_ID, node, self.key(node).directory_id)
            write_meta_properties(disk, f"{self._path(node)}/{META_PROPERTIES}", meta)

    def _path(self, node: NodeId) -> str:
        return str(self._root / f"node-{node}")

    def key(self, node: int) -> ReplicaKey:
        return ReplicaKey(NodeId(node), DirectoryId(Uuid(bytes([node] * 16))))

    async def start(self, *nodes: int) -> None:
        """Bind all servers before any member dials."""
        started = [await self._open(NodeId(node)) for node in nodes or self._voters]
        for member in started:
            member.quorum.start(member.machine)

    async def _open(self, node: NodeId) -> LoopbackMember:
        random = SystemRandom()
        who = PeerIdentity(node, CLUSTER_ID, IncarnationId(Uuid(random.randbytes(16))))
        peers, offload = GrpcPeers(who, AddressBook(self._addresses)), ThreadOffload(3)
        ports = QuorumPorts(SystemClock(), random, OsDisk(), offload, peers)
        identity = Identity(self.key(node), CLUSTER_ID, self._voters)
        fatal: list[BaseException] = []
        quorum = await Quorum.open(self._path(node), identity, self._settings, ports, fatal.append)
        server = GrpcPeerServer(who)
        quorum.serve(server)
        address = self._addresses.get(node, LOOPBACK)
        self._addresses[node] = await server.start(address)
        machine = HistoryMachine(node, self.truth)
        member = LoopbackMember(node, quorum, machine, peers, server, offload, fatal)
        self.members[node] = member
        return member

    async def kill(self, node: int) -> None:
        await self.members.pop(NodeId(node)).close(is_orderly=False)

    async def close(self) -> None:
        for member in list(self.members.values()):
            await member.close()
        self.members.clear()

    async def until(self, condition: Callable[[], object], timeout_s: float = 20.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - conditions span all members
                await asyncio.sleep(0.002)

    @property
    def active(self) -> LoopbackMember | None:
        active = [member for member in self.members.values() if member.quorum.is_active]
        return max(active, key=lambda member: member.quorum.term, default=None)

    async def propose(self, name: str, count: int = 1) -> Offset:
        while True:
            await self.until(lambda: self.active)
            member = self.active
            assert member is not None
            try:
                batch = [record(f"{name}.{number}", 0) for number in range(count)]
                proposal = member.quorum.propose(batch)
                await proposal.committed
            except NotController:
                continue
            return proposal.last_offset
