"""Network namespaces on one machine: one for each node, and one for the bridge between them.

The bridge has a namespace of its own because a Docker engine makes the host drop what crosses
bridges there. This machine has a leg on the bridge too, so that clients reach every node.
Names begin with ``tl`` and this process's id. ``close`` removes them all; what a process left that
was killed is removed by the next one that makes namespaces.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from ipaddress import IPv4Network
from itertools import count
from typing import Final

from tidelog.chaos.targets.base import TargetError
from tidelog.chaos.targets.commands import missing, run, succeeds

TOOLS: Final = {"ip": "iproute2", "tc": "iproute2", "iptables": "iptables"}
"""What is needed, and the package that has it."""
_BRIDGE: Final = "br0"
_SUBNETS: Final = IPv4Network("10.213.0.0/16")
_HOST_NUMBER: Final = 254
_NAME: Final = re.compile(r"tl(\d+)x\d+-\w+")
_counted = count()


def why_not() -> str | None:
    """Why this process cannot make namespaces; None: it can."""
    if os.geteuid() != 0:
        return "target netns makes network namespaces, which needs root; try --target local"
    if absent := missing(list(TOOLS)):
        packages = sorted({TOOLS[tool] for tool in absent})
        return f"target netns needs {', '.join(absent)}: apt install {' '.join(packages)}"
    return None


class Namespaces:
    """Addresses are known at once; ``open`` makes what they belong to."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self._prefix = f"tl{os.getpid()}x{next(_counted)}"
        self._undo = ExitStack()
        self._subnet = _free_subnet()
        self.nodes = list(nodes)
        self.addresses = {node: str(self._subnet[node]) for node in nodes}

    def within(self, node: int) -> list[str]:
        """What runs a command in a node's namespace."""
        return ["ip", "netns", "exec", self._name(node)]

    def open(self) -> None:
        _remove_left_behind()
        with ExitStack() as undo:
            self._make_bridge(undo)
            for node in self.nodes:
                self._make_node(node, undo)
            self._undo = undo.pop_all()

    def close(self) -> None:
        self._undo.close()

    def _name(self, node: int | str) -> str:
        return f"{self._prefix}-{node}"

    def _make_bridge(self, undo: ExitStack) -> None:
        space, leg = self._name("net"), self._name("h")
        self._make_space(space, undo)
        run("ip", "-n", space, "link", "add", _BRIDGE, "type", "bridge")
        run("ip", "-n", space, "link", "set", _BRIDGE, "up")
        run("ip", "link", "add", leg, "type", "veth", "peer", "name", "host", "netns", space)
        undo.callback(succeeds, "ip", "link", "del", leg)  # it goes with the namespace, but later
        self._join("host")
        run("ip", "addr", "add", self._on_subnet(_HOST_NUMBER), "dev", leg)
        run("ip", "link", "set", leg, "up")

    def _make_node(self, node: int, undo: ExitStack) -> None:
        space, port = self._name(node), f"node{node}"
        self._make_space(space, undo)
        peer = ["peer", "name", port, "netns", self._name("net")]
        run("ip", "-n", space, "link", "add", "eth0", "type", "veth", *peer)
        self._join(port)
        run("ip", "-n", space, "addr", "add", self._on_subnet(node), "dev", "eth0")
        run("ip", "-n", space, "link", "set", "eth0", "up")

    def _make_space(self, space: str, undo: ExitStack) -> None:
        run("ip", "netns", "add", space)
        undo.callback(succeeds, "ip", "netns", "del", space)
        run("ip", "-n", space, "link", "set", "lo", "up")

    def _join(self, port: str) -> None:
        run("ip", "-n", self._name("net"), "link", "set", port, "master", _BRIDGE, "up")

    def _on_subnet(self, number: int) -> str:
        return f"{self._subnet[number]}/{self._subnet.prefixlen}"


def _free_subnet() -> IPv4Network:
    taken = run("ip", "-o", "-4", "addr", "show")
    subnets = list(_SUBNETS.subnets(new_prefix=24))
    start = os.getpid() % len(subnets)
    for subnet in subnets[start:] + subnets[:start]:
        if f" {subnet[_HOST_NUMBER]}/" not in taken:
            return subnet
    raise TargetError(f"no subnet of {_SUBNETS} is free")


def _remove_left_behind() -> None:
    for line in run("ip", "netns", "list").splitlines():
        space = line.split(" ")[0]
        owner = _NAME.fullmatch(space)
        if owner is not None and not os.path.exists(f"/proc/{owner[1]}"):
            succeeds("ip", "netns", "del", space)
