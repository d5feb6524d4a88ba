"""Nodes that call each other within one event loop: messages are encoded, delayed and delivered.

Order on a stream is kept. A node that is down refuses calls and resets its streams; a cut between
two nodes makes what is sent wait until it heals or the stream is reset.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from tidelog.kernel.ids import IncarnationId, NodeId, Uuid
from tidelog.kernel.peers import (
    CallContext,
    MessageTooLarge,
    PeerError,
    PeerIdentity,
    PeerMessage,
    PeerUnavailable,
    Stream,
    StreamReset,
    Unary,
)

Sent = TypeVar("Sent", bound=PeerMessage)
Received = TypeVar("Received", bound=PeerMessage)
Handler = Callable[[CallContext, Any], Awaitable[Any]]
MAX_DATA_BYTES = (1 << 20) + (64 << 10)
"""A chunk of records and what is wrapped around it."""


class MemoryNetwork:
    def __init__(self, latency_ms: float = 1.0) -> None:
        self.latency_ms = latency_ms
        self.servers: dict[NodeId, dict[str, Handler]] = {}
        self.cuts: set[tuple[NodeId, NodeId]] = set()
        self.links: list[tuple[MemoryStream[Any, Any], MemoryStream[Any, Any]]] = []
        self.messages = 0
        self._handlers: set[asyncio.Task[None]] = set()

    def serve(self, node: NodeId, handlers: dict[str, Handler]) -> None:
        self.servers[node] = handlers

    def down(self, node: NodeId) -> None:
        """The node dies: every stream to and from it is reset."""
        self.servers.pop(node, None)
        for ends in self.links:
            if node in (ends[0].node, ends[1].node):
                for end in ends:
                    end.reset(f"node {node} is down")
        self.links = [ends for ends in self.links if ends[0].failure is None]

    def cut(self, one: int, other: int) -> None:
        self.cuts |= {(NodeId(one), NodeId(other)), (NodeId(other), NodeId(one))}

    def heal(self) -> None:
        self.cuts.clear()

    def peers(self, node: NodeId) -> MemoryPeers:
        return MemoryPeers(self, node)

    def connect(
        self, caller: NodeId, called: NodeId, method: Stream[Any, Any]
    ) -> MemoryStream[Any, Any]:
        ours = MemoryStream[Any, Any](self, caller, called, method.response)
        theirs = MemoryStream[Any, Any](self, called, caller, method.request)
        ours.other, theirs.other = theirs, ours
        handler = self.servers.get(called, {}).get(method.path)
        delay_s = self.latency_ms / 1000
        loop = asyncio.get_running_loop()
        if handler is None:
            loop.call_later(max(delay_s, 0.02), ours.reset, "nobody there", PeerUnavailable)
            return ours
        self.links.append((ours, theirs))
        loop.call_later(delay_s, self._handle, handler, caller, theirs)
        return ours

    def _handle(self, handler: Handler, caller: NodeId, end: MemoryStream[Any, Any]) -> None:
        async def run() -> None:
            try:
                await handler(context_of(caller), end)
            except PeerError:
                pass
            finally:
                end.close()

        task = asyncio.get_running_loop().create_task(run(), name=f"handler for {caller}")
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)


def context_of(caller: NodeId) -> CallContext:
    incarnation = IncarnationId(Uuid(bytes(16)))
    return CallContext(PeerIdentity(caller, "cluster", incarnation), "memory")


class MemoryPeers:
    """``Peers`` of one node."""

    def __init__(self, network: MemoryNetwork, node: NodeId) -> None:
        self._network = network
        self._node = node

    async def call(
        self, node: NodeId, method: Unary[Any, Any], request: PeerMessage, *, timeout_ms: float
    ) -> Any:
        handler = self._network.servers.get(node, {}).get(method.path)
        await asyncio.sleep(self._network.latency_ms / 1000)
        if handler is None or (self._node, node) in self._network.cuts:
            raise PeerUnavailable(f"node {node}")
        decoded = method.request.FromString(request.SerializeToString())
        return await handler(context_of(self._node), decoded)

    def open_stream(self, node: NodeId, method: Stream[Any, Any]) -> MemoryStream[Any, Any]:
        return self._network.connect(self._node, node, method)


class MemoryStream(Generic[Sent, Received]):
    def __init__(
        self, network: MemoryNetwork, node: NodeId, peer: NodeId, received: type[Received]
    ) -> None:
        self.node = node
        self.peer = peer
        self.other: MemoryStream[Any, Any] | None = None
        self.failure: PeerError | None = None
        self._network = network
        self._received = received
        self._inbox: deque[bytes] = deque()
        self._filled = asyncio.Event()
        self._held: deque[bytes] = deque()

    async def send(self, message: Sent) -> None:
        if not self.offer(message):
            assert self.failure is not None
            raise self.failure

    def offer(self, message: Sent) -> bool:
        if self.failure is not None or self.other is None:
            return False
        self._network.messages += 1
        loop = asyncio.get_running_loop()
        data = message.SerializeToString()
        if len(data) > MAX_DATA_BYTES:
            raise MessageTooLarge(f"{len(data)} bytes in one message")
        self._held.append(data)
        loop.call_later(self._network.latency_ms / 1000, self._deliver)
        return True

    def _deliver(self) -> None:
        if (self.node, self.peer) in self._network.cuts:
            asyncio.get_running_loop().call_later(0.02, self._deliver)
            return
        if self._held and self.other is not None:
            self.other.arrived(self._held.popleft())

    def arrived(self, data: bytes) -> None:
        if self.failure is None:
            self._inbox.append(data)
            self._filled.set()

    async def receive(self) -> Received:
        while not self._inbox:
            if self.failure is not None:
                raise self.failure
            self._filled.clear()
            await self._filled.wait()
        return self._received.FromString(self._inbox.popleft())

    def close(self) -> None:
        self.reset("closed by this node")
        if self.other is not None:
            delay_s = self._network.latency_ms / 1000
            asyncio.get_running_loop().call_later(delay_s, self.other.reset, "closed by the peer")

    def reset(self, why: str, kind: type[PeerError] = StreamReset) -> None:
        if self.failure is None:
            self.failure = kind(why)
            self._filled.set()
