"""A client's connection on TCP: a raw non-blocking socket on whichever event loop runs.

Owner: the coroutine that the listener started for it. The socket is not wrapped in one of
asyncio's transports, because uvloop's have no sendfile and all of them buffer what is written.
A connection that waits costs one future and no buffer, so thousands may idle; memory for incoming
bytes is taken piece by piece as they come, whatever length was announced.

Invariants: bytes leave in the order of the calls, and a write that did not finish is the last;
waiters are woken and watches dropped before the descriptor is given back (a number that is
watched is never reused); a client that keeps sending lets others have a turn after some reads,
one that does not read is never spun on.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Final, ParamSpec, TypeVar

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.listener import ConnectionLost, FileTooShort
from tidelog.kernel.ports import ByteView, File, Offload, Steps

P = ParamSpec("P")
Got = TypeVar("Got", bytes, int)

_NOTHING: Final = memoryview(b"")
_READ_AHEAD_BYTES: Final = 64 * 1024
_PIECE_BYTES: Final = 1024 * 1024
_READS_IN_A_ROW: Final = 32
_FILE_CHUNK_BYTES: Final = 1024 * 1024
_TCP_INFO: Final[int | None] = getattr(
    socket, "TCP_INFO", None
)  # Linux; its first byte is the state
_ESTABLISHED: Final = 1
_BUFFERS_PER_SEND: Final = 1024  # Linux's IOV_MAX
_NO_SENDFILE: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_CONNECTION_ERRORS: Final = frozenset(
    {
        *(errno.EPIPE, errno.ECONNRESET, errno.ECONNABORTED, errno.ENOTCONN, errno.ESHUTDOWN),
        *(errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN),
    }
)


class _Readiness:
    """Waits until a socket can be read (or written).

    The loop's watch is kept over several waits and dropped when it fires while nobody waits:
    a busy connection then costs no system call per wait, and an unread one is not spun on.
    """

    __slots__ = ("_fd", "_is_watched", "_unwatch", "_waiter", "_watch")

    def __init__(
        self,
        fd: int,
        watch: Callable[[int, Callable[[], None]], None],
        unwatch: Callable[[int], bool],
    ) -> None:
        self._fd = fd
        self._watch = watch
        self._unwatch = unwatch
        self._is_watched = False
        self._waiter: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        if self._waiter is not None:
            raise RuntimeError("two tasks read (or write) one connection at the same time")
        self._waiter = asyncio.get_running_loop().create_future()
        if not self._is_watched:
            self._watch(self._fd, self._ready)
            self._is_watched = True
        try:
            await self._waiter
        finally:
            self._waiter = None

    def drop(self) -> None:
        """Watch no longer and wake whoever waits, who will find the connection closed."""
        if self._is_watched:
            self._unwatch(self._fd)
            self._is_watched = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _ready(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        else:
            self._unwatch(self._fd)
            self._is_watched = False


class TcpConnection:
    """A ``ClientConnection`` on a connected, non-blocking socket."""

    __slots__ = (
        "_ahead",
        "_is_closed",
        "_is_writing",
        "_listener_name",
        "_offload",
        "_peer_address",
        "_readable",
        "_reads_in_a_row",
        "_socket",
        "_writable",
    )

    def __init__(
        self,
        sock: socket.socket,
        peer: SocketAddress,
        listener_name: str,
        offload: Offload | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._socket = sock
        self._peer_address = peer
        self._listener_name = listener_name
        self._offload = offload
        self._readable = _Readiness(sock.fileno(), loop.add_reader, loop.remove_reader)
        self._writable = _Readiness(sock.fileno(), loop.add_writer, loop.remove_writer)
        self._ahead = _NOTHING
        self._reads_in_a_row = 0
        self._is_writing = False
        self._is_closed = False

    @property
    def peer_address(self) -> SocketAddress:
        return self._peer_address

    @property
    def listener_name(self) -> str:
        return self._listener_name

    @property
    def is_closing(self) -> bool:
        return self._is_closed

    @property
    def has_hung_up(self) -> bool:
        if self._is_closed or _TCP_INFO is None:
            return self._is_closed
        return self._socket.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] != _ESTABLISHED

    async def read_exactly(self, length: int) -> bytearray:
        data = bytearray(min(length, _PIECE_BYTES))
        await self.read_into(data)
        while (filled := len(data)) < length:
            data += bytes(min(length - filled, _PIECE_BYTES))
            with memoryview(data) as whole, whole[filled:] as piece:
                await self.read_into(piece)
        return data

    async def read_into(self, buffer: bytearray | memoryview) -> None:
        """What is large comes straight to where it belongs, what is small with more behind it."""
        with memoryview(buffer).cast("B") as target:
            filled = 0
            while (missing := len(target) - filled) > 0:
                if self._ahead:
                    ahead = self._take_ahead(missing)
                    target[filled : filled + len(ahead)] = ahead
                    filled += len(ahead)
                elif missing > _READ_AHEAD_BYTES:
                    with target[filled:] as rest:
                        filled += await self._read(self._socket.recv_into, rest)
                else:
                    received = await self._read(self._socket.recv, _READ_AHEAD_BYTES)
                    self._ahead = memoryview(received)

    async def write(self, buffers: Sequence[ByteView]) -> None:
        with _OneWriter(self):
            views = (memoryview(buffer).cast("B") for buffer in buffers)
            pending = [view for view in views if view.nbytes]
            while pending:
                some = pending[:_BUFFERS_PER_SEND]
                sent = await self._write(self._socket.sendmsg, some)
                pending = list(_behind(pending, sent))

    async def send_file(self, file: File, position: int, length: int) -> None:
        with _OneWriter(self):
            if length > 0 and not await self._sendfile(file, position, length):
                await self._copy_file(file, position, length)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._readable.drop()
            self._writable.drop()
            self._socket.close()

    def _take_ahead(self, at_most: int) -> memoryview:
        taken, rest = self._ahead[:at_most], self._ahead[at_most:]
        self._ahead = rest or _NOTHING  # an empty view would keep all that was read alive
        return taken

    async def _sendfile(self, file: File, position: int, length: int) -> bool:
        """False, with nothing sent, where this file or this system cannot do it."""
        source, target, sent, warm = file.fileno(), self._socket.fileno(), 0, 0
        while sent < length and source >= 0:
            if sent == warm:  # not for each piece that the socket has room for
                warm = min(sent + _FILE_CHUNK_BYTES, length)
                await self._warm(file, warm - sent, position + sent)
            count = warm - sent
            try:
                done = await self._write(os.sendfile, target, source, position + sent, count)
            except OSError as error:
                if sent == 0 and error.errno in _NO_SENDFILE:
                    return False
                raise
            if done == 0:
                raise self._too_short(position, length, sent)
            sent += done
            if done == count and sent < length:
                await asyncio.sleep(0)  # a reader that keeps up must not have the loop for itself
        return source >= 0

    async def _copy_file(self, file: File, position: int, length: int) -> None:
        sent = 0
        while sent < length:
            count = min(length - sent, _FILE_CHUNK_BYTES)
            await self._warm(file, count, position + sent)
            chunk = file.pread(count, position + sent)
            if not chunk:
                raise self._too_short(position, length, sent)
            view = memoryview(chunk)
            while view:
                done = await self._write(self._socket.send, view)
                view = view[done:]
            sent += len(chunk)

    async def _warm(self, file: File, length: int, position: int) -> None:
        """Have a cold range read into memory by a thread, so that sending it waits for no disk."""
        if self._offload is not None and not file.is_cached(length, position):
            await self._offload.run(_touch(file, length, position))

    def _too_short(self, position: int, length: int, sent: int) -> FileTooShort:
        announced = f"{length} bytes at {position} were announced to {self._peer_address}"
        return FileTooShort(f"{announced}, but the file ends after {sent} of them")

    async def _read(self, attempt: Callable[P, Got], *args: P.args, **kwargs: P.kwargs) -> Got:
        """Attempt until there is something; empty means that the client has hung up."""
        self._reads_in_a_row += 1
        if self._reads_in_a_row > _READS_IN_A_ROW:
            self._reads_in_a_row = 0
            await asyncio.sleep(0)
        while True:
            self._require_open()
            try:
                got = attempt(*args, **kwargs)
            except (BlockingIOError, InterruptedError):
                self._reads_in_a_row = 0
                await self._readable.wait()
            except OSError as error:
                raise self._lost(error) from error
            else:
                if not got:
                    raise ConnectionLost(f"{self._peer_address} hung up")
                return got

    async def _write(self, attempt: Callable[P, int], *args: P.args, **kwargs: P.kwargs) -> int:
        while True:
            self._require_open()
            try:
                return attempt(*args, **kwargs)
            except (BlockingIOError, InterruptedError):
                await self._writable.wait()
            except OSError as error:
                if error.errno not in _CONNECTION_ERRORS:
                    raise  # of the file that is sent
                raise self._lost(error) from error

    def _require_open(self) -> None:
        if self._is_closed:
            raise ConnectionLost(f"the connection of {self._peer_address} is closed")

    def _lost(self, error: OSError) -> ConnectionLost:
        self.close()
        return ConnectionLost(f"{self._peer_address}: {error.strerror}")


class _OneWriter:
    """Holds the right to write; two writers would mix their frames.

    A write that fails or is cancelled may have sent half a frame, behind which nothing may follow.
    """

    __slots__ = ("_connection",)

    def __init__(self, connection: TcpConnection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        if self._connection._is_writing:
            raise RuntimeError("two tasks write to one connection at the same time")
        self._connection._is_writing = True

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._connection._is_writing = False
        if error is not None:
            self._connection.close()


def _touch(file: File, length: int, position: int) -> Steps[None]:
    file.pread(length, position)
    yield from ()


def _behind(buffers: Sequence[memoryview], sent: int) -> Iterator[memoryview]:
    """What is left of the buffers when the first ``sent`` bytes are gone."""
    for buffer in buffers:
        if sent < len(buffer):
            yield buffer[sent:]
        sent = max(0, sent - len(buffer))
