"""NATS JetStream: three servers, streams of three replicas, its own client for Python.

A partition is a stream of its own, since a stream is one replicated log. The strongest durability
is ``sync_interval: always``; by default a server syncs every two minutes, which is the page cache's
durability. Acknowledgements are awaited in the background, as many as the client lets be open.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any, Final

from bench.peers.nodes import Nodes, OfProcesses
from bench.peers.peer import (
    BUILD,
    NODES,
    PARTITIONS,
    Absence,
    Durability,
    Latencies,
    PeerFailed,
    Produced,
)
from tidelog.testing.ports import Ports

HOST: Final = "127.0.0.1"
OPEN_ACKNOWLEDGEMENTS: Final = 20_000
_FETCHED: Final = 1_000
_WAIT_S: Final = 60.0


def find_server() -> str | None:
    built = BUILD / "bin" / "nats-server"
    return str(built) if built.exists() else which("nats-server")


class NatsClient:
    """``topic`` of n partitions is streams ``topic-0`` and on, each with a subject of that name."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = list(urls)
        self._partitions: dict[str, int] = {}

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        import nats  # not installed everywhere

        connection = await nats.connect(
            servers=self._urls, max_reconnect_attempts=-1, reconnect_time_wait=0.1
        )
        try:
            yield connection.jetstream(timeout=10, publish_async_max_pending=OPEN_ACKNOWLEDGEMENTS)
        finally:
            await connection.close()

    def create(self, topic: str, partitions: int) -> None:
        self._partitions[topic] = partitions
        asyncio.run(self._create(topic, partitions))

    async def _create(self, topic: str, partitions: int) -> None:
        from nats.js.api import StorageType, StreamConfig

        async with self._connected() as stream:
            for name in _streams(topic, partitions):
                config = StreamConfig(
                    name=name, subjects=[name], num_replicas=NODES, storage=StorageType.FILE
                )
                await _until_done(partial(stream.add_stream, config))

    def delete(self, topic: str) -> None:
        asyncio.run(self._delete(topic))

    async def _delete(self, topic: str) -> None:
        async with self._connected() as stream:
            for name in _streams(topic, self._partitions.pop(topic)):
                await stream.delete_stream(name)

    def leader(self, topic: str) -> int:
        return asyncio.run(self._info(topic))[0]

    def in_sync(self, topic: str) -> int:
        return asyncio.run(self._info(topic))[1]

    async def _info(self, topic: str) -> tuple[int, int]:
        async with self._connected() as stream:
            cluster = (await stream.stream_info(f"{topic}-0")).cluster
            current = sum(1 for one in cluster.replicas or [] if one.current)
            return int(cluster.leader.removeprefix("n")), 1 + current

    # --- throughput --------------------------------------------------------------------

    def produce(self, topic: str, size: int, seconds: float, clients: int = 1) -> Produced:
        return asyncio.run(self._produce(topic, size, seconds, None))

    def write(self, topic: str, size: int, records: int) -> None:
        asyncio.run(self._produce(topic, size, None, records))

    async def _produce(
        self, topic: str, size: int, seconds: float | None, records: int | None
    ) -> Produced:
        names, value, sent = _streams(topic, self._partitions[topic]), bytes(size), 0
        open_: list[asyncio.Future[Any]] = []
        async with self._connected() as stream:
            start = time.perf_counter()
            while not _is_enough(start, seconds, sent, records):
                # With a limit of its own, each call would make a packet of its record.
                async with asyncio.timeout(_WAIT_S):
                    for _ in range(100):
                        subject = names[sent % len(names)]
                        open_.append(await stream.publish_async(subject, value))
                        sent += 1
                    await asyncio.sleep(0)
            await asyncio.wait_for(asyncio.gather(*open_), _WAIT_S)
            return Produced(sent, time.perf_counter() - start)

    def touch(self, topic: str, partitions: int) -> None:
        asyncio.run(self._touch(topic, partitions))

    async def _touch(self, topic: str, partitions: int) -> None:
        async with self._connected() as stream:
            for name in _streams(topic, partitions):
                await _until_done(partial(stream.publish, name, b"x"))

    def consume(self, topic: str, partitions: int, records: int) -> float:
        return asyncio.run(self._consume(topic, partitions, records))

    async def _consume(self, topic: str, partitions: int, records: int) -> float:
        async with self._connected() as stream:
            readers = [await _reader(stream, name) for name in _streams(topic, partitions)]
            start = time.perf_counter()
            counts = await asyncio.gather(*(_drain(one, records // partitions) for one in readers))
            return sum(counts) / (time.perf_counter() - start)

    # --- time --------------------------------------------------------------------------

    def latencies(self, topic: str, rate: int, seconds: float) -> Latencies:
        return asyncio.run(self._latencies(topic, rate, seconds))

    async def _latencies(self, topic: str, rate: int, seconds: float) -> Latencies:
        acked: list[float] = []
        arrived: list[float] = []
        names = _streams(topic, PARTITIONS)

        async def arrive(message: Any) -> None:
            arrived.append(time.perf_counter() - float(message.data))

        async with self._connected() as stream:
            for name in names:
                await stream.subscribe(name, stream=name, ordered_consumer=True, cb=arrive)
            start, sent = time.perf_counter(), 0
            while time.perf_counter() - start < seconds:
                while sent < (time.perf_counter() - start) * rate:
                    at = time.perf_counter()
                    future = await stream.publish_async(names[sent % 3], str(at).encode())
                    future.add_done_callback(
                        lambda done, at=at: (
                            acked.append(time.perf_counter() - at)
                            if done.exception() is None
                            else None
                        )
                    )
                    sent += 1
                await asyncio.sleep(0.001)
            await asyncio.wait_for(stream.publish_async_completed(), _WAIT_S)
        return Latencies(acked, arrived)

    def acknowledgements(self, topic: str, interval_s: float) -> NatsWriter:
        return NatsWriter(self._connected, f"{topic}-0", interval_s)


class NatsWriter:
    """One record after the other; one that fails is written again until it is acknowledged."""

    def __init__(self, connect: Callable[[], Any], subject: str, interval_s: float) -> None:
        self._connect = connect
        self._subject = subject
        self._interval_s = interval_s
        self._at: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    def newest(self) -> float:
        return self._at[-1] if self._at else 0.0

    def end(self) -> Sequence[float]:
        self._is_over.set()
        self._thread.join(_WAIT_S)
        return self._at

    async def _run(self) -> None:
        async with self._connect() as stream:
            while not self._is_over.is_set():
                await _until_done(lambda: stream.publish(self._subject, b"x", timeout=0.2))
                self._at.append(time.perf_counter())
                await asyncio.sleep(self._interval_s)


def _streams(topic: str, partitions: int) -> list[str]:
    return [f"{topic}-{number}" for number in range(partitions)]


def _is_enough(start: float, seconds: float | None, sent: int, records: int | None) -> bool:
    is_late = seconds is not None and time.perf_counter() - start >= seconds
    return is_late or (records is not None and sent >= records)


async def _until_done(ask: Callable[[], Awaitable[Any]]) -> None:
    """Right after a start, after a kill, and now and then under load, there is no leader to ask."""
    from nats.errors import Error

    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            await ask()
            return
        except (Error, TimeoutError) as failure:
            if time.monotonic() > deadline:
                raise PeerFailed(f"nats did not answer: {failure!r}") from failure
            await asyncio.sleep(0.05)


async def _reader(stream: Any, name: str) -> Any:
    from nats.js.api import AckPolicy, ConsumerConfig

    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    return await stream.pull_subscribe(name, stream=name, config=config)


async def _drain(reader: Any, records: int) -> int:
    seen = 0

    async def fetch() -> None:
        nonlocal seen
        seen += len(await reader.fetch(_FETCHED, timeout=_WAIT_S))

    while seen < records:
        await _until_done(fetch)
    return seen


class Nats(OfProcesses):
    name = "nats"
    patience_s = 600.0
    client: NatsClient

    def absence(self) -> Absence | None:
        if find_server() is None:
            return Absence("there is no nats-server", "make setup-peers (needs Go)")
        if find_spec("nats") is None:
            return Absence("its client nats-py is not installed", "make setup-peers")
        return None

    def cannot(self, experiment: str) -> str | None:
        if experiment in ("partitions", "clients"):
            return "growth is compared between those who speak Kafka's protocol"
        return None

    def version(self) -> str:
        said = subprocess.run(
            [find_server() or "nats-server", "--version"],
            capture_output=True,
            text=True,
            check=True,
        )
        return said.stdout.strip()

    def settings(self, durability: Durability) -> Mapping[str, str]:
        synced = {"sync_interval": "always"} if durability is Durability.SYNCED else {}
        return {"num_replicas": str(NODES), "storage": "file", **synced}

    def prepare(self, durability: Durability) -> None:
        self._nodes = Nodes(self.name)
        ports = Ports()
        self._ports = [ports.draw(HOST).port for _ in range(NODES)]
        routed = [ports.draw(HOST).port for _ in range(NODES)]
        routes = ", ".join(f'"nats://{HOST}:{port}"' for port in routed)
        sync = "sync_interval: always" if durability is Durability.SYNCED else ""
        for n in range(1, NODES + 1):
            self._config(n).write_text(
                f"server_name: n{n}\nlisten: {HOST}:{self._ports[n - 1]}\n"
                f'jetstream {{ store_dir: "{self._data_dir(n)}"\n {sync} }}\n'
                f"cluster {{ name: bench, listen: {HOST}:{routed[n - 1]}, routes: [{routes}] }}\n"
            )
        self.client = NatsClient([f"nats://{HOST}:{port}" for port in self._ports])

    def _config(self, node: int) -> Path:
        return self._running().home / f"{node}.conf"

    def leader(self, topic: str) -> int:
        return self.client.leader(topic)

    def is_whole(self, topic: str) -> bool:
        return self.client.in_sync(topic) == NODES

    def start_node(self, node: int) -> None:
        server = find_server() or "nats-server"
        self._running().launch(node, [server, "-c", str(self._config(node))])
