"""Ports of this machine: whether one is free, and which could be taken instead.

A port chosen here is bound by another process a moment later. Meanwhile the kernel may lend it to
any outgoing connection, if it lies in the range kept for those. So ports are drawn from below it.
And another launcher may choose the same one, so a chosen port is claimed in the eyes of launchers:
by a name among the abstract Unix sockets, which the kernel frees with whoever held it.
"""

from __future__ import annotations

import random
import socket
import sys
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
        self._given: dict[int, socket.socket | None] = {}
        """With the claim to each, where the kernel keeps such claims."""
        self._random = random.SystemRandom()
        self.moved: list[tuple[int, int]] = []
        """Ports that were wanted but taken, and what was given instead."""

    def draw(self, host: str) -> SocketAddress:
        """Any free port."""
        for _ in range(_DRAWS):
            address = SocketAddress(host, self._random.choice(_DRAWN_FROM))
            if self._take(address):
                return address
        raise NoFreePort(
            f"no port from {_DRAWN_FROM[0]} to {_DRAWN_FROM[-1]} can be bound on {host!r}; "
            "is that an address of this machine?"
        )

    def want(self, address: SocketAddress) -> SocketAddress:
        """This port, or another if it is taken."""
        if not 0 < address.port <= LARGEST_PORT:
            raise NoFreePort(f"port {address.port} does not exist: 1 to {LARGEST_PORT} do")
        if self._take(address):
            return address
        other = self.draw(address.host)
        self.moved.append((address.port, other.port))
        return other

    def release(self) -> None:
        """Other launchers may have them again; none of them is given by this object again."""
        for port, claim in self._given.items():
            if claim is not None:
                claim.close()
            self._given[port] = None

    def __del__(self) -> None:
        self.release()

    def _take(self, address: SocketAddress) -> bool:
        if address.port in self._given or not is_port_free(address):
            return False
        try:
            self._given[address.port] = _claim(address.port)
        except OSError:  # another launcher's, which has not bound it yet
            return False
        return True


def _claim(port: int) -> socket.socket | None:
    """``OSError`` while another process of this network namespace holds the claim."""
    if sys.platform != "linux":
        return None
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0tidelog-port-{port}")
    except OSError:
        claim.close()
        raise
    return claim
