"""A cluster on this machine, each node a process of its own.

The launcher writes one configuration file per node, gives the data directories their identity,
starts ``tidelog server --config FILE`` for each and waits until every node names all of them as
alive. A node that was killed can be started again from the same file, by this object or by hand.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.ids import NodeId
from tidelog.kernel.real import OsDisk, SystemRandom
from tidelog.storage.format import format_directories, random_uuid, read_identity
from tidelog.testing.probe import ProbeFailed, ask_cluster, free_port, is_port_free

PORT_STEP: Final = 10
"""Node n listens on ``port + 10 (n − 1)`` for clients and one above that for the other nodes."""

_POLL_S: Final = 0.02
_STOP_S: Final = 30.0


class ClusterFailed(Exception):
    """A node ended, or the cluster did not serve in time; the text has the node's last words."""


@dataclass(slots=True)
class LocalNode:
    """One process, or the place for one."""

    node_id: int
    kafka: SocketAddress
    rpc: SocketAddress
    data_dir: Path
    config: Path
    process: subprocess.Popen[str] | None = None
    last_words: list[str] = field(default_factory=list)
    reader: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def description(self) -> dict[str, Any]:
        return {
            "id": self.node_id,
            "pid": self.process.pid if self.process is not None else None,
            "kafka": str(self.kafka),
            "rpc": str(self.rpc),
            "http": None,
            "data_dir": str(self.data_dir),
            "config": str(self.config),
        }


class LocalCluster:
    """Use as a context manager, or call ``start`` and ``stop``."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        data_dir: Path | None = None,
        settings: Mapping[str, str] | None = None,
        on_line: Callable[[int, str], None] = lambda node_id, line: None,
    ) -> None:
        """Without ``port`` any free ports are taken; without ``data_dir`` data is temporary."""
        self.is_ephemeral = data_dir is None
        self.data_dir = data_dir or Path(tempfile.mkdtemp(prefix="tidelog-"))
        self.moved_ports: list[tuple[int, int]] = []
        self._on_line = on_line
        self._settings = {**_replicated(nodes), **(settings or {})}
        self.nodes = {n: self._place(n, host, port) for n in range(1, nodes + 1)}
        self.cluster_id = self._cluster_id()

    # --- what it is --------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(str(node.kafka) for node in self.nodes.values())

    def description(self) -> dict[str, Any]:
        """What scripts need to kill a node and start it again (the ready file)."""
        return {
            "cluster_id": self.cluster_id,
            "bootstrap": self.bootstrap,
            "nodes": [node.description() for node in self.nodes.values()],
        }

    # --- life --------------------------------------------------------------------------

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, timeout_s: float = 30.0) -> None:
        """Start every node and wait until all of them serve."""
        try:
            self._write_configs()
            for node_id in self.nodes:
                self.start_node(node_id)
            self.wait_until_serving(timeout_s)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ask every node to end, wait, and remove temporary data."""
        for node in self.nodes.values():
            if node.is_running:
                _resume_and_signal(node, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        for node in self.nodes.values():
            self._wait_for_end(node, max(0.1, deadline - time.monotonic()))
        if self.is_ephemeral:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def start_node(self, node_id: int) -> None:
        node = self.nodes[node_id]
        if node.is_running:
            raise ClusterFailed(f"node {node_id} is running already")
        node.process = subprocess.Popen(
            [sys.executable, "-m", "tidelog.broker", "--config", str(node.config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        node.last_words = []
        node.reader = threading.Thread(target=self._read_lines, args=(node,), daemon=True)
        node.reader.start()

    def wait_until_serving(self, timeout_s: float = 30.0) -> None:
        """Every running node names every running node as alive."""
        deadline = time.monotonic() + timeout_s
        problem = "no node was asked yet"
        while time.monotonic() < deadline:
            wanted = {n for n, node in self.nodes.items() if node.is_running}
            self._fail_if_ended()
            problem_now = self._first_problem(wanted)
            if problem_now is None:
                return
            problem = problem_now
            time.sleep(_POLL_S)
        raise ClusterFailed(f"the cluster does not serve after {timeout_s:g} s: {problem}")

    # --- faults ------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        """As a power switch would, for the process: SIGKILL."""
        node = self.nodes[node_id]
        if node.process is not None:
            node.process.kill()
            self._wait_for_end(node, _STOP_S)

    def stop_node(self, node_id: int, timeout_s: float = _STOP_S) -> None:
        """A clean shutdown: SIGTERM, then wait."""
        node = self.nodes[node_id]
        if node.is_running:
            _resume_and_signal(node, signal.SIGTERM)
            self._wait_for_end(node, timeout_s)

    def pause(self, node_id: int) -> None:
        self._signal(node_id, signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self._signal(node_id, signal.SIGCONT)

    def _signal(self, node_id: int, number: signal.Signals) -> None:
        process = self.nodes[node_id].process
        if process is None or process.poll() is not None:
            raise ClusterFailed(f"node {node_id} is not running")
        process.send_signal(number)

    # --- inside ------------------------------------------------------------------------

    def _place(self, number: int, host: str, port: int | None) -> LocalNode:
        if port is None:
            kafka, rpc = (SocketAddress(host, free_port(host)) for _ in range(2))
        else:
            kafka = self._free_or_other(SocketAddress(host, port + PORT_STEP * (number - 1)))
            rpc = self._free_or_other(SocketAddress(host, port + PORT_STEP * (number - 1) + 1))
        directory = self.data_dir / f"node-{number}"
        return LocalNode(number, kafka, rpc, directory, self.data_dir / f"node-{number}.properties")

    def _free_or_other(self, wanted: SocketAddress) -> SocketAddress:
        if is_port_free(wanted):
            return wanted
        other = free_port(wanted.host)
        self.moved_ports.append((wanted.port, other))
        return SocketAddress(wanted.host, other)

    def _cluster_id(self) -> str:
        for node in self.nodes.values():
            identity = read_identity(OsDisk(), str(node.data_dir))
            if identity is not None:
                return identity.cluster_id
        return str(random_uuid(SystemRandom()))

    def _write_configs(self) -> None:
        disk, random = OsDisk(), SystemRandom()
        for node in self.nodes.values():
            format_directories(
                disk,
                [str(node.data_dir)],
                random,
                cluster_id=self.cluster_id,
                node_id=NodeId(node.node_id),
                ignore_formatted=True,
            )
            node.config.write_text(self._properties(node), encoding="utf-8")

    def _properties(self, node: LocalNode) -> str:
        voters = ",".join(f"{other.node_id}@{other.rpc}" for other in self.nodes.values())
        lines = {
            "process.roles": "broker,controller",
            "node.id": str(node.node_id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{node.kafka},CONTROLLER://{node.rpc}",
            "log.dirs": str(node.data_dir),
            **self._settings,
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items())

    def _read_lines(self, node: LocalNode) -> None:
        process = node.process
        if process is None or process.stdout is None:
            return
        for line in process.stdout:
            node.last_words = [*node.last_words[-40:], line.rstrip("\n")]
            self._on_line(node.node_id, line.rstrip("\n"))

    def _wait_for_end(self, node: LocalNode, timeout_s: float) -> None:
        if node.process is None:
            return
        try:
            node.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            node.process.kill()
            node.process.wait()
        if node.reader is not None:
            node.reader.join(timeout=5)
        if node.process.stdout is not None:
            node.process.stdout.close()

    def _fail_if_ended(self) -> None:
        for node in self.nodes.values():
            if node.process is not None and node.process.poll() not in (None, -signal.SIGKILL):
                words = "\n".join(node.last_words)
                raise ClusterFailed(
                    f"node {node.node_id} ended with exit code {node.process.returncode}:\n{words}"
                )

    def _first_problem(self, wanted: set[int]) -> str | None:
        for node_id in sorted(wanted):
            try:
                answer = ask_cluster(self.nodes[node_id].kafka, timeout_s=1.0)
            except ProbeFailed as error:
                return str(error)
            missing = sorted(wanted - answer.brokers.keys())
            if missing:
                return f"node {node_id} does not see {missing} alive yet"
        return None


def _replicated(nodes: int) -> dict[str, str]:
    """What a cluster of this size promises by default; printed by ``tidelog up``."""
    factor = min(nodes, 3)
    return {
        "default.replication.factor": str(factor),
        "min.insync.replicas": str(2 if factor == 3 else 1),
        "offsets.topic.replication.factor": str(factor),
        "transaction.state.log.replication.factor": str(factor),
        "transaction.state.log.min.isr": str(2 if factor == 3 else 1),
        "group.initial.rebalance.delay.ms": "0",
    }


def _resume_and_signal(node: LocalNode, number: signal.Signals) -> None:
    """A paused process gets a signal only when it goes on."""
    if node.process is not None:
        node.process.send_signal(number)
        node.process.send_signal(signal.SIGCONT)
