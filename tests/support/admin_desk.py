"""A broker's administrative APIs over a connection in memory: frames in, decoded answers out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

from memory_connection import MemoryConnection
from pretended_cluster import PretendedCluster, context_of, pretended_cluster

from tidelog.broker.calls import Client, Handler
from tidelog.broker.context import BrokerContext
from tidelog.broker.handlers.administration import Administration
from tidelog.broker.handlers.api_versions import ApiVersions
from tidelog.broker.session import Session
from tidelog.kernel.settings import Settings
from tidelog.simulation import World, run_simulation
from tidelog.wire.protocol.apis import APIS, ApiKey, served_apis
from tidelog.wire.protocol.frames import frame_request, parse_response_header
from tidelog.wire.protocol.kio_codec import kio_bytes
from tidelog.wire.protocol.responses import decode_response

MAX_REQUEST_BYTES = 100 << 20


class Desk:
    """Broker 1 of a pretended cluster, and clients that come to it."""

    def __init__(
        self, world: World, cluster: PretendedCluster, context: BrokerContext | None = None
    ) -> None:
        self.world = world
        self.cluster = cluster
        self.context = context or context_of(cluster)
        self.administration = Administration(self.context)
        handlers: list[Handler] = list(self.administration.handlers)
        keys = [*(int(handler.api_key) for handler in handlers), ApiKey.API_VERSIONS]
        handlers.append(ApiVersions(self.context, keys))
        self.handlers: dict[int, Handler] = {int(h.api_key): h for h in handlers}
        self._sessions: list[asyncio.Task[None]] = []
        self._default: MemoryConnection | None = None
        self._correlation_id = 0

    def connect(self, listener_name: str = "PLAINTEXT") -> MemoryConnection:
        connection = MemoryConnection(listener_name=listener_name)
        client = Client(connection.peer_address, listener_name, len(self._sessions) + 1)
        session = Session(
            connection,
            client,
            self.handlers,
            served_apis(self.handlers.keys()),
            self.world.clock,
            MAX_REQUEST_BYTES,
        )
        self._sessions.append(asyncio.get_running_loop().create_task(session.run()))
        return connection

    async def close(self) -> None:
        await self.administration.close()
        for session in self._sessions:
            session.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)

    async def ask(
        self,
        key: ApiKey,
        version: int,
        *,
        connection: MemoryConnection | None = None,
        **fields: Any,
    ) -> Any:
        """Ask with kio's fields; structs below the top are given as dictionaries."""
        if connection is None:
            connection = self._default = self._default or self.connect()
        self._correlation_id += 1
        request_type: Any = APIS[key].load_request_type(version)
        body = kio_bytes(filled(request_type, fields))
        connection.send(frame_request(APIS[key], version, self._correlation_id, "desk", body))
        frame = await connection.receive()
        assert frame is not None, "the connection was closed"
        correlation_id, view = parse_response_header(APIS[key], version, frame)
        assert correlation_id == self._correlation_id
        return decode_response(key, version, view)


def filled(kio_type: Any, fields: dict[str, Any]) -> Any:
    """kio's object with these fields; what is not given keeps the schema's default."""
    module = import_module(kio_type.__module__)
    known = {field.name: field for field in kio_type.__dataclass_fields__.values()}
    return kio_type(
        **{k: _value(module, known[k].type, v) for k, v in fields.items() if k in known}
    )


def _value(module: Any, annotation: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return filled(_struct(module, annotation), value)
    if isinstance(value, list):
        return tuple(_value(module, annotation, one) for one in value)
    return value


def _struct(module: Any, annotation: Any) -> Any:
    """The struct that an annotation mentions, alone, in a tuple or beside None."""
    mentioned = str(annotation)
    found = [t for n, t in vars(module).items() if f"{module.__name__}.{n}" in mentioned]
    return found[0]


def at_desk(
    scenario: Callable[[Desk], Awaitable[None]],
    *brokers: int,
    settings: Settings | None = None,
    **controller_settings: str,
) -> None:
    """Run a scenario on a virtual loop, with these brokers registered (broker 1 by default)."""

    async def main(world: World) -> None:
        cluster = await pretended_cluster(world, **controller_settings)
        await cluster.start(*(brokers or (1,)))
        desk = Desk(world, cluster, context_of(cluster, settings=settings))
        try:
            await scenario(desk)
        finally:
            await desk.close()

    run_simulation(main, seed=1, time_limit_s=3600)
