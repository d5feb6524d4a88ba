"""Target ``compose``: the containers of a compose file, each service ``nodeN`` a node.

A project that is up already is broken as it is and left up; one that is not is brought up and
taken down with its volumes. Nodes are killed and paused by the engine.

Links are broken by packet filters in the containers' network namespaces, which takes root on the
engine's machine. Without that, a node can only be taken off the containers' network as a whole,
which clients notice too: that much is done for the faults for which it is enough.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from tidelog.chaos.faults.table import FAULTS, Family
from tidelog.chaos.targets.base import Rigging, TargetError
from tidelog.chaos.targets.commands import missing, run, succeeds
from tidelog.chaos.targets.packets import NO_NETEM, NodePackets, has_netem
from tidelog.kernel.addresses import SocketAddress
from tidelog.testing.probe import ProbeFailed, ask_cluster

DEFAULT_FILE: Final = Path("deploy/docker-compose.yml")
_SERVICE: Final = re.compile(r"node(\d+)")
_ADVERTISED: Final = re.compile(r"KAFKA_ADVERTISED_LISTENERS=.*HOST://([^,]+)")
_RPC_PORT: Final = 9093
_PATIENCE_S: Final = 120.0
_POLL_S: Final = 0.1
_PACKET_TOOLS: Final = ("nsenter", "iptables", "tc")
_WHOLE_CUTS: Final = ("cut", "cut-leader")
_NOT_RIGGED: Final = "the disks and calendars of containers are not rigged; --target local can"


class ComposeTarget:
    """Use as a context manager, or call ``start`` and ``stop``."""

    name = "compose"

    def __init__(self, file: Path = DEFAULT_FILE, *, project: str = "tidelog-chaos") -> None:
        """Raises ``TargetError`` where there is no Docker engine or no such file."""
        if not file.is_file():
            raise TargetError(f"there is no compose file {file}")
        self._compose = [*_compose_command(), "-p", project, "-f", str(file)]
        self._was_up = False
        self._paused: set[int] = set()
        self._cut: set[tuple[int, int]] = set()
        self._disconnected: dict[int, str] = {}
        self._addresses: dict[int, str] = {}
        self._containers: dict[int, str] = {}
        self._pids: dict[int, int] = {}
        """As of the last start of a container; 0 means that it did not run."""
        services = map(_SERVICE.fullmatch, run(*self._compose, "config", "--services").split())
        self.nodes: Sequence[int] = sorted(int(found[1]) for found in services if found)
        if not self.nodes:
            raise TargetError(f"{file} has no service node1, node2, …")
        self._packets = {
            node: NodePackets(partial(self._within, node), self._addresses) for node in self.nodes
        }
        self._kafka: dict[int, SocketAddress] = {}

    def __enter__(self) -> ComposeTarget:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        return ",".join(str(self._kafka[node]) for node in self.nodes)

    # --- life --------------------------------------------------------------------------

    def start(self) -> None:
        services = [f"node{node}" for node in self.nodes]
        self._was_up = bool(run(*self._compose, "ps", "-q", *services).strip())
        with ExitStack() as undo:
            undo.callback(self.stop)
            if not self._was_up:
                run(*self._compose, "up", "-d", *services)
            self._kafka = {node: self._advertised(node) for node in self.nodes}
            self.wait_until_serving()
            self._learn_places()
            undo.pop_all()

    def stop(self) -> None:
        if self._was_up:
            self.heal_all()
        else:
            run(*self._compose, "down", "-v", "--timeout", "10")

    def wait_until_serving(self, timeout_s: float = _PATIENCE_S) -> None:
        """Every node names every node as alive."""
        deadline_s = time.monotonic() + timeout_s
        for node, address in self._kafka.items():
            while (problem := self._problem_of(address)) is not None:
                if time.monotonic() > deadline_s:
                    raise TargetError(f"node {node} does not serve in {timeout_s:g} s: {problem}")
                time.sleep(_POLL_S)

    def _problem_of(self, address: SocketAddress) -> str | None:
        try:
            alive = ask_cluster(address, 1.0).brokers.keys()
        except ProbeFailed as failure:
            return str(failure)
        unseen = sorted(set(self.nodes) - alive)
        return f"it does not see {unseen} alive" if unseen else None

    def cannot(self, fault: str) -> str | None:
        row = FAULTS[fault]
        if self.name not in row.targets:
            return f"{fault} cannot be done to target compose; {_NOT_RIGGED}"
        if len(self.nodes) < row.min_nodes:
            return f"{fault} needs {row.min_nodes} nodes, and there are {len(self.nodes)}"
        if row.family not in (Family.CUT, Family.LINK):
            return None
        reason = _no_packet_filters()
        if reason is not None:
            return None if fault in _WHOLE_CUTS else f"{fault}: {reason}"
        return NO_NETEM if fault == "delay" and not has_netem() else None

    def environment(self) -> Mapping[str, str]:
        image = self._inspect(self.nodes[0])["Config"]["Image"]
        engine = run("docker", "version", "-f", "{{.Server.Version}}").strip()
        return {
            "target": "compose",
            "image": image,
            "docker": engine,
            "nodes": str(len(self.nodes)),
        }

    def log_dirs(self, node: int) -> Sequence[Path]:
        return []

    # --- processes ---------------------------------------------------------------------

    def is_running(self, node: int) -> bool:
        return bool(self._inspect(node)["State"]["Running"])

    def kill(self, node: int) -> None:
        self.resume(node)  # the engine kills no frozen container
        run("docker", "kill", "-s", "KILL", self._container(node))

    def terminate(self, node: int) -> None:
        self.resume(node)
        run("docker", "stop", "--time", "30", self._container(node))

    def start_node(self, node: int) -> None:
        """A container that was started again has a new namespace and may have a new address."""
        if not self.is_running(node):
            run("docker", "start", self._container(node))
            if _no_packet_filters() is None:
                self._learn_places()
                for other, packets in self._packets.items():
                    if self._pids[other]:
                        packets.restore()

    def pause(self, node: int) -> None:
        run("docker", "pause", self._container(node))
        self._paused.add(node)

    def resume(self, node: int) -> None:
        if node in self._paused:
            self._paused.discard(node)
            run("docker", "unpause", self._container(node))

    # --- network between nodes ---------------------------------------------------------

    def cut(self, source: int, target: int) -> None:
        if _no_packet_filters() is None:
            self._packets[target].cut_from(source)
        else:
            self._cut.add((source, target))
            self._disconnect_isolated()

    def mend(self, source: int, target: int) -> None:
        if _no_packet_filters() is None:
            self._packets[target].mend_from(source)
        else:
            self._cut.discard((source, target))
            self._disconnect_isolated()

    def slow_link(self, source: int, target: int, delay_ms: float, bytes_per_s: float) -> None:
        self._packets[source].slow_to(target, delay_ms, bytes_per_s)

    def reset_link(self, source: int, target: int) -> None:
        self._packets[target].reset_from(source, _RPC_PORT)

    def lose(self, source: int, target: int, share: float) -> None:
        self._packets[target].lose_from(source, share)

    def _disconnect_isolated(self) -> None:
        for node in self.nodes:
            others = [other for other in self.nodes if other != node]
            links = {pair for other in others for pair in ((node, other), (other, node))}
            if links <= self._cut and node not in self._disconnected:
                (network,) = self._inspect(node)["NetworkSettings"]["Networks"]
                run("docker", "network", "disconnect", "-f", network, self._container(node))
                self._disconnected[node] = network
            elif not links & self._cut and node in self._disconnected:
                alias = ["--alias", f"node{node}"]
                network = self._disconnected.pop(node)
                run("docker", "network", "connect", *alias, network, self._container(node))

    # --- disk and calendar -------------------------------------------------------------

    def rig(self, node: int, rigging: Rigging) -> None:
        raise TargetError(_NOT_RIGGED)

    def lose_unsynced(self, node: int) -> str:
        raise TargetError(_NOT_RIGGED)

    # --- everything --------------------------------------------------------------------

    def heal_all(self) -> None:
        self._cut.clear()
        for node in self.nodes:
            self.resume(node)
            self.start_node(node)
        if _no_packet_filters() is None:
            for packets in self._packets.values():
                packets.heal()
        else:
            self._disconnect_isolated()

    # --- the engine --------------------------------------------------------------------

    def _container(self, node: int) -> str:
        """Asked of Compose once: a container keeps its name through every kill and start."""
        if node not in self._containers:
            found = run(*self._compose, "ps", "-a", "-q", f"node{node}").strip()
            if not found:
                raise TargetError(f"node {node} has no container; the project is not up")
            self._containers[node] = found
        return self._containers[node]

    def _inspect(self, node: int) -> dict[str, Any]:
        (found,) = json.loads(run("docker", "inspect", self._container(node)))
        return dict(found)

    def _within(self, node: int) -> Sequence[str]:
        if not self._pids.get(node):
            raise TargetError(f"node {node} does not run")
        return ["nsenter", "-t", str(self._pids[node]), "-n"]

    def _advertised(self, node: int) -> SocketAddress:
        for line in self._inspect(node)["Config"]["Env"]:
            if found := _ADVERTISED.match(line):
                return SocketAddress.parse(found[1])
        raise TargetError(f"node {node} advertises no listener HOST, so nobody here can reach it")

    def _learn_places(self) -> None:
        """Addresses of stopped containers stay as they were."""
        found = json.loads(run("docker", "inspect", *map(self._container, self.nodes)))
        for node, container in zip(self.nodes, found, strict=True):
            self._pids[node] = container["State"]["Pid"]
            for network in container["NetworkSettings"]["Networks"].values():
                if network["IPAddress"]:
                    self._addresses[node] = network["IPAddress"]


def _compose_command() -> Sequence[str]:
    """Compose v2 where it is, else 1.29."""
    if missing(["docker"]) or not succeeds("docker", "info"):
        raise TargetError("target compose needs a running Docker engine; docker info fails")
    for command in (["docker", "compose"], ["docker-compose"]):
        if not missing(command[:1]) and succeeds(*command, "version"):
            return command
    raise TargetError("target compose needs docker compose, or docker-compose 1.29")


def _no_packet_filters() -> str | None:
    """Why packets of containers cannot be filtered from here; None: they can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "packets of containers are filtered as root on the engine's machine, Linux"
    if absent := missing(_PACKET_TOOLS):
        return f"packets of containers are filtered with {', '.join(absent)}, which is missing"
    return None
