"""Connections of clients on loopback, on both event loops; nothing here waits for a clock."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import uvloop

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.listener import (
    Admit,
    BoundListener,
    ClientConnection,
    ConnectionLost,
    FileTooShort,
    Listener,
    OnConnection,
    admit_all,
)
from tidelog.kernel.ports import ByteView, File, Offload
from tidelog.kernel.real.disk import OsDisk
from tidelog.kernel.real.listener import SocketSizes, TcpListener
from tidelog.kernel.real.offload import ThreadOffload

Run: TypeAlias = Callable[[Coroutine[Any, Any, None]], None]
Client: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return asyncio.run if request.param == "asyncio" else uvloop.run


@contextlib.asynccontextmanager
async def serving(
    on_connection: OnConnection, admit: Admit = admit_all, offload: Offload | None = None
) -> AsyncIterator[BoundListener]:
    listener: Listener = TcpListener(offload)
    bound = await listener.serve("PLAINTEXT", "127.0.0.1", 0, on_connection, admit=admit)
    try:
        yield bound
    finally:
        await bound.close()


@contextlib.asynccontextmanager
async def connected(bound: BoundListener) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(bound.address.host, bound.address.port)
    try:
        yield reader, writer
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def pair(offload: Offload | None = None) -> AsyncIterator[tuple[ClientConnection, Client]]:
    """The server's end of a connection, lent to the test, and the client's."""
    taken: asyncio.Future[ClientConnection] = asyncio.get_running_loop().create_future()
    done = asyncio.Event()

    async def lend(connection: ClientConnection) -> None:
        taken.set_result(connection)
        await done.wait()

    async with serving(lend, offload=offload) as bound, connected(bound) as client:
        try:
            yield await taken, client
        finally:
            done.set()


async def echo(connection: ClientConnection) -> None:
    while True:
        size = await connection.read_exactly(4)
        frame = await connection.read_exactly(int.from_bytes(size, "big"))
        await connection.write([size, frame])


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


# ---- reading


def test_sockets_have_the_sizes_they_were_given(run: Run) -> None:
    async def main() -> None:
        taken: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()

        async def on_connection(connection: ClientConnection) -> None:
            sock: socket.socket = connection._socket  # type: ignore[attr-defined]
            names = (socket.SO_RCVBUF, socket.SO_SNDBUF)
            sizes = [sock.getsockopt(socket.SOL_SOCKET, name) for name in names]
            taken.set_result((sizes[0], sizes[1]))

        listener = TcpListener(sizes=SocketSizes(10, 20_000, 30_000))
        bound = await listener.serve("PLAINTEXT", "127.0.0.1", 0, on_connection)
        async with connected(bound):
            # Linux counts its own book-keeping in and doubles what it is given.
            assert await taken == (40_000, 60_000)
        await bound.close()

    run(main())


def test_frames_that_come_in_pieces_or_at_once(run: Run) -> None:
    async def story() -> None:
        async with serving(echo) as bound, connected(bound) as (reader, writer):
            many = [framed(bytes([n % 256]) * n) for n in range(300)]
            writer.write(b"".join(many))
            assert await reader.readexactly(sum(map(len, many))) == b"".join(many)
            for byte in (slow := framed(b"one byte at a time")):
                writer.write(bytes([byte]))
                await writer.drain()
            assert await reader.readexactly(len(slow)) == slow

    run(story())


def test_a_frame_larger_than_every_buffer(run: Run) -> None:
    async def story() -> None:
        async with serving(echo) as bound, connected(bound) as (reader, writer):
            frame = framed(os.urandom(5_000_000))
            writer.write(frame)
            assert await reader.readexactly(len(frame)) == frame

    run(story())


def test_reading_into_a_buffer_of_the_caller(run: Run) -> None:
    async def story() -> None:
        async with pair() as (connection, (_, writer)):
            body = os.urandom(1_000_000)
            writer.write(b"head" + body)
            assert await connection.read_exactly(4) == b"head"
            buffer = bytearray(1_000_000)
            await connection.read_into(memoryview(buffer)[:10])
            await connection.read_into(memoryview(buffer)[10:])
            assert buffer == body

    run(story())


def test_an_announced_length_takes_no_memory_before_it_comes(run: Run) -> None:
    async def story() -> None:
        async with pair() as (connection, (_, writer)):
            writer.write(b"x" * 1000)
            writer.write_eof()
            tracemalloc.start()
            with pytest.raises(ConnectionLost, match="hung up"):
                await connection.read_exactly(1 << 30)
            assert tracemalloc.get_traced_memory()[1] < 4_000_000
            tracemalloc.stop()

    run(story())


def test_closing_wakes_a_reader(run: Run) -> None:
    async def story() -> None:
        async with pair() as (connection, (reader, _)):
            reading = asyncio.create_task(connection.read_exactly(1))
            await asyncio.sleep(0)
            connection.close()
            connection.close()
            assert connection.is_closing
            with pytest.raises(ConnectionLost, match="is closed"):
                await reading
            assert await reader.read() == b""

    run(story())


def test_a_reset_is_a_lost_connection(run: Run) -> None:
    async def story() -> None:
        async with pair() as (connection, (_, writer)):
            hard = b"\1\0\0\0\0\0\0\0"  # l_onoff, l_linger: close with a reset
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, hard)
            writer.transport.abort()
            with pytest.raises(ConnectionLost, match="reset"):
                await connection.read_exactly(1)

    run(story())


# ---- writing


def test_many_buffers_to_a_slow_reader(run: Run) -> None:
    async def story() -> None:
        async with pair() as (connection, (reader, _)):
            buffers: list[ByteView] = [b"", bytearray(b"a"), memoryview(b"bc")]
            buffers += [os.urandom(size) for size in range(2500)]
            buffers += [os.urandom(9_000_000)]
            writing = asyncio.create_task(connection.write(buffers))
            expected = b"".join(buffers)
            received = bytearray()
            while len(received) < len(expected):
                received += await reader.read(50_000)
            await writing
            assert received == expected

    run(story())


def test_a_client_that_never_reads_holds_up_only_its_writer(run: Run) -> None:
    async def story() -> None:
        stuck: asyncio.Future[asyncio.Task[None]] = asyncio.get_running_loop().create_future()

        async def serve(connection: ClientConnection) -> None:
            if await connection.read_exactly(1) == b"w":
                writing = asyncio.create_task(connection.write([bytes(64_000_000)]))
                stuck.set_result(writing)
                with contextlib.suppress(ConnectionLost):
                    await connection.read_exactly(1)
                connection.close()
                with pytest.raises(ConnectionLost):
                    await writing
            else:
                await echo(connection)

        async with serving(serve) as bound, connected(bound) as (_, never_reads):
            never_reads.write(b"w")
            writing = await stuck
            async with connected(bound) as (reader, writer):
                writer.write(b"e")
                for n in range(100):
                    writer.write(framed(b"%d" % n))
                    assert await reader.readexactly(len(b"%d" % n) + 4) == framed(b"%d" % n)
            assert not writing.done()
            never_reads.write_eof()
            await asyncio.wait({writing})
            assert isinstance(writing.exception(), ConnectionLost)

    run(story())


def test_two_writers_are_refused(run: Run) -> None:
    async def story() -> None:
        async with pair() as (connection, _):
            first = asyncio.create_task(connection.write([bytes(64_000_000)]))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="two tasks"):
                await connection.write([b"mixed in"])
            assert not connection.is_closing
            connection.close()
            await asyncio.wait({first})

    run(story())


def test_a_cancelled_write_is_the_last(run: Run) -> None:
    async def story() -> None:
        async with pair() as (connection, _):
            writing = asyncio.create_task(connection.write([bytes(64_000_000)]))
            await asyncio.sleep(0)
            writing.cancel()
            await asyncio.wait({writing})
            assert connection.is_closing
            with pytest.raises(ConnectionLost):
                await connection.write([b"behind half a frame"])

    run(story())


# ---- files


class ScriptedFile:
    """A file as the simulation has it; optionally its disk fails or its descriptor is bad."""

    def __init__(self, content: bytes, error: OSError | None = None, descriptor: int = -1) -> None:
        self._content = content
        self._error = error
        self._descriptor = descriptor
        self.cold_from = len(content)
        self.read_on: set[str] = set()
        self.looks = 0

    def pread(self, length: int, position: int) -> bytes:
        self.read_on.add(threading.current_thread().name)
        if self._error is not None:
            raise self._error
        return self._content[position : position + length]

    def pwrite(self, data: ByteView, position: int) -> None:
        raise OSError(errno.EBADF, "read only")

    def pwritev(self, buffers: Sequence[ByteView], position: int) -> None:
        raise OSError(errno.EBADF, "read only")

    def size(self) -> int:
        return len(self._content)

    def truncate(self, size: int) -> None:
        raise OSError(errno.EBADF, "read only")

    def reserve(self, start: int, length: int) -> None: ...

    def sync(self) -> None: ...

    def is_cached(self, length: int, position: int) -> bool:
        self.looks += 1
        return position + length <= self.cold_from

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None: ...


@pytest.fixture(params=["descriptor", "no descriptor"])
def make_file(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[bytes], File]:
    def make(content: bytes) -> File:
        if request.param == "no descriptor":
            return ScriptedFile(content)
        path = tmp_path / "segment"
        path.write_bytes(content)
        file = OsDisk().open(str(path), read_only=True)
        path.unlink()  # retention may take the name away; the descriptor stays good
        request.addfinalizer(file.close)
        return file

    return make


@pytest.mark.parametrize("cold_from", [0, 3_000_000, 5_000_000])
def test_what_is_not_in_memory_is_read_beside_the_loop(run: Run, cold_from: int) -> None:
    content = os.urandom(5_000_000)
    file = ScriptedFile(content)
    file.cold_from = cold_from
    offload = ThreadOffload(1)

    async def story() -> None:
        async with pair(offload) as (connection, (reader, _)):
            sending = asyncio.create_task(connection.send_file(file, 0, len(content)))
            assert await reader.readexactly(len(content)) == content
            await sending

    run(story())
    offload.close()
    threads = {name for name in file.read_on if name.startswith("offload")}
    assert bool(threads) is (cold_from < len(content))


def test_a_stretch_is_looked_at_once_however_small_the_pieces_are(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(2_500_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    file = ScriptedFile(content, descriptor=descriptor)
    offload = ThreadOffload(1)
    send = os.sendfile

    def send_a_piece(target: int, source: int, position: int, count: int) -> int:
        return send(target, source, position, min(count, 50_000))

    monkeypatch.setattr(os, "sendfile", send_a_piece)

    async def story() -> None:
        async with pair(offload) as (connection, (reader, _)):
            sending = asyncio.create_task(connection.send_file(file, 0, len(content)))
            assert await reader.readexactly(len(content)) == content
            await sending

    run(story())
    offload.close()
    os.close(descriptor)
    assert file.looks == 3  # a megabyte each, and what is left


def test_sending_a_range_of_a_file(run: Run, make_file: Callable[[bytes], File]) -> None:
    content = os.urandom(5_000_000)
    file = make_file(content)

    async def story() -> None:
        async with pair() as (connection, (reader, _)):

            async def serve() -> None:
                await connection.write([b"head"])
                await connection.send_file(file, 1000, 4_500_000)
                await connection.send_file(file, 0, 0)
                await connection.write([b"tail"])

            sending = asyncio.create_task(serve())
            assert await reader.readexactly(4) == b"head"
            assert await reader.readexactly(4_500_000) == content[1000:4_501_000]
            assert await reader.readexactly(4) == b"tail"
            await sending

    run(story())


def test_a_file_that_is_too_short_ends_the_connection(
    run: Run, make_file: Callable[[bytes], File]
) -> None:
    file = make_file(b"0123456789")

    async def story() -> None:
        async with pair() as (connection, (reader, _)):
            with pytest.raises(FileTooShort, match="after 7 of them"):
                await connection.send_file(file, 3, 100)
            assert connection.is_closing
            assert await reader.read() == b"3456789"

    run(story())


def test_a_file_that_cannot_be_read_is_not_the_client_s_fault(run: Run) -> None:
    async def story() -> None:
        file = ScriptedFile(b"", OSError(errno.EIO, "bad sector"))
        async with pair() as (connection, _):
            with pytest.raises(OSError, match="bad sector"):
                await connection.send_file(file, 0, 10)
            assert connection.is_closing

    run(story())


def test_a_file_that_cannot_be_sent_is_not_the_client_s_fault(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        write_only = os.open(tmp_path / "segment", os.O_CREAT | os.O_WRONLY)
        async with pair() as (connection, _):
            with pytest.raises(OSError, match="Bad file descriptor"):
                await connection.send_file(ScriptedFile(b"", descriptor=write_only), 0, 10)
            assert connection.is_closing
        os.close(write_only)

    run(story())


# ---- many connections


def test_a_thousand_idle_connections(run: Run) -> None:
    async def story() -> None:
        async with serving(echo) as bound:
            address = (bound.address.host, bound.address.port)
            idle = [socket.create_connection(address) for _ in range(1000)]
            async with connected(bound) as (reader, writer):
                writer.write(framed(b"alive"))
                assert await reader.readexactly(9) == framed(b"alive")
            await bound.close()
            assert {sock.recv(1) for sock in idle} == {b""}
            for sock in idle:
                sock.close()

    run(story())


def test_a_connection_that_is_not_admitted_is_hung_up(run: Run) -> None:
    async def story() -> None:
        asked: list[SocketAddress] = []

        def only_one(peer: SocketAddress) -> bool:
            asked.append(peer)
            return len(asked) == 1

        async with serving(echo, only_one) as bound, connected(bound) as (reader, writer):
            async with connected(bound) as (refused, _):
                assert await refused.read() == b""
            writer.write(framed(b"served"))
            assert await reader.readexactly(10) == framed(b"served")
            assert asked[0] == SocketAddress(*writer.get_extra_info("sockname"))

    run(story())


def test_an_owner_that_fails_harms_no_other(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def serve(connection: ClientConnection) -> None:
        if await connection.read_exactly(1) == b"!":
            raise ZeroDivisionError("a defect")
        await echo(connection)

    async def story() -> None:
        async with serving(serve) as bound, connected(bound) as (reader, writer):
            async with connected(bound) as (failing, bang):
                bang.write(b"!")
                assert await failing.read() == b""
            writer.write(b"-" + framed(b"fine"))
            assert await reader.readexactly(8) == framed(b"fine")

    with caplog.at_level(logging.ERROR):
        run(story())
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["a defect"]


def test_those_there_are_live_on_when_accepting_stops(run: Run) -> None:
    async def story() -> None:
        async with serving(echo) as bound, connected(bound) as (reader, writer):
            writer.write(framed(b"before"))
            await reader.readexactly(10)
            bound.stop_accepting()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(bound.address.host, bound.address.port)
            writer.write(framed(b"after"))
            assert await reader.readexactly(9) == framed(b"after")

    run(story())


def test_closing_does_not_wait_for_an_owner_that_does_not_end(run: Run) -> None:
    async def story() -> None:
        cancelled = asyncio.Event()

        async def cling(connection: ClientConnection) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async with serving(cling) as bound, connected(bound) as (_, writer):
            writer.write(b"x")
            await writer.drain()
            async with connected(bound) as (other, _):
                closing = asyncio.create_task(bound.close())
                assert await other.read() == b""
            await closing
        assert cancelled.is_set()

    run(story())


@pytest.fixture
def no_descriptors_left() -> Iterator[Callable[[], Callable[[], None]]]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def restore() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def use_up() -> Callable[[], None]:
        in_use = max(int(name) for name in os.listdir("/dev/fd"))
        # The listing itself had a descriptor, which is free again: fill every gap below.
        gaps = []
        with contextlib.suppress(OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 1, hard))
            while True:
                gaps.append(os.dup(0))

        def give_back() -> None:
            restore()
            for fd in gaps:
                os.close(fd)

        return give_back

    yield use_up
    restore()


def test_without_descriptors_clients_wait(
    run: Run,
    no_descriptors_left: Callable[[], Callable[[], None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with serving(echo) as bound:
            client = socket.socket()
            client.setblocking(False)
            warned = asyncio.Event()

            def note(_: logging.LogRecord) -> bool:
                warned.set()
                return True

            caplog.handler.addFilter(note)
            give_back = no_descriptors_left()
            try:
                await loop.sock_connect(client, (bound.address.host, bound.address.port))
                await warned.wait()
            finally:
                give_back()
            await loop.sock_sendall(client, framed(b"late"))
            received = b""
            while len(received) < 8:
                received += await loop.sock_recv(client, 8)
            assert received == framed(b"late")
            client.close()

    run(story())
    assert "cannot accept for now" in caplog.text


# ---- binding


def test_every_interface_and_a_port_that_is_taken(run: Run) -> None:
    async def story() -> None:
        everywhere = await TcpListener().serve("PLAINTEXT", "", 0, echo)
        port = everywhere.address.port
        for host in ("127.0.0.1", "localhost"):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(framed(host.encode()))
            assert await reader.readexactly(4 + len(host)) == framed(host.encode())
            writer.close()
        with pytest.raises(OSError, match="in use"):
            await TcpListener().serve("PLAINTEXT", "127.0.0.1", port, echo)
        await everywhere.close()

    run(story())


def test_an_owner_knows_where_its_client_came_from(run: Run) -> None:
    async def story() -> None:
        async with pair() as (connection, (_, writer)):
            assert connection.listener_name == "PLAINTEXT"
            assert connection.peer_address == SocketAddress(*writer.get_extra_info("sockname"))

    run(story())
