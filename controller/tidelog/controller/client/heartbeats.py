"""The heartbeat stream to one controller, kept up for as long as the broker lives.

The stream is opened again whenever it ends: its absence is what makes a broker look dead. An open
stream on which nothing is answered for a session is given up too, since the controller behind it
may hang; the others are not touched by that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from tidelog.controller.service.methods import HEARTBEAT
from tidelog.kernel.ids import NodeId
from tidelog.kernel.peers import PeerError, PeerRefused, Peers, PeerStream
from tidelog.v1 import controller_pb2 as pb

REOPEN_MS: Final = 20.0

MakeHeartbeat: TypeAlias = Callable[[], pb.HeartbeatRequest]
OnAnswer: TypeAlias = Callable[[NodeId, pb.HeartbeatResponse], None]
HeartbeatStream: TypeAlias = PeerStream[pb.HeartbeatRequest, pb.HeartbeatResponse]

_log = logging.getLogger(__name__)


class HeartbeatLink:
    def __init__(
        self,
        peers: Peers,
        controller: NodeId,
        *,
        make: MakeHeartbeat,
        on_answer: OnAnswer,
        pause_ms: Callable[[], float],
        session_ms: float,
    ) -> None:
        self._peers = peers
        self._controller = controller
        self._make = make
        self._on_answer = on_answer
        self._pause_ms = pause_ms
        self._session_ms = session_ms
        self._beat_now = asyncio.Event()
        self.problem: str | None = "it has not answered yet"
        """Why there is no answer; None while there is."""

    def beat(self) -> None:
        """Do not wait for the end of the pause."""
        self._beat_now.set()

    async def run(self) -> None:
        while True:
            stream = self._peers.open_stream(self._controller, HEARTBEAT)
            pause_ms = REOPEN_MS
            try:
                await self._converse(stream)
            except PeerRefused as refusal:
                _log.warning("controller %s refuses heartbeats: %s", self._controller, refusal)
                self.problem = str(refusal)
                pause_ms = self._session_ms
            except (PeerError, TimeoutError) as error:
                self.problem = str(error) or f"no answer for {self._session_ms:.0f} ms"
                _log.debug("heartbeats to controller %s broke off: %s", self._controller, error)
            finally:
                stream.close()
            await asyncio.sleep(pause_ms / 1000)

    async def _converse(self, stream: HeartbeatStream) -> None:
        sending = asyncio.create_task(self._send_all(stream))
        try:
            while True:
                async with asyncio.timeout(self._session_ms / 1000):
                    answer = await stream.receive()
                self.problem = None
                self._on_answer(self._controller, answer)
        finally:
            sending.cancel()
            await asyncio.wait({sending})

    async def _send_all(self, stream: HeartbeatStream) -> None:
        while True:
            self._beat_now.clear()
            stream.offer(self._make())  # one that finds no room is made up for by the next
            try:
                async with asyncio.timeout(self._pause_ms() / 1000):
                    await self._beat_now.wait()
            except TimeoutError:
                continue
