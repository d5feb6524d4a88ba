"""The one writer of the metadata directory: everything that waits, then one sync.

While a sync is under way, what comes in is gathered for the next one; so the cost of a commit stays
about one fsync under any load. The recovery point is written when there is nothing else to do, or
after a second at the latest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from tidelog.controller.quorum.store import MetadataStore, Performed, StoreWork
from tidelog.kernel.ports import Clock, Offload

_TIDY_WHEN_IDLE_MS: Final = 250.0
_TIDY_AT_LATEST_MS: Final = 1000.0


class DiskWriter:
    """Owner of the store. ``on_performed`` runs on the event loop, in the order of the work."""

    def __init__(
        self,
        store: MetadataStore,
        offload: Offload,
        clock: Clock,
        on_performed: Callable[[Performed], None],
    ) -> None:
        self._store = store
        self._offload = offload
        self._clock = clock
        self._on_performed = on_performed
        self._queue: deque[StoreWork] = deque()
        self._filled = asyncio.Event()
        self._untidy_since_ms: float | None = None
        self._is_finishing = False

    def add(self, work: StoreWork) -> None:
        self._queue.append(work)
        self._filled.set()

    async def run(self) -> None:
        """Ends after ``finish``; an error of the disk ends it too, and the node with it."""
        while self._queue or not self._is_finishing:
            if self._queue:
                work = list(self._queue)
                self._queue.clear()
                self._on_performed(await self._offload.run(self._store.perform(work)))
                if self._untidy_since_ms is None:
                    self._untidy_since_ms = self._clock.monotonic_ms()
                if self._untidy_ms() < _TIDY_AT_LATEST_MS:
                    continue
            elif await self._is_filled_in_time():
                continue
            await self._offload.run(self._store.tidy_up())
            self._untidy_since_ms = None
        await self._offload.run(self._store.close())

    def finish(self) -> None:
        """Write what is queued, close the store, and end."""
        self._is_finishing = True
        self._filled.set()

    def _untidy_ms(self) -> float:
        since_ms = self._untidy_since_ms
        return 0.0 if since_ms is None else self._clock.monotonic_ms() - since_ms

    async def _is_filled_in_time(self) -> bool:
        """False if nothing came for a while and there is something to tidy up."""
        self._filled.clear()
        idle_ms = self._idle_ms()
        try:
            async with asyncio.timeout(None if idle_ms is None else idle_ms / 1000):
                await self._filled.wait()
        except TimeoutError:
            return False
        return True

    def _idle_ms(self) -> float | None:
        """How long to wait for work before tidying up; None if there is nothing to tidy."""
        if self._untidy_since_ms is not None:
            return _TIDY_WHEN_IDLE_MS
        if self._store.removal_due_ms is not None:
            return max(0.0, self._store.removal_due_ms - self._clock.wall_ms())
        return None
