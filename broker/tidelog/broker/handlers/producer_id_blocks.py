"""Ids for producers, handed out of blocks that the controller gave to this broker alone.

A block is fetched when it is first needed and the next one when nine tenths of it are used, so that
producers seldom wait. An id is used once: what is left of a block when the node stops is lost.

Owner: the node, which calls ``close``.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tidelog.broker.context import BrokerContext, ControllerRefused
from tidelog.kernel.ids import ProducerId

log = logging.getLogger(__name__)

_PREFETCH_AT: Final = 0.9
_RETRY_BACKOFF_S: Final = 0.05


class ProducerIdBlocks:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._current = range(0)
        self._prefetch_below = 0
        """Ids left in the current block when the next one is asked for."""
        self._next: range | None = None
        self._fetching: asyncio.Task[None] | None = None

    def take(self) -> ProducerId | None:
        """An id nobody had before; None while a block is on its way."""
        if not self._current and self._next is not None:
            self._use(self._next)
            self._next = None
        if len(self._current) <= self._prefetch_below and self._next is None:
            self.prefetch()
        if not self._current:
            return None
        taken = ProducerId(self._current[0])
        self._current = self._current[1:]
        return taken

    def prefetch(self) -> None:
        """Ask for a block now, unless one is on its way: at start, so that nobody waits for it."""
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch())

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    def _use(self, block: range) -> None:
        self._current = block
        self._prefetch_below = len(block) - int(len(block) * _PREFETCH_AT)

    async def _fetch(self) -> None:
        try:
            self._next = await self._block()
        finally:
            self._fetching = None

    async def _block(self) -> range:
        while True:
            timeout_ms = self._context.settings.get_int("request.timeout.ms")
            try:
                block = await self._context.cluster.allocate_producer_ids(timeout_ms=timeout_ms)
            except ControllerRefused as refused:
                log.warning("no producer ids for now: %s", refused)
            else:
                if block:
                    return block
                log.error("the controller gave an empty block of producer ids")
            await asyncio.sleep(_RETRY_BACKOFF_S)
