"""The waiting room for consumers: fetches that want more bytes than there are.

A fetch names several partitions and wants ``min_bytes`` of them together. It is attached to each;
a partition that grows (its high watermark or last stable offset moves) tells only those that are
attached to it how many bytes they would get from it now. So an event costs as much as there are
fetches waiting for exactly this partition, in the order they came, and nothing is scanned.

Owner: the handler of the fetch, which reads first, attaches without awaiting in between, waits,
detaches and reads again.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.ids import Offset
from tidelog.replication.outcomes import IsolationLevel


class Waitable(Protocol):
    """A partition, as far as waiting for it goes."""

    ref: PartitionRef

    def attach(self, waiter: FetchWaiter, want: Want) -> None: ...

    def detach(self, waiter: FetchWaiter) -> None: ...


class Want:
    """What a fetch wants of one partition, and how many bytes of it there were when last seen."""

    __slots__ = ("isolation", "max_bytes", "offset", "size")

    def __init__(
        self, offset: Offset, isolation: IsolationLevel, max_bytes: int, size: int = 0
    ) -> None:
        self.offset = offset
        self.isolation = isolation
        self.max_bytes = max_bytes
        self.size = size


class FetchWaiter:
    """One fetch that waits."""

    __slots__ = ("_done", "_partitions", "_size", "min_bytes")

    def __init__(self, min_bytes: int) -> None:
        self.min_bytes = min_bytes
        self._size = 0
        self._partitions: list[Waitable] = []
        self._done = asyncio.get_running_loop().create_future()

    def attach(self, partition: Waitable, want: Want) -> None:
        self._partitions.append(partition)
        self._size += want.size
        partition.attach(self, want)

    def grew(self, want: Want, size: int) -> None:
        """A partition would give ``size`` bytes now."""
        self._size += size - want.size
        want.size = size
        if self._size >= self.min_bytes:
            self.wake()

    def wake(self) -> None:
        """Read again: there is enough, or something else happened that the client must hear."""
        if not self._done.done():
            self._done.set_result(None)

    async def wait(self, max_wait_ms: float) -> None:
        """Return when there is enough to read, or the time is over; then detach."""
        handle = asyncio.get_running_loop().call_later(max_wait_ms / 1000, self.wake)
        try:
            await self._done
        finally:
            handle.cancel()
            self.detach()

    def detach(self) -> None:
        for partition in self._partitions:
            partition.detach(self)
        self._partitions.clear()
