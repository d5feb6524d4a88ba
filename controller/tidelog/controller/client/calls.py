"""Calls to whoever is the active controller, within a deadline.

A call that was not answered may have been carried out all the same, and is sent again as it was:
the controller's checks (incarnation, epochs, names) make that harmless or show it. In particular
an AlterPartition is repeated word for word: a broker epoch that was looked up again for a retry
would let in a broker that lost its disk in between (KIP-903, hazard 6).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from google.protobuf.message import Message

from tidelog.controller.client.active_controller import ActiveController
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NodeId
from tidelog.kernel.peers import PeerError, PeerRefused, Peers, Unary
from tidelog.kernel.ports import Clock, Random
from tidelog.v1 import common_pb2 as common

FIRST_PAUSE_MS: Final = 20.0
LONGEST_PAUSE_MS: Final = 500.0
ASKED_AGAIN: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
OTHER_CLUSTER: Final = "INCONSISTENT_CLUSTER_ID"

_log = logging.getLogger(__name__)


class ControllerUnavailable(PeerError):
    """No controller carried the request out in time; it may yet have been carried out."""


class CallAnswer(Protocol):
    """What every answer to a call has."""

    error_code: int
    error_message: str

    @property
    def active_controller(self) -> common.ActiveController: ...


Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


class ControllerCalls:
    def __init__(
        self, peers: Peers, active: ActiveController, *, clock: Clock, random: Random
    ) -> None:
        self._peers = peers
        self._active = active
        self._clock = clock
        self._random = random
        self._news = asyncio.Event()
        active.follow(self._tell_waiting_calls)

    def learn(self, active: common.ActiveController) -> None:
        """Somebody said who is active; calls that wait for another are moved there."""
        self._active.learn(NodeId(active.node_id), active.term)

    def _tell_waiting_calls(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def call(
        self, method: Unary[Request, Response], request: Request, *, timeout_ms: float
    ) -> Response:
        """The active controller's answer.

        ``ControllerUnavailable`` at the deadline, ``PeerRefused`` by another cluster at once.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        pause_ms, last = FIRST_PAUSE_MS, "nobody was asked"
        while (left_ms := deadline_ms - self._clock.monotonic_ms()) > 0:
            node = self._active.pick()
            try:
                answer = await self._attempt(node, method, request, left_ms)
            except PeerError as error:
                if isinstance(error, PeerRefused) and error.reason == OTHER_CLUSTER:
                    raise
                self._active.doubt(node)
                last = f"node {node}: {error}"
            else:
                if answer is None:
                    continue  # the active controller has changed meanwhile
                reason = self._reason_to_ask_again(node, answer)
                if reason is None:
                    return answer
                last = f"node {node}: {reason}"
            _log.debug("%s is sent again: %s", method, last)
            await self._pause(min(left_ms, pause_ms * (0.5 + self._random.random())))
            pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)
        raise ControllerUnavailable(f"{method} was not done within {timeout_ms:.0f} ms; {last}")

    async def _pause(self, pause_ms: float) -> None:
        """No longer than until somebody else is known to be active: after an election every
        broker waits here, and the metadata stream says at once who won."""
        if self._active.believed is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_ms / 1000):
                    await self._news.wait()
        else:
            await asyncio.sleep(pause_ms / 1000)

    async def _attempt(
        self, node: NodeId, method: Unary[Request, Response], request: Request, timeout_ms: float
    ) -> Response | None:
        """The answer; None if another controller is known to be active before it came."""
        call = asyncio.ensure_future(self._peers.call(node, method, request, timeout_ms=timeout_ms))
        news = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait({call, news}, return_when=asyncio.FIRST_COMPLETED)
            if call.done() or self._active.believed in (None, node):
                return await call
            return None
        finally:
            call.cancel()
            news.cancel()
            await asyncio.wait({call, news})
            if not call.cancelled():
                call.exception()  # nobody waits for it any more

    def _reason_to_ask_again(self, node: NodeId, answer: Message) -> str | None:
        told: CallAnswer = answer  # type: ignore[assignment]
        if answer.HasField("active_controller"):
            self.learn(told.active_controller)
        if told.error_code not in ASKED_AGAIN:
            return None
        if told.error_code == ErrorCode.NOT_CONTROLLER:
            self._active.doubt(node)
        return told.error_message
