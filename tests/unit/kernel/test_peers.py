"""Nodes that talk over real gRPC on loopback; every wait is for an event, never for a clock."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import grpc.aio
import pytest
import uvloop

from tidelog.kernel.addresses import AddressBook, SocketAddress
from tidelog.kernel.http2 import PREFACE
from tidelog.kernel.ids import IncarnationId, NodeId, Uuid
from tidelog.kernel.peers import (
    MAX_MESSAGE_BYTES,
    CallContext,
    Lane,
    MessageTooLarge,
    PeerDeadlineExceeded,
    PeerIdentity,
    PeerRefused,
    Peers,
    PeerServer,
    PeerStream,
    PeerUnavailable,
    Stream,
    StreamReset,
    Unary,
)
from tidelog.kernel.real import http2_connection
from tidelog.kernel.real.peer_server import GrpcPeerServer
from tidelog.kernel.real.peer_streams import MessageQueue, StreamLimits
from tidelog.kernel.real.peers import REASON_KEY, GrpcPeers, identity_metadata
from tidelog.v1.controller_pb2 import ForwardRequest, ForwardResponse
from tidelog.v1.replication_pb2 import (
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    OffsetsForEpochRequest,
    OffsetsForEpochResponse,
)

FORWARD = Unary("/tidelog.v1.Controller/Forward", ForwardRequest, ForwardResponse)
EPOCHS = Unary(
    "/tidelog.v1.Replication/OffsetsForEpoch",
    OffsetsForEpochRequest,
    OffsetsForEpochResponse,
    Lane.BULK,
)
FETCH = Stream("/tidelog.v1.Replication/Fetch", FetchRequest, FetchResponse, Lane.BULK)

Run: TypeAlias = Callable[[Coroutine[Any, Any, None]], None]
FetchEnd: TypeAlias = PeerStream[FetchResponse, FetchRequest]
LOOPBACK = SocketAddress("127.0.0.1", 0)
ONE, TWO = NodeId(1), NodeId(2)
LONG_MS = 20_000.0


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return asyncio.run if request.param == "asyncio" else uvloop.run


def identity(node: NodeId, cluster: str = "the-cluster") -> PeerIdentity:
    return PeerIdentity(node, cluster, IncarnationId(Uuid(bytes([node]) * 16)))


async def forward(context: CallContext, request: ForwardRequest) -> ForwardResponse:
    """Answers, refuses, fails or never ends, as it is asked to."""
    match request.client_address:
        case "refuse":
            raise PeerRefused("NOT_CONTROLLER", "ask node 3 — not me")
        case "fail":
            raise ZeroDivisionError("a defect")
    return ForwardResponse(response=request.request, error_message=str(context.caller))


async def echo(_: CallContext, stream: FetchEnd) -> None:
    while True:
        request = await stream.receive()
        await stream.send(FetchResponse(correlation_id=request.correlation_id))


def server_of(node: NodeId = TWO) -> GrpcPeerServer:
    server = GrpcPeerServer(identity(node))
    server.on_unary(FORWARD, forward)
    server.on_stream(FETCH, echo)
    return server


@contextlib.asynccontextmanager
async def two_nodes(
    server: GrpcPeerServer | None = None,
    caller: PeerIdentity | None = None,
    limits: StreamLimits | None = None,
) -> AsyncIterator[tuple[Peers, SocketAddress]]:
    """Node 1, as it sees node 2."""
    serving: PeerServer = server or server_of()
    address = await serving.start(LOOPBACK)
    peers = GrpcPeers(caller or identity(ONE), AddressBook({TWO: address}), limits=limits)
    try:
        yield peers, address
    finally:
        await peers.close()
        await serving.close()


async def ask(peers: Peers, text: bytes = b"x", client_address: str = "") -> ForwardResponse:
    request = ForwardRequest(request=text, client_address=client_address)
    return await peers.call(TWO, FORWARD, request, timeout_ms=LONG_MS)


async def ping(stream: PeerStream[FetchRequest, FetchResponse], number: int) -> None:
    await stream.send(FetchRequest(correlation_id=number))
    assert (await stream.receive()).correlation_id == number


# ---- calls


def test_a_call_is_answered_and_says_who_calls(run: Run) -> None:
    async def story() -> None:
        async with two_nodes() as (peers, _):
            response = await ask(peers, b"hello")
            assert response.response == b"hello"
            assert response.error_message == str(identity(ONE))

    run(story())


def test_a_handler_refuses_with_a_reason(run: Run) -> None:
    async def story() -> None:
        async with two_nodes() as (peers, _):
            with pytest.raises(PeerRefused) as refused:
                await ask(peers, client_address="refuse")
            assert refused.value.reason == "NOT_CONTROLLER"
            assert "ask node 3 — not me" in refused.value.detail

    run(story())


def test_a_handler_that_fails_costs_only_its_caller(run: Run) -> None:
    async def story() -> None:
        async with two_nodes() as (peers, _):
            with pytest.raises(PeerRefused, match="UNKNOWN_SERVER_ERROR"):
                await ask(peers, client_address="fail")
            await ask(peers)

    run(story())


def test_a_method_that_is_not_served(run: Run) -> None:
    async def story() -> None:
        async with two_nodes() as (peers, _):
            with pytest.raises(PeerRefused, match="UNSUPPORTED_VERSION"):
                await peers.call(TWO, EPOCHS, OffsetsForEpochRequest(), timeout_ms=LONG_MS)

    run(story())


def test_a_deadline_ends_the_call_on_both_sides(run: Run) -> None:
    async def story() -> None:
        began, cancelled = asyncio.Event(), asyncio.Event()

        async def never(_: CallContext, __: ForwardRequest) -> ForwardResponse:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return ForwardResponse()

        server = GrpcPeerServer(identity(TWO))
        server.on_unary(FORWARD, never)
        async with two_nodes(server) as (peers, _):
            with pytest.raises(PeerDeadlineExceeded):
                await peers.call(TWO, FORWARD, ForwardRequest(), timeout_ms=300)
            assert began.is_set()
            await cancelled.wait()

    run(story())


# ---- who is called, and by whom


def test_a_node_of_another_cluster_is_refused(run: Run) -> None:
    async def story() -> None:
        stranger = identity(ONE, "another-cluster")
        async with two_nodes(caller=stranger) as (peers, _):
            clear = "node 1 belongs to cluster another-cluster, node 2 to cluster the-cluster"
            for attempt in (ask(peers), peers.open_stream(TWO, FETCH).receive()):
                with pytest.raises(PeerRefused, match=clear) as refused:
                    await attempt
                assert refused.value.reason == "INCONSISTENT_CLUSTER_ID"

    run(story())


def test_a_call_that_reaches_another_node_is_refused(run: Run) -> None:
    async def story() -> None:
        async with two_nodes(server_of(NodeId(7))) as (peers, _):
            with pytest.raises(PeerRefused, match="this is node 7, not node 2"):
                await ask(peers)

    run(story())


def test_a_caller_that_does_not_say_who_it_is_is_refused(run: Run) -> None:
    async def story() -> None:
        async with (
            two_nodes() as (_, address),
            grpc.aio.insecure_channel(str(address)) as channel,
        ):
            call: Any = channel.unary_unary(FORWARD.path)
            with pytest.raises(grpc.aio.AioRpcError, match="does not say who it is"):
                await call(b"")

    run(story())


def test_overrides_change_only_what_is_dialled(run: Run) -> None:
    async def story() -> None:
        server = server_of()
        address = await server.start(LOOPBACK)
        nobody = SocketAddress("192.0.2.1", 9)
        book = AddressBook(voters={TWO: nobody}, overrides={TWO: address})
        peers = GrpcPeers(identity(ONE), book)
        assert (await ask(peers)).response == b"x"
        assert book.voters == {TWO: nobody}
        await peers.close()
        await server.close()

    run(story())


def test_a_new_address_is_dialled_by_the_next_call(run: Run) -> None:
    async def story() -> None:
        book = AddressBook()
        peers = GrpcPeers(identity(ONE), book)
        with pytest.raises(PeerUnavailable, match="node 2 has no known address"):
            await ask(peers)
        for _ in range(2):
            server = server_of()
            book.learn(TWO, await server.start(LOOPBACK))
            await ask(peers)
            await server.close()
        await peers.close()

    run(story())


def test_each_lane_is_a_connection_of_its_own(run: Run) -> None:
    async def story() -> None:
        seen: list[tuple[str, str]] = []

        async def on_forward(context: CallContext, request: ForwardRequest) -> ForwardResponse:
            seen.append(("control", context.remote_address))
            return ForwardResponse()

        async def on_epochs(
            context: CallContext, request: OffsetsForEpochRequest
        ) -> OffsetsForEpochResponse:
            seen.append(("bulk", context.remote_address))
            return OffsetsForEpochResponse()

        server = GrpcPeerServer(identity(TWO))
        server.on_unary(FORWARD, on_forward)
        server.on_unary(EPOCHS, on_epochs)
        async with two_nodes(server) as (peers, _):
            for _ in range(2):
                await ask(peers)
                await peers.call(TWO, EPOCHS, OffsetsForEpochRequest(), timeout_ms=LONG_MS)
        assert len(seen) == 4
        assert len(set(seen)) == 2
        assert len({address for _, address in seen}) == 2

    run(story())


# ---- streams


def test_a_stream_keeps_the_order_in_both_directions(run: Run) -> None:
    async def story() -> None:
        async with two_nodes() as (peers, _):
            stream = peers.open_stream(TWO, FETCH)

            async def send_all() -> None:
                for number in range(2000):
                    await stream.send(FetchRequest(correlation_id=number))

            sending = asyncio.create_task(send_all())
            received = [(await stream.receive()).correlation_id for _ in range(2000)]
            assert received == list(range(2000))
            await sending

    run(story())


def test_what_was_queued_before_a_close_arrives(run: Run) -> None:
    async def story() -> None:
        received: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()

        async def collect(_: CallContext, stream: FetchEnd) -> None:
            numbers = []
            with contextlib.suppress(StreamReset):
                while True:
                    numbers.append((await stream.receive()).correlation_id)
            received.set_result(numbers)

        server = GrpcPeerServer(identity(TWO))
        server.on_stream(FETCH, collect)
        async with two_nodes(server) as (peers, _):
            stream = peers.open_stream(TWO, FETCH)
            for number in range(100):
                assert stream.offer(FetchRequest(correlation_id=number))
            stream.close()
            assert not stream.offer(FetchRequest())
            with pytest.raises(StreamReset, match="closed by this node"):
                await stream.receive()
            with pytest.raises(StreamReset, match="closed by this node"):
                await stream.send(FetchRequest())
            assert await received == list(range(100))

    run(story())


def test_a_handler_that_returns_ends_the_stream_after_its_last_word(run: Run) -> None:
    async def story() -> None:
        async def last_words(_: CallContext, stream: FetchEnd) -> None:
            for number in range(50):
                await stream.send(FetchResponse(correlation_id=number))

        server = GrpcPeerServer(identity(TWO))
        server.on_stream(FETCH, last_words)
        async with two_nodes(server) as (peers, _):
            stream = peers.open_stream(TWO, FETCH)
            assert [(await stream.receive()).correlation_id for _ in range(50)] == list(range(50))
            with pytest.raises(StreamReset, match="ended by the node"):
                await stream.receive()

    run(story())


def test_a_handler_refuses_a_stream_with_a_reason(run: Run) -> None:
    async def story() -> None:
        async def refuse(_: CallContext, stream: FetchEnd) -> None:
            await stream.receive()
            raise PeerRefused("FENCED_LEADER_EPOCH", "you are old")

        server = GrpcPeerServer(identity(TWO))
        server.on_stream(FETCH, refuse)
        async with two_nodes(server) as (peers, _):
            stream = peers.open_stream(TWO, FETCH)
            await stream.send(FetchRequest())
            with pytest.raises(PeerRefused, match="you are old") as refused:
                await stream.receive()
            assert refused.value.reason == "FENCED_LEADER_EPOCH"

    run(story())


def test_a_cancelled_receive_leaves_the_stream_as_it_was(run: Run) -> None:
    async def story() -> None:
        async with two_nodes() as (peers, _):
            stream = peers.open_stream(TWO, FETCH)
            await ping(stream, 1)
            for number in range(2, 5):
                waiting = asyncio.create_task(stream.receive())
                await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.wait({waiting})
                await ping(stream, number)

    run(story())


def test_a_handler_learns_that_its_caller_is_gone(run: Run) -> None:
    async def story() -> None:
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def wait_for_the_end(_: CallContext, stream: FetchEnd) -> None:
            await stream.send(FetchResponse(correlation_id=(await stream.receive()).correlation_id))
            try:
                await stream.receive()
            except StreamReset as reset:
                ended.set_result(str(reset))
                raise

        server = GrpcPeerServer(identity(TWO))
        server.on_stream(FETCH, wait_for_the_end)
        async with two_nodes(server) as (_, address):
            caller = GrpcPeers(identity(NodeId(5)), AddressBook({TWO: address}))
            await ping(caller.open_stream(TWO, FETCH), 1)
            await caller.close()
            assert "node 5" in await ended

    run(story())


def test_a_handler_that_only_sends_learns_that_its_caller_is_gone(run: Run) -> None:
    async def story() -> None:
        ended = asyncio.Event()

        async def watch(_: CallContext, stream: FetchEnd) -> None:
            with contextlib.suppress(StreamReset):
                while True:
                    await stream.send(FetchResponse())
                    await asyncio.sleep(0)
            ended.set()

        server = GrpcPeerServer(identity(TWO))
        server.on_stream(FETCH, watch)
        async with two_nodes(server) as (peers, _):
            stream = peers.open_stream(TWO, FETCH)
            await stream.receive()
            stream.close()
            await ended.wait()

    run(story())


def test_a_caller_that_has_said_all_may_still_listen(run: Run) -> None:
    """As plain gRPC clients do with a method that has a stream of answers only."""

    async def story() -> None:
        async def answer_at_the_end(_: CallContext, stream: FetchEnd) -> None:
            with pytest.raises(StreamReset, match="node 1 has ended it"):
                await stream.receive()
            await stream.send(FetchResponse(correlation_id=9))

        server = GrpcPeerServer(identity(TWO))
        server.on_stream(FETCH, answer_at_the_end)
        async with (
            two_nodes(server) as (_, address),
            grpc.aio.insecure_channel(str(address)) as channel,
        ):
            bidirectional: Any = channel.stream_stream(FETCH.path)
            call = bidirectional(metadata=identity_metadata(identity(ONE), TWO))
            await call.done_writing()
            assert FetchResponse.FromString(await call.read()).correlation_id == 9
            assert await call.read() is grpc.aio.EOF

    run(story())


def test_closing_a_server_ends_its_streams_on_both_sides(run: Run) -> None:
    async def story() -> None:
        ended = asyncio.Event()

        async def note_the_end(context: CallContext, stream: FetchEnd) -> None:
            try:
                await echo(context, stream)
            finally:
                ended.set()

        server = GrpcPeerServer(identity(TWO))
        server.on_stream(FETCH, note_the_end)
        async with two_nodes(server) as (peers, _):
            stream = peers.open_stream(TWO, FETCH)
            await ping(stream, 1)
            await server.close()
            assert ended.is_set()
            with pytest.raises(StreamReset):
                await stream.receive()

    run(story())


# ---- peers that do not read


def test_a_peer_that_does_not_read_holds_up_only_its_sender(run: Run) -> None:
    async def story() -> None:
        release = asyncio.Event()

        async def sit_still(_: CallContext, stream: FetchEnd) -> None:
            await release.wait()

        server = server_of()
        server.on_stream(FETCH, sit_still)
        async with two_nodes(server, limits=StreamLimits(send_stall_ms=300)) as (peers, _):
            stream = peers.open_stream(TWO, FETCH)
            # Unknown fields make a request as large as we like.
            large = FetchRequest.FromString(b"\xfa\x06\x80\x80\x40" + bytes(1 << 20))
            sent = 0
            while stream.offer(large):
                sent += 1
                await ask(peers)
            assert sent < 100
            with pytest.raises(StreamReset, match="node 2 took nothing for 300 ms"):
                while True:
                    await stream.send(large)
            with pytest.raises(StreamReset):
                await stream.receive()
            await ask(peers)
            release.set()

    run(story())


def test_a_queue_is_bounded_by_bytes_and_by_number() -> None:
    queue = MessageQueue(limit_bytes=10, limit_messages=3)
    assert queue.offer(bytes(100)), "one message always passes, whatever its size"
    assert not queue.offer(b"1")
    assert asyncio.run(queue.take()) == bytes(100)
    assert queue.offer(bytes(6)) and queue.offer(bytes(4))
    assert not queue.offer(b"1")
    queue.end(StreamReset("over"))
    assert not queue.offer(b"")
    assert len(asyncio.run(queue.take())) == 6
    assert len(asyncio.run(queue.take())) == 4
    with pytest.raises(StreamReset, match="over"):
        asyncio.run(queue.take())
    many = MessageQueue(limit_bytes=10, limit_messages=3)
    assert [many.offer(b"") for _ in range(4)] == [True, True, True, False]


# ---- sizes


def test_a_message_may_be_large_but_not_too_large(run: Run) -> None:
    async def story() -> None:
        async with two_nodes() as (peers, address):
            largest = bytes(8 << 20)
            assert (await ask(peers, largest)).response == largest
            with pytest.raises(MessageTooLarge, match=str(MAX_MESSAGE_BYTES)):
                await ask(peers, bytes(MAX_MESSAGE_BYTES + 1))
            with pytest.raises(MessageTooLarge):
                peers.open_stream(TWO, FETCH).offer(
                    FetchRequest.FromString(b"\xfa\x06\x80\x80\x80\x08" + bytes(16 << 20))
                )
            # A peer without such manners is refused by the receiver.
            async with grpc.aio.insecure_channel(
                str(address), options=[("grpc.max_send_message_length", -1)]
            ) as channel:
                call: Any = channel.unary_unary(FORWARD.path)
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call(bytes(16 << 20), metadata=identity_metadata(identity(ONE), TWO))
                assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            await ask(peers)

    run(story())


def test_an_answer_that_is_too_large_is_the_server_s_defect(run: Run) -> None:
    async def story() -> None:
        async def boast(_: CallContext, stream: FetchEnd) -> None:
            huge = FetchResponse(partitions=[FetchedPartition(records=bytes(16 << 20))])
            with pytest.raises(MessageTooLarge):
                await stream.send(huge)
            await stream.send(FetchResponse(correlation_id=1))

        server = GrpcPeerServer(identity(TWO))
        server.on_stream(FETCH, boast)
        async with two_nodes(server) as (peers, _):
            assert (await peers.open_stream(TWO, FETCH).receive()).correlation_id == 1

    run(story())


# ---- garbage

GARBAGE = {
    "noise": bytes(range(256)) * 40,
    "kafka": b"\x00\x00\x00\x10\x00\x12\x00\x03\x00\x00\x00\x01\x00\x01x\x00" * 10,
    "http/1": b"GET / HTTP/1.1\r\nHost: tidelog\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "nothing": b"",
    "half a greeting": b"PRI * HTTP/2.0\r\n",
    "a greeting, then noise": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 4000,
}


def test_garbage_on_the_port_harms_nobody(run: Run) -> None:
    async def story() -> None:
        async with two_nodes() as (peers, address):
            stream = peers.open_stream(TWO, FETCH)
            for number, bytes_sent in enumerate(GARBAGE.values()):
                with socket.create_connection((address.host, address.port)) as sock:
                    sock.sendall(bytes_sent)
                    await ping(stream, number)
                    await ask(peers)
                await ping(stream, number)

    run(story())


def test_bytes_that_are_no_message_are_refused(run: Run) -> None:
    async def story() -> None:
        async with (
            two_nodes() as (peers, address),
            grpc.aio.insecure_channel(str(address)) as channel,
        ):
            stream = peers.open_stream(TWO, FETCH)
            known = identity_metadata(identity(ONE), TWO)
            unary: Any = channel.unary_unary(FORWARD.path)
            with pytest.raises(grpc.aio.AioRpcError, match="that are no ForwardRequest"):
                await unary(b"\xff" * 10, metadata=known)
            bidirectional: Any = channel.stream_stream(FETCH.path)
            call = bidirectional(metadata=known)
            await call.write(b"\xff" * 10)
            assert await call.read() is grpc.aio.EOF
            await ping(stream, 1)

    run(story())


# ---- peers that are not there

SERVER_PROGRAM = """
import asyncio, sys
sys.path.insert(0, {tests!r})
import test_peers
from tidelog.kernel.addresses import SocketAddress

async def main():
    address = await test_peers.server_of().start(SocketAddress("127.0.0.1", int(sys.argv[1])))
    print(address.port, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def node_in_a_process(port: int = 0) -> AsyncIterator[tuple[int, asyncio.subprocess.Process]]:
    program = SERVER_PROGRAM.format(tests=str(Path(__file__).parent))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, str(port)), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield int(await process.stdout.readline()), process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def test_a_killed_peer_resets_its_streams_and_is_found_again(run: Run) -> None:
    async def story() -> None:
        book = AddressBook()
        peers = GrpcPeers(identity(ONE), book)
        async with node_in_a_process() as (port, process):
            book.learn(TWO, SocketAddress("127.0.0.1", port))
            stream = peers.open_stream(TWO, FETCH)
            await ping(stream, 1)
            os.kill(process.pid, signal.SIGKILL)
            with pytest.raises(StreamReset):
                await stream.receive()
            with pytest.raises(StreamReset):
                await stream.send(FetchRequest())
        with pytest.raises(PeerUnavailable):
            await ask(peers)
        with pytest.raises(PeerUnavailable):
            await peers.open_stream(TWO, FETCH).receive()
        async with node_in_a_process(port):
            await ask(peers)
            await ping(peers.open_stream(TWO, FETCH), 2)
        await peers.close()

    run(story())


CALLER_PROGRAM = """
import asyncio, sys
sys.path.insert(0, {tests!r})
import test_peers as t

async def main():
    book = t.AddressBook({{t.TWO: t.SocketAddress("127.0.0.1", int(sys.argv[1]))}})
    await t.ping(t.GrpcPeers(t.identity(t.ONE), book).open_stream(t.TWO, t.FETCH), 1)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_killed_caller_is_noticed_by_the_handler(run: Run) -> None:
    async def story() -> None:
        called, ended = asyncio.Event(), asyncio.Event()

        async def heed(context: CallContext, stream: FetchEnd) -> None:
            await stream.send(FetchResponse(correlation_id=(await stream.receive()).correlation_id))
            called.set()
            with pytest.raises(StreamReset):
                await stream.receive()
            ended.set()

        server = GrpcPeerServer(identity(TWO))
        server.on_stream(FETCH, heed)
        address = await server.start(LOOPBACK)
        program = CALLER_PROGRAM.format(tests=str(Path(__file__).parent))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, str(address.port)
        )
        await called.wait()
        os.kill(process.pid, signal.SIGKILL)
        await ended.wait()
        await process.wait()
        await server.close()

    run(story())


def test_a_call_to_a_peer_that_accepts_but_never_answers_is_given_up(run: Run) -> None:
    """As a stopped process does: the kernel still takes connections for it."""

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            book = AddressBook({TWO: SocketAddress(*silent.getsockname())})
            peers = GrpcPeers(identity(ONE), book)
            with pytest.raises((PeerDeadlineExceeded, PeerUnavailable)):
                await peers.call(TWO, FORWARD, ForwardRequest(), timeout_ms=100)
            with pytest.raises(PeerUnavailable):
                await peers.open_stream(TWO, FETCH).receive()
            await peers.close()

    run(story())


def test_a_stream_can_be_closed_while_it_is_dialled(run: Run) -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            book = AddressBook({TWO: SocketAddress(*silent.getsockname())})
            peers = GrpcPeers(identity(ONE), book)
            stream = peers.open_stream(TWO, FETCH)
            await asyncio.sleep(0)
            stream.close()
            with pytest.raises(StreamReset, match="closed by this node"):
                await stream.receive()
            await peers.close()

    run(story())


def test_a_port_that_is_taken(run: Run) -> None:
    async def story() -> None:
        async with two_nodes() as (_, address):
            second = server_of()
            with pytest.raises(OSError, match=f"cannot listen on {address}"):
                await second.start(address)
            await second.close()

    run(story())


def test_no_host_means_every_interface(run: Run) -> None:
    async def story() -> None:
        server = server_of()
        bound = await server.start(SocketAddress("", 0))
        _, writer = await asyncio.open_connection("127.0.0.1", bound.port)
        writer.close()
        await server.close()

    run(story())


# ---- a server that is not ours


class Grpcio(grpc.GenericRpcHandler):
    """Answers by grpcio what ``server_of`` answers."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        async def forward_there(request: ForwardRequest, context: Any) -> ForwardResponse:
            if request.client_address == "refuse":
                reason = ((REASON_KEY, "NOT_CONTROLLER"),)
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "50 % — no", reason)
            return ForwardResponse(response=request.request)

        async def echo_there(_: object, context: Any) -> None:
            await context.send_initial_metadata(())
            while (request := await context.read()) is not grpc.aio.EOF:
                records = bytes(request.max_bytes)
                answer = FetchResponse(correlation_id=request.correlation_id)
                answer.partitions.append(FetchedPartition(records=records))
                await context.write(answer)

        if handler_call_details.method == FETCH.path:
            return grpc.stream_stream_rpc_method_handler(
                echo_there, FetchRequest.FromString, FetchResponse.SerializeToString
            )
        if handler_call_details.method == FORWARD.path:
            return grpc.unary_unary_rpc_method_handler(
                forward_there, ForwardRequest.FromString, ForwardResponse.SerializeToString
            )
        return None


def test_a_server_of_grpcio_is_understood(run: Run) -> None:
    """What nodes of the versions before ran, and proof that this is gRPC on the wire."""

    async def story() -> None:
        server = grpc.aio.server(options=[("grpc.max_receive_message_length", 16 << 20)])
        server.add_generic_rpc_handlers((Grpcio(),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        book = AddressBook({TWO: SocketAddress("127.0.0.1", port)})
        peers = GrpcPeers(identity(ONE), book)
        for size in (0, 10, 100_000, 8 << 20):
            assert (await ask(peers, bytes(size))).response == bytes(size)
        with pytest.raises(PeerRefused, match="50 % — no") as refused:
            await ask(peers, client_address="refuse")
        assert refused.value.reason == "NOT_CONTROLLER"
        with pytest.raises(PeerRefused, match="UNSUPPORTED_VERSION"):
            await peers.call(TWO, EPOCHS, OffsetsForEpochRequest(), timeout_ms=LONG_MS)
        stream = peers.open_stream(TWO, FETCH)
        for number in range(40):  # more than any window
            await stream.send(FetchRequest(correlation_id=number, max_bytes=1 << 20))
            answer = await stream.receive()
            assert answer.correlation_id == number
            assert len(answer.partitions[0].records) == 1 << 20
        await server.stop(None)
        with pytest.raises(StreamReset):
            await stream.receive()
        with pytest.raises(PeerUnavailable):
            await ask(peers)
        await peers.close()

    run(story())


def test_a_client_of_grpcio_is_understood(run: Run) -> None:
    async def story() -> None:
        async with (
            two_nodes() as (_, address),
            grpc.aio.insecure_channel(str(address)) as channel,
        ):
            known = identity_metadata(identity(ONE), TWO)
            unary: Any = channel.unary_unary(
                FORWARD.path, ForwardRequest.SerializeToString, ForwardResponse.FromString
            )
            for size in (0, 10, 100_000, 4_000_000):
                answer = await unary(ForwardRequest(request=bytes(size)), metadata=known)
                assert answer.response == bytes(size)
            with pytest.raises(grpc.aio.AioRpcError, match="ask node 3 — not me"):
                await unary(ForwardRequest(client_address="refuse"), metadata=known)
            bidirectional: Any = channel.stream_stream(
                FETCH.path, FetchRequest.SerializeToString, FetchResponse.FromString
            )
            call = bidirectional(metadata=known)
            for number in range(200):
                await call.write(FetchRequest(correlation_id=number))
                assert (await call.read()).correlation_id == number

    run(story())


def test_who_asks_and_never_reads_is_dropped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pings have no window: their answers would pile up without bound."""
    monkeypatch.setattr(http2_connection, "_UNREAD_BYTES", 1 << 20)

    async def story() -> None:
        async with two_nodes() as (peers, address):
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(PREFACE + bytes.fromhex("000000040000000000"))
            pings = bytes.fromhex("000008060000000000") + bytes(8)
            with pytest.raises((ConnectionError, BrokenPipeError)):
                for _ in range(2_000):
                    writer.write(pings * 10_000)
                    await writer.drain()
            writer.close()
            await ask(peers)

    run(story())


# ---- descriptors of methods


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Unary(FORWARD.path, ForwardRequest, FetchResponse), "takes and gives"),
        (lambda: Unary(FETCH.path, FetchRequest, FetchResponse), "is stream"),
        (lambda: Stream(FORWARD.path, ForwardRequest, ForwardResponse), "is no stream"),
    ],
)
def test_a_method_agrees_with_its_contract(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()


def test_a_method_that_is_in_no_contract() -> None:
    with pytest.raises(ValueError, match="Controller/Nothing is in no contract"):
        Unary("/tidelog.v1.Controller/Nothing", ForwardRequest, ForwardResponse)
    assert str(FORWARD) == "Controller/Forward"
