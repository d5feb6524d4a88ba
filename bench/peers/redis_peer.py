"""Redis streams: one server that is written to, two replicas, its own client for Python.

A partition is a stream of its own on the same server. Redis 7.0 can wait until replicas have a
record in memory (WAIT) but not until they have it on disk (WAITAOF came with 7.2), so its strongest
durability is weaker than that of the others: synced on one node, in the memory of two more. A
failover is the business of further processes (Sentinel) and is not measured.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any, Final

from bench.peers.nodes import Nodes, OfProcesses
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
BATCH_BYTES: Final = 256_000
_FETCHED: Final = 1_000
_WAIT_MS: Final = 60_000


class RedisClient:
    """A batch goes out as one pipeline, and its last command waits for both replicas."""

    def __init__(self, port: int) -> None:
        self._port = port

    def _connect(self) -> Any:
        import redis  # not installed everywhere

        return redis.Redis(host=HOST, port=self._port)

    def create(self, topic: str, partitions: int) -> None:
        """Streams come to be when they are written; replicas must have joined before that."""
        redis, deadline = self._connect(), time.monotonic() + 60
        while redis.info("replication")["connected_slaves"] < NODES - 1:
            if time.monotonic() > deadline:
                raise PeerFailed("redis: the replicas did not join")
            time.sleep(0.05)

    def delete(self, topic: str) -> None:
        redis = self._connect()
        redis.delete(*redis.keys(f"{topic}-*"))

    def produce(self, topic: str, size: int, seconds: float, clients: int = 1) -> Produced:
        redis, value, sent = self._connect(), bytes(size), 0
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            sent += _add(redis, topic, value, BATCH_BYTES // size + 1, sent)
        return Produced(sent, time.perf_counter() - start)

    def write(self, topic: str, size: int, records: int) -> None:
        redis, value, sent = self._connect(), bytes(size), 0
        while sent < records:
            sent += _add(redis, topic, value, min(records - sent, BATCH_BYTES // size + 1), sent)

    def touch(self, topic: str, partitions: int) -> None:
        redis = self._connect()
        for number in range(partitions):
            _add(redis, topic, b"x", 1, number)

    def consume(self, topic: str, partitions: int, records: int) -> float:
        redis, seen = self._connect(), 0
        newest: dict[str, Any] = {f"{topic}-{number}": "0" for number in range(partitions)}
        start = time.perf_counter()
        while seen < records:
            answer = redis.xread(newest, count=_FETCHED)
            if not answer:
                raise PeerFailed(f"redis: {seen} of {records} records of {topic} are there")
            for name, entries in answer:
                newest[name.decode()] = entries[-1][0]
                seen += len(entries)
        return seen / (time.perf_counter() - start)

    def latencies(self, topic: str, rate: int, seconds: float) -> Latencies:
        """What is due is one pipeline; the reader asks in between and is never waited for."""
        writer, reader = self._connect(), self._connect()
        acked: list[float] = []
        arrived: list[float] = []
        newest: dict[str, Any] = {f"{topic}-{number}": "0" for number in range(PARTITIONS)}
        start, sent = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            at = time.perf_counter()
            due = int((at - start) * rate) - sent
            if due > 0:
                sent += _add(writer, topic, str(at).encode(), due, sent)
                acked += [time.perf_counter() - at] * due
            for name, entries in reader.xread(newest, count=_FETCHED) or []:
                newest[name.decode()] = entries[-1][0]
                now = time.perf_counter()
                arrived += [now - float(fields[b"v"]) for _, fields in entries]
            time.sleep(0.0005)
        return Latencies(acked, arrived)

    def acknowledgements(self, topic: str, interval_s: float) -> Acknowledgements:
        raise PeerFailed("redis does not fail over without Sentinel")


def _add(redis: Any, topic: str, value: bytes, count: int, first: int) -> int:
    pipeline = redis.pipeline(transaction=False)
    for number in range(first, first + count):
        pipeline.xadd(f"{topic}-{number % PARTITIONS}", {"v": value})
    pipeline.execute_command("WAIT", NODES - 1, _WAIT_MS)
    reached = pipeline.execute()[-1]
    if reached < NODES - 1:
        raise PeerFailed(f"redis: {reached} replicas have a record of {topic}")
    return count


class Redis(OfProcesses):
    name = "redis"
    client: RedisClient

    def absence(self) -> Absence | None:
        if which("redis-server") is None:
            return Absence("there is no redis-server", "make setup-peers")
        if find_spec("redis") is None:
            return Absence("its client redis-py is not installed", "make setup-peers")
        return None

    def cannot(self, experiment: str) -> str | None:
        return {
            "failover": "Redis fails over only with Sentinel, which is a service of its own",
            "recovery": "all data is in memory, and 5 GB on three nodes would not fit",
            "partitions": "growth is compared between those who speak Kafka's protocol",
            "clients": "growth is compared between those who speak Kafka's protocol",
        }.get(experiment)

    def version(self) -> str:
        said = subprocess.run(["redis-server", "-v"], capture_output=True, text=True, check=True)
        return " ".join(said.stdout.split()[:3])

    def settings(self, durability: Durability) -> Mapping[str, str]:
        sync = "always" if durability is Durability.SYNCED else "everysec"
        return {"appendonly": "yes", "appendfsync": sync, "save": '""', "WAIT": str(NODES - 1)}

    def prepare(self, durability: Durability) -> None:
        self._nodes = Nodes(self.name)
        ports = Ports()
        self._ports = [ports.draw(HOST).port for _ in range(NODES)]
        shared = {k: v for k, v in self.settings(durability).items() if k != "WAIT"}
        for n in range(1, NODES + 1):
            self._data_dir(n).mkdir()
            lines = {
                "port": str(self._ports[n - 1]),
                "bind": HOST,
                "dir": str(self._data_dir(n)),
                **shared,
                **({} if n == 1 else {"replicaof": f"{HOST} {self._ports[0]}"}),
            }
            text = "".join(f"{name} {value}\n" for name, value in lines.items())
            self._config(n).write_text(text)
        self.client = RedisClient(self._ports[0])

    def _config(self, node: int) -> Path:
        return self._running().home / f"{node}.conf"

    def data_dirs(self) -> Sequence[Path]:
        return []  # one file for all streams: what a topic takes cannot be told

    def leader(self, topic: str) -> int:
        return 1

    def is_whole(self, topic: str) -> bool:
        return True

    def start_node(self, node: int) -> None:
        self._running().launch(node, ["redis-server", str(self._config(node))])
