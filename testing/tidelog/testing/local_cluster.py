"""A cluster on this machine, each node a process of its own.

The launcher writes one configuration file per node, gives the data directories their identity,
starts a node from each file and waits until every node names all of them as alive. A node that was
killed can be started again from the same file: by this object, or by hand as ``tidelog server
--config FILE``.

Nodes are children of a nursery, which imports once for all of them. None of them outlives the
process that this object lives in, however that ends, and neither does temporary data.

Only the clients' port listens on ``host``. Nodes of one machine find each other on the loopback
address, whatever clients are offered.
"""

from __future__ import annotations

import fcntl
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.ids import NodeId
from tidelog.kernel.real import OsDisk, SystemRandom
from tidelog.kernel.settings.properties import format_properties
from tidelog.storage.format import format_directories, random_uuid, read_identity
from tidelog.storage.node_files import CorruptNodeFile, InconsistentDirectory
from tidelog.testing.local_node import ClusterFailed, LocalNode, OnLine
from tidelog.testing.nursery import Nursery
from tidelog.testing.ports import NoFreePort, Ports
from tidelog.testing.probe import ProbeFailed, ask_cluster, load_decoder

__all__ = ["PORT_STEP", "ClusterFailed", "LocalCluster", "LocalNode", "OnLine"]

PORT_STEP: Final = 10
"""Node n listens on ``port + 10 (n − 1)`` for clients, one above that for the other nodes, and two
above for HTTP."""

OWN_SETTINGS: Final = frozenset({
    "process.roles", "node.id", "broker.id", "controller.quorum.voters",
    "controller.listener.names", "listeners", "advertised.listeners", "log.dirs", "log.dir",
    "metadata.log.dir",
})  # fmt: skip
"""What differs from node to node and is not for the caller to give."""

_LOOPBACK: Final = "127.0.0.1"
_ANY_ADDRESS: Final = ("0.0.0.0", "::")
_LOCK: Final = ".cluster-lock"
_HTTP: Final = "http.listener"
"""Empty for all nodes, or different on each."""
_METADATA_PARTITION: Final = "__cluster_metadata-0"
_POLL_S: Final = 0.02
_STOP_S: Final = 30.0


class LocalCluster:
    """Use as a context manager, or call ``start`` and ``stop``."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        host: str = _LOOPBACK,
        advertised_host: str | None = None,
        port: int | None = None,
        data_dir: Path | None = None,
        settings: Mapping[str, str] | None = None,
        server: Sequence[str] | Nursery | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        on_line: OnLine = lambda node_id, line: None,
    ) -> None:
        """Without ``port`` any free ports are taken; without ``data_dir`` data is temporary.

        ``server`` is a nursery that this object may have for its own, or a command to run in its
        place; ``arguments`` are given to every node, and so is ``environment`` where this object
        makes the nursery.
        """
        self._has_http = (settings or {}).get(_HTTP) != ""
        own = OWN_SETTINGS | {_HTTP} if self._has_http else OWN_SETTINGS
        if clash := sorted(own & (settings or {}).keys()):
            raise ClusterFailed(
                f"{', '.join(clash)} differs from node to node, so the launcher sets it; "
                "to set it yourself, write a file per node and start tidelog server --config FILE"
            )
        self.settings: Mapping[str, str] = MappingProxyType(
            {**replicated(nodes), **(settings or {})}
        )
        self._bind_host = host
        self._server = server
        self._arguments = tuple(arguments)
        self.environment = dict(environment or {})
        self.node_settings: dict[int, dict[str, str]] = {}
        """What only one node gets, by its id; written to its file when the cluster starts."""
        self._on_line = on_line
        self._ports = Ports()
        self.is_ephemeral = data_dir is None
        self._lock: IO[str] | None = None
        self.data_dir = (data_dir or Path(tempfile.mkdtemp(prefix="tidelog-"))).resolve()
        try:
            self._lock = self._take_directory()
            dialled = advertised_host or (socket.gethostname() if host in _ANY_ADDRESS else host)
            self.nodes = {n: self._place(n, dialled, port) for n in range(1, nodes + 1)}
            self.cluster_id = self._cluster_id()
        except (NoFreePort, CorruptNodeFile, OSError) as error:
            self._leave_place()
            raise ClusterFailed(str(error)) from error
        except BaseException:
            self._leave_place()
            raise

    # --- what it is --------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(str(node.kafka) for node in self.nodes.values())

    @property
    def moved_ports(self) -> list[tuple[int, int]]:
        """Ports that were taken by others, and what is used instead."""
        return self._ports.moved

    def description(self) -> dict[str, Any]:
        """What scripts need to kill a node and start it again (the ready file)."""
        return {
            "cluster_id": self.cluster_id,
            "bootstrap": self.bootstrap,
            "nodes": [node.description() for node in self.nodes.values()],
        }

    def fallen(self) -> list[LocalNode]:
        """Nodes that ended although nobody asked this object to end them."""
        return [n for n in self.nodes.values() if n.is_wanted and not n.is_running]

    # --- life --------------------------------------------------------------------------

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, timeout_s: float = 60.0) -> None:
        """Start every node and wait until all of them serve."""
        try:
            for node_id in self.nodes:
                self._get_server(node_id)  # it imports while files are written
            self._write_configs()
            load_decoder()
            for node_id in self.nodes:
                self.start_node(node_id)
            self.wait_until_serving(timeout_s)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ask every node to end, wait, and remove temporary data."""
        for node in self.nodes.values():
            node.ask_to_end()
        deadline = time.monotonic() + _STOP_S
        for node in self.nodes.values():
            node.wait_for_end(max(0.1, deadline - time.monotonic()))
        if isinstance(self._server, Nursery):
            self._server.close()
            self._server = None
        self._leave_place()

    def start_node(self, node_id: int) -> None:
        server = self._get_server(node_id)
        if isinstance(server, Nursery) and self.is_ephemeral:
            server.leftover = self.data_dir
        self.nodes[node_id].start(server, self._on_line, self._arguments)

    def _get_server(self, node_id: int) -> Sequence[str] | Nursery:
        """Where this node is born; here, where all are."""
        if self._server is None:
            self._server = Nursery(self.environment)
        return self._server

    def wait_until_serving(self, timeout_s: float = 30.0) -> None:
        """Every node that should run names every such node as alive."""
        deadline = time.monotonic() + timeout_s
        wanted = {n for n, node in self.nodes.items() if node.is_wanted}
        if not wanted:
            raise ClusterFailed("no node was started")
        while True:
            self._fail_if_ended()
            problem = self._first_problem(wanted)
            if problem is None:
                return
            if time.monotonic() >= deadline:
                raise ClusterFailed(f"the cluster does not serve after {timeout_s:g} s: {problem}")
            time.sleep(_POLL_S)

    # --- faults ------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        """As a power switch would, for the process: SIGKILL."""
        self.nodes[node_id].kill()
        self.nodes[node_id].wait_for_end(_STOP_S)

    def kill_all(self) -> None:
        """All at once, without waiting; safe in a signal handler."""
        for node in self.nodes.values():
            node.kill()

    def stop_node(self, node_id: int, timeout_s: float = _STOP_S) -> None:
        """A clean shutdown: SIGTERM, then wait."""
        self.nodes[node_id].ask_to_end()
        self.nodes[node_id].wait_for_end(timeout_s)

    def pause(self, node_id: int) -> None:
        self.nodes[node_id].send(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self.nodes[node_id].send(signal.SIGCONT)

    # --- places ------------------------------------------------------------------------

    def _place(self, number: int, dialled: str, port: int | None) -> LocalNode:
        first = None if port is None else port + PORT_STEP * (number - 1)
        kafka = self._port(self._bind_host, first, 0)
        rpc = self._port(_LOOPBACK, first, 1)
        http = self._port(_LOOPBACK, first, 2) if self._has_http else None
        return LocalNode(
            number,
            SocketAddress(dialled, kafka.port),
            rpc,
            self.data_dir / f"node-{number}",
            self.data_dir / f"node-{number}.properties",
            http,
        )

    def _port(self, host: str, first: int | None, number: int) -> SocketAddress:
        if first is None:
            return self._ports.draw(host)
        return self._ports.want(SocketAddress(host, first + number))

    def _take_directory(self) -> IO[str]:
        """Two launchers on one directory would overwrite each other's configuration."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        lock = (self.data_dir / _LOCK).open("w", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            self.is_ephemeral = False
            raise ClusterFailed(
                f"{self.data_dir} is in use by another local cluster; stop that one, "
                "or take another data directory"
            ) from None
        return lock

    def _leave_place(self) -> None:
        self._ports.release()
        if self._lock is not None:
            self._lock.close()
        if self.is_ephemeral:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def _cluster_id(self) -> str:
        """That of the data found, if it is of as many nodes; else a new one."""
        self._refuse_other_size()
        for node in self.nodes.values():
            identity = read_identity(OsDisk(), str(node.data_dir))
            if identity is not None:
                return identity.cluster_id
        return str(random_uuid(SystemRandom()))

    def _refuse_other_size(self) -> None:
        """The voters were fixed when the cluster first started."""
        found = sorted(
            int(path.parent.name.removeprefix("node-"))
            for path in self.data_dir.glob(f"node-*/{_METADATA_PARTITION}")
            if path.parent.name.removeprefix("node-").isdecimal()
        )
        if found and found[-1] != len(self.nodes):
            raise ClusterFailed(
                f"{self.data_dir} holds the data of a cluster of {found[-1]} nodes, and "
                f"{len(self.nodes)} were asked for; ask for {found[-1]}, "
                "or take another data directory"
            )

    def _write_configs(self) -> None:
        disk, random = OsDisk(), SystemRandom()
        for node in self.nodes.values():
            try:
                format_directories(
                    disk,
                    [str(node.data_dir)],
                    random,
                    cluster_id=self.cluster_id,
                    node_id=NodeId(node.node_id),
                    ignore_formatted=True,
                )
                node.config.write_text(self.properties(node), encoding="utf-8")
            except (InconsistentDirectory, CorruptNodeFile, OSError) as error:
                raise ClusterFailed(str(error)) from error

    def properties(self, node: LocalNode) -> str:
        """The configuration file of a node."""
        voters = ",".join(f"{other.node_id}@{other.rpc}" for other in self.nodes.values())
        lines = {
            "process.roles": "broker,controller",
            "node.id": str(node.node_id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self._bound(node)},CONTROLLER://{node.rpc}",
            "advertised.listeners": f"PLAINTEXT://{node.kafka}",
            "log.dirs": str(node.data_dir),
            _HTTP: "" if node.http is None else str(node.http),
            **self.settings,
            **self.node_settings.get(node.node_id, {}),
        }
        return "".join(_property(name, value) for name, value in lines.items())

    def _bound(self, node: LocalNode) -> SocketAddress:
        """Where a node listens for clients."""
        return SocketAddress(self._bind_host, node.kafka.port)

    # --- waiting -----------------------------------------------------------------------

    def _fail_if_ended(self) -> None:
        for node in self.fallen():
            raise ClusterFailed(node.obituary())

    def _first_problem(self, wanted: set[int]) -> str | None:
        for node_id in sorted(wanted):
            try:
                answer = ask_cluster(self._near(self.nodes[node_id]), timeout_s=1.0)
            except ProbeFailed as error:
                return f"node {node_id} at {error}"
            if answer.cluster_id not in (None, self.cluster_id):
                return f"node {node_id} belongs to cluster {answer.cluster_id}"
            missing = sorted(wanted - answer.brokers.keys())
            if missing:
                return f"node {node_id} does not see {missing} alive yet"
        return None

    def _near(self, node: LocalNode) -> SocketAddress:
        """Where this machine reaches a node; what clients are told may only work elsewhere."""
        host = {"0.0.0.0": _LOOPBACK, "::": "::1"}.get(self._bind_host, self._bind_host)
        return SocketAddress(host, node.kafka.port)


def _property(name: str, value: str) -> str:
    """As a person would write it, and escaped only where Java's rules demand it."""
    is_plain = value.isascii() and value.isprintable() and "\\" not in value
    if is_plain and not value.startswith(" "):
        return f"{name}={value}\n"
    return format_properties({name: value})


def replicated(nodes: int) -> dict[str, str]:
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
