"""How many bytes of requests may be read before earlier ones are answered (KIP-72).

Requests wait for room before their bytes are read, and so in the client's own buffers. They get it
in the order in which they came. A request that is larger than all the room there is may enter when
it is alone: what can be taken at all is decided elsewhere (``socket.request.max.bytes``).
"""

from __future__ import annotations

import asyncio
from collections import deque


class RequestMemory:
    """Whoever takes gives back, once and the same; a limit of 0 or less is none."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def used_bytes(self) -> int:
        return self._used

    def try_take(self, size: int) -> bool:
        """Without waiting, if there is room and nobody waits for it already."""
        if self._waiting or not self._fits(size):
            return False
        self._used += size
        return True

    async def take(self, size: int) -> None:
        if self.try_take(size):
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, place))
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it was given room at the last moment
                self.give_back(size)
            else:
                self._let_in()  # those behind it may fit
            raise

    def give_back(self, size: int) -> None:
        self._used -= size
        self._let_in()

    def _fits(self, size: int) -> bool:
        return self._limit <= 0 or self._used == 0 or self._used + size <= self._limit

    def _let_in(self) -> None:
        while self._waiting:
            size, place = self._waiting[0]
            if place.cancelled():
                self._waiting.popleft()
                continue
            if not self._fits(size):
                return
            self._waiting.popleft()
            self._used += size
            place.set_result(None)
