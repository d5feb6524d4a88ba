"""Chatty nodes and a client under drawn faults; the digest of the trace shows any difference.

Run as ``python network_scenario.py SEED``. It prints how many events there were, their digest,
and how often messages arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence

from tidelog.kernel.addresses import AddressBook, SocketAddress
from tidelog.kernel.ids import IncarnationId, NodeId, Uuid
from tidelog.kernel.listener import ClientConnection, ConnectionLost
from tidelog.kernel.peers import (
    CallContext,
    Lane,
    PeerError,
    PeerIdentity,
    PeerStream,
    Stream,
    Unary,
)
from tidelog.simulation import (
    Budget,
    FaultDriver,
    LinkQuality,
    SimClock,
    SimDisk,
    SimListener,
    SimNetwork,
    SimPeers,
    SimPeerServer,
    World,
    connect_client,
    draw_schedule,
    run_simulation,
)
from tidelog.simulation.faults import DiskOperation
from tidelog.v1.controller_pb2 import ForwardRequest, ForwardResponse
from tidelog.v1.replication_pb2 import FetchRequest, FetchResponse

FORWARD = Unary("/tidelog.v1.Controller/Forward", ForwardRequest, ForwardResponse)
FETCH = Stream("/tidelog.v1.Replication/Fetch", FetchRequest, FetchResponse, Lane.BULK)
NODES = (1, 2, 3)


class ChattyCluster:
    """Nodes without memory: each talks to the others all the time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.network = SimNetwork(world)
        self.clocks = {node: SimClock(elapsed_ms=world.loop.elapsed_ms) for node in NODES}
        self.disks = {node: SimDisk(clock=self.clocks[node]) for node in NODES}
        self.arrived = 0

    async def start(self) -> None:
        for node in NODES:
            await self.restart(node)

    # FaultTarget

    def is_alive(self, node: int) -> bool:
        return self.network.is_alive(node)

    async def kill(self, node: int) -> None:
        self.disks[node] = self.disks[node].kill()
        await self.network.kill(node)

    async def power_loss(self, nodes: Sequence[int]) -> None:
        for node in nodes:
            random = self.network.random.fork(f"power loss {node}")
            self.disks[node] = self.disks[node].power_loss(random)
        await self.network.power_off(*nodes)

    def stop(self, node: int) -> None:
        """These nodes know no good order to end in."""

    def crash_at(self, node: int, nth: int | None, *, is_power_loss: bool) -> None:
        """These nodes use no disk."""

    async def restart(self, node: int) -> None:
        process = self.network.boot(node)
        incarnation = IncarnationId(Uuid(bytes([node, process.incarnation] * 8)))
        identity = PeerIdentity(NodeId(node), "chatty", incarnation)
        server = SimPeerServer(self.network, process, identity)
        server.on_unary(FORWARD, self.forward)
        server.on_stream(FETCH, self.echo)
        await server.start(SocketAddress(f"node-{node}", 9093))
        listener = SimListener(self.network, process)
        await listener.serve("PLAINTEXT", "", 9092, self.echo_bytes)
        book = AddressBook({NodeId(other): SocketAddress(f"node-{other}", 9093) for other in NODES})
        peers = SimPeers(self.network, process, identity, book)
        for other in NODES:
            if other != node:
                process.start(self.chat(peers, NodeId(other)))
                process.start(self.ask(peers, NodeId(other)))

    def pause(self, node: int) -> None:
        self.network.pause(node)

    def resume(self, node: int) -> None:
        self.network.resume(node)

    def cut(self, source: int, target: int) -> None:
        self.network.cut(source, target)

    def mend(self, source: int, target: int) -> None:
        self.network.mend(source, target)

    def set_quality(self, source: int, target: int, quality: LinkQuality | None) -> None:
        self.network.set_quality(source, target, quality)

    def slow_disk(self, node: int, step_delay_ms: float) -> None:
        self.disks[node].faults.step_delay_ms = step_delay_ms

    def stall_disk(self, node: int, is_stalled: bool) -> None:
        self.disks[node].faults.stalled = is_stalled

    def limit_disk(self, node: int, free_bytes: int | None) -> None:
        disk = self.disks[node]
        disk.faults.capacity_bytes = None if free_bytes is None else disk.used_bytes + free_bytes

    def fail_disk(self, node: int, operation: DiskOperation, times: int) -> None:
        self.disks[node].faults.fail(operation, times=times)

    def repair_disk(self, node: int) -> None:
        """These nodes use no disk, so whatever was ordered has not happened."""

    def flip_bit(self, node: int, draw: int) -> None:
        """There are no files."""

    def set_clock_skew(self, node: int, skew_ms: int) -> None:
        self.clocks[node].skew_ms = skew_ms

    # What the nodes do

    async def forward(self, _: CallContext, request: ForwardRequest) -> ForwardResponse:
        self.arrived += 1
        await asyncio.sleep(0.01)
        return ForwardResponse(response=request.request)

    async def echo(self, _: CallContext, stream: PeerStream[FetchResponse, FetchRequest]) -> None:
        while True:
            request = await stream.receive()
            self.arrived += 1
            await stream.send(FetchResponse(correlation_id=request.correlation_id))

    async def echo_bytes(self, connection: ClientConnection) -> None:
        while True:
            await connection.write([await connection.read_exactly(100)])
            self.arrived += 1

    async def chat(self, peers: SimPeers, other: NodeId) -> None:
        number = 0
        while True:
            stream = peers.open_stream(other, FETCH)
            with contextlib.suppress(PeerError):
                while True:
                    number += 1
                    await stream.send(FetchRequest(correlation_id=number))
                    await stream.receive()
                    await asyncio.sleep(0.2)

    async def ask(self, peers: SimPeers, other: NodeId) -> None:
        while True:
            with contextlib.suppress(PeerError):
                await peers.call(other, FORWARD, ForwardRequest(request=b"?"), timeout_ms=500)
            await asyncio.sleep(0.3)


async def use(cluster: ChattyCluster) -> None:
    """A client that goes from node to node."""
    process = cluster.network.boot("client")
    while True:
        for node in NODES:
            with contextlib.suppress(ConnectionLost, OSError):
                async with asyncio.timeout(3):
                    address = SocketAddress(f"node-{node}", 9092)
                    stream = await connect_client(cluster.network, process, address)
                    for _ in range(5):
                        await stream.write([bytes(300)])
                        await stream.read_exactly(300)
                    stream.close()
            await asyncio.sleep(0.1)


async def main(world: World) -> str:
    cluster = ChattyCluster(world)
    await cluster.start()
    using = asyncio.create_task(use(cluster))
    schedule = draw_schedule(world.random.fork("faults"), Budget(NODES, NODES), duration_ms=8_000)
    await FaultDriver(cluster, cluster.network.trace).run(schedule)
    await asyncio.sleep(5)
    using.cancel()
    before = cluster.arrived
    await asyncio.sleep(5)
    assert cluster.arrived - before > 100, "healed nodes do not talk to each other"
    trace = cluster.network.trace
    return f"{trace.count} events {trace.digest()} {cluster.arrived} arrived"


if __name__ == "__main__":
    print(run_simulation(main, int(sys.argv[1]), time_limit_s=1000))
