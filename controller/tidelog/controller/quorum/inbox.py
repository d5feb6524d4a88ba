"""What waits for the machine, in the order in which it came.

Messages of peers are bounded: who brings one more than fits waits, and so in the end does the
peer. What this node itself has to say (the disk, broken streams, requests) always fits, because
there is no more of it than the node asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque

from tidelog.controller.raft.events import Event, MessageReceived
from tidelog.controller.raft.messages import Envelope


class Inbox:
    """Any task puts; the owner of the machine takes."""

    def __init__(self, limit_messages: int, limit_bytes: int) -> None:
        self._limit_messages = limit_messages
        self._limit_bytes = limit_bytes
        self._events: deque[tuple[Event, int]] = deque()
        self._messages = 0
        self._bytes = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Event) -> None:
        self._events.append((event, 0))
        self._wake.set()

    async def put_message(self, envelope: Envelope, size_bytes: int) -> None:
        while self._messages and not self._has_room(size_bytes):
            self._room.clear()
            await self._room.wait()
        self._events.append((MessageReceived(envelope), size_bytes))
        self._messages += 1
        self._bytes += size_bytes
        self._wake.set()

    def take(self) -> Event | None:
        if not self._events:
            return None
        event, size_bytes = self._events.popleft()
        if isinstance(event, MessageReceived):
            self._messages -= 1
            self._bytes -= size_bytes
            self._room.set()
        return event

    async def wait(self, timeout_ms: float) -> None:
        """Until there is something to take, or the time is over."""
        if self._events or timeout_ms <= 0:
            await asyncio.sleep(0)  # let others run, also when there is always something
            return
        self._wake.clear()
        alarm = asyncio.get_running_loop().call_later(timeout_ms / 1000, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            alarm.cancel()

    def _has_room(self, size_bytes: int) -> bool:
        has_bytes = self._bytes + size_bytes <= self._limit_bytes
        return has_bytes and self._messages < self._limit_messages
