"""What a broker may expect of ``Listener``, held against TCP and the simulated network."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from tidelog.kernel.ports import ByteView
from tidelog.kernel.real.listener import TcpListener
from tidelog.simulation import (
    LinkQuality,
    NetworkSettings,
    SimByteStream,
    SimDisk,
    SimListener,
    SimNetwork,
    World,
    connect_client,
    run_simulation,
)


class Client(Protocol):
    async def read(self, at_most: int) -> bytes: ...

    async def read_exactly(self, length: int) -> bytes | bytearray: ...

    async def write(self, buffers: list[ByteView]) -> None: ...

    def write_eof(self) -> None: ...

    def close(self) -> None: ...


class TcpClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self, at_most: int) -> bytes:
        return await self._reader.read(at_most)

    async def read_exactly(self, length: int) -> bytes:
        return await self._reader.readexactly(length)

    async def write(self, buffers: list[ByteView]) -> None:
        self._writer.writelines(buffers)
        await self._writer.drain()

    def write_eof(self) -> None:
        self._writer.write_eof()

    def close(self) -> None:
        self._writer.close()


class Stage(Protocol):
    @property
    def listener(self) -> Listener: ...

    async def connect(self, address: SocketAddress) -> Client: ...


class TcpStage:
    listener = TcpListener()

    async def connect(self, address: SocketAddress) -> Client:
        return TcpClient(*await asyncio.open_connection(address.host, address.port))


class SimStage:
    def __init__(self, world: World) -> None:
        self.network = SimNetwork(world)
        self.listener = SimListener(self.network, self.network.boot(1))
        self._client = self.network.boot("client")

    async def connect(self, address: SocketAddress) -> SimByteStream:
        return await connect_client(self.network, self._client, address)


Story: TypeAlias = Callable[[Stage], Awaitable[None]]
Tell: TypeAlias = Callable[[Story], None]


@pytest.fixture(params=["tcp", "sim"])
def tell(request: pytest.FixtureRequest) -> Tell:
    def tell_tcp(story: Story) -> None:
        async def main() -> None:
            await story(TcpStage())

        asyncio.run(main())

    def tell_sim(story: Story) -> None:
        async def main(world: World) -> None:
            await story(SimStage(world))

        for seed in range(5):
            run_simulation(main, seed, time_limit_s=1000)

    return tell_tcp if request.param == "tcp" else tell_sim


@contextlib.asynccontextmanager
async def serving(
    stage: Stage, on_connection: OnConnection, admit: Admit = admit_all
) -> AsyncIterator[BoundListener]:
    bound = await stage.listener.serve("PLAINTEXT", "127.0.0.1", 0, on_connection, admit=admit)
    try:
        yield bound
    finally:
        await bound.close()


@contextlib.asynccontextmanager
async def connected(stage: Stage, bound: BoundListener) -> AsyncIterator[Client]:
    client = await stage.connect(bound.address)
    try:
        yield client
    finally:
        client.close()


@contextlib.asynccontextmanager
async def pair(stage: Stage) -> AsyncIterator[tuple[ClientConnection, Client]]:
    """The server's end of a connection, lent to the test, and the client's."""
    taken: asyncio.Future[ClientConnection] = asyncio.get_running_loop().create_future()
    done = asyncio.Event()

    async def lend(connection: ClientConnection) -> None:
        taken.set_result(connection)
        await done.wait()

    async with serving(stage, lend) as bound, connected(stage, bound) as client:
        try:
            yield await taken, client
        finally:
            done.set()


async def echo(connection: ClientConnection) -> None:
    while True:
        size = await connection.read_exactly(4)
        frame = await connection.read_exactly(int.from_bytes(size, "big"))
        await connection.write([size, frame])


async def let_others_run() -> None:
    for _ in range(5):  # ready tasks are shuffled in a simulation, so once is not enough
        await asyncio.sleep(0)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


async def read_all(client: Client) -> bytes:
    received = bytearray()
    while piece := await client.read(1 << 16):
        received += piece
    return bytes(received)


def test_frames_come_back_in_order(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async with serving(stage, echo) as bound, connected(stage, bound) as client:
            many = b"".join(framed(bytes([n % 256]) * n) for n in range(100))
            await client.write([many])
            assert await client.read_exactly(len(many)) == many

    tell(story)


def test_a_frame_larger_than_every_buffer(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async with serving(stage, echo) as bound, connected(stage, bound) as client:
            frame = framed(random.Random(1).randbytes(3_000_000))
            writing = asyncio.create_task(client.write([frame]))
            assert await client.read_exactly(len(frame)) == frame
            await writing

    tell(story)


def test_reading_into_a_buffer_of_the_caller(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async with pair(stage) as (connection, client):
            body = random.Random(2).randbytes(200_000)
            writing = asyncio.create_task(client.write([b"head", body]))
            assert await connection.read_exactly(4) == b"head"
            buffer = bytearray(len(body))
            await connection.read_into(memoryview(buffer)[:10])
            await connection.read_into(memoryview(buffer)[10:])
            assert buffer == body
            await writing

    tell(story)


def test_a_client_that_hangs_up(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async with pair(stage) as (connection, client):
            await client.write([b"abc"])
            client.close()
            assert await connection.read_exactly(3) == b"abc"
            with pytest.raises(ConnectionLost, match="hung up"):
                await connection.read_exactly(1)

    tell(story)


@pytest.mark.parametrize("how", ["close", "write_eof"])
def test_a_client_is_known_to_have_hung_up_before_all_is_read(tell: Tell, how: str) -> None:
    async def story(stage: Stage) -> None:
        async with pair(stage) as (connection, client):
            await client.write([b"abc"])
            assert await connection.read_exactly(1) == b"a"
            assert not connection.has_hung_up
            getattr(client, how)()
            async with asyncio.timeout(60):
                while not connection.has_hung_up:  # noqa: ASYNC110 — nothing tells of it
                    await asyncio.sleep(0.001)
            assert await connection.read_exactly(2) == b"bc"
            connection.close()
            assert connection.has_hung_up

    tell(story)


def test_a_client_that_has_said_all_still_listens(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async with pair(stage) as (connection, client):
            client.write_eof()
            with pytest.raises(ConnectionLost, match="hung up"):
                await connection.read_exactly(1)
            await connection.write([b"last words"])
            connection.close()
            assert await read_all(client) == b"last words"

    tell(story)


def test_closing_wakes_a_reader(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async with pair(stage) as (connection, client):
            reading = asyncio.create_task(connection.read_exactly(1))
            await let_others_run()
            connection.close()
            connection.close()
            assert connection.is_closing
            with pytest.raises(ConnectionLost, match="is closed"):
                await reading
            assert await client.read(1) == b""

    tell(story)


def test_writing_to_a_client_that_left_ends_in_a_lost_connection(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async with pair(stage) as (connection, client):
            client.close()
            with pytest.raises(ConnectionLost):
                await connection.read_exactly(1)
            with pytest.raises(ConnectionLost):
                while True:
                    await connection.write([bytes(1000)])
                    await asyncio.sleep(0.001)
            assert connection.is_closing

    tell(story)


def test_a_client_that_never_reads_holds_up_only_its_writer(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async with pair(stage) as (connection, _):
            writing = asyncio.create_task(connection.write([bytes(64_000_000)]))
            async with pair(stage) as (other, other_client):
                for _ in range(20):
                    await other_client.write([b"ping"])
                    await other.write([await other.read_exactly(4)])
                    assert await other_client.read_exactly(4) == b"ping"
            assert not writing.done()
            connection.close()
            with pytest.raises(ConnectionLost):
                await writing

    tell(story)


def test_two_writers_are_refused(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async with pair(stage) as (connection, _):
            first = asyncio.create_task(connection.write([bytes(64_000_000)]))
            await let_others_run()
            with pytest.raises(RuntimeError, match="two tasks"):
                await connection.write([b"mixed in"])
            assert not connection.is_closing
            connection.close()
            await asyncio.wait({first})
            assert isinstance(first.exception(), ConnectionLost)

    tell(story)


def test_a_cancelled_write_is_the_last(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async with pair(stage) as (connection, _):
            writing = asyncio.create_task(connection.write([bytes(64_000_000)]))
            await let_others_run()
            writing.cancel()
            await asyncio.wait({writing})
            assert connection.is_closing
            with pytest.raises(ConnectionLost):
                await connection.write([b"behind half a frame"])

    tell(story)


def test_sending_a_range_of_a_file(tell: Tell) -> None:
    content = random.Random(3).randbytes(1_000_000)

    async def story(stage: Stage) -> None:
        disk = SimDisk()
        file = disk.open("/segment", create=True)
        file.pwrite(content, 0)
        async with pair(stage) as (connection, client):

            async def serve() -> None:
                await connection.write([b"head"])
                await connection.send_file(file, 1000, 900_000)
                await connection.send_file(file, 0, 0)
                await connection.write([b"tail"])

            sending = asyncio.create_task(serve())
            received = await client.read_exactly(900_008)
            assert received == b"head" + content[1000:901_000] + b"tail"
            await sending
            with pytest.raises(FileTooShort, match="after 7 of them"):
                await connection.send_file(file, len(content) - 7, 100)
            assert connection.is_closing
            assert await read_all(client) == content[-7:]

    tell(story)


def test_a_file_that_cannot_be_read_is_not_the_client_s_fault(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        disk = SimDisk()
        file = disk.open("/segment", create=True)
        file.pwrite(b"0123456789", 0)
        disk.faults.fail("read")
        async with pair(stage) as (connection, _):
            with pytest.raises(OSError) as failed:
                await connection.send_file(file, 0, 10)
            assert failed.value.errno == errno.EIO
            assert connection.is_closing

    tell(story)


def test_a_connection_that_is_not_admitted_is_hung_up(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        asked: list[SocketAddress] = []

        def only_one(peer: SocketAddress) -> bool:
            asked.append(peer)
            return len(asked) == 1

        async with (
            serving(stage, echo, only_one) as bound,
            connected(stage, bound) as client,
        ):
            await client.write([framed(b"first")])
            assert await client.read_exactly(9) == framed(b"first")
            async with connected(stage, bound) as refused:
                assert await refused.read(1) == b""
            await client.write([framed(b"served")])
            assert await client.read_exactly(10) == framed(b"served")
            assert len(set(asked)) == 2

    tell(story)


def test_those_there_are_live_on_when_accepting_stops(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async with serving(stage, echo) as bound, connected(stage, bound) as client:
            await client.write([framed(b"before")])
            await client.read_exactly(10)
            bound.stop_accepting()
            with pytest.raises(ConnectionRefusedError):
                await stage.connect(bound.address)
            await client.write([framed(b"after")])
            assert await client.read_exactly(9) == framed(b"after")

    tell(story)


def test_closing_a_listener_ends_its_connections(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        ended: list[str] = []

        async def note_the_end(connection: ClientConnection) -> None:
            try:
                await echo(connection)
            finally:
                ended.append(connection.listener_name)

        async with serving(stage, note_the_end) as bound, connected(stage, bound) as client:
            await client.write([framed(b"")])
            await client.read_exactly(4)
            await bound.close()
            assert ended == ["PLAINTEXT"]
            assert await client.read(1) == b""

    tell(story)


def test_an_address_that_is_taken(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        async with serving(stage, echo) as bound:
            with pytest.raises(OSError) as taken:
                await stage.listener.serve("B", bound.address.host, bound.address.port, echo)
            assert taken.value.errno == errno.EADDRINUSE

    tell(story)


def test_an_owner_that_fails_fails_the_simulation() -> None:
    async def fail(connection: ClientConnection) -> None:
        await connection.read_exactly(1)
        raise ZeroDivisionError("a defect")

    async def main(world: World) -> None:
        stage = SimStage(world)
        async with serving(stage, fail) as bound, connected(stage, bound) as client:
            await client.write([b"!"])
            assert await client.read(1) == b""

    with pytest.raises(ZeroDivisionError, match="a defect"):
        run_simulation(main, 1)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    writes=st.lists(st.lists(st.binary(max_size=3000), max_size=4), max_size=15),
    reads=st.lists(st.integers(1, 9000), min_size=1, max_size=10),
    cuts=st.lists(st.tuples(st.floats(0, 2), st.floats(0.001, 2)), max_size=4),
    quality=st.builds(
        LinkQuality,
        max_delay_ms=st.floats(1, 500),
        loss=st.sampled_from([0.0, 0.2]),
        spike=st.sampled_from([0.0, 0.3]),
        bytes_per_s=st.sampled_from([10_000.0, float("inf")]),
    ),
)
def test_bytes_arrive_as_they_were_written_whatever_the_network_does(
    seed: int,
    writes: list[list[bytes]],
    reads: list[int],
    cuts: list[tuple[float, float]],
    quality: LinkQuality,
) -> None:
    written = b"".join(b"".join(buffers) for buffers in writes)

    async def main(world: World) -> bytes:
        network = SimNetwork(world, settings=NetworkSettings(quality, client_timeout_ms=1e9))
        received: asyncio.Future[bytes] = world.loop.create_future()

        async def collect(connection: ClientConnection) -> None:
            data = bytearray()
            assert isinstance(connection, SimByteStream)
            for number in range(1 << 20):
                piece = await connection.read(reads[number % len(reads)])
                if not piece:
                    break
                data += piece
            received.set_result(bytes(data))

        bound = await SimListener(network, network.boot(1)).serve("L", "node-1", 9092, collect)
        client = await connect_client(network, network.boot("client"), bound.address)
        for begin_s, length_s in cuts:
            world.loop.call_later(begin_s, network.cut, "client", 1)
            world.loop.call_later(begin_s + length_s, network.mend, "client", 1)
        for buffers in writes:
            await client.write(buffers)
            await asyncio.sleep(world.random.random() * 0.3)
        client.close()
        return await received

    assert run_simulation(main, seed) == written
