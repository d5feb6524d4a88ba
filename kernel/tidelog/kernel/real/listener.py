"""``Listener`` on TCP: binds, accepts, and gives every connection an owner.

Owner: the node's start-up code, which closes what it bound. Invariants: every connection has one
task that owns it and is closed when that task ends, however it ends; a failure of one is logged
and touches no other; without descriptors left, accepting pauses and clients wait in the backlog.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from dataclasses import dataclass
from typing import Final

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.listener import Admit, BoundListener, ConnectionLost, OnConnection, admit_all
from tidelog.kernel.ports import Offload
from tidelog.kernel.real.tcp_connection import TcpConnection

_log = logging.getLogger(__name__)

_ACCEPTS_PER_WAKE: Final = 64
_ACCEPT_PAUSE_S: Final = 0.1
_CLOSE_GRACE_S: Final = 1.0
_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class SocketSizes:
    """Of the sockets that a listener makes; None leaves a buffer to the system."""

    backlog: int = 4096
    receive_bytes: int | None = None
    send_bytes: int | None = None


class _BoundTcp:
    """A listening socket and the connections that came by it."""

    def __init__(
        self,
        sock: socket.socket,
        name: str,
        on_connection: OnConnection,
        admit: Admit,
        offload: Offload | None,
    ) -> None:
        host, port = sock.getsockname()[:2]
        self.address = SocketAddress(host, port)
        self._socket = sock
        self._name = name
        self._on_connection = on_connection
        self._admit = admit
        self._offload = offload
        self._owners: dict[asyncio.Task[None], TcpConnection] = {}
        self._loop = asyncio.get_running_loop()
        self._is_accepting = True
        self._watch()

    def stop_accepting(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    async def close(self) -> None:
        self.stop_accepting()
        for connection in self._owners.values():
            connection.close()
        owners = list(self._owners)
        if owners:
            _, late = await asyncio.wait(owners, timeout=_CLOSE_GRACE_S)
            for owner in late:
                owner.cancel()
            await asyncio.gather(*owners, return_exceptions=True)

    def _watch(self) -> None:
        if self._is_accepting:
            self._loop.add_reader(self._socket.fileno(), self._accept_some)

    def _accept_some(self) -> None:
        for _ in range(_ACCEPTS_PER_WAKE):
            try:
                sock, address = self._socket.accept()
            except ConnectionAbortedError:
                continue
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                self._pause(error)
                return
            self._take(sock, SocketAddress(address[0], address[1]))

    def _pause(self, error: OSError) -> None:
        """Clients wait in the backlog; asking again at once would only burn the processor."""
        _log.warning("listener %s cannot accept for now: %s", self._name, error.strerror)
        self._loop.remove_reader(self._socket.fileno())
        self._loop.call_later(_ACCEPT_PAUSE_S, self._watch)

    def _take(self, sock: socket.socket, peer: SocketAddress) -> None:
        if not self._admit(peer):
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = TcpConnection(sock, peer, self._name, self._offload)
        owner = self._loop.create_task(self._own(connection))
        self._owners[owner] = connection
        owner.add_done_callback(self._finished)

    async def _own(self, connection: TcpConnection) -> None:
        try:
            await self._on_connection(connection)
        finally:
            connection.close()

    def _finished(self, owner: asyncio.Task[None]) -> None:
        connection = self._owners.pop(owner)
        connection.close()  # also if the task was cancelled before its first step
        error = None if owner.cancelled() else owner.exception()
        if error is not None and not isinstance(error, ConnectionLost):
            peer = connection.peer_address
            _log.error("the connection of %s failed", peer, exc_info=error)


class TcpListener:
    """Listens on TCP ports of this machine.

    Parts of files that are not in memory are read by ``offload`` before they are sent; without
    one they are waited for on the event loop.
    """

    def __init__(self, offload: Offload | None = None, sizes: SocketSizes = SocketSizes()) -> None:
        self._offload = offload
        self._sizes = sizes

    async def serve(
        self,
        name: str,
        host: str,
        port: int,
        on_connection: OnConnection,
        *,
        admit: Admit = admit_all,
    ) -> BoundListener:
        sock = await bind(host, port, self._sizes)
        return _BoundTcp(sock, name, on_connection, admit, self._offload)


async def bind(host: str, port: int, sizes: SocketSizes) -> socket.socket:
    """A listening socket at the first address of the host; without one, at every interface."""
    is_everywhere = not host
    if is_everywhere and socket.has_dualstack_ipv6():
        sock = socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=sizes.backlog, dualstack_ipv6=True
        )
    else:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        sock = socket.create_server(address[:2], family=family, backlog=sizes.backlog)
    # Those that are accepted inherit the sizes, and know them when windows are agreed upon.
    if sizes.receive_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, sizes.receive_bytes)
    if sizes.send_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sizes.send_bytes)
    sock.setblocking(False)
    return sock
