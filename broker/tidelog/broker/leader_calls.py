"""Calls to brokers for what they lead, given up as soon as the answer cannot matter any more.

A broker that was cut off or stopped does not answer, and the connection to it may take many
seconds to fail. Who leads in its place is known much earlier: when the metadata says so, whoever
waits for the former leader stops waiting, and may ask the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf.message import Message

from tidelog.controller.metadata.delta import MetadataDelta
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.coordinator.patience import Patience
from tidelog.kernel.ids import LeaderEpoch, NodeId
from tidelog.kernel.peers import Peers, PeerUnavailable, Unary
from tidelog.kernel.ports import Clock

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


class LeaderReplaced(PeerUnavailable):
    """The broker that was asked leads no more what it was asked about."""


class CutOff(PeerUnavailable):
    """It is this broker that reaches nobody: somebody else may lead what it was asked about."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """A broker, and what it leads in which epoch."""

    node: NodeId
    epochs: Mapping[PartitionRef, LeaderEpoch]

    def holds(self, ref: PartitionRef, image: MetadataImage) -> bool:
        state = image.topics.partition(ref)
        return (
            state is not None
            and state.leader == self.node
            and state.leader_epoch == self.epochs[ref]
        )


@dataclass(frozen=True, slots=True, eq=False)
class _OpenCall:
    leadership: Leadership
    replaced: asyncio.Future[None]


class LeaderCalls:
    """Owner: the transaction coordination, which passes on what changes in the metadata."""

    def __init__(self, peers: Peers, clock: Clock, is_cut_off: Callable[[], bool]) -> None:
        self._peers = peers
        self._clock = clock
        self._is_cut_off = is_cut_off
        self._open: dict[_OpenCall, None] = {}

    async def call(
        self,
        leadership: Leadership,
        method: Unary[Request, Response],
        request: Request,
        *,
        timeout_ms: float,
        is_awaited: bool = True,
    ) -> Response:
        """The answer, or a ``PeerError``. ``is_awaited``: a client waits for it."""
        loop = asyncio.get_running_loop()
        asking = loop.create_task(
            self._peers.call(leadership.node, method, request, timeout_ms=timeout_ms)
        )
        call = _OpenCall(leadership, loop.create_future())
        self._open[call] = None
        try:
            await self._either(asking, call.replaced, Patience(timeout_ms), is_awaited)
            if not asking.done():
                raise LeaderReplaced(f"{method}: node {leadership.node} was replaced")
            return asking.result()
        finally:
            del self._open[call]
            asking.cancel()

    async def _either(
        self,
        asking: asyncio.Task[Response],
        replaced: asyncio.Future[None],
        patience: Patience,
        is_awaited: bool,
    ) -> None:
        events: set[asyncio.Future[Any]] = {asking, replaced}
        began_ms = self._clock.monotonic_ms()
        waited_ms = 0.0
        while not asking.done() and not replaced.done():
            is_cut_off = is_awaited and self._is_cut_off()
            if is_cut_off and patience.is_over(waited_ms, is_cut_off=True):
                raise CutOff("no controller answers, nor does the node that was asked")
            await asyncio.wait(
                events,
                timeout=patience.next_look_ms(waited_ms) / 1000 if is_awaited else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            waited_ms = self._clock.monotonic_ms() - began_ms

    def follow(self, delta: MetadataDelta) -> None:
        """Give up what was asked of brokers that have been replaced since."""
        for call in self._open:
            known = call.leadership.epochs
            is_replaced = any(
                ref in known and not call.leadership.holds(ref, delta.after)
                for ref in delta.partitions
            )
            if is_replaced and not call.replaced.done():
                call.replaced.set_result(None)
