"""RabbitMQ streams: three clustered nodes, streams of three replicas, the client rstream.

A partition is a stream of its own. RabbitMQ never syncs a stream's log to disk before it confirms,
so its strongest durability is the page cache of a majority, whichever is asked for. The nodes have
an Erlang port mapper of their own, so that nothing of it outlives the measurement.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any, Final

from bench.peers.nodes import Nodes, OfProcesses, listens
from bench.peers.peer import (
    NODES,
    PARTITIONS,
    Absence,
    Acknowledgements,
    Durability,
    Latencies,
    PeerFailed,
    Produced,
)
from tidelog.testing.ports import Ports

HOST: Final = "127.0.0.1"
SERVER: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"
OPEN_CONFIRMS: Final = 20_000
_GUEST: Final = {"username": "guest", "password": "guest"}
_BATCH: Final = 100
_PORT_MAPPER: Final = 0
_WAIT_S: Final = 60.0


class RabbitClient:
    """``topic`` of n partitions is streams ``topic-0`` and on."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._partitions: dict[str, int] = {}

    @asynccontextmanager
    async def _producer(self) -> AsyncIterator[Any]:
        import rstream  # not installed everywhere

        producer = rstream.Producer(HOST, self._port, **_GUEST)
        await producer.start()
        try:
            yield producer
        finally:
            await producer.close()

    def create(self, topic: str, partitions: int) -> None:
        self._partitions[topic] = partitions
        asyncio.run(self._create(topic, partitions))

    async def _create(self, topic: str, partitions: int) -> None:
        async with self._producer() as producer:
            for name in _streams(topic, partitions):
                await producer.create_stream(name, exists_ok=True)

    def delete(self, topic: str) -> None:
        asyncio.run(self._delete(topic))

    async def _delete(self, topic: str) -> None:
        async with self._producer() as producer:
            for name in _streams(topic, self._partitions.pop(topic)):
                await producer.delete_stream(name, missing_ok=True)

    def produce(self, topic: str, size: int, seconds: float, clients: int = 1) -> Produced:
        return asyncio.run(self._produce(topic, size, seconds, None))

    def write(self, topic: str, size: int, records: int) -> None:
        asyncio.run(self._produce(topic, size, None, records))

    def touch(self, topic: str, partitions: int) -> None:
        asyncio.run(self._produce(topic, 1, None, _BATCH * partitions))

    async def _produce(
        self, topic: str, size: int, seconds: float | None, records: int | None
    ) -> Produced:
        names, batch = _streams(topic, self._partitions[topic]), [bytes(size)] * _BATCH
        sent = confirmed = 0

        def has_room() -> bool:
            return sent - confirmed <= OPEN_CONFIRMS

        def confirm(status: Any) -> None:
            nonlocal confirmed
            if not status.is_confirmed:
                raise PeerFailed(f"rabbitmq refused a record of {topic}")
            confirmed += 1

        async with self._producer() as producer:
            start = time.perf_counter()
            while (seconds is None or time.perf_counter() - start < seconds) and (
                records is None or sent < records
            ):
                name = names[sent // _BATCH % len(names)]
                await producer.send_batch(name, batch, on_publish_confirm=confirm)
                sent += _BATCH
                await _until(has_room, "more room")
            await _until(lambda: confirmed == sent, "all confirmations")
            return Produced(sent, time.perf_counter() - start)

    def consume(self, topic: str, partitions: int, records: int) -> float:
        return asyncio.run(self._consume(topic, partitions, records))

    async def _consume(self, topic: str, partitions: int, records: int) -> float:
        seen, start = 0, time.perf_counter()

        def arrive(_: Any, __: Any) -> None:
            nonlocal seen
            seen += 1

        async with self._subscribed(_streams(topic, partitions), arrive):
            await _until(lambda: seen >= records, f"all of {records} records")
        return seen / (time.perf_counter() - start)

    @asynccontextmanager
    async def _subscribed(self, names: Sequence[str], arrive: Any) -> AsyncIterator[None]:
        import rstream

        consumer = rstream.Consumer(HOST, self._port, **_GUEST)
        await consumer.start()
        first = rstream.ConsumerOffsetSpecification(rstream.OffsetType.FIRST, None)
        for name in names:
            await consumer.subscribe(
                name, arrive, decoder=bytes, offset_specification=first, initial_credit=50
            )
        running = asyncio.create_task(consumer.run())
        try:
            yield
        finally:
            await consumer.close()
            running.cancel()

    def latencies(self, topic: str, rate: int, seconds: float) -> Latencies:
        return asyncio.run(self._latencies(topic, rate, seconds))

    async def _latencies(self, topic: str, rate: int, seconds: float) -> Latencies:
        acked: list[float] = []
        arrived: list[float] = []
        names, sent = _streams(topic, PARTITIONS), 0

        def arrive(value: bytes, _: Any) -> None:
            arrived.append(time.perf_counter() - float(value))

        async with self._producer() as producer, self._subscribed(names, arrive):
            start = time.perf_counter()
            while time.perf_counter() - start < seconds:
                at = time.perf_counter()
                due = int((at - start) * rate) - sent
                if due > 0:

                    def confirm(_: Any, at: float = at) -> None:
                        acked.append(time.perf_counter() - at)

                    name = names[sent % len(names)]
                    await producer.send_batch(
                        name, [str(at).encode()] * due, on_publish_confirm=confirm
                    )
                    sent += due
                await asyncio.sleep(0.001)
            await asyncio.sleep(1.0)
        return Latencies(acked, arrived)

    def acknowledgements(self, topic: str, interval_s: float) -> Acknowledgements:
        raise PeerFailed("rabbitmq: this client does not follow a stream to its new leader")


async def _until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise PeerFailed(f"rabbitmq: {what} did not come within {_WAIT_S:g} s")
        await asyncio.sleep(0.001)


def _streams(topic: str, partitions: int) -> list[str]:
    return [f"{topic}-{number}" for number in range(partitions)]


class RabbitMQ(OfProcesses):
    name = "rabbitmq"
    patience_s = 120.0
    client: RabbitClient

    def absence(self) -> Absence | None:
        if not Path(SERVER).exists() or which("epmd") is None:
            return Absence("there is no rabbitmq-server", "make setup-peers")
        if find_spec("rstream") is None:
            return Absence("its client rstream is not installed", "make setup-peers")
        return None

    def cannot(self, experiment: str) -> str | None:
        return {
            "throughput-synced": "RabbitMQ confirms records of a stream without a sync",
            "latency-synced": "RabbitMQ confirms records of a stream without a sync",
            "failover": "the client does not follow a stream to its new leader",
            "recovery": "the client takes too long to write gigabytes",
            "partitions": "growth is compared between those who speak Kafka's protocol",
            "clients": "growth is compared between those who speak Kafka's protocol",
        }.get(experiment)

    def version(self) -> str:
        said = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return f"RabbitMQ {said.stdout or 'of unknown version'}"

    def settings(self, durability: Durability) -> Mapping[str, str]:
        return {"plugins": "rabbitmq_stream", "replicas": str(NODES)}

    def prepare(self, durability: Durability) -> None:
        self._nodes = Nodes(self.name)
        home, ports = self._nodes.home, Ports()
        drawn = [[ports.draw(HOST).port for _ in range(3)] for _ in range(NODES)]
        self._ports = [one[0] for one in drawn]
        self._mapper = ports.draw(HOST).port
        cookie = home / ".erlang.cookie"
        cookie.write_text("TIDELOGBENCH")
        cookie.chmod(0o400)
        (home / "plugins").write_text("[rabbitmq_stream].\n")
        peers = "".join(
            f"cluster_formation.classic_config.nodes.{n} = bench{n}@localhost\n"
            for n in range(1, NODES + 1)
        )
        self._distribution = [one[2] for one in drawn]
        for n, (stream, amqp, _) in enumerate(drawn, 1):
            (home / f"{n}.conf").write_text(
                f"listeners.tcp.1 = {HOST}:{amqp}\nstream.listeners.tcp.1 = {HOST}:{stream}\n"
                f"stream.advertised_host = {HOST}\nstream.advertised_port = {stream}\n"
                f"cluster_formation.peer_discovery_backend = classic_config\n{peers}"
            )
        self.client = RabbitClient(self._ports[0])

    def start(self) -> None:
        nodes = self._running()
        nodes.launch(_PORT_MAPPER, ["epmd", "-port", str(self._mapper)])
        nodes.await_(lambda: listens(self._mapper), "the port mapper")
        super().start()

    def pids(self) -> Sequence[int]:
        """The virtual machines, which scripts start."""
        groups = set(self._running().pids())
        return [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdecimal() and _is_machine_of(entry, groups)
        ]

    def leader(self, topic: str) -> int:
        raise PeerFailed("rabbitmq: the leader of a stream is not looked up")

    def is_whole(self, topic: str) -> bool:
        return True

    def start_node(self, node: int) -> None:
        nodes = self._running()
        home = nodes.home
        nodes.launch(node, [SERVER], {
            "HOME": str(home),
            "ERL_EPMD_PORT": str(self._mapper),
            "RABBITMQ_NODENAME": f"bench{node}@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution[node - 1]),
            "RABBITMQ_CONFIG_FILE": str(home / f"{node}.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(home / f"data-{node}"),
            "RABBITMQ_LOG_BASE": str(home / f"log-{node}"),
        })  # fmt: skip


def _is_machine_of(entry: Path, groups: set[int]) -> bool:
    try:
        name = (entry / "comm").read_text().strip()
        return name == "beam.smp" and os.getpgid(int(entry.name)) in groups
    except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        return False
