"""Malformed requests on some connections, and a client with real work on another.

What counts: the node lives, prints no exception, takes no more memory than it did, and the other
client's requests are answered, and soon.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import quantiles
from typing import Any

from differential import Ids
from malformed import PRODUCE_VERSION, Malformed, MalformedFrames, produce_request
from raw_client import RawConnection

from tidelog.kernel.addresses import SocketAddress
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import parse_response_header
from tidelog.wire.protocol.responses import decode_response
from tidelog.wire.records import Record, build_batch

CONNECTIONS = 4
_ANSWER_S = 0.1
"""What is not answered by then is a request without an answer, or one that waits."""


def resident_bytes(pid: int) -> int:
    return _status(pid, "VmRSS")


def peak_bytes(pid: int) -> int:
    return _status(pid, "VmHWM")


def produced_code(answer: bytes) -> int:
    """The error code of the one batch of a ``produce_request``."""
    _, body = parse_response_header(APIS[ApiKey.PRODUCE], PRODUCE_VERSION, answer)
    response: Any = decode_response(ApiKey.PRODUCE, PRODUCE_VERSION, body)
    return int(response.responses[0].partition_responses[0].error_code)


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


class Worker:
    """Produces, reads back and asks for metadata, one after the other, and notes how long each
    request takes. Anything but a right answer ends it."""

    def __init__(self, address: SocketAddress, topic: str) -> None:
        self._connection = RawConnection(address)
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.latencies_ms: list[float] = []
        self.failure: str | None = None

    def __enter__(self) -> Worker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)
        self._connection.close()

    @property
    def requests(self) -> int:
        return len(self.latencies_ms)

    def percentiles(self) -> str:
        cuts = quantiles(self.latencies_ms, n=1000, method="inclusive")
        return (
            f"{self.requests} requests, p50 {cuts[499]:.1f} ms, p99 {cuts[989]:.1f} ms, "
            f"p99.9 {cuts[998]:.1f} ms, max {max(self.latencies_ms):.1f} ms"
        )

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._work()
                time.sleep(0.002)
        except (AssertionError, ConnectionError, OSError) as error:
            self.failure = repr(error)

    def _work(self) -> None:
        batch = build_batch([Record(0, int(time.time() * 1000), None, b"progress")])
        started = time.monotonic()
        answer = self._connection.exchange(produce_request(self._topic, batch, acks=-1))
        self._note(started)
        assert isinstance(answer, bytes), answer
        code = produced_code(answer)
        assert code == 0, f"Produce answered {code}"
        started = time.monotonic()
        described = self._connection.ask(
            ApiKey.METADATA,
            9,
            topics=[{"name": self._topic}],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        self._note(started)
        assert int(described.topics[0].error_code) == 0

    def _note(self, started: float) -> None:
        self.latencies_ms.append((time.monotonic() - started) * 1000)


@dataclass
class Fuzzed:
    sent: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)


async def fuzz(address: SocketAddress, seed: int, count: int, topic: str, ids: Ids) -> Fuzzed:
    """Send so many malformed requests over a few connections at a time."""
    frames = islice(MalformedFrames(seed, topic, ids), count)
    fuzzed = Fuzzed()
    await asyncio.gather(*(_send_from(frames, address, fuzzed) for _ in range(CONNECTIONS)))
    return fuzzed


async def _send_from(frames: Iterator[Malformed], address: SocketAddress, fuzzed: Fuzzed) -> None:
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    for malformed in frames:
        if streams is None:
            streams = await asyncio.open_connection(address.host, address.port)
        outcome = await _send(malformed, *streams)
        fuzzed.sent[malformed.kind.split(":")[0]] += 1
        fuzzed.outcomes[outcome] += 1
        if outcome != "answered":
            streams[1].transport.abort()
            streams = None
    if streams is not None:
        streams[1].transport.abort()


async def _send(
    malformed: Malformed, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> str:
    writer.write(malformed.data)
    if not malformed.is_complete:
        return "left"
    try:
        async with asyncio.timeout(_ANSWER_S):
            size = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(size)
    except TimeoutError:
        return "silent"
    except (asyncio.IncompleteReadError, ConnectionError):
        return "closed"
    return "answered"


__all__ = ["Fuzzed", "Worker", "fuzz", "peak_bytes", "produced_code", "resident_bytes"]
