"""All connections of a node: who is let in, who is let go, and for how long."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable

import pytest
from memory_connection import MemoryConnection

from tidelog.broker.calls import Call, Handler
from tidelog.broker.server import ClientServer, ServerLimits
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.listener import Admit, BoundListener, OnConnection, admit_all
from tidelog.kernel.settings import Settings
from tidelog.simulation import World, run_simulation
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import ResponseFrame, frame_request, frame_response

API = APIS[ApiKey.METADATA]
REQUEST = frame_request(API, 1, 1, None, b"\0\0\0\0")
IDLE_MS = 60_000
ANY = SocketAddress("", 0)


class Echo:
    """Tells the client by which listener it came, if it wants an answer."""

    api_key = ApiKey.METADATA
    is_pipelined = False

    def begin(self, call: Call) -> ResponseFrame | None:
        if call.client_id == "no answer":
            return None
        return frame_response(API, 1, call.correlation_id, call.client.listener_name.encode())


class Bound:
    def __init__(self, listener: HandListener, address: SocketAddress) -> None:
        self.address = address
        self._listener = listener

    def stop_accepting(self) -> None: ...

    async def close(self) -> None:
        for connection in self._listener.connections:
            connection.close()
        await asyncio.gather(*self._listener.owners)


class HandListener:
    """A ``Listener`` whose clients come when the test says so."""

    def __init__(self) -> None:
        self.connections: list[MemoryConnection] = []
        self.owners: list[asyncio.Task[None]] = []
        self._served: dict[str, tuple[OnConnection, Admit]] = {}

    async def serve(
        self,
        name: str,
        host: str,
        port: int,
        on_connection: OnConnection,
        *,
        admit: Admit = admit_all,
    ) -> BoundListener:
        self._served[name] = (on_connection, admit)
        return Bound(self, SocketAddress(host, port or 9092))

    def connect(self, host: str = "10.0.0.1", name: str = "PLAINTEXT") -> MemoryConnection | None:
        """None if it was not let in."""
        on_connection, admit = self._served[name]
        peer = SocketAddress(host, 1000 + len(self.connections))
        if not admit(peer):
            return None
        connection = MemoryConnection(listener_name=name, peer=peer)
        self.connections.append(connection)

        async def own() -> None:
            await on_connection(connection)
            connection.close()

        self.owners.append(asyncio.get_running_loop().create_task(own()))
        return connection


class Scene:
    def __init__(self, world: World, limits: ServerLimits) -> None:
        self.clock = world.clock
        self.listener = HandListener()
        handlers: dict[int, Handler] = {ApiKey.METADATA: Echo()}
        self.server = ClientServer(self.listener, handlers, world.clock, limits)

    async def connect(self, host: str = "10.0.0.1", name: str = "PLAINTEXT") -> MemoryConnection:
        connection = self.listener.connect(host, name)
        assert connection is not None, "not let in"
        await asyncio.sleep(0.001)
        return connection

    def is_refused(self, host: str = "10.0.0.1") -> bool:
        return self.listener.connect(host) is None


def limits(
    *,
    max_connections: int = 100,
    max_connections_per_address: int = 100,
    max_idle_ms: int = IDLE_MS,
) -> ServerLimits:
    return ServerLimits(1000, max_connections, max_connections_per_address, max_idle_ms)


def run(
    scenario: Callable[[Scene], Awaitable[None]],
    server_limits: ServerLimits | None = None,
    *,
    time_limit_s: float = 3600,
) -> None:
    async def main(world: World) -> None:
        scene = Scene(world, server_limits or limits())
        await scene.server.listen("PLAINTEXT", ANY)
        await scenario(scene)
        await scene.server.close()
        assert scene.server.connections == 0
        assert not scene.server._per_host, "addresses are remembered for ever"

    run_simulation(main, seed=1, time_limit_s=time_limit_s)


async def asked(client: MemoryConnection) -> bytes | None:
    client.send(REQUEST)
    frame = await client.receive()
    return None if frame is None else frame[4:]


async def left_open(client: MemoryConnection) -> bool:
    await asyncio.sleep(0.001)
    return not client.is_closing


def test_a_client_is_known_by_the_listener_it_came_by() -> None:
    async def scenario(scene: Scene) -> None:
        assert await scene.server.listen("EXTERNAL", SocketAddress("h", 1)) == SocketAddress("h", 1)
        assert await asked(await scene.connect()) == b"PLAINTEXT"
        assert await asked(await scene.connect(name="EXTERNAL")) == b"EXTERNAL"
        assert scene.server.connections == 2

    run(scenario)


def test_a_failing_client_does_not_end_another_one() -> None:
    async def scenario(scene: Scene) -> None:
        bad, good = await scene.connect(), await scene.connect()
        bad.send(struct.pack(">i", -1))
        assert await bad.receive() is None
        assert await asked(good) == b"PLAINTEXT"

    run(scenario)


# Limits.


def test_no_more_clients_than_max_connections(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        first = await scene.connect("10.0.0.1")
        await scene.connect("10.0.0.2")
        assert scene.is_refused("10.0.0.3")
        first.hang_up()
        await asyncio.sleep(0.001)
        await scene.connect("10.0.0.3")

    run(scenario, limits(max_connections=2))
    [logged] = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "10.0.0.3" in logged.getMessage() and "max.connections is 2" in logged.getMessage()


def test_no_more_clients_of_one_address_than_max_connections_per_ip() -> None:
    async def scenario(scene: Scene) -> None:
        first = await scene.connect("10.0.0.1")
        await scene.connect("10.0.0.1")
        assert scene.is_refused("10.0.0.1")
        await scene.connect("10.0.0.2")
        first.hang_up()
        await asyncio.sleep(0.001)
        await scene.connect("10.0.0.1")

    run(scenario, limits(max_connections_per_address=2))


def test_limits_hold_for_clients_that_come_at_one_go() -> None:
    async def scenario(scene: Scene) -> None:
        came = [scene.listener.connect() for _ in range(5)]
        await asyncio.sleep(0.001)
        assert scene.server.connections == 2
        assert sum(client is not None and not client.is_closing for client in came) == 2

    run(scenario, limits(max_connections=2))


def test_limits_may_change_and_those_who_are_there_stay() -> None:
    async def scenario(scene: Scene) -> None:
        clients = [await scene.connect() for _ in range(3)]
        scene.server.set_limits(limits(max_connections=1))
        assert scene.is_refused()
        assert [await left_open(client) for client in clients] == [True, True, True]
        scene.server.set_limits(limits(max_connections=4))
        await scene.connect()

    run(scenario)


def test_limits_come_from_the_settings(caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings.of(
        {
            "socket.request.max.bytes": "5000",
            "max.connections": "7",
            "max.connections.per.ip": "3",
            "max.connections.per.ip.overrides": "10.0.0.9:1, [::1]:5,nonsense",
            "connections.max.idle.ms": "9000",
        }
    )
    found = ServerLimits.of(settings)
    assert (found.max_request_bytes, found.max_connections, found.max_idle_ms) == (5000, 7, 9000)
    hosts = ("10.0.0.1", "10.0.0.9", "::1")
    assert [found.for_address(host) for host in hosts] == [3, 1, 5]
    assert "'nonsense' is not host:count" in caplog.text


# Silence.


def test_a_silent_client_is_let_go() -> None:
    async def scenario(scene: Scene) -> None:
        client = await scene.connect()
        await asyncio.sleep(0.9 * IDLE_MS / 1000)
        assert await left_open(client)
        await asyncio.sleep(0.4 * IDLE_MS / 1000)
        assert client.is_closing
        assert scene.server.connections == 0

    run(scenario)


def test_a_client_that_asks_now_and_then_stays() -> None:
    async def scenario(scene: Scene) -> None:
        client = await scene.connect()
        for _ in range(20):
            await asyncio.sleep(0.7 * IDLE_MS / 1000)
            assert await asked(client) == b"PLAINTEXT"

    run(scenario)


def test_a_client_that_asks_without_wanting_answers_stays() -> None:
    async def scenario(scene: Scene) -> None:
        client = await scene.connect()
        for _ in range(20):
            client.send(frame_request(API, 1, 1, "no answer", b"\0\0\0\0"))
            await asyncio.sleep(0.7 * IDLE_MS / 1000)
        assert await left_open(client)

    run(scenario)


def test_a_request_sent_byte_by_byte_does_not_count_as_life() -> None:
    async def scenario(scene: Scene) -> None:
        client = await scene.connect()
        for byte in REQUEST:
            client.send(bytes([byte]))
            await asyncio.sleep(0.1 * IDLE_MS / 1000)
        assert client.is_closing

    run(scenario)


def test_a_client_that_does_not_read_its_answers_is_let_go() -> None:
    async def scenario(scene: Scene) -> None:
        client = await scene.connect()
        client._window = 10
        client.send(REQUEST)
        await asyncio.sleep(1.3 * IDLE_MS / 1000)
        assert client.is_closing
        assert scene.server.connections == 0

    run(scenario)


def test_a_negative_idle_time_means_for_ever() -> None:
    async def scenario(scene: Scene) -> None:
        client = await scene.connect()
        await asyncio.sleep(10 * 86_400)
        assert await asked(client) == b"PLAINTEXT"

    run(scenario, limits(max_idle_ms=-1), time_limit_s=11 * 86_400)


def test_an_idle_time_of_nothing_does_not_spin() -> None:
    async def scenario(scene: Scene) -> None:
        client = await scene.connect()
        await asyncio.sleep(1)
        assert client.is_closing

    run(scenario, limits(max_idle_ms=0))


def test_closing_the_server_ends_all_sessions() -> None:
    async def scenario(scene: Scene) -> None:
        clients = [await scene.connect() for _ in range(3)]
        await scene.server.close()
        assert all(client.is_closing for client in clients)

    run(scenario)
