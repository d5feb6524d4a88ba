"""``PeerServer`` on gRPC: where the other nodes call this one.

Owner: the node's start-up code. Every call is checked before its handler sees it: it must come
from this cluster and be meant for this node. Whoever cannot say who he is, speaks another
protocol or sends too much loses his own call or connection, and nobody else notices.

The handler of a stream runs in a task of its own and is not cancelled when its caller goes: it
learns of the end by ``StreamReset`` and finishes in its own time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.http2_frames import Headers, Status
from tidelog.kernel.ids import IncarnationId, NodeId, Uuid
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
from tidelog.kernel.real.http2_connection import Http2Connection
from tidelog.kernel.real.listener import SocketSizes, bind
from tidelog.kernel.real.peer_streams import BufferedStream, StreamLimits, decode, encode
from tidelog.kernel.real.peers import (
    CALLED_NODE_KEY,
    CLUSTER_KEY,
    CONTENT_TYPE,
    INCARNATION_KEY,
    NODE_KEY,
    REASON_KEY,
    carry_out,
    end_all,
)

Request = TypeVar("Request", bound=PeerMessage)
Response = TypeVar("Response", bound=PeerMessage)

_log = logging.getLogger(__name__)

_ACCEPTED: Final = {":status": "200", "content-type": CONTENT_TYPE}
_ANSWERED: Final = {"grpc-status": str(int(Status.OK))}
_TIME_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_LEGIBLE: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""What gRPC leaves as it is in a status message."""


class _Wire:
    """One stream of one connection, as its handler's side has it."""

    def __init__(self, connection: Http2Connection, number: int, headers: Headers) -> None:
        self.connection = connection
        self.number = number
        self.headers = headers
        self._has_accepted = False

    def accept(self) -> None:
        """Tells the caller that the call came about."""
        self._has_accepted = True
        self.connection.send_headers(self.number, _ACCEPTED)

    def end(self, trailers: Headers) -> None:
        first = {} if self._has_accepted else _ACCEPTED
        self.connection.finish(self.number, {**first, **trailers})

    def refuse(self, refusal: PeerRefused) -> None:
        status = _status(Status.FAILED_PRECONDITION, refusal.detail)
        self.end({**status, REASON_KEY: refusal.reason})


class _Call:
    """A call: its task begins when the question is whole, and is cancelled when the caller goes."""

    def __init__(self, wire: _Wire, answer: Callable[[bytes], asyncio.Task[None]]) -> None:
        self._wire = wire
        self._answer = answer
        self._question: list[bytes] = []
        self._task: asyncio.Task[None] | None = None

    def on_headers(self, headers: Headers, *, is_end: bool) -> None:
        if is_end:
            self._begin()

    def on_messages(self, messages: tuple[bytes, ...], *, is_end: bool) -> bool:
        self._question += messages
        if is_end:
            self._begin()
        return len(self._question) <= 1

    def on_fault(self, status: Status, detail: str) -> None:
        self._wire.end(_status(status, detail))

    def on_gone(self, reason: str) -> None:
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        if len(self._question) != 1:
            told = f"a call has one message, not {len(self._question)}"
            self._wire.end(_status(Status.INVALID_ARGUMENT, told))
        else:
            self._task = self._answer(self._question[0])


class _StreamOfHandler:
    """The handler's end of a stream on the wire."""

    def __init__(self, wire: _Wire, stream: BufferedStream[Any, Any], name: str) -> None:
        self._wire = wire
        self._stream = stream
        self._name = name

    def on_headers(self, headers: Headers, *, is_end: bool) -> None:
        if is_end:
            self._end()

    def on_messages(self, messages: tuple[bytes, ...], *, is_end: bool) -> bool:
        for data in messages:
            self._stream.inbox.add(data)
        if is_end:
            self._end()
        return self._stream.inbox.has_room()

    def on_fault(self, status: Status, detail: str) -> None:
        self._wire.end(_status(status, detail))
        self._stream.fail(StreamReset(f"{self._name} sent {detail}"))

    def on_gone(self, reason: str) -> None:
        self._stream.fail(StreamReset(f"{self._name} is gone: {reason}"))

    def _end(self) -> None:
        # Only this direction: a caller that has said all may still listen.
        self._stream.inbox.end(StreamReset(f"{self._name} has ended it"))


Begin: TypeAlias = Callable[[_Wire, CallContext, bool], None]


class GrpcPeerServer:
    """Answers for the node ``identity``."""

    def __init__(self, identity: PeerIdentity, *, limits: StreamLimits | None = None) -> None:
        self._identity = identity
        self._limits = limits or StreamLimits()
        self._methods: dict[str, Begin] = {}
        self._server: asyncio.Server | None = None
        self._connections: set[Http2Connection] = set()
        self._running: set[asyncio.Task[None]] = set()

    def on_unary(
        self, method: Unary[Request, Response], handler: UnaryHandler[Request, Response]
    ) -> None:
        def begin(wire: _Wire, caller: CallContext, is_end: bool) -> None:
            def answer(data: bytes) -> asyncio.Task[None]:
                return self._track(self._answer(method, handler, wire, caller, data))

            call = _Call(wire, answer)
            wire.connection.adopt(wire.number, call)
            if is_end:
                call.on_messages((), is_end=True)

        self._methods[method.path] = begin

    def on_stream(
        self, method: Stream[Request, Response], handler: StreamHandler[Response, Request]
    ) -> None:
        def begin(wire: _Wire, caller: CallContext, is_end: bool) -> None:
            name = f"node {caller.caller.node_id}"
            stream = BufferedStream[Response, Request](method.request, name, self._limits)
            end = _StreamOfHandler(wire, stream, name)
            wire.connection.adopt(wire.number, end)
            wire.accept()
            if is_end:
                end.on_messages((), is_end=True)
            stream.inbox.on_room = lambda: wire.connection.credit(wire.number)
            self._track(self._host(method, wire, stream, handler(caller, stream)))

        self._methods[method.path] = begin

    async def start(self, address: SocketAddress) -> SocketAddress:
        try:
            listening = await bind(address.host, address.port, SocketSizes())
        except OSError as error:
            raise OSError(f"cannot listen on {address}: {error}") from error
        port: int = listening.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._greet, sock=listening)
        return SocketAddress(address.host, port)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()
        if self._running:
            grace_s = self._limits.close_grace_ms / 1000
            await asyncio.wait(self._running, timeout=grace_s)
        await end_all(*self._running)
        await asyncio.gather(*(connection.closed() for connection in self._connections))

    def _greet(self) -> Http2Connection:
        connection = Http2Connection(self._accept)
        self._connections.add(connection)
        connection.on_lost = self._connections.discard
        return connection

    def _accept(
        self, connection: Http2Connection, number: int, headers: Headers, is_end: bool
    ) -> None:
        wire = _Wire(connection, number, headers)
        begin = self._methods.get(headers.get(":path", ""))
        if begin is None:
            told = f"{headers.get(':path')} is not served here"
            wire.end(_status(Status.UNIMPLEMENTED, told))
            return
        try:
            caller = self._identify(headers, connection.remote)
        except PeerRefused as refusal:
            wire.refuse(refusal)
            return
        begin(wire, caller, is_end)

    async def _answer(
        self,
        method: Unary[Request, Response],
        handler: UnaryHandler[Request, Response],
        wire: _Wire,
        caller: CallContext,
        data: bytes,
    ) -> None:
        try:
            async with asyncio.timeout(_seconds(wire.headers.get("grpc-timeout"))):
                response = await handler(caller, _decode_request(method, data))
            answer = encode(response)
        except PeerRefused as refusal:
            wire.refuse(refusal)
        except TimeoutError:
            wire.end(_status(Status.DEADLINE_EXCEEDED, f"{method} took too long"))
        except Exception as error:  # a defect of the handler costs its caller only
            _log.exception("%s failed", method)
            wire.end(_status(Status.UNKNOWN, f"{method} failed: {error!r}"))
        else:
            wire.accept()
            wire.connection.send(wire.number, answer)
            wire.end(_ANSWERED)

    async def _host(
        self,
        method: Stream[Request, Response],
        wire: _Wire,
        stream: BufferedStream[Response, Request],
        handling: Awaitable[None],
    ) -> None:
        """Lend a stream to its handler, and end it with what the handler ends with."""
        writer = asyncio.create_task(carry_out(stream, wire.connection, wire.number))
        last = _ANSWERED
        try:
            await handling
        except PeerRefused as refusal:
            last = {
                **_status(Status.FAILED_PRECONDITION, refusal.detail),
                REASON_KEY: refusal.reason,
            }
        except PeerError as end:
            _log.debug("%s ended: %s", method, end)
        except Exception as error:
            last = _status(Status.UNKNOWN, f"{method} failed: {error!r}")
            raise
        finally:
            stream.outbox.end(StreamReset("the handler has returned"))
            await asyncio.wait({writer}, timeout=self._limits.send_stall_ms / 1000)
            stream.fail(StreamReset(f"{method}: the handler has returned"))
            await end_all(writer)
            if wire.connection.is_held_up(wire.number):
                wire.connection.drop(wire.number)  # nobody reads it
            wire.end(last)

    def _track(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("a handler failed", exc_info=error)

    def _identify(self, sent: Headers, remote: str) -> CallContext:
        caller = _stated_identity(sent)
        ours = self._identity
        if caller.cluster_id != ours.cluster_id:
            detail = f"node {caller.node_id} belongs to cluster {caller.cluster_id}, "
            detail += f"node {ours.node_id} to cluster {ours.cluster_id}"
            raise PeerRefused("INCONSISTENT_CLUSTER_ID", detail)
        if sent.get(CALLED_NODE_KEY) != str(ours.node_id):
            detail = f"this is node {ours.node_id}, not node {sent.get(CALLED_NODE_KEY)}"
            raise PeerRefused("INVALID_VOTER_KEY", detail)
        return CallContext(caller, remote)


def _stated_identity(sent: Headers) -> PeerIdentity:
    try:
        return PeerIdentity(
            NodeId(int(sent[NODE_KEY])),
            sent[CLUSTER_KEY],
            IncarnationId(Uuid.parse(sent[INCARNATION_KEY])),
        )
    except (KeyError, ValueError) as error:
        detail = f"the caller does not say who it is ({error})"
        raise PeerRefused("INVALID_REQUEST", detail) from error


def _decode_request(method: Unary[Request, Response], data: bytes) -> Request:
    try:
        return decode(method.request, data)
    except ValueError as error:
        raise PeerRefused("INVALID_REQUEST", f"{method} got {error}") from error


def _status(status: Status, detail: str) -> dict[str, str]:
    return {"grpc-status": str(int(status)), "grpc-message": quote(detail, safe=_LEGIBLE)}


def _seconds(timeout: str | None) -> float | None:
    """gRPC's notation of a caller's patience; what is none counts as endless."""
    if not timeout or not timeout[:-1].isdigit():
        return None
    unit_s = _TIME_UNITS.get(timeout[-1])
    return None if unit_s is None else int(timeout[:-1]) * unit_s
