"""The WatchMetadata stream: committed records from an offset on, or the image first.

Any controller serves it. A watcher is a task with a position in ``MetadataHistory``; it waits for
its own peer alone. One that is so slow that its position is no longer there is cut off, and starts
again by itself, with a snapshot.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tidelog.controller.raft.model import Term
from tidelog.controller.service.controller import Controller
from tidelog.controller.service.history import UnknownHistory
from tidelog.controller.service.refusals import active_controller
from tidelog.kernel.ids import Offset
from tidelog.kernel.peers import CallContext, PeerRefused, PeerStream
from tidelog.v1 import controller_pb2 as pb

MESSAGE_BYTES: Final = 1 << 20
"""The size of chunks, and about that of messages with batches: a batch is never split."""
GATHER_MS: Final = 1.0
"""Whoever waits for a change is answered before those who watch, and they get changes that follow
each other closely in one message."""
SIGN_OF_LIFE_MS: Final = 1000.0
REQUEST_TIMEOUT_MS: Final = 10_000.0

_log = logging.getLogger(__name__)

WatchStream = PeerStream[pb.WatchMetadataResponse, pb.WatchMetadataRequest]


class Watching:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._history = controller.history

    async def serve(self, context: CallContext, stream: WatchStream) -> None:
        request = await self._request(stream)
        position = Offset(request.from_offset)
        if position < 0:
            raise PeerRefused("OFFSET_OUT_OF_RANGE", f"offset {position} is negative")
        last_term = Term(request.last_term) if request.HasField("last_term") else None
        if position < self._history.start_offset:
            position = await self._send_snapshot(stream)
        else:
            self._check(position, last_term)
        while True:
            position = await self._send_next(stream, position)
            if position < self._history.start_offset:
                who = f"node {context.caller.node_id}"
                _log.warning("%s watches the metadata too slowly and is cut off", who)
                raise PeerRefused("OFFSET_OUT_OF_RANGE", f"{who} reads too slowly; start again")

    async def _request(self, stream: WatchStream) -> pb.WatchMetadataRequest:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1000):
                return await stream.receive()
        except TimeoutError as error:
            raise PeerRefused("REQUEST_TIMED_OUT", "no word of where to begin") from error

    def _check(self, position: Offset, last_term: Term | None) -> None:
        try:
            self._history.check_position(position, last_term)
        except UnknownHistory as error:
            raise PeerRefused("FENCED_LEADER_EPOCH", str(error)) from error

    async def _send_snapshot(self, stream: WatchStream) -> Offset:
        image = await self._history.snapshot()
        end, data = image.snapshot.end_offset, image.data
        for start in range(0, len(data), MESSAGE_BYTES):
            message = self._message()
            message.snapshot.end_offset = end
            message.snapshot.term = image.snapshot.term
            message.snapshot.position = start
            message.snapshot.total_bytes = len(data)
            message.snapshot.data = data[start : start + MESSAGE_BYTES]
            await stream.send(message)
        return end

    async def _send_next(self, stream: WatchStream, position: Offset) -> Offset:
        message = self._message()
        try:
            async with asyncio.timeout(SIGN_OF_LIFE_MS / 1000):
                await self._history.wait_beyond(position)
                await asyncio.sleep(GATHER_MS / 1000)
        except TimeoutError:
            await stream.send(message)
            return position
        if position < self._history.start_offset:
            return position
        batches, end = self._history.encoded_from(position, MESSAGE_BYTES)
        message = self._message()
        message.batches.batches.extend(batches)
        await stream.send(message)
        return end

    def _message(self) -> pb.WatchMetadataResponse:
        message = pb.WatchMetadataResponse(committed_end_offset=self._history.end_offset)
        active = active_controller(self._controller.quorum)
        if active is not None:
            message.active_controller.CopyFrom(active)
        return message
