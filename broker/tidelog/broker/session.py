"""One client connection: frames in, answers out, in order.

Two tasks share it. The owner reads and begins requests; a writer waits for the answers in order
and sends them. What is between them is bounded, in requests and in their bytes: a client that
does not read its responses is not read from any further. When the writer ends, what is queued is
dropped, so that the reader never waits for room that nobody will make.

A request's bytes count until its answer is known, not until it is sent: then nobody needs them
any more, and a client that reads slowly takes nothing from the others.

Whatever a client sends ends in an answer or in a closed connection, never in anything that others
would notice. What a client asked before it sent something that cannot be answered is answered
first. A client that hung up while one of its requests was waited for has given up those in line
behind it: they are not begun, or they would take effect behind what it asks on its next connection.
An error in a handler that nobody foresaw is logged with its request and answered by hanging
up, because no honest answer is known.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple, cast

from tidelog.broker import request_log
from tidelog.broker.calls import Answer, Begun, Call, Client, CloseConnection, Handler
from tidelog.broker.metrics.requests import RequestMeters
from tidelog.broker.request_memory import RequestMemory
from tidelog.kernel.listener import ClientConnection, ConnectionLost
from tidelog.kernel.ports import ByteView, Clock
from tidelog.storage.read import FileSlice
from tidelog.wire.protocol.apis import Api
from tidelog.wire.protocol.errors import MalformedRequest
from tidelog.wire.protocol.frames import (
    SIZE_BYTES,
    RequestFrame,
    ResponseFrame,
    UnknownApi,
    UnsupportedVersion,
    check_frame_size,
    parse_request,
    read_frame_size,
)
from tidelog.wire.protocol.hot_responses.api_versions import encode_unsupported_api_versions
from tidelog.wire.protocol.requests import decode_request

log = logging.getLogger(__name__)

_MAX_BEGUN: Final = 32
"""Requests of one connection that wait for their answers; clients keep five in flight."""


class _Due(NamedTuple):
    """An answer that is due, and to what. Not the request itself: its memory is not kept."""

    api: Api
    version: int
    correlation_id: int
    begun: Begun
    held_bytes: int = 0
    """To be given back with the answer; 0 if that is seen to already."""
    size: int = 0
    client_id: str | None = None
    read_at_ms: float = 0.0

    def __str__(self) -> str:
        return f"{self.api.name} v{self.version} (correlation id {self.correlation_id})"

    async def answer(self) -> Answer:
        return await self.begun if isinstance(self.begun, Awaitable) else self.begun

    def drop(self) -> None:
        """Nobody will wait for it any more."""
        if isinstance(self.begun, asyncio.Future):
            self.begun.cancel()
        elif inspect.iscoroutine(self.begun):
            self.begun.close()


class Session:
    """Serves one connection until it ends."""

    def __init__(
        self,
        connection: ClientConnection,
        client: Client,
        handlers: Mapping[int, Handler],
        apis: Mapping[int, Api],
        clock: Clock,
        max_request_bytes: int,
        node_memory: RequestMemory | None = None,
        meters: RequestMeters | None = None,
    ) -> None:
        self._connection = connection
        self._client = client
        self._handlers = handlers
        self._apis = apis
        self._clock = clock
        self._max_request_bytes = max_request_bytes
        self._meters = meters or RequestMeters()
        own = RequestMemory(max_request_bytes)
        self._memories = (own,) if node_memory is None else (own, node_memory)
        self._answers: asyncio.Queue[_Due | None] = asyncio.Queue(_MAX_BEGUN)
        """In the order of their requests; None after the last one."""
        self.active_at_ms = clock.monotonic_ms()
        self._is_abandoned = False

    async def run(self) -> None:
        writer = asyncio.get_running_loop().create_task(self._write_answers())
        try:
            while not writer.done() and not self._is_abandoned:
                await self._read_one()
        except (MalformedRequest, CloseConnection) as reason:
            log.info("closing the connection of %s: %s", self._client.address, reason)
            await self._answers.put(None)  # what was asked before is still answered
            await asyncio.wait([writer])
        except ConnectionLost:
            pass
        finally:
            self._connection.close()
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            self._drop_answers()

    def close(self) -> None:
        self._connection.close()

    # --- reading -----------------------------------------------------------------------

    async def _read_one(self) -> None:
        size = read_frame_size(await self._connection.read_exactly(SIZE_BYTES))
        check_frame_size(size, self._max_request_bytes)
        await self._take_memory(size)
        try:
            frame = await self._connection.read_exactly(size)
            self.active_at_ms = self._clock.monotonic_ms()
            due = await self._begin_frame(frame, size)
        except BaseException:
            self._give_back(size)
            raise
        await self._queue(self._holding(due, size))

    async def _queue(self, due: _Due) -> None:
        try:
            await self._answers.put(due)
        except BaseException:
            self._drop(due)
            raise

    async def _begin_frame(self, frame: ByteView, size: int) -> _Due:
        match parse_request(frame, self._apis):
            case RequestFrame() as request:
                return await self._begin(request, size)
            case UnsupportedVersion(api, version, correlation_id) as refused if refused.has_answer:
                answer = encode_unsupported_api_versions(correlation_id)
                return _Due(api, version, correlation_id, answer)
            case UnsupportedVersion(api, version):
                raise CloseConnection(f"{api.name} version {version} is not served")
            case UnknownApi(api_key):
                raise CloseConnection(f"no API has the key {api_key}")

    async def _begin(self, request: RequestFrame, size: int) -> _Due:
        api, version, correlation_id, client_id, view = request
        body = decode_request(api.key, version, view)
        call = Call(api, version, correlation_id, client_id, self._client, body, size, view)
        handler = self._handlers[api.key]
        due = _Due(api, version, correlation_id, None, 0, size, client_id, self.active_at_ms)
        with self._failures_close(due):
            due = due._replace(begun=handler.begin(call))
            if handler.is_pipelined or not isinstance(due.begun, Awaitable):
                return due
            due = due._replace(begun=await due.begun)
            self._is_abandoned = self._connection.has_hung_up
            return due

    async def _take_memory(self, size: int) -> None:
        taken: list[RequestMemory] = []
        try:
            for memory in self._memories:
                if not memory.try_take(size):
                    await memory.take(size)
                taken.append(memory)
        except BaseException:
            for memory in taken:
                memory.give_back(size)
            raise

    def _give_back(self, size: int) -> None:
        for memory in self._memories:
            memory.give_back(size)

    def _holding(self, due: _Due, size: int) -> _Due:
        """The request's bytes are given back when its answer is known."""
        if isinstance(due.begun, asyncio.Future):
            due.begun.add_done_callback(lambda _: self._give_back(size))
        elif isinstance(due.begun, Awaitable):  # it does not go on before the writer awaits it
            return due._replace(held_bytes=size)
        else:
            self._give_back(size)
        return due

    @contextmanager
    def _failures_close(self, due: _Due) -> Iterator[None]:
        """The one place where an error that nobody foresaw ends: logged, and the client let go."""
        try:
            yield
        except (MalformedRequest, CloseConnection, ConnectionLost):
            raise
        except Exception as error:
            log.exception("%s from %s failed", due, self._client.address)
            raise CloseConnection(f"{due} failed") from error

    # --- writing -----------------------------------------------------------------------

    async def _write_answers(self) -> None:
        try:
            while (due := await self._answers.get()) is not None:
                with self._failures_close(due):
                    answer = await self._answer_to(due)
                    if answer is not None:
                        await self._send(answer)
                    self._note_answer(due, answer)
        except (MalformedRequest, CloseConnection, ConnectionLost) as reason:
            log.debug("connection of %s ended: %s", self._client.address, reason)
        finally:
            self._connection.close()
            self._drop_answers()

    def _note_answer(self, due: _Due, answer: Answer) -> None:
        now_ms = self._clock.monotonic_ms()
        if answer is not None:
            self.active_at_ms = now_ms
        if due.size:
            took_ms = now_ms - due.read_at_ms
            self._meters.of(due.api).answered(took_ms, due.size)
            if request_log.is_wanted():
                what = (due.client_id, due.api, due.version, due.size, took_ms)
                request_log.tell(self._client, *what, answer)

    async def _answer_to(self, due: _Due) -> Answer:
        try:
            return await due.answer()
        finally:
            if due.held_bytes:
                self._give_back(due.held_bytes)

    def _drop_answers(self) -> None:
        while not self._answers.empty():
            due = self._answers.get_nowait()
            if due is not None:
                self._drop(due)

    def _drop(self, due: _Due) -> None:
        due.drop()
        if due.held_bytes:
            self._give_back(due.held_bytes)

    async def _send(self, frame: ResponseFrame) -> None:
        """Bytes are gathered into one write; ranges of files go out without a copy."""
        gathered: list[ByteView] = []
        for segment in frame.segments:
            if isinstance(segment, FileSlice):
                if gathered:
                    await self._connection.write(gathered)
                    gathered = []
                await self._connection.send_file(segment.file, segment.position, segment.length)
            else:
                gathered.append(cast(ByteView, segment))
        if gathered:
            await self._connection.write(gathered)
