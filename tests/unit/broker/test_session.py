"""One client connection: order, back-pressure, bad input, and failures that stay where they are."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import struct
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from memory_connection import MemoryConnection

from tidelog.broker.calls import Answer, Begun, Call, Client, CloseConnection, Handler
from tidelog.broker.request_memory import RequestMemory
from tidelog.broker.session import Session
from tidelog.kernel.real import OsDisk
from tidelog.simulation import World, run_simulation
from tidelog.storage.read import FileSlice
from tidelog.wire.protocol.apis import APIS, ApiKey, served_apis
from tidelog.wire.protocol.frames import ResponseFrame, frame_request, frame_response

API = APIS[ApiKey.METADATA]
VERSION = 1
NO_TOPICS = b"\0\0\0\0"
MAX_REQUEST_BYTES = 1000


def request(number: int) -> bytes:
    return frame_request(API, VERSION, number, "a client", NO_TOPICS)


def answer(number: int, body: bytes = b"done") -> ResponseFrame:
    return frame_response(API, VERSION, number, body)


class Scripted:
    """A handler that answers when and as the test says."""

    api_key = ApiKey.METADATA

    def __init__(self, *, is_pipelined: bool = True, begin: Callable[[Call], Begun] | None = None):
        self.is_pipelined = is_pipelined
        self.begun: list[int] = []
        self.waiting: dict[int, asyncio.Future[Answer]] = {}
        self._begin = begin

    def begin(self, call: Call) -> Begun:
        self.begun.append(call.correlation_id)
        if self._begin is not None:
            return self._begin(call)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.waiting[call.correlation_id] = future
        return future

    def finish(self, number: int) -> None:
        self.waiting.pop(number).set_result(answer(number))


def at_once(call: Call) -> ResponseFrame:
    return answer(call.correlation_id)


class Scene:
    def __init__(self, world: World, handler: Handler) -> None:
        self.world = world
        self.node_memory = RequestMemory(-1)
        self.handlers: dict[int, Handler] = {int(handler.api_key): handler}
        self.sessions: list[asyncio.Task[None]] = []

    def connect(self, *, window: int = 1 << 30) -> MemoryConnection:
        connection = MemoryConnection(window=window)
        client = Client(connection.peer_address, "PLAINTEXT", len(self.sessions) + 1)
        apis = served_apis([*self.handlers, ApiKey.API_VERSIONS])
        clock = self.world.clock
        session = Session(
            connection,
            client,
            self.handlers,
            apis,
            clock,
            MAX_REQUEST_BYTES,
            self.node_memory,
        )
        self.sessions.append(asyncio.get_running_loop().create_task(session.run()))
        return connection

    async def ended(self, number: int = 0) -> None:
        """Waits for a session to end, and for no more than a minute."""
        async with asyncio.timeout(60):
            await self.sessions[number]


def run(scenario: Callable[[Scene], Awaitable[None]], handler: Handler) -> None:
    async def main(world: World) -> None:
        scene = Scene(world, handler)
        await scenario(scene)
        for session in scene.sessions:
            session.cancel()
        await asyncio.gather(*scene.sessions, return_exceptions=True)
        await settled()
        assert scene.node_memory.used_bytes == 0  # whatever became of the sessions

    run_simulation(main, seed=1, time_limit_s=3600)


async def settled() -> None:
    await asyncio.sleep(0.001)


def correlation_id(frame: bytes | None) -> int | None:
    if frame is None:
        return None
    (number,) = struct.unpack_from(">i", frame)
    return int(number)


# Order.


def test_answers_come_in_the_order_of_the_requests_whenever_they_are_ready() -> None:
    handler = Scripted()

    async def scenario(scene: Scene) -> None:
        client = scene.connect()
        client.send(request(1) + request(2) + request(3))
        await settled()
        assert handler.begun == [1, 2, 3]
        handler.finish(3)
        handler.finish(2)
        await settled()
        assert client.frames_written == 0
        handler.finish(1)
        assert [correlation_id(await client.receive()) for _ in range(3)] == [1, 2, 3]

    run(scenario, handler)


def test_a_handler_that_is_not_pipelined_is_waited_for() -> None:
    handler = Scripted(is_pipelined=False)

    async def scenario(scene: Scene) -> None:
        client = scene.connect()
        client.send(request(1) + request(2))
        await settled()
        assert handler.begun == [1]
        handler.finish(1)
        await settled()
        assert handler.begun == [1, 2]
        handler.finish(2)
        assert [correlation_id(await client.receive()) for _ in range(2)] == [1, 2]

    run(scenario, handler)


def test_a_request_without_an_answer_holds_nothing_up() -> None:
    def only_even(call: Call) -> Begun:
        return None if call.correlation_id % 2 else answer(call.correlation_id)

    async def scenario(scene: Scene) -> None:
        client = scene.connect()
        client.send(request(1) + request(2))
        assert correlation_id(await client.receive()) == 2

    run(scenario, Scripted(begin=only_even))


def test_a_frame_may_arrive_byte_by_byte() -> None:
    async def scenario(scene: Scene) -> None:
        client = scene.connect()
        for byte in request(5):
            client.send(bytes([byte]))
            await settled()
        assert correlation_id(await client.receive()) == 5

    run(scenario, Scripted(begin=at_once))


def test_ranges_of_files_go_out_in_their_place(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        file = OsDisk().open(str(tmp_path / "log"), create=True)
        file.pwrite(b"0123456789", 0)
        body = ResponseFrame([b"\0\0\0\x0a", b"\0\0\0\1", FileSlice(file, 2, 4), b"!!"], 14)
        scene.handlers[ApiKey.METADATA] = Scripted(begin=lambda _: body)
        client = scene.connect()
        client.send(request(1))
        assert await client.receive() == b"\0\0\0\x012345!!"

    run(scenario, Scripted())


# Back-pressure.


def test_a_client_that_never_reads_is_not_read_from_for_ever() -> None:
    handler = Scripted(begin=lambda call: answer(call.correlation_id, bytes(100)))

    async def scenario(scene: Scene) -> None:
        client = scene.connect(window=1000)
        for number in range(500):
            client.send(request(number))
        await settled()
        assert len(handler.begun) < 60
        assert client.unread > 400 * len(request(0))
        for number in range(500):
            assert correlation_id(await client.receive()) == number

    run(scenario, handler)


def test_a_session_ends_when_a_client_that_never_read_is_gone() -> None:
    handler = Scripted(begin=lambda call: answer(call.correlation_id, bytes(100)))

    async def scenario(scene: Scene) -> None:
        client = scene.connect(window=1000)
        for number in range(500):
            client.send(request(number))
        await settled()
        client.close()
        await scene.ended()
        assert len(handler.begun) < 60

    run(scenario, handler)


def test_what_a_lost_client_waited_for_is_given_up() -> None:
    handler = Scripted()

    async def scenario(scene: Scene) -> None:
        client = scene.connect()
        client.send(request(1) + request(2))
        await settled()
        client.hang_up()
        await scene.ended()
        assert [handler.waiting[number].cancelled() for number in (1, 2)] == [True, True]

    run(scenario, handler)


def test_what_a_lost_client_had_in_line_is_not_begun() -> None:
    """It may have asked for the same, or for more, on another connection meanwhile."""
    handler = Scripted(is_pipelined=False)

    async def scenario(scene: Scene) -> None:
        client = scene.connect()
        client.send(request(1) + request(2))
        client.hang_up()
        await settled()
        handler.finish(1)
        await scene.ended()
        assert handler.begun == [1]

    run(scenario, handler)


def test_what_nothing_waits_for_is_served_though_the_client_is_gone() -> None:
    """Such as records that want no answer."""
    handler = Scripted(is_pipelined=False, begin=lambda call: None)

    async def scenario(scene: Scene) -> None:
        client = scene.connect()
        client.send(request(1) + request(2))
        client.hang_up()
        await scene.ended()
        assert handler.begun == [1, 2]

    run(scenario, handler)


def test_coroutines_that_nobody_will_await_are_closed() -> None:
    async def late(call: Call) -> Answer:
        await asyncio.sleep(1000)
        return answer(call.correlation_id)

    async def scenario(scene: Scene) -> None:
        client = scene.connect()
        client.send(request(1) + request(2) + request(3))
        await settled()
        client.hang_up()
        await scene.ended()

    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        run(scenario, Scripted(begin=late))
        gc.collect()
    assert [str(warning.message) for warning in noted] == []


# Bad input.

BAD = {
    "size -1": struct.pack(">i", -1),
    "size -2^31": struct.pack(">i", -(2**31)),
    "size 0": struct.pack(">i", 0) + bytes(20),
    "size 9, too small for a header": struct.pack(">i", 9) + bytes(9),
    "size 2^31-1": struct.pack(">i", 2**31 - 1),
    "one byte above the limit": struct.pack(">i", MAX_REQUEST_BYTES + 1) + bytes(2000),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100a5010000a10303") + bytes(200),
    "an unknown API": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "an API that is not served": struct.pack(">ihhih", 10, ApiKey.FETCH, 12, 1, -1),
    "a version below the range": struct.pack(">ihhih", 10, ApiKey.METADATA, -1, 1, -1),
    "a version above the range": struct.pack(">ihhih", 10, ApiKey.METADATA, 99, 1, -1),
    "a client id longer than the frame": struct.pack(">ihhih", 10, ApiKey.METADATA, 1, 1, 99),
    "a body that ends early": struct.pack(">ihhihi", 14, ApiKey.METADATA, 1, 1, -1, 7),
    "more entries than there could be": struct.pack(
        ">ihhihi", 14, ApiKey.METADATA, 1, 1, -1, 2**31 - 1
    ),
}


@pytest.mark.parametrize("data", BAD.values(), ids=list(BAD))
def test_bad_input_closes_the_connection_without_an_answer(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Scripted(begin=at_once)

    async def scenario(scene: Scene) -> None:
        client, other = scene.connect(), scene.connect()
        client.send(data)
        assert await client.receive() is None
        await scene.ended(0)
        other.send(request(8))
        assert correlation_id(await other.receive()) == 8

    run(scenario, handler)
    assert handler.begun == [8]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_what_was_asked_before_bad_input_is_answered() -> None:
    handler = Scripted()

    async def scenario(scene: Scene) -> None:
        client = scene.connect()
        client.send(request(1) + request(2) + BAD["an unknown API"] + request(3))
        await settled()
        handler.finish(1)
        handler.finish(2)
        assert [correlation_id(await client.receive()) for _ in range(3)] == [1, 2, None]
        await scene.ended()
        assert handler.begun == [1, 2]

    run(scenario, handler)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    async def scenario(scene: Scene) -> None:
        client = scene.connect()
        for version in (5, 32767, -1):
            client.send(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, version, 77, -1))
            answered = await client.receive()
            assert answered == struct.pack(">ihihhh", 77, 35, 1, ApiKey.API_VERSIONS, 0, 4)
        client.send(request(4))
        assert correlation_id(await client.receive()) == 4

    run(scenario, Scripted(begin=at_once))


def test_random_frames_end_in_an_answer_or_a_closed_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chance = random.Random(4)

    async def scenario(scene: Scene) -> None:
        for _ in range(300):
            client = scene.connect()
            for _ in range(chance.randrange(1, 4)):
                body = bytearray(chance.randbytes(chance.randrange(10, 60)))
                body[:4] = struct.pack(">hh", ApiKey.METADATA, chance.randrange(0, 14))
                client.send(struct.pack(">i", len(body)) + body)
            client.hang_up()
            async with asyncio.timeout(60):
                await scene.sessions[-1]

    run(scenario, Scripted(begin=at_once))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


# Failures in handlers.


class Bug(Exception):
    pass


def fails_when_begun(call: Call) -> Begun:
    raise Bug("begun")


def fails_later(call: Call) -> Begun:
    async def fail() -> Answer:
        await asyncio.sleep(0.01)
        raise Bug("later")

    return fail()


@pytest.mark.parametrize("is_pipelined", [True, False])
@pytest.mark.parametrize("begin", [fails_when_begun, fails_later])
def test_a_failure_closes_its_connection_only_and_is_logged(
    begin: Callable[[Call], Begun], is_pipelined: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def begin_some(call: Call) -> Begun:
        return begin(call) if call.correlation_id == 13 else answer(call.correlation_id)

    async def scenario(scene: Scene) -> None:
        client, other = scene.connect(), scene.connect()
        client.send(request(1) + request(13) + request(2))
        assert correlation_id(await client.receive()) == 1
        assert await client.receive() is None
        await scene.ended(0)
        other.send(request(8))
        assert correlation_id(await other.receive()) == 8

    run(scenario, Scripted(is_pipelined=is_pipelined, begin=begin_some))
    [logged] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "Metadata v1 (correlation id 13)" in logged.getMessage()
    assert logged.exc_info is not None and isinstance(logged.exc_info[1], Bug)


def test_a_handler_may_ask_for_the_connection_to_be_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(call: Call) -> Begun:
        raise CloseConnection("nothing to say")

    async def scenario(scene: Scene) -> None:
        client = scene.connect()
        client.send(request(1))
        assert await client.receive() is None
        await scene.ended()

    with caplog.at_level(logging.INFO):
        run(scenario, Scripted(begin=refuse))
    [logged] = [record for record in caplog.records if record.name == "tidelog.broker.session"]
    assert logged.levelno == logging.INFO and "nothing to say" in logged.getMessage()


# Memory.


def large_request(number: int, size: int = 400) -> bytes:
    """Of so many bytes, most of them the client's name."""
    short = frame_request(API, VERSION, number, "", NO_TOPICS)
    return frame_request(API, VERSION, number, "c" * (size - len(short) + 4), NO_TOPICS)


def test_requests_are_read_up_to_so_many_bytes() -> None:
    handler = Scripted()

    async def scenario(scene: Scene) -> None:
        client = scene.connect()
        client.send(b"".join(large_request(number) for number in range(5)))
        await settled()
        assert handler.begun == [0, 1]  # a third one would pass 1000 bytes
        handler.finish(1)
        await settled()
        assert handler.begun == [0, 1, 2]  # it is answered, if not sent
        handler.finish(0)
        handler.finish(2)
        await settled()
        assert handler.begun == [0, 1, 2, 3, 4]

    run(scenario, handler)


def test_the_node_s_limit_holds_for_all_connections() -> None:
    handler = Scripted()

    async def scenario(scene: Scene) -> None:
        scene.node_memory = RequestMemory(1000)
        clients = [scene.connect() for _ in range(4)]
        for number, client in enumerate(clients):
            client.send(large_request(number))
            await settled()
        assert handler.begun == [0, 1] and scene.node_memory.used_bytes == 800
        handler.finish(0)
        await settled()
        assert handler.begun == [0, 1, 2]
        clients[1].hang_up()
        clients[2].hang_up()
        await scene.ended(1)
        await scene.ended(2)
        await settled()
        assert handler.begun == [0, 1, 2, 3]

    run(scenario, handler)


def test_a_request_larger_than_the_node_s_limit_is_taken_alone() -> None:
    handler = Scripted()

    async def scenario(scene: Scene) -> None:
        scene.node_memory = RequestMemory(100)
        first, second = scene.connect(), scene.connect()
        first.send(large_request(1))
        await settled()
        second.send(request(2))
        await settled()
        assert handler.begun == [1]
        handler.finish(1)
        await settled()
        assert handler.begun == [1, 2]

    run(scenario, handler)


def test_an_answer_that_begins_when_it_is_awaited_holds_its_request() -> None:
    async def later(call: Call) -> Answer:
        await asyncio.sleep(1)
        return answer(call.correlation_id)

    async def scenario(scene: Scene) -> None:
        client = scene.connect()
        client.send(b"".join(large_request(number) for number in range(4)))
        await asyncio.sleep(0.5)
        assert scene.node_memory.used_bytes == 800
        assert [correlation_id(await client.receive()) for _ in range(4)] == [0, 1, 2, 3]

    run(scenario, Scripted(begin=later))
