"""``Peers`` on gRPC: how this node dials the others.

Owner: the node's start-up code, which closes it. Each (node, lane) has a link with one channel,
that is one connection. gRPC's own back-off cannot go below 100 ms, so a link whose connection
failed drops its channel and makes another after 20 to 200 ms; a new channel costs 20 µs.

Two gRPC habits shape the code. A call that is cancelled because its channel closes raises
``CancelledError`` in a task that nobody cancelled: therefore each call is awaited in a task of
its own stream, or its channel is closed only after a grace. And a stream is dialled lazily: the
server's initial metadata, sent before its handler starts, is the proof that it came about.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import random
from typing import Any, Final, TypeAlias, TypeVar

import grpc
import grpc.aio

from tidelog.kernel.addresses import AddressBook, SocketAddress
from tidelog.kernel.ids import NodeId
from tidelog.kernel.peers import (
    MAX_MESSAGE_BYTES,
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

Request = TypeVar("Request", bound=PeerMessage)
Response = TypeVar("Response", bound=PeerMessage)
RawCall: TypeAlias = "grpc.aio.StreamStreamCall[bytes, bytes]"
ChannelOption: TypeAlias = tuple[str, int | str]

CLUSTER_KEY: Final = "tidelog-cluster-id"
NODE_KEY: Final = "tidelog-node-id"
INCARNATION_KEY: Final = "tidelog-incarnation-id"
CALLED_NODE_KEY: Final = "tidelog-called-node-id"
REASON_KEY: Final = "tidelog-reason"

SHARED_OPTIONS: Final[tuple[ChannelOption, ...]] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # For connections that die without a word (a cut cable). Liveness never rests on these: gRPC's
    # threads answer them while our event loop hangs.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)

_DIAL_OPTIONS: Final[tuple[ChannelOption, ...]] = (
    *SHARED_OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),  # else channels to one address share a connection
    ("grpc.enable_http_proxy", 0),  # node-to-node traffic never follows http_proxy
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.min_reconnect_backoff_ms", 1_000),  # how long one attempt to connect may take
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.primary_user_agent", "tidelog"),
)

_FIRST_BACKOFF_S: Final = 0.020
_LAST_BACKOFF_S: Final = 0.200
_ACCEPT_TIMEOUT_S: Final = 2.0
_RETIRE_GRACE_S: Final = 1.0

# What gRPC itself refuses, by the name of the Kafka error that says it best.
_REASONS: Final = {
    grpc.StatusCode.UNIMPLEMENTED: "UNSUPPORTED_VERSION",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "MESSAGE_TOO_LARGE",
    grpc.StatusCode.INVALID_ARGUMENT: "INVALID_REQUEST",
}
_LOST: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,  # a reset of the HTTP/2 stream, or no HTTP/2 at all
)


def dial_target(address: SocketAddress) -> str:
    """The address in gRPC's syntax; a literal one needs no resolver and is dialled at once."""
    try:
        version = ipaddress.ip_address(address.host).version
    except ValueError:
        return f"dns:///{address}"
    return f"ipv{version}:{address}"


def identity_metadata(identity: PeerIdentity, called: NodeId) -> tuple[tuple[str, str], ...]:
    return (
        (CLUSTER_KEY, identity.cluster_id),
        (NODE_KEY, str(identity.node_id)),
        (INCARNATION_KEY, str(identity.incarnation_id)),
        (CALLED_NODE_KEY, str(called)),
    )


class _Link:
    """The connection to one node for one lane, made when needed and paced when it fails."""

    def __init__(self, node: NodeId, addresses: AddressBook) -> None:
        self._node = node
        self._addresses = addresses
        self._channel: grpc.aio.Channel | None = None
        self._address: SocketAddress | None = None
        self._failures = 0
        self._not_before_s = 0.0
        self._retiring: set[asyncio.Task[None]] = set()

    async def channel(self) -> grpc.aio.Channel:
        """A channel that is not known to be broken, after the pause that is due."""
        if (pause_s := self._not_before_s - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(pause_s)
        address = self._addresses.dialled(self._node)
        if address is None:
            self._pause()  # callers in a loop are paced here too
            raise PeerUnavailable(f"node {self._node} has no known address")
        if self._channel is None or address != self._address:
            self._retire()
            self._address = address
            self._channel = grpc.aio.insecure_channel(dial_target(address), options=_DIAL_OPTIONS)
        return self._channel

    def answered(self) -> None:
        self._failures = 0

    def failed(self, channel: grpc.aio.Channel) -> None:
        """A call on this channel found nobody. The first to say so ends the channel."""
        if channel is self._channel and channel.get_state() is not grpc.ChannelConnectivity.READY:
            self._retire()
            self._pause()

    async def close(self) -> None:
        self._retire(grace_s=0)
        await asyncio.gather(*self._retiring)

    def _pause(self) -> None:
        backoff_s = min(_FIRST_BACKOFF_S * 2 ** min(self._failures, 10), _LAST_BACKOFF_S)
        self._failures += 1
        jittered_s = backoff_s * random.uniform(0.8, 1.0)
        self._not_before_s = asyncio.get_running_loop().time() + jittered_s

    def _retire(self, grace_s: float = _RETIRE_GRACE_S) -> None:
        if self._channel is not None:
            task = asyncio.create_task(self._channel.close(grace_s))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
            self._channel = None


class GrpcPeers:
    """The other nodes, as the node ``identity`` sees them."""

    def __init__(
        self,
        identity: PeerIdentity,
        addresses: AddressBook,
        *,
        limits: StreamLimits | None = None,
    ) -> None:
        self._identity = identity
        self._addresses = addresses
        self._limits = limits or StreamLimits()
        self._links: dict[tuple[NodeId, Lane], _Link] = {}
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
        link = self._link(node, method.lane)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline_s):
                channel = await link.channel()
        except TimeoutError:
            raise PeerUnavailable(f"node {node} is not there; {method} was not sent") from None
        ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method.path)
        metadata = identity_metadata(self._identity, node)
        try:
            answer = await ask(data, timeout=deadline_s - loop.time(), metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise self._judge(error, link, channel, f"{method} of node {node}") from error
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise PeerUnavailable(f"{method} of node {node}: connection closed") from None
        link.answered()
        try:
            return decode(method.response, answer)
        except ValueError as error:
            raise PeerRefused("UNKNOWN_SERVER_ERROR", f"node {node} sent {error}") from error

    def open_stream(
        self, node: NodeId, method: Stream[Request, Response]
    ) -> PeerStream[Request, Response]:
        stream = BufferedStream[Request, Response](method.response, f"node {node}", self._limits)
        task = asyncio.create_task(self._run_stream(node, method, stream))
        self._streams[task] = stream
        task.add_done_callback(self._streams.pop)
        return stream

    async def close(self) -> None:
        """Drop every stream and connection."""
        for stream in list(self._streams.values()):
            stream.fail(StreamReset("closed by this node"))
        # Go on whatever became of a stream: a channel or server left open hangs the process.
        await asyncio.gather(*self._streams, return_exceptions=True)
        await asyncio.gather(*(link.close() for link in self._links.values()))

    def _link(self, node: NodeId, lane: Lane) -> _Link:
        link = self._links.get((node, lane))
        if link is None:
            link = self._links[node, lane] = _Link(node, self._addresses)
        return link

    async def _run_stream(
        self,
        node: NodeId,
        method: Stream[Request, Response],
        stream: BufferedStream[Request, Response],
    ) -> None:
        """Dial, then move messages both ways until the stream is over."""
        link = self._link(node, method.lane)
        name = f"{method} of node {node}"
        dialling = asyncio.create_task(self._dial(node, method.path, link, name))
        given_up = asyncio.create_task(stream.over.wait())
        await asyncio.wait({dialling, given_up}, return_when=asyncio.FIRST_COMPLETED)
        try:
            if given_up.done() or dialling.cancelled():
                stream.fail(PeerUnavailable(f"{name}: connection closed"))
            else:
                await self._carry(*dialling.result(), link, stream, name)
        except PeerError as failure:
            stream.fail(failure)
        finally:
            await end_all(dialling, given_up)

    async def _dial(
        self, node: NodeId, path: str, link: _Link, name: str
    ) -> tuple[RawCall, grpc.aio.Channel]:
        channel = await link.channel()
        dial: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(path)
        call: RawCall = dial(metadata=identity_metadata(self._identity, node))
        is_accepted = False
        try:
            async with asyncio.timeout(_ACCEPT_TIMEOUT_S):
                await call.initial_metadata()
                # A call that failed has empty metadata; reading raises what happened to it.
                if call.done() and await call.code() is not grpc.StatusCode.OK:
                    await call.read()
            is_accepted = True
        except TimeoutError:
            raise PeerUnavailable(f"{name}: not accepted in {_ACCEPT_TIMEOUT_S} s") from None
        except grpc.aio.AioRpcError as error:
            raise self._judge(error, link, channel, name) from error
        finally:
            if not is_accepted:
                call.cancel()
        link.answered()
        return call, channel

    async def _carry(
        self,
        call: RawCall,
        channel: grpc.aio.Channel,
        link: _Link,
        stream: BufferedStream[Request, Response],
        name: str,
    ) -> None:
        async def bring_in() -> None:
            try:
                while isinstance(data := await call.read(), bytes):
                    with contextlib.suppress(PeerError):  # closed here: read on, for the status
                        await stream.inbox.put(data)
                stream.fail(StreamReset(f"{name}: ended by the node"))
            except grpc.aio.AioRpcError as error:
                failure = self._judge(error, link, channel, name)
                is_lost = isinstance(failure, PeerUnavailable | PeerDeadlineExceeded)
                stream.fail(StreamReset(str(failure)) if is_lost else failure)

        async def carry_out() -> None:
            # Errors of writing are left to the reader, which learns why.
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await _drain(stream, call)

        def end(_: asyncio.Task[None]) -> None:
            stream.fail(StreamReset(f"{name}: connection closed"))

        reader, writer = asyncio.create_task(bring_in()), asyncio.create_task(carry_out())
        reader.add_done_callback(end)
        try:
            await stream.over.wait()
        finally:
            call.cancel()
            await end_all(reader, writer)

    def _judge(
        self, error: grpc.aio.AioRpcError, link: _Link, channel: grpc.aio.Channel, name: str
    ) -> PeerError:
        """What a failed call means to us, and to the link it failed on."""
        code, detail = error.code(), error.details() or ""
        if code in _LOST:
            link.failed(channel)
            return PeerUnavailable(f"{name}: {detail}")
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return PeerDeadlineExceeded(f"{name}: no answer in time")
        link.answered()
        reasons = [value for key, value in error.trailing_metadata() or () if key == REASON_KEY]
        reason = str(reasons[0]) if reasons else _REASONS.get(code, "UNKNOWN_SERVER_ERROR")
        return PeerRefused(reason, f"{name}: {detail}")


async def _drain(stream: BufferedStream[Any, Any], call: RawCall) -> None:
    """Send what is queued until the queue ends, then say that no more will come."""
    with contextlib.suppress(PeerError):
        while True:
            await call.write(await stream.outbox.take())
    await call.done_writing()


def _is_cancelled() -> bool:
    """Whether somebody cancelled this task; gRPC raises CancelledError for its own ends too."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def end_all(*tasks: asyncio.Task[Any]) -> None:
    """Cancel what still runs and wait for it, so that no task outlives its stream."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
