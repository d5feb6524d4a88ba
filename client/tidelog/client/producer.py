"""A producer for asyncio.

``await producer.send(…)`` waits for the acknowledgement. To have many records on their way, keep
the futures of ``enqueue`` (or gather calls of ``send``): ``enqueue`` waits only while the buffer is
full. Neither takes a thread: acknowledgements wake the event loop once per batch.

A call that is cancelled while it waits for an acknowledgement does not take the record back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import ClassVar, Generic, Self, cast

from tidelog.client.errors import RequestFailed, timed_out
from tidelog.client.event_loops import LoopBound
from tidelog.client.outbox import NewRecord, Report
from tidelog.client.producing import ProducerBase
from tidelog.client.records import GivenHeaders, GivenOffsets, K, RecordMetadata, V
from tidelog.client.transacting import ReadsFromGroup, Transactions


class Producer(ProducerBase[K, V]):
    _thread: ThreadPoolExecutor | None = None
    """For calls that block; None is the event loop's own."""

    def _prepare(self) -> None:
        self._home = LoopBound(type(self).__name__)
        self._room = asyncio.Event()
        """Set whenever something was acknowledged."""
        self._line = asyncio.Lock()
        """Those who wait for room stand in line, and only the first looks whether there is."""

    # --- sending ----------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is acknowledged. ``timestamp`` in milliseconds."""
        return await (
            await self.enqueue(
                topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
            )
        )

    async def enqueue(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Send a record; the future has where it is, once it is acknowledged."""
        self._require_may_send()
        loop = self._home.require()
        record = self._maker.make(topic, value, key, headers, partition, timestamp)
        delivered: asyncio.Future[RecordMetadata] = loop.create_future()
        if self._line.locked() or not self._outbox.offer(record, delivered):
            await self._offer_when_there_is_room(record, delivered)
        return delivered

    async def _offer_when_there_is_room(self, record: NewRecord, delivered: object) -> None:
        try:
            async with asyncio.timeout(self._outbox.config.seconds("max.block.ms")), self._line:
                while True:
                    self._require_may_send()
                    self._room.clear()
                    if self._outbox.offer(record, delivered):
                        return
                    await self._room.wait()
        except TimeoutError:
            raise self._outbox.full() from None

    def _resolve(self, batch: list[Report]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._home.loop.call_soon_threadsafe(self._resolve_here, batch)

    def _resolve_here(self, batch: list[Report]) -> None:
        for report in batch:
            delivered = cast("asyncio.Future[RecordMetadata]", report.ticket)
            if delivered.done():
                continue
            outcome = self._outbox.outcome(report)
            if isinstance(outcome, RequestFailed):
                delivered.set_exception(outcome)
            else:
                delivered.set_result(outcome)
        self._room.set()

    # --- the end ----------------------------------------------------------------------------

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all that was enqueued is acknowledged or given up."""
        self._require_not_closed()
        self._home.require()
        wait_s = self._patience(timeout_s)
        if left := await asyncio.to_thread(self._outbox.flush, wait_s):
            tried = self._outbox.troubles.tried()
            raise timed_out(f"{left} records are not acknowledged", wait_s, tried)

    async def close(self, timeout_s: float | None = None) -> None:
        """Wait for acknowledgements; records that get none in time fail with ``_PURGE_QUEUE``."""
        loop = self._home.require()
        if not self._is_closed:
            wait_s = self._patience(timeout_s)
            self._is_closed = True
            self._room.set()
            await asyncio.shield(loop.run_in_executor(self._thread, self._shut, wait_s))

    async def __aenter__(self) -> Self:
        self._require_not_closed()
        self._home.require()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class TransactionalProducer(Producer[K, V]):
    """Sends only inside of ``async with producer.transaction():``, all of it or nothing.

    A call that is cancelled leaves the rest to its thread: what was begun is aborted there, unless
    it was committed by then, and the next call waits for that.
    """

    _is_transactional: ClassVar = True

    def _prepare(self) -> None:
        super()._prepare()
        self._thread: ThreadPoolExecutor = ThreadPoolExecutor(1, "tidelog-client-transactions")

    @cached_property
    def _transactions(self) -> Transactions:
        return Transactions(self._outbox)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction[K, V]]:
        """Commits at the end of the block; aborts if an exception leaves it."""
        self._require_not_closed()
        self._home.require()
        await self._in_turn(self._transactions.begin)
        try:
            yield Transaction(self)
        except BaseException:
            await self._in_turn(self._transactions.abort)
            raise
        self._require_not_closed()
        await self._in_turn(self._transactions.commit)

    def _shut(self, timeout_s: float) -> None:
        with suppress(RequestFailed):  # the cluster aborts it when its time is up
            self._transactions.abort(timeout_s)
        super()._shut(timeout_s)

    async def close(self, timeout_s: float | None = None) -> None:
        """Abort a transaction that is open, after what a cancelled call left; then close."""
        await super().close(timeout_s)
        self._thread.shutdown(wait=False)

    async def _send_offsets(self, consumer: ReadsFromGroup, offsets: GivenOffsets | None) -> None:
        self._require_may_send()
        self._home.require()
        await self._in_turn(lambda: self._transactions.send_offsets(consumer, offsets))

    async def _in_turn(self, call: Callable[[], None]) -> None:
        try:
            await self._home.loop.run_in_executor(self._thread, call)
        except asyncio.CancelledError:
            # An open transaction would hold up its readers, and a thread is not cancelled.
            self._thread.submit(self._transactions.abort)
            raise

    def _require_may_send(self) -> None:
        self._require_not_closed()
        self._transactions.require_open()


class Transaction(Generic[K, V]):
    """An open transaction. ``send`` and ``enqueue`` are the producer's."""

    def __init__(self, producer: TransactionalProducer[K, V]) -> None:
        self._producer = producer

    async def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> RecordMetadata:
        return await self._producer.send(
            topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
        )

    async def enqueue(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        return await self._producer.enqueue(
            topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
        )

    async def send_offsets(
        self, consumer: ReadsFromGroup, offsets: GivenOffsets | None = None
    ) -> None:
        """Commit a consumer's positions, or these offsets, with the transaction."""
        await self._producer._send_offsets(consumer, offsets)
