"""`make bench-scrape`: what Prometheus costs a node that leads 2,000 partitions.

The page is fetched as Prometheus fetches it, again and again, while another client asks the same
node a small question without pause: whatever holds the event loop up makes one of its answers
late. The same client alone says how late answers are anyway. And the same page is written by
prometheus-client, which is why a node does not use it.
"""

from __future__ import annotations

import socket
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from bench.table import Row, report
from tidelog.kernel.addresses import SocketAddress
from tidelog.testing.local_cluster import LocalCluster
from tidelog.wire.protocol.apis import APIS, ApiKey
from tidelog.wire.protocol.frames import frame_request

TOPICS: Final = 40
PARTITIONS_EACH: Final = 50
SCRAPES: Final = 30
PAUSE_S: Final = 0.1
GOAL_MS: Final = 100
STALL_GOAL_MS: Final = 50


class Asker:
    """Asks which APIs there are, without pause, and keeps how long each answer took."""

    def __init__(self, node: SocketAddress) -> None:
        self._node = node
        self._is_done = threading.Event()
        self.answers_ms: list[float] = []

    def run(self) -> None:
        question = frame_request(APIS[ApiKey.API_VERSIONS], 0, 1, "bench", b"")
        with socket.create_connection((self._node.host, self._node.port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not self._is_done.is_set():
                began = time.perf_counter()
                connection.sendall(question)
                size = int.from_bytes(_receive(connection, 4), "big")
                _receive(connection, size)
                self.answers_ms.append((time.perf_counter() - began) * 1000)

    @contextmanager
    def asking(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._is_done.set()
            thread.join()


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionResetError("the node hung up")
        received += part
    return received


def fill(bootstrap: str) -> None:
    """Every partition has a record, and every topic has traffic to tell of."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    names = [f"topic-{number}" for number in range(TOPICS)]
    made = admin.create_topics([NewTopic(name, PARTITIONS_EACH, 1) for name in names])
    for one in made.values():
        one.result(120)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 50})
    for name in names:
        for partition in range(PARTITIONS_EACH):
            producer.produce(name, b"x" * 100, partition=partition)
    if producer.flush(120):
        raise RuntimeError("the node did not take all records")


def scrape(url: str) -> tuple[float, bytes]:
    began = time.perf_counter()
    with urllib.request.urlopen(url, timeout=30) as answer:
        page = answer.read()
    return (time.perf_counter() - began) * 1000, page


def answers_while(node: SocketAddress, act: Callable[[], None]) -> list[float]:
    asker = Asker(node)
    with asker.asking():
        act()
    return asker.answers_ms


class Families:
    """The samples of a page, given out as a collector of prometheus-client has to."""

    def __init__(self, page: bytes) -> None:
        self._found = list(text_string_to_metric_families(page.decode()))

    def collect(self) -> Iterator[Metric]:
        for one in self._found:
            family = Metric(one.name, one.documentation, one.type)
            for sample in one.samples:
                family.add_sample(sample.name, dict(sample.labels), sample.value)
            yield family


def made_by_prometheus_client_ms(page: bytes) -> float:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families(page))
    began = time.perf_counter()
    generate_latest(registry)
    return (time.perf_counter() - began) * 1000


def measure(cluster: LocalCluster) -> Iterator[Row]:
    node = cluster.nodes[1]
    url = f"http://{node.http}/metrics"
    first_ms, page = scrape(url)
    samples = sum(not line.startswith(b"#") for line in page.splitlines())
    yield Row("partitions led", TOPICS * PARTITIONS_EACH, "")
    yield Row("samples on the page", samples, "")
    yield Row("size of the page", len(page) / 1e6, "MB")
    yield Row("first scrape, which loads the server", first_ms, "ms")

    alone = [scrape(url)[0] for _ in range(SCRAPES)]
    yield Row("scrape, median", statistics.median(alone), "ms")
    yield Row(f"scrape, slowest of {SCRAPES}", max(alone), "ms", GOAL_MS, "lower")

    durations: list[float] = []

    def scrape_some() -> None:
        for _ in range(SCRAPES):
            durations.append(scrape(url)[0])
            time.sleep(PAUSE_S)

    scraped = answers_while(node.kafka, scrape_some)
    quiet_s = sum(durations) / 1000 + SCRAPES * PAUSE_S
    idle = answers_while(node.kafka, lambda: time.sleep(quiet_s))
    yield Row("scrape beside a busy client, median", statistics.median(durations), "ms")
    yield Row("slowest answer to that client", max(scraped), "ms", STALL_GOAL_MS, "lower")
    yield Row("slowest answer without scrapes", max(idle), "ms")
    yield Row("median answer with scrapes", statistics.median(scraped), "ms")
    yield Row("median answer without scrapes", statistics.median(idle), "ms")
    other_ms = made_by_prometheus_client_ms(page)
    yield Row("the same page by prometheus-client, at one go", other_ms, "ms")


def main() -> int:
    with LocalCluster(1) as cluster:
        fill(cluster.bootstrap)
        rows = list(measure(cluster))
    report("scrape", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
