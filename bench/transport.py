"""What a question and its answer between two nodes cost: our transport beside grpcio.

``make bench-transport``. Two processes on loopback, uvloop in both, one stream, one exchange after
the other; the two kinds take turns. Processor time is that of both processes, all threads.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import Any, Final

import grpc
import grpc.aio
import uvloop

from bench.table import Row, report
from tidelog.kernel.addresses import AddressBook, SocketAddress
from tidelog.kernel.ids import IncarnationId, NodeId, Uuid
from tidelog.kernel.peers import CallContext, Lane, PeerIdentity, PeerStream, Stream, StreamReset
from tidelog.kernel.real.allocator import keep_large_blocks
from tidelog.kernel.real.peer_server import GrpcPeerServer
from tidelog.kernel.real.peers import GrpcPeers
from tidelog.v1.replication_pb2 import FetchedPartition, FetchRequest, FetchResponse

FETCH: Final = Stream("/tidelog.v1.Replication/Fetch", FetchRequest, FetchResponse, Lane.BULK)
ASKER, ANSWERER = NodeId(1), NodeId(2)
LOOPBACK: Final = SocketAddress("127.0.0.1", 0)
SIZES: Final = {"200 B": (200, 4_000), "1 MB": (1_000_000, 300)}
ROUNDS: Final = 5
OPTIONS: Final = [("grpc.max_receive_message_length", -1)]


def identity(node: NodeId) -> PeerIdentity:
    return PeerIdentity(node, "bench", IncarnationId(Uuid(bytes([node]) * 16)))


def answer_of(size: int) -> FetchResponse:
    return FetchResponse(partitions=[FetchedPartition(records=bytes(size))])


# --- ours -----------------------------------------------------------------------------------


async def serve_ours(size: int) -> int:
    answer = answer_of(size)

    async def handle(_: CallContext, stream: PeerStream[FetchResponse, FetchRequest]) -> None:
        try:
            while True:
                await stream.receive()
                await stream.send(answer)
        except StreamReset:
            return

    server = GrpcPeerServer(identity(ANSWERER))
    server.on_stream(FETCH, handle)
    return (await server.start(LOOPBACK)).port


async def ask_ours(port: int, count: int) -> None:
    peers = GrpcPeers(identity(ASKER), AddressBook({ANSWERER: SocketAddress("127.0.0.1", port)}))
    stream = peers.open_stream(ANSWERER, FETCH)
    for number in range(count):
        await stream.send(FetchRequest(correlation_id=number))
        await stream.receive()
    await peers.close()


# --- grpcio ---------------------------------------------------------------------------------

_servers: list[grpc.aio.Server] = []


class _Grpcio(grpc.GenericRpcHandler):
    def __init__(self, size: int) -> None:
        self._answer = answer_of(size)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        async def handle(_: object, context: Any) -> None:
            while await context.read() is not grpc.aio.EOF:
                await context.write(self._answer)

        return grpc.stream_stream_rpc_method_handler(
            handle, FetchRequest.FromString, FetchResponse.SerializeToString
        )


async def serve_grpcio(size: int) -> int:
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((_Grpcio(size),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    _servers.append(server)  # it ends when nobody has it
    return port


async def ask_grpcio(port: int, count: int) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
        dial: Any = channel.stream_stream(
            FETCH.path, FetchRequest.SerializeToString, FetchResponse.FromString
        )
        call = dial()
        for number in range(count):
            await call.write(FetchRequest(correlation_id=number))
            await call.read()
        call.cancel()


KINDS: Final[dict[str, tuple[Callable[[int], Awaitable[int]], Callable[[int, int], Any]]]] = {
    "ours": (serve_ours, ask_ours),
    "grpcio": (serve_grpcio, ask_grpcio),
}


def serve(kind: str, size: int, pipe: Connection) -> None:
    """In a process of its own: tell the port, then the processor time whenever asked."""
    keep_large_blocks()  # as a node does, for both kinds

    async def run() -> None:
        pipe.send(await KINDS[kind][0](size))
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, pipe.recv):
            pipe.send(time.process_time())
        for server in _servers:
            await server.stop(None)

    uvloop.run(run())


def ask(kind: str, port: int, count: int, pipe: Connection) -> None:
    keep_large_blocks()
    uvloop.run(KINDS[kind][1](port, count))
    pipe.send(time.process_time())


def cost_us(kind: str, size: int, count: int) -> float:
    """Processor time of both sides per exchange; starting them is measured and taken off."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    server = spawn.Process(target=serve, args=(kind, size, there), daemon=True)
    server.start()
    port = here.recv()

    def run(exchanges: int) -> float:
        here.send(True)
        before = here.recv()
        own, others = spawn.Pipe()
        asker = spawn.Process(target=ask, args=(kind, port, exchanges, others))
        asker.start()
        asked = own.recv()
        asker.join()
        here.send(True)
        return float(asked + here.recv() - before)

    few = count // 10
    cost = (run(count) - run(few)) / (count - few)
    here.send(False)
    server.join()
    return cost * 1e6


def main() -> None:
    rows: list[Row] = []
    for name, (size, count) in SIZES.items():
        costs: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(ROUNDS):
            for kind, found in costs.items():
                found.append(cost_us(kind, size, count))
        medians = {kind: statistics.median(found) for kind, found in costs.items()}
        rows += [
            Row(f"an answer of {name}, {kind}", median, "µs of processor time", better="lower")
            for kind, median in medians.items()
        ]
        ratio = medians["ours"] / medians["grpcio"]
        rows.append(Row(f"an answer of {name}, ours to grpcio", ratio, "×", 0.5, "lower"))
    report("transport", rows)


if __name__ == "__main__":
    main()
