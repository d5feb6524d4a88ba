"""``Peers`` on gRPC: how this node dials the others.

Owner: the node's start-up code, which closes it. Each (node, lane) has a link with at most one
connection. A link whose connection failed makes another after 20 to 200 ms.

On the wire this is gRPC as any library speaks it; tests let grpcio talk to both sides. The
transport is our own (``tidelog.kernel.http2``) because grpcio, which has a thread of its own and
hands each message over, takes about twice the processor time (``make bench-transport``), and that
was more than all else that replication does. The server's headers, sent before its handler starts,
are the proof that a stream came about.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from tidelog.kernel.addresses import AddressBook, SocketAddress
from tidelog.kernel.http2_frames import Headers, Status
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
from tidelog.kernel.real.http2_connection import Http2Connection
from tidelog.kernel.real.peer_streams import BufferedStream, StreamLimits, decode, encode

Request = TypeVar("Request", bound=PeerMessage)
Response = TypeVar("Response", bound=PeerMessage)

CLUSTER_KEY: Final = "tidelog-cluster-id"
NODE_KEY: Final = "tidelog-node-id"
INCARNATION_KEY: Final = "tidelog-incarnation-id"
CALLED_NODE_KEY: Final = "tidelog-called-node-id"
REASON_KEY: Final = "tidelog-reason"
CONTENT_TYPE: Final = "application/grpc"

_FIRST_BACKOFF_S: Final = 0.020
_LAST_BACKOFF_S: Final = 0.200
_DIAL_TIMEOUT_S: Final = 1.0
_ACCEPT_TIMEOUT_S: Final = 2.0
_RETIRE_GRACE_S: Final = 1.0

# What gRPC itself refuses, by the name of the Kafka error that says it best.
_REASONS: Final = {
    Status.UNIMPLEMENTED: "UNSUPPORTED_VERSION",
    Status.RESOURCE_EXHAUSTED: "MESSAGE_TOO_LARGE",
    Status.INVALID_ARGUMENT: "INVALID_REQUEST",
}
_LOST: Final = (Status.UNAVAILABLE, Status.CANCELLED, Status.INTERNAL)


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
        self._address: SocketAddress | None = None
        self._connection: Http2Connection | None = None
        self._dialling: asyncio.Task[Http2Connection] | None = None
        self._failures = 0
        self._not_before_s = 0.0
        self._retiring: set[Http2Connection] = set()

    async def connection(self) -> Http2Connection:
        """A connection that is not known to be broken, after the pause that is due."""
        address = self._addresses.dialled(self._node)
        if address is not None and self._is_good(address):
            assert self._connection is not None
            return self._connection
        if (pause_s := self._not_before_s - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(pause_s)
            address = self._addresses.dialled(self._node)
        if address is None:
            self._pause()  # callers in a loop are paced here too
            raise PeerUnavailable(f"node {self._node} has no known address")
        if self._is_good(address):
            assert self._connection is not None
            return self._connection
        if self._dialling is None or address != self._address:
            self._retire()
            self._address = address
            self._dialling = asyncio.create_task(self._dial(address))
            self._dialling.add_done_callback(_mark_seen)
        # Others may wait for it as well: whoever gives up does not end it.
        return await asyncio.shield(self._dialling)

    def answered(self) -> None:
        self._failures = 0

    async def close(self) -> None:
        if self._dialling is not None:
            await end_all(self._dialling)
        self._retire()
        await asyncio.gather(*(connection.closed() for connection in self._retiring))

    def _is_good(self, address: SocketAddress) -> bool:
        is_there = self._connection is not None and self._connection.is_usable
        return is_there and address == self._address

    async def _dial(self, address: SocketAddress) -> Http2Connection:
        """Connect and wait for the greeting: a stopped process takes connections too."""
        loop = asyncio.get_running_loop()
        connection = Http2Connection()
        try:
            async with asyncio.timeout(_DIAL_TIMEOUT_S):
                await loop.create_connection(lambda: connection, address.host, address.port)
                await connection.ready
        except (OSError, TimeoutError) as error:
            if address == self._address:
                self._dialling = None
                self._pause()
            raise PeerUnavailable(f"node {self._node} at {address}: {_said(error)}") from error
        else:
            if address != self._address:
                raise PeerUnavailable(f"node {self._node} has moved to {self._address}")
            self._dialling = None
            self._connection = connection
            connection.on_lost = self._on_lost
            return connection
        finally:
            if connection is not self._connection:
                connection.close()

    def _on_lost(self, connection: Http2Connection) -> None:
        self._retiring.discard(connection)
        if connection is self._connection:
            self._connection = None
            self._pause()

    def _pause(self) -> None:
        backoff_s = min(_FIRST_BACKOFF_S * 2 ** min(self._failures, 10), _LAST_BACKOFF_S)
        self._failures += 1
        jittered_s = backoff_s * random.uniform(0.8, 1.0)
        self._not_before_s = asyncio.get_running_loop().time() + jittered_s

    def _retire(self) -> None:
        """Let streams of the old connection say their last; new ones go to another."""
        old, self._connection = self._connection, None
        if old is not None and not old.lost.is_set():
            self._retiring.add(old)
            asyncio.get_running_loop().call_later(_RETIRE_GRACE_S, old.close)


class _Answer:
    """The caller's end of a call: one message, then the status."""

    def __init__(self) -> None:
        self.done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._messages: list[bytes] = []

    def on_headers(self, headers: Headers, *, is_end: bool) -> None:
        failure = _failure_of(headers, is_end=is_end)
        if failure is not None:
            self._fail(failure)
        elif is_end and len(self._messages) != 1:
            self._fail(PeerRefused("UNKNOWN_SERVER_ERROR", f"{len(self._messages)} answers"))
        elif is_end and not self.done.done():
            self.done.set_result(self._messages[0])

    def on_messages(self, messages: tuple[bytes, ...], *, is_end: bool) -> bool:
        self._messages += messages
        if is_end:
            self._fail(PeerUnavailable("it ended without a status"))
        return len(self._messages) <= 1

    def on_fault(self, status: Status, detail: str) -> None:
        self._fail(_error_of(status, {}, f"the answer is {detail}"))

    def on_gone(self, reason: str) -> None:
        self._fail(PeerUnavailable(reason))

    def _fail(self, failure: PeerError) -> None:
        if not self.done.done():
            self.done.set_exception(failure)


class _StreamOfCaller:
    """The caller's end of a stream on the wire."""

    def __init__(self, stream: BufferedStream[Any, Any], name: str) -> None:
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stream = stream
        self._name = name

    def on_headers(self, headers: Headers, *, is_end: bool) -> None:
        failure = _failure_of(headers, is_end=is_end)
        if failure is not None:
            self._fail(failure)
        elif is_end:
            self._fail(StreamReset("ended by the node"))
        elif not self.accepted.done():
            self.accepted.set_result(None)

    def on_messages(self, messages: tuple[bytes, ...], *, is_end: bool) -> bool:
        for data in messages:
            self._stream.inbox.add(data)
        if is_end:
            self._fail(StreamReset("ended by the node"))
        return self._stream.inbox.has_room()

    def on_fault(self, status: Status, detail: str) -> None:
        self._fail(_error_of(status, {}, f"the node sent {detail}"))

    def on_gone(self, reason: str) -> None:
        self._fail(PeerUnavailable(reason))

    def _fail(self, failure: PeerError) -> None:
        named = _named(failure, self._name)
        if not self.accepted.done():
            self.accepted.set_exception(named)
        elif isinstance(named, PeerUnavailable | PeerDeadlineExceeded):
            self._stream.fail(StreamReset(str(named)))
        else:
            self._stream.fail(named)


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
        name = f"{method} of node {node}"
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline_s):
                connection = await link.connection()
        except TimeoutError:
            raise PeerUnavailable(f"node {node} is not there; {method} was not sent") from None
        headers = self._headers(node, method.path)
        headers["grpc-timeout"] = f"{max(1, int((deadline_s - loop.time()) * 1000))}m"
        try:
            async with asyncio.timeout_at(deadline_s):
                answer = await _ask(connection, headers, data)
        except TimeoutError:
            raise PeerDeadlineExceeded(f"{name}: no answer in time") from None
        except PeerError as error:
            if isinstance(error, PeerRefused):
                link.answered()
            raise _named(error, name) from error
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
        # Go on whatever became of a stream: a connection left open hangs the process.
        await asyncio.gather(*self._streams, return_exceptions=True)
        await asyncio.gather(*(link.close() for link in self._links.values()))

    def _link(self, node: NodeId, lane: Lane) -> _Link:
        link = self._links.get((node, lane))
        if link is None:
            link = self._links[node, lane] = _Link(node, self._addresses)
        return link

    def _headers(self, node: NodeId, path: str) -> dict[str, str]:
        return {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": f"node-{node}",
            "te": "trailers",
            "content-type": CONTENT_TYPE,
            "user-agent": "tidelog",
            **dict(identity_metadata(self._identity, node)),
        }

    async def _run_stream(
        self,
        node: NodeId,
        method: Stream[Request, Response],
        stream: BufferedStream[Request, Response],
    ) -> None:
        """Dial, then move messages both ways until the stream is over."""
        name = f"{method} of node {node}"
        carrying = asyncio.create_task(self._carry(node, method, stream, name))
        over = asyncio.create_task(stream.over.wait())
        try:
            await asyncio.wait({carrying, over}, return_when=asyncio.FIRST_COMPLETED)
            if carrying.done():
                carrying.result()
            await over
        except PeerError as failure:
            stream.fail(failure)
        finally:
            await end_all(carrying, over)

    async def _carry(
        self,
        node: NodeId,
        method: Stream[Request, Response],
        stream: BufferedStream[Request, Response],
        name: str,
    ) -> None:
        """Until all is said; how the stream ends is told to its end on the wire."""
        link = self._link(node, method.lane)
        connection = await link.connection()
        end = _StreamOfCaller(stream, name)
        number = connection.open(self._headers(node, method.path), end)
        try:
            stream.inbox.on_room = lambda: connection.credit(number)
            try:
                async with asyncio.timeout(_ACCEPT_TIMEOUT_S):
                    await end.accepted
            except TimeoutError:
                late = f"{name}: not accepted in {_ACCEPT_TIMEOUT_S} s"
                raise PeerUnavailable(late) from None
            link.answered()
            await carry_out(stream, connection, number)
            connection.finish(number)
            await stream.over.wait()
        finally:
            connection.drop(number)


async def _ask(connection: Http2Connection, headers: Headers, data: bytes) -> bytes:
    answer = _Answer()
    number = connection.open(headers, answer)
    try:
        connection.send(number, data)
        connection.finish(number)
        return await answer.done
    finally:
        connection.drop(number)


async def carry_out(
    stream: BufferedStream[Any, Any], connection: Http2Connection, number: int
) -> None:
    """Send what is queued until the queue ends."""
    with contextlib.suppress(PeerError):
        while True:
            connection.send(number, await stream.outbox.take())
            await connection.room(number)


def _failure_of(headers: Mapping[str, str], *, is_end: bool) -> PeerError | None:
    """What is wrong with an answer's headers; its last ones tell the status of the call."""
    if headers.get(":status", "200") != "200":
        return PeerUnavailable(f"answered by something else (HTTP {headers[':status']})")
    if not is_end:
        return None
    try:
        status = int(headers["grpc-status"])
    except (KeyError, ValueError):
        return PeerUnavailable("it ended without a status")
    if status == Status.OK:
        return None
    return _error_of(status, headers, unquote(headers.get("grpc-message", "")))


def _error_of(status: int, headers: Mapping[str, str], detail: str) -> PeerError:
    if status in _LOST:
        return PeerUnavailable(detail)
    if status == Status.DEADLINE_EXCEEDED:
        return PeerDeadlineExceeded("no answer in time")
    known = next((reason for code, reason in _REASONS.items() if code == status), None)
    reason = headers.get(REASON_KEY) or known or "UNKNOWN_SERVER_ERROR"
    return PeerRefused(reason, detail)


def _named(failure: PeerError, name: str) -> PeerError:
    """The same failure, which says of what."""
    if isinstance(failure, PeerRefused):
        return PeerRefused(failure.reason, f"{name}: {failure.detail}")
    return type(failure)(f"{name}: {failure}")


def _said(error: Exception) -> str:
    return "no answer" if isinstance(error, TimeoutError) else str(error)


def _mark_seen(dialling: asyncio.Task[Http2Connection]) -> None:
    """Nobody may be waiting any more; a failure is then nobody's."""
    if not dialling.cancelled():
        dialling.exception()


async def end_all(*tasks: asyncio.Task[Any]) -> None:
    """Cancel what still runs and wait for it, so that no task outlives its stream."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
