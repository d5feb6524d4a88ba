"""Where things listen, and where to dial which node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.kernel.ids import NodeId


@dataclass(frozen=True, slots=True, order=True)
class SocketAddress:
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> SocketAddress:
        """``host:port``, with brackets around an IPv6 host."""
        host, _, port = text.strip().rpartition(":")
        is_bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if is_bracketed else host
        is_host = bool(host) and (":" in host) is is_bracketed
        if not is_host or not _is_number(port) or int(port) > 65535:
            raise ValueError(f"{text!r} is not an address of the form host:port or [ipv6]:port")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def parse_node_addresses(text: str) -> dict[NodeId, SocketAddress]:
    """``1@host:port,2@host:port``, the form of voter lists and of ``peer.dial.overrides``."""
    addresses: dict[NodeId, SocketAddress] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        node, at, address = entry.partition("@")
        if not at or not _is_number(node):
            raise ValueError(f"{entry!r} is not of the form node-id@host:port")
        if NodeId(int(node)) in addresses:
            raise ValueError(f"node {node} has two addresses in {text!r}")
        addresses[NodeId(int(node))] = SocketAddress.parse(address)
    return addresses


@dataclass(slots=True)
class AddressBook:
    """Where to dial each node: an override, else what it registered, else the voter list.

    An override (a proxy, a port map of a test) changes only what is dialled. Who a node is, and
    the voter list that nodes compare, stay as they are.
    """

    voters: Mapping[NodeId, SocketAddress] = field(default_factory=dict)
    overrides: Mapping[NodeId, SocketAddress] = field(default_factory=dict)
    _registered: dict[NodeId, SocketAddress] = field(default_factory=dict)

    def learn(self, node: NodeId, address: SocketAddress) -> None:
        """A node has registered this address with the controller."""
        self._registered[node] = address

    def forget(self, node: NodeId) -> None:
        self._registered.pop(node, None)

    def dialled(self, node: NodeId) -> SocketAddress | None:
        """None for a node nobody has told us about."""
        for addresses in (self.overrides, self._registered, self.voters):
            if node in addresses:
                return addresses[node]
        return None
