"""The two peers that librdkafka can load: Tidelog itself, and Apache Kafka from its jars.

Both get the same promises: three replicas, two of them in sync. Both remove files after a second.
All else is default on both sides, and Kafka's virtual machine gets the options of its own start
script. Formatting Kafka's directories takes a virtual machine each and is not part of its start.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from shutil import which
from typing import Final

from bench.peers.kafka_client import KafkaClient
from bench.peers.nodes import Nodes, OfProcesses
from bench.peers.peer import NODES, Absence, Durability, PeerFailed
from tidelog.testing.local_cluster import LocalCluster, replicated
from tidelog.testing.ports import Ports

JARS: Final = Path(__file__).parents[2] / "build" / "kafka"
HOST: Final = "127.0.0.1"
REMOVING_SOON: Final = {"log.segment.delete.delay.ms": "1000"}
"""By default files of a deleted topic go a minute later, in the middle of what is measured then."""


class Tidelog:
    name = "tidelog"
    client: KafkaClient

    def __init__(self) -> None:
        self._cluster: LocalCluster | None = None

    def absence(self) -> Absence | None:
        return None

    def cannot(self, experiment: str) -> str | None:
        return None

    def version(self) -> str:
        return f"{version('tidelog')}, Python {sys.version.split()[0]}"

    def settings(self, durability: Durability) -> Mapping[str, str]:
        policy = "fsync" if durability is Durability.SYNCED else "page-cache"
        return {**replicated(NODES), **REMOVING_SOON, "log.flush.policy": policy}

    def prepare(self, durability: Durability) -> None:
        self._cluster = LocalCluster(NODES, settings=self.settings(durability))
        self.client = KafkaClient(self._cluster.bootstrap)

    def start(self) -> None:
        self._running().start()

    def await_serving(self) -> None:
        self._running().wait_until_serving(600.0)

    def _running(self) -> LocalCluster:
        if self._cluster is None:
            raise PeerFailed("tidelog is not running")
        return self._cluster

    def pids(self) -> Sequence[int]:
        return [
            node.process.pid
            for node in self._running().nodes.values()
            if node.process is not None and node.is_running
        ]

    def data_dirs(self) -> Sequence[Path]:
        return [node.data_dir for node in self._running().nodes.values()]

    def leader(self, topic: str) -> int:
        return self.client.leader(topic)

    def is_whole(self, topic: str) -> bool:
        return self.client.in_sync(topic) == NODES

    def kill(self, node: int) -> None:
        self._running().kill(node)

    def start_node(self, node: int) -> None:
        self._running().start_node(node)

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster = None


_JVM: Final = (
    "-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)  # fmt: skip
_FORMATTING: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
_CLUSTER_ID: Final = "4L6g3nShT-eMCtK--X86sw"


class Kafka(OfProcesses):
    name = "kafka"
    patience_s = 600.0
    client: KafkaClient

    def absence(self) -> Absence | None:
        if which("java") is None:
            return Absence("there is no Java here", "apt install openjdk-17-jre-headless")
        if not (JARS / ".complete").exists():
            return Absence("its jars are not in build/kafka", "make build/kafka/.complete")
        return None

    def cannot(self, experiment: str) -> str | None:
        return None

    def version(self) -> str:
        jar = next(JARS.glob("kafka-server-[0-9]*.jar"), None)
        kafka = "unknown" if jar is None else jar.stem.removeprefix("kafka-server-")
        said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
        return f"{kafka}, {said.stderr.splitlines()[0]}"

    def settings(self, durability: Durability) -> Mapping[str, str]:
        synced = {"log.flush.interval.messages": "1"} if durability is Durability.SYNCED else {}
        java = {"java": " ".join(_JVM)}
        return {**replicated(NODES), **REMOVING_SOON, **synced, **java}

    def prepare(self, durability: Durability) -> None:
        self._nodes = Nodes(self.name)
        ports = Ports()
        kafka = [ports.draw(HOST).port for _ in range(NODES)]
        quorum = [ports.draw(HOST).port for _ in range(NODES)]
        self._ports = kafka
        voters = ",".join(f"{n}@{HOST}:{port}" for n, port in enumerate(quorum, 1))
        shared = {k: v for k, v in self.settings(durability).items() if k != "java"}
        for n in range(1, NODES + 1):
            lines = {
                "process.roles": "broker,controller",
                "node.id": str(n),
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://{HOST}:{kafka[n - 1]},"
                f"CONTROLLER://{HOST}:{quorum[n - 1]}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "log.dirs": str(self._data_dir(n)),
                **shared,
            }
            config = self._config(n)
            config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
            format_it = _java(*_FORMATTING, "kafka.tools.StorageTool", "format",
                              "-t", _CLUSTER_ID, "-c", str(config))  # fmt: skip
            subprocess.run(format_it, check=True, capture_output=True)
        self.client = KafkaClient(",".join(f"{HOST}:{port}" for port in kafka))

    def _config(self, node: int) -> Path:
        return self._running().home / f"{node}.properties"

    def leader(self, topic: str) -> int:
        return self.client.leader(topic)

    def is_whole(self, topic: str) -> bool:
        return self.client.in_sync(topic) == NODES

    def start_node(self, node: int) -> None:
        self._running().launch(node, _java(*_JVM, "kafka.Kafka", str(self._config(node))))


def _java(*arguments: str) -> list[str]:
    """Options first, then the class: the class path stands between them."""
    options = [one for one in arguments if one.startswith(("-X", "-D", "-server"))]
    rest = [one for one in arguments if one not in options]
    return ["java", *options, "-cp", f"{JARS}/*", *rest]
