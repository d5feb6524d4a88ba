"""What tests may use in place of a cluster: how soon it serves, and the memory it takes.

Each double runs in a process of its own, which prints the seconds until a record was acknowledged
and the memory that it then has more than before. Tidelog appears as one node and as three; a
cluster of Apache Kafka is in `start`. The mock cluster lives in librdkafka itself; kfake is a Go
module, wrapped here in a main function.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from shutil import which
from typing import Any, Final

from confluent_kafka import Producer

from bench.peers import machine
from bench.peers.experiments import Sample
from bench.peers.peer import BUILD, Absence
from tidelog.testing.local_cluster import LocalCluster

KFAKE: Final = BUILD / "bin" / "kfake"
_WAIT_S: Final = 60.0


def absences() -> Mapping[str, Absence]:
    """Doubles that cannot be had here."""
    found = {}
    if not KFAKE.exists():
        found["kfake"] = Absence("kfake is not built", "make setup-peers (needs Go)")
    engine = which("docker")
    if engine is None or find_spec("testcontainers") is None:
        found["testcontainers"] = Absence("there is no Docker engine", "make docker-engine")
    elif not _image(engine):
        found["testcontainers"] = Absence(
            "the image apache/kafka is not here", "docker pull apache/kafka:4.3.1"
        )
    return found


def _image(engine: str) -> bool:
    asked = subprocess.run([engine, "image", "inspect", "apache/kafka:4.3.1"],
                           capture_output=True, check=False)  # fmt: skip
    return asked.returncode == 0


def measure_doubles(rounds: int) -> Iterator[Sample]:
    """One process per double and round."""
    missing = absences()
    for _ in range(rounds):
        for name in DOUBLES:
            if name in missing:
                continue
            run = subprocess.run([sys.executable, "-m", "bench.peers.doubles", name],
                                 capture_output=True, text=True, check=True)  # fmt: skip
            answer = json.loads(run.stdout.splitlines()[-1])
            peer = f"double: {name}"
            yield Sample(peer, "double: start to acknowledgement", answer["s"], "s", "lower")
            yield Sample(peer, "double: memory", answer["mb"], "MB", "lower")


def _acknowledged(settings: Mapping[str, Any]) -> Producer:
    producer = Producer({"acks": "all", "linger.ms": 0, "log_level": 0, **settings})
    producer.produce("double", b"x")
    if producer.flush(_WAIT_S) > 0:
        raise SystemExit("no acknowledgement")
    return producer


def mock() -> tuple[float, float]:
    before, start = machine.proportional_mb([os.getpid()]), time.perf_counter()
    producer = _acknowledged({"bootstrap.servers": "", "test.mock.num.brokers": 3})
    took = time.perf_counter() - start
    more = machine.proportional_mb([os.getpid()]) - before
    del producer
    return took, more


def kfake() -> tuple[float, float]:
    start = time.perf_counter()
    with subprocess.Popen([str(KFAKE)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        addresses = process.stdout.readline().strip()
        _acknowledged({"bootstrap.servers": addresses})
        took = time.perf_counter() - start
        memory = machine.proportional_mb([process.pid])
        process.kill()
    return took, memory


def tidelog(nodes: int) -> tuple[float, float]:
    start = time.perf_counter()
    settings = {"auto.create.topics.enable": "true"}
    with LocalCluster(nodes, settings=settings) as cluster:
        _acknowledged({"bootstrap.servers": cluster.bootstrap})
        took = time.perf_counter() - start
        pids = [one.process.pid for one in cluster.nodes.values() if one.process is not None]
        return took, machine.proportional_mb(pids)


def testcontainer() -> tuple[float, float]:
    from testcontainers.kafka import KafkaContainer

    start = time.perf_counter()
    with KafkaContainer("apache/kafka:4.3.1") as container:
        _acknowledged({"bootstrap.servers": container.get_bootstrap_server()})
        took = time.perf_counter() - start
        state = container.get_wrapped_container().stats(stream=False)
        return took, state["memory_stats"]["usage"] / 2**20


DOUBLES: Final[Mapping[str, Callable[[], tuple[float, float]]]] = {
    "tidelog, 1 node": lambda: tidelog(1),
    "tidelog, 3 nodes": lambda: tidelog(3),
    "librdkafka mock": mock,
    "kfake": kfake,
    "testcontainers": testcontainer,
}


if __name__ == "__main__":
    seconds, megabytes = DOUBLES[sys.argv[1]]()
    print(json.dumps({"s": seconds, "mb": megabytes}))
