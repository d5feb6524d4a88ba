"""A consumer for asyncio.

Polling takes one thread, because librdkafka's poll blocks; all other calls that wait take a second
one, so that a commit need not wait for a poll. Records are handed out on the event loop: a poll
that is cancelled loses none.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Self, TypeVar

from tidelog.client.checks import checked_listener, checked_seconds
from tidelog.client.consumer_base import ConsumerBase
from tidelog.client.errors import ClientClosed, WrongState
from tidelog.client.event_loops import LoopBound
from tidelog.client.listening import Desk, OnLoop, RebalanceListener
from tidelog.client.rebalancing import Rebalancing, topic_names
from tidelog.client.records import (
    ConsumerRecord,
    GivenOffsets,
    K,
    OffsetAndMetadata,
    Position,
    TopicPartition,
    V,
)

P = ParamSpec("P")
T = TypeVar("T")


class Consumer(ConsumerBase[K, V]):
    def _prepare(self) -> None:
        self._home = LoopBound(type(self).__name__)
        self._polling = ThreadPoolExecutor(1, "tidelog-client-poll")
        self._asking = ThreadPoolExecutor(1, "tidelog-client-ask")
        self._desk = Desk()
        self._is_polled = False
        self._commits: set[asyncio.Future[None]] = set()

    # --- what to read -----------------------------------------------------------------------

    async def subscribe(
        self,
        topics: str | Sequence[str] | re.Pattern[str],
        listener: RebalanceListener | None = None,
    ) -> None:
        """Join the group and read what it gives this member; replaces a subscription."""
        loop = self._home.require()
        names = topic_names(self._core, topics)
        listening = checked_listener(listener or RebalanceListener(), may_wait=True)
        told = OnLoop(loop, listening, self._desk)
        Rebalancing(self._core, told).subscribe(names)

    async def unsubscribe(self) -> None:
        """Leave the group; a listener is told by the next poll."""
        await self._ask(self._core.unsubscribe)

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, without a group's say."""
        await self._ask(self._core.assign, partitions)

    # --- records ----------------------------------------------------------------------------

    async def poll(
        self, timeout_s: float = 1.0, max_records: int | None = None
    ) -> list[ConsumerRecord[K, V]]:
        """Records as soon as there are some, at most ``max.poll.records``; none after the time."""
        loop, core, limit = self._home.require(), self._core, self._limit(max_records)
        core.require_open()
        if self._desk.is_listener():
            raise WrongState("a listener cannot poll: it is told inside of a poll")
        if self._is_polled:
            raise WrongState("another task polls this consumer; one at a time can")
        deadline = loop.time() + checked_seconds("timeout_s", timeout_s)
        core.store_done(if_due=True)
        self._is_polled = True
        try:
            while True:
                if not core.has_records:
                    await loop.run_in_executor(self._polling, core.fill, deadline - loop.time())
                if (records := core.take(limit)) or loop.time() >= deadline:
                    return records
        finally:
            self._is_polled = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord[K, V]:
        while not self._core.is_closed:
            try:
                if records := await self.poll(max_records=1):
                    return records[0]
            except ClientClosed:
                break  # by another task
        raise StopAsyncIteration

    # --- offsets ----------------------------------------------------------------------------

    async def commit(self, offsets: GivenOffsets | None = None) -> None:
        """Commit these offsets, or the positions, and wait until that is done."""
        wanted = self.positions() if offsets is None else offsets
        await self._ask(self._core.commit, wanted)

    def commit_soon(self, offsets: GivenOffsets | None = None) -> asyncio.Future[None]:
        """Commit without waiting; the future has the outcome."""
        self._core.require_group("commit")
        self._home.require()
        wanted = self.positions() if offsets is None else offsets
        committing = self._asked(lambda: self._core.commit(wanted))
        self._commits.add(committing)
        committing.add_done_callback(self._commits.discard)
        return committing

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group committed last, of these partitions."""
        return await self._ask(self._core.committed, partitions)

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record."""
        return await self._ask(self._core.position, partition)

    async def seek(self, partition: TopicPartition, position: Position) -> None:
        """Go on at an offset, at BEGINNING, at END, or AtTime(milliseconds)."""
        await self._ask(self._core.seek, partition, position)

    async def beginning_offset(self, partition: TopicPartition) -> int:
        return (await self._ask(self._core.watermarks, partition))[0]

    async def end_offset(self, partition: TopicPartition) -> int:
        return (await self._ask(self._core.watermarks, partition))[1]

    async def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        """Of the first record that is not older; None if there is none."""
        return await self._ask(self._core.offset_at, partition, timestamp_ms)

    async def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these until ``resume``; the group is not affected."""
        await self._ask(self._core.pause, partitions)

    async def resume(self, *partitions: TopicPartition) -> None:
        await self._ask(self._core.resume, partitions)

    # --- the end ----------------------------------------------------------------------------

    async def close(self) -> None:
        """Leave the group; what is done is committed first, if commits are automatic."""
        loop = self._home.require()
        if self._desk.is_listener():
            raise WrongState("a listener cannot close its consumer")
        if self._core.is_closed:
            return
        if self._commits:
            await asyncio.wait(self._commits)
        try:
            await asyncio.shield(loop.run_in_executor(self._polling, self._core.close))
        finally:
            self._polling.shutdown(wait=False)
            self._asking.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        self._core.require_open()
        self._home.require()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _ask(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._home.require()
        self._core.require_open()
        return await self._asked(lambda: call(*args, **kwargs))

    def _asked(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Done by the thread that waits for a listener, if one runs; else by the second one."""
        at_desk = self._desk.submit(call)
        if at_desk is not None:
            return asyncio.wrap_future(at_desk)
        return self._home.loop.run_in_executor(self._asking, call)
