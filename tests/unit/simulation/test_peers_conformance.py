"""What nodes may expect of ``Peers``, held against gRPC on loopback and the simulated network."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeAlias

import pytest

from tidelog.kernel.addresses import AddressBook, SocketAddress
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
from tidelog.kernel.real.peer_server import GrpcPeerServer
from tidelog.kernel.real.peer_streams import StreamLimits
from tidelog.kernel.real.peers import GrpcPeers
from tidelog.simulation import SimNetwork, SimPeers, SimPeerServer, World, run_simulation
from tidelog.v1.controller_pb2 import ForwardRequest, ForwardResponse
from tidelog.v1.replication_pb2 import (
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
FetchEnd: TypeAlias = PeerStream[FetchResponse, FetchRequest]
ONE, TWO = NodeId(1), NodeId(2)
ANY_PORT = SocketAddress("127.0.0.1", 0)
LONG_MS = 20_000.0


class ClosablePeers(Peers, Protocol):
    async def close(self) -> None: ...


class Stage(Protocol):
    """Makes nodes of one kind."""

    def server(self, identity: PeerIdentity) -> PeerServer: ...

    def peers(
        self, identity: PeerIdentity, addresses: AddressBook, limits: StreamLimits | None = None
    ) -> ClosablePeers: ...


class GrpcStage:
    def server(self, identity: PeerIdentity) -> PeerServer:
        return GrpcPeerServer(identity)

    def peers(
        self, identity: PeerIdentity, addresses: AddressBook, limits: StreamLimits | None = None
    ) -> ClosablePeers:
        return GrpcPeers(identity, addresses, limits=limits)


class SimStage:
    def __init__(self, world: World) -> None:
        self._network = SimNetwork(world)

    def server(self, identity: PeerIdentity) -> PeerServer:
        process = self._network.process(identity.node_id) or self._network.boot(identity.node_id)
        return SimPeerServer(self._network, process, identity)

    def peers(
        self, identity: PeerIdentity, addresses: AddressBook, limits: StreamLimits | None = None
    ) -> ClosablePeers:
        process = self._network.process(identity.node_id) or self._network.boot(identity.node_id)
        return SimPeers(self._network, process, identity, addresses, limits=limits)


Story: TypeAlias = Callable[[Stage], Awaitable[None]]
Tell: TypeAlias = Callable[[Story], None]


@pytest.fixture(params=["grpc", "sim"])
def tell(request: pytest.FixtureRequest) -> Tell:
    def tell_grpc(story: Story) -> None:
        async def main() -> None:
            await story(GrpcStage())

        asyncio.run(main())

    def tell_sim(story: Story) -> None:
        async def main(world: World) -> None:
            await story(SimStage(world))

        for seed in range(5):
            run_simulation(main, seed, time_limit_s=1000)

    return tell_grpc if request.param == "grpc" else tell_sim


def identity(node: NodeId, cluster: str = "the-cluster") -> PeerIdentity:
    return PeerIdentity(node, cluster, IncarnationId(Uuid(bytes([node]) * 16)))


async def forward(context: CallContext, request: ForwardRequest) -> ForwardResponse:
    if request.client_address == "refuse":
        raise PeerRefused("NOT_CONTROLLER", "ask node 3 — not me")
    return ForwardResponse(response=request.request, error_message=str(context.caller))


async def echo(_: CallContext, stream: FetchEnd) -> None:
    while True:
        request = await stream.receive()
        await stream.send(FetchResponse(correlation_id=request.correlation_id))


StreamServed: TypeAlias = Callable[[CallContext, FetchEnd], Awaitable[None]]


@contextlib.asynccontextmanager
async def two_nodes(
    stage: Stage,
    on_fetch: StreamServed = echo,
    *,
    caller: PeerIdentity | None = None,
    server_id: NodeId = TWO,
    limits: StreamLimits | None = None,
) -> AsyncIterator[tuple[Peers, PeerServer]]:
    """Node 1, as it sees node 2."""
    server = stage.server(identity(server_id))
    server.on_unary(FORWARD, forward)
    server.on_stream(FETCH, on_fetch)
    address = await server.start(ANY_PORT)
    peers = stage.peers(caller or identity(ONE), AddressBook({TWO: address}), limits)
    try:
        yield peers, server
    finally:
        await peers.close()
        await server.close()


async def ask(peers: Peers, text: bytes = b"x", client_address: str = "") -> ForwardResponse:
    request = ForwardRequest(request=text, client_address=client_address)
    return await peers.call(TWO, FORWARD, request, timeout_ms=LONG_MS)


async def ping(stream: PeerStream[FetchRequest, FetchResponse], number: int) -> None:
    await stream.send(FetchRequest(correlation_id=number))
    assert (await stream.receive()).correlation_id == number


def test_a_call_is_answered_and_says_who_calls(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async with two_nodes(stage) as (peers, _):
            response = await ask(peers, b"hello")
            assert response.response == b"hello"
            assert response.error_message == str(identity(ONE))

    tell(story)


def test_a_handler_refuses_with_a_reason(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async with two_nodes(stage) as (peers, _):
            with pytest.raises(PeerRefused, match="ask node 3 — not me") as refused:
                await ask(peers, client_address="refuse")
            assert refused.value.reason == "NOT_CONTROLLER"

    tell(story)


def test_a_method_that_is_not_served(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async with two_nodes(stage) as (peers, _):
            with pytest.raises(PeerRefused, match="UNSUPPORTED_VERSION"):
                await peers.call(TWO, EPOCHS, OffsetsForEpochRequest(), timeout_ms=LONG_MS)

    tell(story)


def test_a_deadline_ends_the_call_on_both_sides(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        began, cancelled = asyncio.Event(), asyncio.Event()

        async def never(_: CallContext, __: ForwardRequest) -> ForwardResponse:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return ForwardResponse()

        async with two_nodes(stage) as (peers, server):
            server.on_unary(FORWARD, never)
            with pytest.raises(PeerDeadlineExceeded):
                await peers.call(TWO, FORWARD, ForwardRequest(), timeout_ms=300)
            assert began.is_set()
            await cancelled.wait()

    tell(story)


def test_a_node_of_another_cluster_is_refused(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        stranger = identity(ONE, "another-cluster")
        async with two_nodes(stage, caller=stranger) as (peers, _):
            clear = "node 1 belongs to cluster another-cluster, node 2 to cluster the-cluster"
            for attempt in (ask(peers), peers.open_stream(TWO, FETCH).receive()):
                with pytest.raises(PeerRefused, match=clear) as refused:
                    await attempt
                assert refused.value.reason == "INCONSISTENT_CLUSTER_ID"

    tell(story)


def test_a_call_that_reaches_another_node_is_refused(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async with two_nodes(stage, server_id=NodeId(7)) as (peers, _):
            for attempt in (ask(peers), peers.open_stream(TWO, FETCH).receive()):
                with pytest.raises(PeerRefused, match="this is node 7, not node 2") as refused:
                    await attempt
                assert refused.value.reason == "INVALID_VOTER_KEY"

    tell(story)


def test_a_node_nobody_knows_and_one_that_does_not_listen(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        book = AddressBook()
        peers = stage.peers(identity(ONE), book)
        with pytest.raises(PeerUnavailable, match="node 2 has no known address"):
            await ask(peers)
        with pytest.raises(PeerUnavailable, match="node 2 has no known address"):
            await peers.open_stream(TWO, FETCH).receive()
        for _ in range(2):
            server = stage.server(identity(TWO))
            server.on_unary(FORWARD, forward)
            book.learn(TWO, await server.start(ANY_PORT))
            await ask(peers)
            await server.close()
        with pytest.raises(PeerUnavailable):
            await ask(peers)
        with pytest.raises(PeerUnavailable):
            await peers.open_stream(TWO, FETCH).receive()
        await peers.close()

    tell(story)


def test_each_lane_is_a_connection_of_its_own(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        seen: list[tuple[str, str]] = []

        async def on_forward(context: CallContext, _: ForwardRequest) -> ForwardResponse:
            seen.append(("control", context.remote_address))
            return ForwardResponse()

        async def on_epochs(
            context: CallContext, _: OffsetsForEpochRequest
        ) -> OffsetsForEpochResponse:
            seen.append(("bulk", context.remote_address))
            return OffsetsForEpochResponse()

        server = stage.server(identity(TWO))
        server.on_unary(FORWARD, on_forward)
        server.on_unary(EPOCHS, on_epochs)
        address = await server.start(ANY_PORT)
        peers = stage.peers(identity(ONE), AddressBook({TWO: address}))
        for _ in range(2):
            await ask(peers)
            await peers.call(TWO, EPOCHS, OffsetsForEpochRequest(), timeout_ms=LONG_MS)
        assert len(seen) == 4
        assert len(set(seen)) == 2
        assert len({remote for _, remote in seen}) == 2
        await peers.close()
        await server.close()

    tell(story)


def test_a_stream_keeps_the_order_in_both_directions(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async with two_nodes(stage) as (peers, _):
            stream = peers.open_stream(TWO, FETCH)

            async def send_all() -> None:
                for number in range(500):
                    await stream.send(FetchRequest(correlation_id=number))

            sending = asyncio.create_task(send_all())
            received = [(await stream.receive()).correlation_id for _ in range(500)]
            assert received == list(range(500))
            await sending

    tell(story)


def test_what_was_queued_before_a_close_arrives(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        received: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()

        async def collect(_: CallContext, stream: FetchEnd) -> None:
            numbers = []
            with contextlib.suppress(StreamReset):
                while True:
                    numbers.append((await stream.receive()).correlation_id)
            received.set_result(numbers)

        async with two_nodes(stage, collect) as (peers, _):
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

    tell(story)


def test_a_handler_that_returns_ends_the_stream_after_its_last_word(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async def last_words(_: CallContext, stream: FetchEnd) -> None:
            for number in range(50):
                await stream.send(FetchResponse(correlation_id=number))

        async with two_nodes(stage, last_words) as (peers, _):
            stream = peers.open_stream(TWO, FETCH)
            assert [(await stream.receive()).correlation_id for _ in range(50)] == list(range(50))
            with pytest.raises(StreamReset, match="ended by the node"):
                await stream.receive()

    tell(story)


def test_a_handler_refuses_a_stream_with_a_reason(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async def refuse(_: CallContext, stream: FetchEnd) -> None:
            await stream.receive()
            raise PeerRefused("FENCED_LEADER_EPOCH", "you are old")

        async with two_nodes(stage, refuse) as (peers, _):
            stream = peers.open_stream(TWO, FETCH)
            await stream.send(FetchRequest())
            with pytest.raises(PeerRefused, match="you are old") as refused:
                await stream.receive()
            assert refused.value.reason == "FENCED_LEADER_EPOCH"

    tell(story)


def test_a_cancelled_receive_leaves_the_stream_as_it_was(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async with two_nodes(stage) as (peers, _):
            stream = peers.open_stream(TWO, FETCH)
            await ping(stream, 1)
            for number in range(2, 5):
                waiting = asyncio.create_task(stream.receive())
                await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.wait({waiting})
                await ping(stream, number)

    tell(story)


def test_a_handler_learns_that_its_caller_is_gone(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def wait_for_the_end(_: CallContext, stream: FetchEnd) -> None:
            await stream.send(FetchResponse(correlation_id=(await stream.receive()).correlation_id))
            try:
                await stream.receive()
            except StreamReset as reset:
                ended.set_result(str(reset))
                raise

        server = stage.server(identity(TWO))
        server.on_stream(FETCH, wait_for_the_end)
        address = await server.start(ANY_PORT)
        caller = stage.peers(identity(NodeId(5)), AddressBook({TWO: address}))
        await ping(caller.open_stream(TWO, FETCH), 1)
        await caller.close()
        assert "node 5" in await ended
        await server.close()

    tell(story)


def test_closing_a_server_ends_its_streams_on_both_sides(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        ended = asyncio.Event()

        async def note_the_end(context: CallContext, stream: FetchEnd) -> None:
            try:
                await echo(context, stream)
            finally:
                ended.set()

        async with two_nodes(stage, note_the_end) as (peers, server):
            stream = peers.open_stream(TWO, FETCH)
            await ping(stream, 1)
            await server.close()
            assert ended.is_set()
            with pytest.raises(StreamReset):
                await stream.receive()

    tell(story)


def test_a_peer_that_does_not_read_holds_up_only_its_sender(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        release = asyncio.Event()

        async def sit_still(_: CallContext, stream: FetchEnd) -> None:
            await release.wait()

        async with two_nodes(stage, sit_still, limits=StreamLimits(send_stall_ms=300)) as (
            peers,
            _,
        ):
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

    tell(story)


def test_a_message_may_be_large_but_not_too_large(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async with two_nodes(stage) as (peers, _):
            largest = bytes(8 << 20)
            assert (await ask(peers, largest)).response == largest
            with pytest.raises(MessageTooLarge, match=str(MAX_MESSAGE_BYTES)):
                await ask(peers, bytes(MAX_MESSAGE_BYTES + 1))
            with pytest.raises(MessageTooLarge):
                peers.open_stream(TWO, FETCH).offer(
                    FetchRequest.FromString(b"\xfa\x06\x80\x80\x80\x08" + bytes(16 << 20))
                )
            await ask(peers)

    tell(story)


def test_a_port_that_is_taken(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        server, other = stage.server(identity(TWO)), stage.server(identity(TWO))
        address = await server.start(ANY_PORT)
        with pytest.raises(OSError, match=f"cannot listen on {address}"):
            await other.start(address)
        await server.close()

    tell(story)
