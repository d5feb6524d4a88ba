"""``PeerServer`` on gRPC: where the other nodes call this one.

Owner: the node's start-up code. Every call is checked before its handler sees it: it must come
from this cluster and be meant for this node. Whoever cannot say who he is, speaks another
protocol or sends too much loses his own call or connection, and nobody else notices.

gRPC cancels the coroutine of a stream when its caller goes. The handler therefore runs in a task
of its own: it learns of the end by ``StreamReset`` and finishes in its own time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from typing import Any, NoReturn, TypeAlias, TypeVar

import grpc
import grpc.aio

from tidelog.kernel.addresses import SocketAddress
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
from tidelog.kernel.real.peer_streams import BufferedStream, StreamLimits, decode, encode
from tidelog.kernel.real.peers import (
    CALLED_NODE_KEY,
    CLUSTER_KEY,
    INCARNATION_KEY,
    NODE_KEY,
    REASON_KEY,
    SHARED_OPTIONS,
    end_all,
)

Request = TypeVar("Request", bound=PeerMessage)
Response = TypeVar("Response", bound=PeerMessage)
RawContext: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
Method: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

_log = logging.getLogger(__name__)

_SERVER_OPTIONS = (
    *SHARED_OPTIONS,
    ("grpc.so_reuseport", 0),  # else two nodes could share a port without noticing
    ("grpc.max_concurrent_streams", 1024),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    # Our own nodes ping at their own pace; a connection must not be closed over that.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
)


class _Router(grpc.GenericRpcHandler):
    def __init__(self) -> None:
        self.methods: dict[str, Method] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Method | None:
        return self.methods.get(handler_call_details.method)


class GrpcPeerServer:
    """Answers for the node ``identity``."""

    def __init__(self, identity: PeerIdentity, *, limits: StreamLimits | None = None) -> None:
        self._identity = identity
        self._limits = limits or StreamLimits()
        self._router = _Router()
        self._server: grpc.aio.Server | None = None
        self._running: set[asyncio.Task[None]] = set()

    def on_unary(
        self, method: Unary[Request, Response], handler: UnaryHandler[Request, Response]
    ) -> None:
        async def serve(data: bytes, context: RawContext) -> bytes:
            return await self._answer(method, handler, data, context)

        self._router.methods[method.path] = grpc.unary_unary_rpc_method_handler(serve)

    def on_stream(
        self, method: Stream[Request, Response], handler: StreamHandler[Response, Request]
    ) -> None:
        async def serve(_: object, context: RawContext) -> None:
            await self._host(method, handler, context)

        self._router.methods[method.path] = grpc.stream_stream_rpc_method_handler(serve)

    async def start(self, address: SocketAddress) -> SocketAddress:
        server = grpc.aio.server(options=_SERVER_OPTIONS)
        server.add_generic_rpc_handlers((self._router,))
        try:
            port = server.add_insecure_port(str(_bindable(address)))
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {error}") from error
        await server.start()
        self._server = server
        return SocketAddress(address.host, port)

    async def close(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=None)
        if self._running:
            grace_s = self._limits.close_grace_ms / 1000
            await asyncio.wait(self._running, timeout=grace_s)
        await end_all(*self._running)

    async def _answer(
        self,
        method: Unary[Request, Response],
        handler: UnaryHandler[Request, Response],
        data: bytes,
        context: RawContext,
    ) -> bytes:
        try:
            caller = self._identify(context)
            response = await handler(caller, _decode_request(method, data))
        except PeerRefused as refusal:
            await _refuse(context, refusal)
        return encode(response)

    async def _host(
        self,
        method: Stream[Request, Response],
        handler: StreamHandler[Response, Request],
        context: RawContext,
    ) -> None:
        """Lend a stream to its handler, and end it with what the handler ends with."""
        try:
            caller = self._identify(context)
        except PeerRefused as refusal:
            await _refuse(context, refusal)
        await context.send_initial_metadata(())  # tells the caller that it came about
        name = f"node {caller.caller.node_id}"
        stream = BufferedStream[Response, Request](method.request, name, self._limits)
        reader = asyncio.create_task(_bring_in(context, stream, name))
        writer = asyncio.create_task(_carry_out(context, stream))
        handling = self._track(handler(caller, stream))
        try:
            await asyncio.wait({handling})
            stream.outbox.end(StreamReset("the handler has returned"))
            await asyncio.wait({writer}, timeout=self._limits.send_stall_ms / 1000)
        finally:  # also when gRPC cancels this because the caller has gone
            stream.fail(StreamReset(f"{method}: {name} is gone"))
            await end_all(reader, writer)
        try:
            handling.result()
        except PeerRefused as refusal:
            await _refuse(context, refusal)
        except PeerError as end:
            _log.debug("%s from %s ended: %s", method, name, end)

    def _track(self, handling: Awaitable[None]) -> asyncio.Task[None]:
        async def run() -> None:
            await handling

        task = asyncio.create_task(run())
        self._running.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, PeerError):
            _log.error("a handler of a stream failed", exc_info=error)

    def _identify(self, context: RawContext) -> CallContext:
        sent = {key: str(value) for key, value in context.invocation_metadata() or ()}
        caller = _stated_identity(sent)
        ours = self._identity
        if caller.cluster_id != ours.cluster_id:
            detail = f"node {caller.node_id} belongs to cluster {caller.cluster_id}, "
            detail += f"node {ours.node_id} to cluster {ours.cluster_id}"
            raise PeerRefused("INCONSISTENT_CLUSTER_ID", detail)
        if sent.get(CALLED_NODE_KEY) != str(ours.node_id):
            detail = f"this is node {ours.node_id}, not node {sent.get(CALLED_NODE_KEY)}"
            raise PeerRefused("INVALID_VOTER_KEY", detail)
        return CallContext(caller, context.peer())


def _stated_identity(sent: dict[str, str]) -> PeerIdentity:
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


async def _refuse(context: RawContext, refusal: PeerRefused) -> NoReturn:
    code = grpc.StatusCode.FAILED_PRECONDITION
    await context.abort(code, refusal.detail, ((REASON_KEY, refusal.reason),))


async def _bring_in(context: RawContext, stream: BufferedStream[Any, Any], name: str) -> None:
    with contextlib.suppress(grpc.aio.BaseError):  # the caller has gone
        while isinstance(data := await context.read(), bytes):
            with contextlib.suppress(PeerError):  # closed here; read on until the handler returns
                await stream.inbox.put(data)
    # Only this direction: a caller that has said all may still listen.
    stream.inbox.end(StreamReset(f"{name} has ended it"))


def _bindable(address: SocketAddress) -> SocketAddress:
    """No host means every interface, which gRPC wants to be told."""
    return address if address.host else SocketAddress("::", address.port)


async def _carry_out(context: RawContext, stream: BufferedStream[Any, Any]) -> None:
    with contextlib.suppress(PeerError, grpc.aio.BaseError):
        while True:
            await context.write(await stream.outbox.take())
