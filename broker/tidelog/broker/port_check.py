"""Whether a node can listen where it was told to, found out before it does anything else.

The port for clients is bound only when the node has registered, which may take as long as the
other nodes take to come. A port that somebody else has is known at once, so it is told at once, by
the name of its setting. What is bound here is let go again: the node binds for itself when it
comes to it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

from tidelog.broker.real_ports import CannotStart
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.settings.checks import Endpoints


def refuse_taken_ports(told: Endpoints) -> None:
    """``CannotStart`` for the first address of ``listeners`` that this node cannot have."""
    for name, address in _addresses(told):
        try:
            _try_to_bind(address)
        except OSError as error:
            raise CannotStart(
                f"listeners: cannot listen on {address} ({name}): {error.strerror or error}; "
                "stop what listens there, or give another address"
            ) from error


def _addresses(told: Endpoints) -> Iterator[tuple[str, SocketAddress]]:
    for one in (told.rpc, *told.clients):
        if one.port:
            yield one.name, SocketAddress(one.host, one.port)


def _try_to_bind(address: SocketAddress) -> None:
    """As the listeners do: the first address of a host, or every interface."""
    if not address.host and socket.has_dualstack_ipv6():
        family, bound = socket.AF_INET6, ("", address.port)
    else:
        found = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, bound = found[0][0], (str(found[0][4][0]), address.port)
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(bool(address.host)))
        sock.bind(bound)
