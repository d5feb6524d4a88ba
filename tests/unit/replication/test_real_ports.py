"""The same shells on a real machine: gRPC, threads and files instead of the simulated ports."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from replica_lab import batch
from scripted_controller import CLUSTER_ID, ScriptedController

from tidelog.controller.decisions.alter_partition import AlterPartitionAnswer, PartitionReport
from tidelog.controller.decisions.directories import AssignmentAnswer, DirectoryAssignment
from tidelog.controller.decisions.outcome import NO_ERROR, ApiError
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.addresses import AddressBook, SocketAddress
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import BrokerEpoch, IncarnationId, NodeId, Uuid
from tidelog.kernel.peers import PeerIdentity
from tidelog.kernel.real.clock import SystemClock
from tidelog.kernel.real.disk import OsDisk
from tidelog.kernel.real.offload import ThreadOffload
from tidelog.kernel.real.peer_server import GrpcPeerServer
from tidelog.kernel.real.peers import GrpcPeers
from tidelog.kernel.real.random import SystemRandom
from tidelog.kernel.settings import Settings
from tidelog.replication.fetch_messages import FETCH
from tidelog.replication.housekeeping import Housekeeping
from tidelog.replication.replicas import ReplicaPorts, ReplicaSet
from tidelog.storage.log_dir import open_directory


class Port:
    def __init__(self, controller: ScriptedController, node: NodeId) -> None:
        self._controller = controller
        self._node = node

    @property
    def epoch(self) -> BrokerEpoch:
        return self._controller.epoch(self._node)

    async def alter_partition(self, reports: Sequence[PartitionReport]) -> AlterPartitionAnswer:
        return self._controller.alter_partition(self._node, self.epoch, reports)

    async def assign_directories(
        self, assignments: Sequence[DirectoryAssignment]
    ) -> AssignmentAnswer:
        return AssignmentAnswer(NO_ERROR)

    async def restarted_empty(self, partition: PartitionRef) -> ApiError:
        return NO_ERROR


class RealNode:
    def __init__(self, node: int, path: Path, book: AddressBook) -> None:
        self.id = NodeId(node)
        incarnation = IncarnationId(Uuid(bytes(15) + bytes([node])))
        identity = PeerIdentity(self.id, CLUSTER_ID, incarnation)
        self.book = book
        self.server = GrpcPeerServer(identity)
        self.peers = GrpcPeers(identity, book)
        self.disk = OsDisk()
        self.directory = open_directory(
            self.disk, str(path / str(node)), SystemRandom(), cluster_id=CLUSTER_ID,
            node_id=self.id,
        )  # fmt: skip

    async def start(self, controller: ScriptedController) -> None:
        port = Port(controller, self.id)
        ports = ReplicaPorts(
            self.id, SystemClock(), self.disk, ThreadOffload(2), self.peers, port,
            lambda: port.epoch,
        )  # fmt: skip
        settings = Settings.of({"min.insync.replicas": "2"})
        self.replicas = ReplicaSet(ports, [self.directory], settings)
        await self.replicas.open_logs()
        self.replicas.start()
        self.server.on_stream(FETCH, self.replicas.fetch_service.serve)
        self.book.learn(self.id, await self.server.start(SocketAddress("127.0.0.1", 0)))
        self.keeping = asyncio.create_task(Housekeeping(self.replicas).run())

    async def close(self) -> None:
        self.keeping.cancel()
        await asyncio.gather(self.keeping, return_exceptions=True)
        await self.replicas.close()
        await self.peers.close()
        await self.server.close()
        assert self.replicas.close_directories()


async def replicate(path: Path) -> None:
    controller, book = ScriptedController(min_insync_replicas="2"), AddressBook()
    nodes = [RealNode(i, path, book) for i in (1, 2, 3)]
    for node in nodes:
        controller.register(node.id, node.directory.directory_id)
        controller.unfence(node.id)
        await node.start(controller)
    ref = controller.create("t", (1, 2, 3), max_message_bytes=str(4 << 20))
    for node in nodes:
        for delta in controller.deltas:
            node.replicas.apply(delta)
        await node.replicas.settled()
    leader = nodes[0].replicas.partitions[ref]
    for i in range(20):
        produced = await leader.append(batch(f"v{i}"), acks=-1, timeout_ms=20_000)
        assert (produced.code, produced.base_offset) == (ErrorCode.NONE, i)
    big = [leader.append(batch("x" * (3 << 20)), acks=-1, timeout_ms=20_000) for _ in range(4)]
    assert {(await future).code for future in big} == {ErrorCode.NONE}
    ends = {node.replicas.partitions[ref].log.flushed_end for node in nodes}
    assert ends == {24}
    for node in nodes:
        await node.close()


def test_replication_over_grpc(tmp_path: Path) -> None:
    asyncio.run(replicate(tmp_path))
