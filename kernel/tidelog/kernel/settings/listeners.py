"""Addresses in settings: listeners, advertised listeners, voters, dial overrides.

A listener's name is upper-cased and mapped to a protocol by `listener.security.protocol.map`.
The map may mention protocols this system lacks, as long as no listener uses them. A listener of
the controller that the map does not mention speaks PLAINTEXT, as in Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.kernel.addresses import SocketAddress, parse_node_addresses
from tidelog.kernel.ids import NodeId

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_HOST_PORT: Final = re.compile(r"(?:\[([0-9a-zA-Z:%._-]+)\]|([0-9a-zA-Z%._-]*)):([0-9]{1,5})")
_LISTENER: Final = re.compile(r"([^:/\s]+)://(.*)")


class MalformedAddress(ValueError):
    """An address nobody can listen on or dial; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A named address and the security protocol spoken there."""

    name: str
    host: str
    port: int
    protocol: str

    @property
    def address(self) -> SocketAddress:
        return SocketAddress(self.host, self.port)

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


def parse_address(text: str, *, dialled: bool) -> SocketAddress:
    """Reads host:port; what is to be dialled needs a host and a port above 0."""
    match = _HOST_PORT.fullmatch(text.strip())
    if match is None:
        raise MalformedAddress(f"'{text}' is not host:port")
    host, port = match.group(1) or match.group(2) or "", int(match.group(3))
    if port > 65535:
        raise MalformedAddress(f"'{text}': a port is at most 65535")
    if dialled and (not host or port == 0):
        raise MalformedAddress(f"'{text}' needs a host and a port above 0")
    return SocketAddress(host, port)


def parse_protocol_map(text: str) -> dict[str, str]:
    """Reads NAME:PROTOCOL,NAME:PROTOCOL; names are upper-cased."""
    protocols: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not colon or not name or protocol not in PROTOCOLS:
            raise MalformedAddress(
                f"'{entry}' is not NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}"
            )
        if name in protocols:
            raise MalformedAddress(f"listener {name} is mapped twice")
        protocols[name] = protocol
    return protocols


def parse_listener(
    text: str, protocols: Mapping[str, str], controller_names: Iterable[str] = ()
) -> Listener:
    """Reads NAME://host:port and looks the protocol up."""
    match = _LISTENER.fullmatch(text.strip())
    if match is None:
        raise MalformedAddress(f"'{text}' is not NAME://host:port")
    name = match.group(1).upper()
    address = parse_address(match.group(2), dialled=False)
    in_control = name in {controller.upper() for controller in controller_names}
    protocol = protocols.get(name, "PLAINTEXT" if in_control else None)
    if protocol is None:
        raise MalformedAddress(
            f"'{text}': listener.security.protocol.map gives no protocol for {name}"
        )
    return Listener(name, address.host, address.port, protocol)


def parse_voters(entries: Iterable[str]) -> dict[NodeId, SocketAddress]:
    """Reads id@host:port entries; an id given twice is an error."""
    try:
        voters = parse_node_addresses(",".join(entries))
    except ValueError as malformed:
        raise MalformedAddress(str(malformed)) from None
    for node_id, address in voters.items():
        if address.port == 0:
            raise MalformedAddress(f"node {node_id} at {address} needs a port above 0")
    return voters


def same_endpoint_conflicts(listeners: Iterable[Listener]) -> list[str]:
    """Names or ports that two listeners share.

    One port may serve one IPv4 and one IPv6 listener, and port 0 (any free port) any number.
    """
    conflicts: list[str] = []
    names: set[str] = set()
    by_port: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.name in names:
            conflicts.append(f"two listeners are named {listener.name}")
        names.add(listener.name)
        by_port.setdefault(listener.port, []).append(listener)
    for port, sharing in sorted(by_port.items()):
        if port != 0 and len(sharing) > 1 and not _is_dual_stack(sharing):
            who = " and ".join(str(listener) for listener in sharing)
            conflicts.append(f"{who} share port {port}")
    return conflicts


def _is_dual_stack(sharing: list[Listener]) -> bool:
    if len(sharing) != 2 or not all(listener.host for listener in sharing):
        return False
    six = [":" in listener.host for listener in sharing]
    four = [re.fullmatch(r"[0-9.]+", listener.host) is not None for listener in sharing]
    return (six[0] and four[1]) or (four[0] and six[1])
