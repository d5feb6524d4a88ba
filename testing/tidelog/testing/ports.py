"""Ports of this machine: whether one is free, and which could be taken instead.

A port chosen here is bound by another process a moment later. Meanwhile the kernel may lend it to
any outgoing connection, if it lies in the range kept for those. So ports are drawn from below it.
"""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from typing import Final

from tidelog.kernel.addresses import SocketAddress

LARGEST_PORT: Final = 65535
_DRAWN_FROM: Final = range(15_000, 32_768)
_DRAWS: Final = 500


class NoFreePort(Exception):
    """Nothing could be bound on that host; often the host is not one of this machine's."""


def is_port_free(address: SocketAddress) -> bool:
    """Whether a server could bind here now."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            probe.bind((address.host, address.port))
            return True
    return False


class Ports:
    """Hands out ports for one cluster, none of them twice."""

    def __init__(self) -> None:
        self._given: set[int] = set()
        self._random = random.SystemRandom()
        self.moved: list[tuple[int, int]] = []
        """Ports that were wanted but taken, and what was given instead."""

    def draw(self, host: str) -> SocketAddress:
        """Any free port."""
        for _ in range(_DRAWS):
            address = SocketAddress(host, self._random.choice(_DRAWN_FROM))
            if address.port not in self._given and is_port_free(address):
                self._given.add(address.port)
                return address
        raise NoFreePort(
            f"no port from {_DRAWN_FROM[0]} to {_DRAWN_FROM[-1]} can be bound on {host!r}; "
            "is that an address of this machine?"
        )

    def want(self, address: SocketAddress) -> SocketAddress:
        """This port, or another if it is taken."""
        if not 0 < address.port <= LARGEST_PORT:
            raise NoFreePort(f"port {address.port} does not exist: 1 to {LARGEST_PORT} do")
        if address.port not in self._given and is_port_free(address):
            self._given.add(address.port)
            return address
        other = self.draw(address.host)
        self.moved.append((address.port, other.port))
        return other
