"""The node's client listeners: who is let in, and how long a silent client stays.

Each configured listener is a name, an address to bind and an address to tell. Limits are counted
over all of them. A connection that has neither sent a whole request nor received an answer for
``connections.max.idle.ms`` is closed, which also ends a client that sends a request byte by byte.

The limits may change while connections are there (``max.connections`` is a dynamic setting). Those
that are there stay; only newcomers are judged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from tidelog.broker.calls import Client, Handler
from tidelog.broker.metrics.requests import RequestMeters
from tidelog.broker.request_memory import RequestMemory
from tidelog.broker.session import Session
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.listener import BoundListener, ClientConnection, Listener
from tidelog.kernel.ports import Clock
from tidelog.kernel.settings import Settings
from tidelog.wire.protocol.apis import served_apis

log = logging.getLogger(__name__)


_SWEEPS_PER_IDLE_PERIOD: Final = 4
_MIN_SWEEP_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class ServerLimits:
    max_request_bytes: int
    max_connections: int
    max_connections_per_address: int
    max_idle_ms: int
    """Below 0: for ever."""
    per_address_overrides: Mapping[str, int] = field(default_factory=dict)
    max_queued_bytes: int = -1
    """Of requests of all clients that are not answered yet; below 1: any number."""

    @classmethod
    def of(cls, settings: Settings) -> ServerLimits:
        return cls(
            max_request_bytes=settings.get_int("socket.request.max.bytes"),
            max_connections=settings.get_int("max.connections"),
            max_connections_per_address=settings.get_int("max.connections.per.ip"),
            max_idle_ms=settings.get_int("connections.max.idle.ms"),
            per_address_overrides=_overrides(settings.get_str("max.connections.per.ip.overrides")),
            max_queued_bytes=settings.get_int("queued.max.request.bytes"),
        )

    def for_address(self, host: str) -> int:
        return self.per_address_overrides.get(host, self.max_connections_per_address)


def _overrides(text: str) -> dict[str, int]:
    """``host:count,host:count``; an entry that is none has no effect and is reported."""
    overrides: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, _, count_text = entry.rpartition(":")
        if host and count_text.isascii() and count_text.isdigit():
            overrides[host.strip("[]")] = int(count_text)
        else:
            log.warning("max.connections.per.ip.overrides: '%s' is not host:count", entry)
    return overrides


class ClientServer:
    """All client connections of a node."""

    def __init__(
        self,
        listener: Listener,
        handlers: Mapping[int, Handler],
        clock: Clock,
        limits: ServerLimits,
        meters: RequestMeters | None = None,
    ) -> None:
        self._listener = listener
        self._handlers = handlers
        self._apis = served_apis(handlers.keys())
        self._clock = clock
        self._limits = limits
        self._memory = RequestMemory(limits.max_queued_bytes)
        self.meters = meters or RequestMeters()
        self._bound: list[BoundListener] = []
        self._sessions: dict[int, Session] = {}
        self._per_host: Counter[str] = Counter()
        self._ids = count(1)
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        return len(self._sessions)

    def set_limits(self, limits: ServerLimits) -> None:
        """For those who come from now on; how long a client may be silent holds for all."""
        self._limits = limits

    async def listen(self, name: str, address: SocketAddress) -> SocketAddress:
        """Begin to serve one listener; the address that was bound."""
        bound = await self._listener.serve(
            name, address.host, address.port, self._serve, admit=self._admit
        )
        self._bound.append(bound)
        if self._sweeper is None and self._limits.max_idle_ms >= 0:
            self._sweeper = asyncio.get_running_loop().create_task(self._close_idle())
        return bound.address

    async def close(self) -> None:
        """Take no new clients and hang up on those there are."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        for bound in self._bound:
            await bound.close()

    def _admit(self, address: SocketAddress) -> bool:
        if len(self._sessions) >= self._limits.max_connections:
            log.warning("refused %s: max.connections is %d", address, self._limits.max_connections)
            return False
        limit = self._limits.for_address(address.host)
        if self._per_host[address.host] >= limit:
            log.warning("refused %s: max.connections.per.ip is %d", address, limit)
            return False
        return True

    async def _serve(self, connection: ClientConnection) -> None:
        # Asked again: of those that were accepted at one go, none was counted when it was asked.
        if not self._admit(connection.peer_address):
            return
        connection_id, host = next(self._ids), connection.peer_address.host
        client = Client(connection.peer_address, connection.listener_name, connection_id)
        session = Session(
            connection,
            client,
            self._handlers,
            self._apis,
            self._clock,
            self._limits.max_request_bytes,
            self._memory,
            self.meters,
        )
        self._sessions[connection_id] = session
        self._per_host[host] += 1
        try:
            await session.run()
        finally:
            del self._sessions[connection_id]
            self._per_host[host] -= 1
            if not self._per_host[host]:
                del self._per_host[host]

    async def _close_idle(self) -> None:
        """Look at all sessions a few times per idle period; exact to a fraction of it."""
        while True:
            pause_s = self._limits.max_idle_ms / 1000 / _SWEEPS_PER_IDLE_PERIOD
            await asyncio.sleep(max(pause_s, _MIN_SWEEP_PAUSE_S))
            oldest_ms = self._clock.monotonic_ms() - self._limits.max_idle_ms
            for session in list(self._sessions.values()):
                if session.active_at_ms < oldest_ms:
                    session.close()
