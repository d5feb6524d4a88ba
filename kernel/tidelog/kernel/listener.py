"""The door for clients: connections that carry bytes both ways.

What the bytes mean is not known here. ``tidelog.kernel.real.listener`` has the version on
sockets; the simulation has one whose connections are pipes with delays.

A connection has one owner, the coroutine that ``serve`` starts for it. At any time one task may
read and one may write (two writers would interleave their frames). Every wait ends when the
connection is closed, from whichever task; a time-out is therefore a timer that closes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.ports import ByteView, File


class ConnectionLost(Exception):
    """The connection is over: the client hung up, the network broke, or we closed it."""


class FileTooShort(ConnectionLost):
    """A file ended before the bytes that were announced; the connection had to be closed."""


class ClientConnection(Protocol):
    @property
    def peer_address(self) -> SocketAddress: ...

    @property
    def listener_name(self) -> str:
        """The listener the client came by: it decides which addresses the client is told."""
        ...

    @property
    def is_closing(self) -> bool: ...

    @property
    def has_hung_up(self) -> bool:
        """Whether the client is known to send nothing more, though what it sent may be unread.

        Where the system does not tell, that is found only by reading to the end.
        """
        ...

    async def read_exactly(self, length: int) -> bytearray:
        """The next ``length`` bytes, which the caller owns.

        Memory is taken as the bytes arrive, not as they are announced. ``ConnectionLost`` if
        the client hangs up first. Cancelling may lose what was read so far: close afterwards.
        """
        ...

    async def read_into(self, buffer: bytearray | memoryview) -> None:
        """Fill the buffer; otherwise as ``read_exactly``."""
        ...

    async def write(self, buffers: Sequence[ByteView]) -> None:
        """Send the buffers one after the other, as if joined.

        Returns when the last byte was handed over; until then the buffers must not change. A
        client that does not read holds the writer up. ``ConnectionLost`` as above. A write that
        fails or is cancelled closes the connection, because half a frame may be out.
        """
        ...

    async def send_file(self, file: File, position: int, length: int) -> None:
        """Send a range of a file, without a copy where the file has a descriptor.

        All of it, or the connection is closed: the client was told a length, and nothing else
        may follow in its place. ``FileTooShort`` if the file ends early, ``OSError`` if it
        cannot be read, ``ConnectionLost`` as above.
        """
        ...

    def close(self) -> None:
        """At once; what was not yet handed over is lost. Harmless when repeated."""
        ...


OnConnection: TypeAlias = Callable[[ClientConnection], Awaitable[None]]
"""Owns a connection, which is closed when it returns. It may let ``ConnectionLost`` pass."""

Admit: TypeAlias = Callable[[SocketAddress], bool]
"""Asked before a connection is taken; False hangs up (limits in total and per address)."""


def admit_all(_: SocketAddress) -> bool:
    return True


class BoundListener(Protocol):
    @property
    def address(self) -> SocketAddress:
        """What was bound, with the port that was chosen if 0 was asked for."""
        ...

    def stop_accepting(self) -> None:
        """Take no new connections; those there are live on."""
        ...

    async def close(self) -> None:
        """Take no new connections, close those there are, and wait for their owners."""
        ...


class Listener(Protocol):
    async def serve(
        self,
        name: str,
        host: str,
        port: int,
        on_connection: OnConnection,
        *,
        admit: Admit = admit_all,
    ) -> BoundListener:
        """Listen; an empty host means every interface. ``OSError`` if it cannot be bound."""
        ...
