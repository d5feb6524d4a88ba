"""``PeerServer`` over the simulated network: where the nodes of a simulation are called.

Owner: the node's start-up code. Callers are checked as the version on gRPC checks them. A real
server logs a handler that failed and lives on; here such a failure is a finding and fails the
simulation, while the caller still gets the refusal it would get from a real node. A machine that
crashed in a disk operation (``SimulatedCrash``) answers nothing any more.

A call may arrive twice where the link says so; only the first answer counts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.peers import (
    CallContext,
    PeerError,
    PeerIdentity,
    PeerMessage,
    PeerRefused,
    Stream,
    StreamHandler,
    StreamReset,
    Unary,
    UnaryHandler,
)
from tidelog.kernel.real.peer_streams import BufferedStream, StreamLimits, decode, encode
from tidelog.simulation.connections import End, SimConnection
from tidelog.simulation.disk_faults import SimulatedCrash
from tidelog.simulation.links import Broken, Item
from tidelog.simulation.network import SimNetwork
from tidelog.simulation.processes import SimProcess
from tidelog.simulation.sim_peers import Accepted, Ended, Opening, Refused, drain, end_all

Request = TypeVar("Request", bound=PeerMessage)
Response = TypeVar("Response", bound=PeerMessage)
Serve: TypeAlias = Callable[[SimConnection, End, Opening, CallContext], Awaitable[None]]


class SimPeerServer:
    """Answers for the node ``identity``, as part of ``process``."""

    def __init__(
        self,
        network: SimNetwork,
        process: SimProcess,
        identity: PeerIdentity,
        *,
        limits: StreamLimits | None = None,
    ) -> None:
        self._network = network
        self._process = process
        self._identity = identity
        self._limits = limits or StreamLimits()
        self._methods: dict[str, Serve] = {}
        self._address: SocketAddress | None = None
        self._connections: dict[SimConnection, None] = {}
        self._running: dict[asyncio.Task[Any], None] = {}

    def on_unary(
        self, method: Unary[Request, Response], handler: UnaryHandler[Request, Response]
    ) -> None:
        async def serve(
            connection: SimConnection, end: End, opening: Opening, caller: CallContext
        ) -> None:
            async def answer() -> Item:
                return await self._answer(method, handler, opening, caller)

            if connection.client.outgoing.draws(connection.client.outgoing.quality.duplicate):
                self._track(self._answer_late(connection, opening, answer))
            await self._serve_call(end, opening, answer)

        self._methods[method.path] = serve

    def on_stream(
        self, method: Stream[Request, Response], handler: StreamHandler[Response, Request]
    ) -> None:
        async def serve(
            connection: SimConnection, end: End, opening: Opening, caller: CallContext
        ) -> None:
            await self._host(method, handler, end, caller)

        self._methods[method.path] = serve

    async def start(self, address: SocketAddress) -> SocketAddress:
        try:
            self._address = self._network.listen(self._process, address, self._accept)
        except OSError as error:
            raise OSError(f"cannot listen on {address}: {error.strerror}") from error
        return self._address

    async def close(self) -> None:
        if self._address is not None:
            self._network.stop_listening(self._process, self._address)
        for connection in list(self._connections):
            connection.break_side(connection.server, "the server was closed")
        self._connections.clear()
        if self._running:
            grace_s = self._limits.close_grace_ms / 1000
            await asyncio.wait(list(self._running), timeout=grace_s)
        await end_all(*self._running)

    def _accept(self, connection: SimConnection) -> None:
        def serve(end: End) -> None:
            self._process.start(self._serve(connection, end))

        connection.on_exchange = serve
        live = [known for known in self._connections if known.server.is_open]
        self._connections = dict.fromkeys([*live, connection])

    async def _serve(self, connection: SimConnection, end: End) -> None:
        """Wait for what an exchange is about, then hand it to its method."""
        try:
            opening = await end.incoming.get()
        except Broken:
            return
        assert isinstance(opening, Opening)
        serve = self._methods.get(opening.path)
        try:
            if serve is None:
                raise PeerRefused("UNSUPPORTED_VERSION", "Method not found!")
            caller = self._identify(opening, connection)
        except PeerRefused as refusal:
            _conclude(end, Refused(refusal.reason, refusal.detail))
        else:
            await serve(connection, end, opening, caller)

    def _identify(self, opening: Opening, connection: SimConnection) -> CallContext:
        caller, ours = opening.caller, self._identity
        if caller.cluster_id != ours.cluster_id:
            detail = f"node {caller.node_id} belongs to cluster {caller.cluster_id}, "
            detail += f"node {ours.node_id} to cluster {ours.cluster_id}"
            raise PeerRefused("INCONSISTENT_CLUSTER_ID", detail)
        if opening.called != ours.node_id:
            detail = f"this is node {ours.node_id}, not node {opening.called}"
            raise PeerRefused("INVALID_VOTER_KEY", detail)
        return CallContext(caller, f"sim:{connection.client.address}")

    # Calls.

    async def _serve_call(
        self, end: End, opening: Opening, answer: Callable[[], Awaitable[Item]]
    ) -> None:
        handling = self._track(answer())
        timeout_s = None if opening.timeout_ms is None else opening.timeout_ms / 1000
        waited: set[asyncio.Future[Any]] = {handling, end.over}
        await asyncio.wait(waited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not handling.done():  # the caller has given up
            await end_all(handling)
        elif not handling.cancelled() and handling.exception() is None:
            _conclude(end, handling.result())

    async def _answer_late(
        self,
        connection: SimConnection,
        opening: Opening,
        answer: Callable[[], Awaitable[Item]],
    ) -> None:
        link = connection.client.outgoing
        await asyncio.sleep(max(0.0, link.arrival_s(len(opening.request)) - link.now_s()))
        await answer()

    async def _answer(
        self,
        method: Unary[Request, Response],
        handler: UnaryHandler[Request, Response],
        opening: Opening,
        caller: CallContext,
    ) -> Item:
        try:
            request = _decode_request(method, opening.request)
            return encode(await handler(caller, request))
        except PeerRefused as refusal:
            return Refused(refusal.reason, refusal.detail)
        except Exception as defect:  # reported, and it fails the simulation
            self._report(str(method), defect)
            return Refused("UNKNOWN_SERVER_ERROR", f"Unexpected {type(defect)}: {defect}")

    # Streams.

    async def _host(
        self,
        method: Stream[Request, Response],
        handler: StreamHandler[Response, Request],
        end: End,
        caller: CallContext,
    ) -> None:
        """Lend a stream to its handler, and end it with what the handler ends with."""
        end.outgoing.put(Accepted())
        name = f"node {caller.caller.node_id}"
        stream = BufferedStream[Response, Request](method.request, name, self._limits)
        reader = asyncio.create_task(_bring_in(end, stream, name))
        writer = asyncio.create_task(_carry_out(end, stream))
        handling = self._track(self._handle(method, handler, caller, stream))
        end.over.add_done_callback(lambda _: stream.fail(StreamReset(f"{method}: {name} is gone")))
        try:
            await asyncio.wait({handling})
            stream.outbox.end(StreamReset("the handler has returned"))
            await asyncio.wait({writer}, timeout=self._limits.send_stall_ms / 1000)
        finally:
            stream.fail(StreamReset(f"{method}: {name} is gone"))
            await end_all(reader, writer)
        if handling.cancelled():
            end.reset("the handler was ended")
        elif handling.exception() is None:
            _conclude(end, handling.result())

    async def _handle(
        self,
        method: Stream[Request, Response],
        handler: StreamHandler[Response, Request],
        caller: CallContext,
        stream: BufferedStream[Response, Request],
    ) -> Item:
        try:
            await handler(caller, stream)
        except PeerRefused as refusal:
            return Refused(refusal.reason, refusal.detail)
        except PeerError:
            return Ended()
        except Exception as defect:  # reported, and it fails the simulation
            self._report(str(method), defect)
            return Refused("UNKNOWN_SERVER_ERROR", f"Unexpected {type(defect)}: {defect}")
        return Ended()

    def _report(self, what: str, defect: Exception) -> None:
        if self._process.is_alive:
            self._network.report(self._process, f"the handler of {what}", defect)

    def _track(self, work: Awaitable[Item]) -> asyncio.Task[Item]:
        async def run() -> Item:
            return await work

        task = asyncio.create_task(run())
        self._running[task] = None
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and isinstance(error := task.exception(), SimulatedCrash):
            self._network.trace.note(self._process.host, "crashed", error=error)


def _conclude(end: End, last: Item) -> None:
    size = len(last) if isinstance(last, bytes) else 0
    end.outgoing.put(last, size)
    end.break_off("answered")


def _decode_request(method: Unary[Request, Response], data: bytes) -> Request:
    try:
        return decode(method.request, data)
    except ValueError as error:
        raise PeerRefused("INVALID_REQUEST", f"{method} got {error}") from error


async def _bring_in(end: End, stream: BufferedStream[Any, Any], name: str) -> None:
    with contextlib.suppress(Broken):  # the caller has gone
        while isinstance(item := await end.incoming.get(), bytes):
            with contextlib.suppress(PeerError):  # closed here; read on until the handler returns
                await stream.inbox.put(item)
    # Only this direction: a caller that has said all may still listen.
    stream.inbox.end(StreamReset(f"{name} has ended it"))


async def _carry_out(end: End, stream: BufferedStream[Any, Any]) -> None:
    with contextlib.suppress(Broken):
        await drain(stream, end)
