"""One end of a stream to a peer, without the transport: two bounded queues of encoded messages.

``BufferedStream`` is what handlers and callers hold. Whoever has the transport moves bytes from
its ``outbox`` to the wire and from the wire into its ``inbox``. So any number of tasks may send,
and cancelling one that waits harms nobody.

Invariants: a queue holds at most its limit, or a single message; once a stream has failed nothing
is accepted any more, and ``receive`` raises that first failure after what had arrived before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import DecodeError

from tidelog.kernel.peers import (
    MAX_MESSAGE_BYTES,
    MessageTooLarge,
    PeerError,
    PeerMessage,
    StreamReset,
)

Sent = TypeVar("Sent", bound=PeerMessage)
Received = TypeVar("Received", bound=PeerMessage)
M = TypeVar("M", bound=PeerMessage)


@dataclass(frozen=True, slots=True)
class StreamLimits:
    outbox_bytes: int = 4 * 1024 * 1024
    # Small: what the application does not take stays with the sender, by HTTP/2 flow control.
    inbox_bytes: int = 2 * 1024 * 1024
    queued_messages: int = 1024
    send_stall_ms: float = 10_000
    """How long a full outbox may stand still before the stream is given up."""
    close_grace_ms: float = 1_000
    """How long a closed stream may take to deliver what is queued."""


def encode(message: PeerMessage) -> bytes:
    data = message.SerializeToString()
    if len(data) > MAX_MESSAGE_BYTES:
        name = type(message).__name__
        raise MessageTooLarge(f"{name} of {len(data)} bytes; the limit is {MAX_MESSAGE_BYTES}")
    return data


def decode(kind: type[M], data: bytes) -> M:
    """``ValueError`` if these bytes are no such message."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        name = kind.__name__
        raise ValueError(f"{len(data)} bytes that are no {name}") from error


class MessageQueue:
    """Encoded messages between two tasks, bounded by bytes and by number; one task takes."""

    def __init__(self, limit_bytes: int, limit_messages: int) -> None:
        self._limit_bytes = limit_bytes
        self._limit_messages = limit_messages
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._end: PeerError | None = None
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()
        self.on_room: Callable[[], None] | None = None
        """Called when something was taken and there is room."""

    def add(self, data: bytes) -> None:
        """Take it in, room or not: it is here already, and its sender is held back elsewhere."""
        if self._end is None:
            self._messages.append(data)
            self._bytes += len(data)
            self._filled.set()

    def has_room(self) -> bool:
        """Also when it has ended: what comes then is dropped."""
        return self._end is not None or self._has_room(0)

    def offer(self, data: bytes) -> bool:
        if self._end is not None or not self._has_room(len(data)):
            return False
        self._messages.append(data)
        self._bytes += len(data)
        self._filled.set()
        return True

    async def put(self, data: bytes) -> None:
        while not self.offer(data):
            if self._end is not None:
                raise self._end
            self._drained.clear()
            await self._drained.wait()

    async def take(self) -> bytes:
        """The next message, or the error the queue ended with when there is none left."""
        while not self._messages:
            if self._end is not None:
                raise self._end
            self._filled.clear()
            await self._filled.wait()
        data = self._messages.popleft()
        self._bytes -= len(data)
        self._drained.set()
        if self.on_room is not None and self.has_room():
            self.on_room()
        return data

    def end(self, error: PeerError, *, discard: bool = False) -> None:
        """Take nothing more in. What is queued can still be taken unless it is discarded."""
        if discard:
            self._messages.clear()
            self._bytes = 0
        if self._end is None:
            self._end = error
        self._filled.set()
        self._drained.set()

    def _has_room(self, size: int) -> bool:
        if not self._messages:
            return True  # whatever its size: a message larger than the limit must pass too
        has_bytes = self._bytes + size <= self._limit_bytes
        return has_bytes and len(self._messages) < self._limit_messages


class BufferedStream(Generic[Sent, Received]):
    """A ``PeerStream`` whose transport is moved by somebody else."""

    def __init__(self, received: type[Received], peer: str, limits: StreamLimits) -> None:
        self.outbox = MessageQueue(limits.outbox_bytes, limits.queued_messages)
        self.inbox = MessageQueue(limits.inbox_bytes, limits.queued_messages)
        self.over = asyncio.Event()
        """Set when the stream has failed or its close has run out of grace."""
        self._received = received
        self._peer = peer
        self._limits = limits

    async def send(self, message: Sent) -> None:
        data = encode(message)
        if self.outbox.offer(data):
            return
        try:
            async with asyncio.timeout(self._limits.send_stall_ms / 1000):
                await self.outbox.put(data)
        except TimeoutError:
            stall = f"{self._peer} took nothing for {self._limits.send_stall_ms:.0f} ms"
            reset = StreamReset(stall)
            self.fail(reset)
            raise reset from None

    def offer(self, message: Sent) -> bool:
        return self.outbox.offer(encode(message))

    async def receive(self) -> Received:
        data = await self.inbox.take()
        try:
            return decode(self._received, data)
        except ValueError as error:
            reset = StreamReset(f"{self._peer} sent {error}")
            self.fail(reset)
            raise reset from error

    def close(self) -> None:
        closed = StreamReset("closed by this node")
        self.inbox.end(closed, discard=True)
        self.outbox.end(closed)
        grace_s = self._limits.close_grace_ms / 1000
        asyncio.get_running_loop().call_later(grace_s, self.fail, closed)

    def fail(self, error: PeerError) -> None:
        """The stream is over, for this reason unless there was one before."""
        self.inbox.end(error)
        self.outbox.end(error, discard=True)
        self.over.set()
