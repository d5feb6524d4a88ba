"""The streams between controllers: one that this node opened to each peer, and theirs to it.

A node speaks on the streams it opened and listens on those that others opened to it. A stream is
dialled when there is something to say and kept. What waits for a peer that does not read, or is
not there, is bounded and the oldest goes first: Raft asks for no reliability, and a slow peer must
hold nobody up. That a stream broke which had come about is told to the machine, in either
direction, because it nearly always means that the process at the other end has died.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

from tidelog.controller.quorum.inbox import Inbox
from tidelog.controller.quorum.messages import EXCHANGE, MalformedMessage, from_proto, to_proto
from tidelog.controller.raft.events import PeerStreamReset
from tidelog.controller.raft.messages import AppendRequest, Envelope, SnapshotChunk
from tidelog.kernel.ids import NodeId
from tidelog.kernel.peers import (
    CallContext,
    PeerError,
    PeerRefused,
    Peers,
    PeerStream,
    StreamReset,
)
from tidelog.v1.quorum_pb2 import QuorumMessage

QuorumStream: TypeAlias = PeerStream[QuorumMessage, QuorumMessage]
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]

_log = logging.getLogger(__name__)

_ANNOUNCE_AFTER_MS: Final = 1.0
"""Whoever waits for a commit hears of it before those who are only to know; and the announcements
of commits that follow each other closely become one, or go with the next entry."""


def _size_bytes(envelope: Envelope) -> int:
    match envelope.body:
        case AppendRequest(entries=entries):
            return 64 + sum(entry.size_bytes for entry in entries)
        case SnapshotChunk(data=data):
            return 64 + len(data)
        case _:
            return 64


class PeerLink:
    """What this node has to say to one other."""

    def __init__(
        self, node: NodeId, peers: Peers, inbox: Inbox, limit_messages: int, limit_bytes: int
    ) -> None:
        self._node = node
        self._peers = peers
        self._inbox = inbox
        self._limit_messages = limit_messages
        self._limit_bytes = limit_bytes
        self._queue: deque[Envelope] = deque()
        self._bytes = 0
        self._filled = asyncio.Event()
        self._announcement: asyncio.TimerHandle | None = None
        self._last_refusal = ""
        self.dropped = 0

    @property
    def is_idle(self) -> bool:
        return not self._queue

    def post(self, envelope: Envelope) -> None:
        if isinstance(envelope.body, AppendRequest):
            self._withhold_announcement()  # this tells the same, or more
            if envelope.body.is_announcement:
                loop = asyncio.get_running_loop()
                wait_s = _ANNOUNCE_AFTER_MS / 1000
                self._announcement = loop.call_later(wait_s, self._enqueue, envelope)
                return
        self._enqueue(envelope)

    def _withhold_announcement(self) -> None:
        if self._announcement is not None:
            self._announcement.cancel()
            self._announcement = None

    def _enqueue(self, envelope: Envelope) -> None:
        self._queue.append(envelope)
        self._bytes += _size_bytes(envelope)
        while len(self._queue) > 1 and (
            len(self._queue) > self._limit_messages or self._bytes > self._limit_bytes
        ):
            self._take()
            self.dropped += 1
        self._filled.set()

    async def run(self) -> None:
        while True:
            await self._until_filled()
            stream = self._peers.open_stream(self._node, EXCHANGE)
            watching = asyncio.create_task(_watch(stream))
            watching.add_done_callback(lambda _: self._filled.set())
            try:
                await self._speak(stream, watching)
                self._ended(await watching)
            finally:
                stream.close()
                watching.cancel()

    async def _speak(self, stream: QuorumStream, watching: asyncio.Task[PeerError]) -> None:
        while not watching.done():
            if self._queue:
                try:
                    await stream.send(to_proto(self._take()))
                except PeerError:
                    return  # the watcher knows why
            else:
                self._filled.clear()
                await self._filled.wait()

    def _ended(self, why: PeerError) -> None:
        if isinstance(why, StreamReset):
            self._inbox.put(PeerStreamReset(self._node))
            return
        # Nobody is there, so nothing that waits is news any more when somebody is.
        self._queue.clear()
        self._bytes = 0
        if isinstance(why, PeerRefused) and str(why) != self._last_refusal:
            self._last_refusal = str(why)
            _log.error("controller %s refuses to talk to this node: %s", self._node, why)

    async def _until_filled(self) -> None:
        while not self._queue:
            self._filled.clear()
            await self._filled.wait()

    def _take(self) -> Envelope:
        envelope = self._queue.popleft()
        self._bytes -= _size_bytes(envelope)
        return envelope


async def _watch(stream: QuorumStream) -> PeerError:
    """How the stream ended; nothing is said on it by the other side."""
    try:
        while True:
            await stream.receive()
    except PeerError as error:
        return error


class Links:
    """All streams of one member of the quorum."""

    def __init__(
        self, peers: Peers, inbox: Inbox, spawn: Spawn, limit_messages: int, limit_bytes: int
    ) -> None:
        self._peers = peers
        self._inbox = inbox
        self._spawn = spawn
        self._limits = (limit_messages, limit_bytes)
        self._links: dict[NodeId, PeerLink] = {}
        self._incoming: dict[NodeId, QuorumStream] = {}
        self._is_closed = False

    def post(self, envelope: Envelope) -> None:
        """Send this as soon as the peer takes it; perhaps never."""
        if self._is_closed:
            return
        node = envelope.target_id
        link = self._links.get(node)
        if link is None:
            link = self._links[node] = PeerLink(node, self._peers, self._inbox, *self._limits)
            self._spawn(link.run(), f"quorum link to {node}")
        link.post(envelope)

    @property
    def is_idle(self) -> bool:
        return all(link.is_idle for link in self._links.values())

    async def listen(self, context: CallContext, stream: QuorumStream) -> None:
        """The handler of a stream that a peer opened."""
        node = context.caller.node_id
        if self._is_closed:
            return
        self._incoming[node] = stream
        try:
            while True:
                message = await stream.receive()
                envelope = _checked(message, node)
                await self._inbox.put_message(envelope, message.ByteSize())
        finally:
            # A stream that a newer one has replaced says nothing about the process behind it.
            if self._incoming.get(node) is stream:
                del self._incoming[node]
                self._inbox.put(PeerStreamReset(node))

    def close(self) -> None:
        """Say and hear nothing more; the peers notice at once."""
        self._is_closed = True
        for stream in list(self._incoming.values()):
            stream.close()


def _checked(message: QuorumMessage, caller: NodeId) -> Envelope:
    try:
        envelope = from_proto(message)
    except MalformedMessage as error:
        raise PeerRefused("INVALID_REQUEST", f"node {caller} sent {error}") from error
    if envelope.source.node_id != caller:
        detail = f"node {caller} speaks for node {envelope.source.node_id}"
        raise PeerRefused("INVALID_REQUEST", detail)
    return envelope
