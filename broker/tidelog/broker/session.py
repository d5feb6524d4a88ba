"""One client connection: frames in, answers out, in order.

Two tasks share it. The owner reads and begins requests; a writer waits for the answers in order
and sends them. The queue between them is bounded, in requests and so in memory: a client that
does not read its responses is not read from any further.

Whatever a client sends ends in an answer or in a closed connection, never in anything that others
would notice. An error in a handler that nobody foresaw is logged with its request and answered by
hanging up, because no honest answer is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Final, cast

from tidelog.broker.calls import Begun, Call, Client, CloseConnection, Handler
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
    ) -> None:
        self._connection = connection
        self._client = client
        self._handlers = handlers
        self._apis = apis
        self._clock = clock
        self._max_request_bytes = max_request_bytes
        self._answers: asyncio.Queue[Begun] = asyncio.Queue(_MAX_BEGUN)
        self.active_at_ms = clock.monotonic_ms()

    async def run(self) -> None:
        writer = asyncio.get_running_loop().create_task(self._write_answers())
        try:
            while not writer.done():
                await self._read_one()
        except MalformedRequest as error:
            log.info("closing the connection of %s: %s", self._client.address, error)
        except CloseConnection as reason:
            log.info("closing the connection of %s: %s", self._client.address, reason)
        except ConnectionLost:
            pass
        finally:
            self._connection.close()
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    def close(self) -> None:
        self._connection.close()

    # --- reading -----------------------------------------------------------------------

    async def _read_one(self) -> None:
        size = read_frame_size(await self._connection.read_exactly(SIZE_BYTES))
        check_frame_size(size, self._max_request_bytes)
        frame = await self._connection.read_exactly(size)
        self.active_at_ms = self._clock.monotonic_ms()
        match parse_request(frame, self._apis):
            case RequestFrame() as request:
                await self._answers.put(await self._begin(request, size))
            case UnsupportedVersion(has_answer=True) as refused:
                await self._answers.put(encode_unsupported_api_versions(refused.correlation_id))
            case UnsupportedVersion(api, version):
                raise CloseConnection(f"{api.name} version {version} is not served")
            case UnknownApi(api_key):
                raise CloseConnection(f"no API has the key {api_key}")

    async def _begin(self, request: RequestFrame, size: int) -> Begun:
        api, version = request.api, request.version
        body = decode_request(api.key, version, request.body)
        call = Call(
            api, version, request.correlation_id, request.client_id, self._client, body, size
        )
        handler = self._handlers[api.key]
        begun = handler.begin(call)
        if handler.is_pipelined or not isinstance(begun, Awaitable):
            return begun
        return await begun

    # --- writing -----------------------------------------------------------------------

    async def _write_answers(self) -> None:
        try:
            while True:
                begun = await self._answers.get()
                answer = await begun if isinstance(begun, Awaitable) else begun
                if answer is not None:
                    await self._send(answer)
                    self.active_at_ms = self._clock.monotonic_ms()
        except (ConnectionLost, CloseConnection) as reason:
            log.debug("connection of %s ended: %s", self._client.address, reason)
        finally:
            self._connection.close()

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
