"""``Peers`` over the simulated network: how a node of a simulation calls the others.

Owner: the node's start-up code, as with the version on gRPC, whose behaviour this one copies:
one connection per node and lane, made when needed and paced when it fails; an attempt to connect
takes at most a second, to be accepted two; whatever breaks a connection ends all its streams.
Messages travel as bytes in the same bounded queues (``BufferedStream``).

Not copied: streams and calls on one connection do not keep their order among each other. HTTP/2
would, more or less, but nobody may rely on it.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tidelog.kernel.addresses import AddressBook
from tidelog.kernel.ids import NodeId
from tidelog.kernel.peers import (
    Lane,
    PeerDeadlineExceeded,
    PeerError,
    PeerIdentity,
    PeerMessage,
    PeerRefused,
    PeerStream,
    PeerUnavailable,
    Stream,
    StreamReset,
    Unary,
)
from tidelog.kernel.real.peer_streams import BufferedStream, StreamLimits, decode, encode
from tidelog.simulation.connections import End, SimConnection
from tidelog.simulation.links import Broken, Item
from tidelog.simulation.network import SimNetwork
from tidelog.simulation.processes import SimProcess
from tidelog.simulation.random import SimRandom

Request = TypeVar("Request", bound=PeerMessage)
Response = TypeVar("Response", bound=PeerMessage)

WINDOW_BYTES: Final = 256 * 1024
"""How much of one stream may be under way: what HTTP/2's flow control allows."""

_HEADER_BYTES: Final = 100
_FIRST_BACKOFF_S: Final = 0.020
_LAST_BACKOFF_S: Final = 0.200
_CONNECT_TIMEOUT_S: Final = 1.0
_ACCEPT_TIMEOUT_S: Final = 2.0


# The words of the protocol. Messages themselves travel as bytes.


@dataclass(frozen=True, slots=True)
class Opening:
    """The first item of an exchange: who calls whom, and what for."""

    path: str
    caller: PeerIdentity
    called: NodeId
    timeout_ms: float | None = None
    request: bytes = b""

    def __str__(self) -> str:
        return f"{self.path}({len(self.request)})"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The server's proof that a stream came about."""


@dataclass(frozen=True, slots=True)
class SaidAll:
    """The caller sends nothing more on this stream, but may still listen."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The handler has returned."""


@dataclass(frozen=True, slots=True)
class Refused:
    reason: str
    detail: str


class _Route:
    """The connection to one node for one lane."""

    def __init__(
        self,
        network: SimNetwork,
        process: SimProcess,
        node: NodeId,
        lane: Lane,
        addresses: AddressBook,
        random: SimRandom,
    ) -> None:
        self._network = network
        self._process = process
        self._node = node
        self._lane = lane
        self._addresses = addresses
        self._random = random
        self._connection: SimConnection | None = None
        self._dialling = asyncio.Lock()
        self._failures = 0
        self._not_before_s = 0.0

    async def open(self, label: str) -> End:
        """An exchange on a connection that is not known to be broken."""
        async with self._dialling:
            if (pause_s := self._not_before_s - self._network.loop.time()) > 0:
                await asyncio.sleep(pause_s)
            connection = await self._connected()
        return connection.open_exchange(WINDOW_BYTES, label)

    def answered(self) -> None:
        self._failures = 0

    def failed(self) -> None:
        """A call was lost. If that was for want of a connection, the next one has to wait."""
        if self._connection is not None and not self._connection.client.is_open:
            self._connection = None
            self._pause()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.break_side(self._connection.client, "closed by this node")

    async def _connected(self) -> SimConnection:
        address = self._addresses.dialled(self._node)
        if address is None:
            self._pause()
            raise PeerUnavailable(f"node {self._node} has no known address")
        known = self._connection
        if known is not None and known.client.is_open and known.server.address == address:
            return known
        self.close()
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                dialled = self._network.connect(self._process, address, self._lane.value)
                self._connection = await dialled
        except OSError as error:  # a TimeoutError too
            self._pause()
            why = str(error) or "no answer"
            raise PeerUnavailable(f"node {self._node} at {address}: {why}") from error
        return self._connection

    def _pause(self) -> None:
        backoff_s = min(_FIRST_BACKOFF_S * 2 ** min(self._failures, 10), _LAST_BACKOFF_S)
        self._failures += 1
        jittered_s = backoff_s * (0.8 + 0.2 * self._random.random())
        self._not_before_s = self._network.loop.time() + jittered_s


class SimPeers:
    """The other nodes, as the node ``identity`` sees them from its ``process``."""

    def __init__(
        self,
        network: SimNetwork,
        process: SimProcess,
        identity: PeerIdentity,
        addresses: AddressBook,
        *,
        limits: StreamLimits | None = None,
    ) -> None:
        self._network = network
        self._process = process
        self._identity = identity
        self._addresses = addresses
        self._limits = limits or StreamLimits()
        self._random = network.random.fork(f"peers of {process.name}")
        self._routes: dict[tuple[NodeId, Lane], _Route] = {}
        self._streams: dict[asyncio.Task[None], BufferedStream[Any, Any]] = {}

    async def call(
        self,
        node: NodeId,
        method: Unary[Request, Response],
        request: Request,
        *,
        timeout_ms: float,
    ) -> Response:
        data = encode(request)
        self._check_alive()
        route, name = self._route(node, method.lane), f"{method} of node {node}"
        deadline_s = self._network.loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline_s):
                end = await route.open(str(method))
        except TimeoutError:
            raise PeerUnavailable(f"node {node} is not there; {method} was not sent") from None
        opening = Opening(method.path, self._identity, node, timeout_ms, data)
        end.outgoing.put(opening, _HEADER_BYTES + len(data))
        try:
            async with asyncio.timeout_at(deadline_s):
                answer = await end.incoming.get()
        except TimeoutError:
            raise PeerDeadlineExceeded(f"{name}: no answer in time") from None
        except Broken as broken:
            route.failed()
            raise PeerUnavailable(f"{name}: {broken}") from broken
        finally:
            end.reset("the caller has gone")
        route.answered()
        return _answer(method, node, name, answer)

    def open_stream(
        self, node: NodeId, method: Stream[Request, Response]
    ) -> PeerStream[Request, Response]:
        stream = BufferedStream[Request, Response](method.response, f"node {node}", self._limits)
        if not self._process.is_alive:
            stream.fail(PeerUnavailable(f"{self._process.name} is dead"))
            return stream
        task = self._process.start(self._run_stream(node, method, stream))
        self._streams[task] = stream
        task.add_done_callback(self._streams.pop)
        return stream

    async def close(self) -> None:
        """Drop every stream and connection."""
        for stream in list(self._streams.values()):
            stream.fail(StreamReset("closed by this node"))
        await asyncio.gather(*self._streams, return_exceptions=True)
        for route in self._routes.values():
            route.close()

    def _route(self, node: NodeId, lane: Lane) -> _Route:
        route = self._routes.get((node, lane))
        if route is None:
            random = self._random.fork(f"{node}/{lane.value}")
            route = _Route(self._network, self._process, node, lane, self._addresses, random)
            self._routes[node, lane] = route
        return route

    def _check_alive(self) -> None:
        if not self._process.is_alive:
            raise PeerUnavailable(f"{self._process.name} is dead")

    async def _run_stream(
        self,
        node: NodeId,
        method: Stream[Request, Response],
        stream: BufferedStream[Request, Response],
    ) -> None:
        """Dial, then move messages both ways until the stream is over."""
        route, name = self._route(node, method.lane), f"{method} of node {node}"
        dialling = asyncio.create_task(self._dial(node, method, route, name))
        given_up = asyncio.create_task(stream.over.wait())
        try:
            await asyncio.wait({dialling, given_up}, return_when=asyncio.FIRST_COMPLETED)
            if given_up.done():
                return
            await _carry(dialling.result(), route, stream, name)
        except PeerError as failure:
            stream.fail(failure)
        finally:
            stream.fail(StreamReset(f"{name}: connection closed"))
            await end_all(dialling, given_up)

    async def _dial(self, node: NodeId, method: Stream[Any, Any], route: _Route, name: str) -> End:
        end: End | None = None
        is_answered = False
        try:
            async with asyncio.timeout(_ACCEPT_TIMEOUT_S):
                end = await route.open(str(method))
                end.outgoing.put(Opening(method.path, self._identity, node), _HEADER_BYTES)
                first = await end.incoming.get()
            is_answered = True
        except TimeoutError:
            raise PeerUnavailable(f"{name}: not accepted in {_ACCEPT_TIMEOUT_S} s") from None
        except Broken as broken:
            route.failed()
            raise PeerUnavailable(f"{name}: {broken}") from broken
        finally:
            if end is not None and not is_answered:
                end.reset("the caller has gone")
        route.answered()
        if isinstance(first, Refused):
            raise PeerRefused(first.reason, f"{name}: {first.detail}")
        return end


def _answer(method: Unary[Any, Response], node: NodeId, name: str, answer: Item) -> Response:
    if isinstance(answer, Refused):
        raise PeerRefused(answer.reason, f"{name}: {answer.detail}")
    assert isinstance(answer, bytes)
    try:
        return decode(method.response, answer)
    except ValueError as error:
        raise PeerRefused("UNKNOWN_SERVER_ERROR", f"node {node} sent {error}") from error


async def _carry(end: End, route: _Route, stream: BufferedStream[Any, Any], name: str) -> None:
    async def bring_in() -> None:
        try:
            while isinstance(item := await end.incoming.get(), bytes):
                with contextlib.suppress(PeerError):  # closed here: read on, for how it ends
                    await stream.inbox.put(item)
            if isinstance(item, Refused):
                stream.fail(PeerRefused(item.reason, f"{name}: {item.detail}"))
            else:
                stream.fail(StreamReset(f"{name}: ended by the node"))
        except Broken as broken:
            route.failed()
            stream.fail(StreamReset(f"{name}: {broken}"))

    async def carry_out() -> None:
        with contextlib.suppress(Broken):
            await drain(stream, end)
            end.outgoing.put(SaidAll(), 0)

    reader, writer = asyncio.create_task(bring_in()), asyncio.create_task(carry_out())
    try:
        await stream.over.wait()
    finally:
        end.reset("the caller has gone")
        await end_all(reader, writer)


async def drain(stream: BufferedStream[Any, Any], end: End) -> None:
    """Send what is queued until the queue ends; ``Broken`` if the exchange does before."""
    with contextlib.suppress(PeerError):
        while True:
            data = await stream.outbox.take()
            await end.outgoing.room()
            end.outgoing.put(data, len(data))


async def end_all(*tasks: asyncio.Task[Any]) -> None:
    """Cancel what still runs and wait for it, so that no task outlives its stream."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
