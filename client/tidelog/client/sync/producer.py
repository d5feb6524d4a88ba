"""A producer for programs without an event loop.

``enqueue`` returns at once with a future and waits only while the buffer is full; ``send`` is
``enqueue`` and its result. Any thread may call either.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import ClassVar, Generic, Self, cast

from tidelog.client.errors import RequestFailed, timed_out
from tidelog.client.outbox import NewRecord, Report
from tidelog.client.producing import ProducerBase
from tidelog.client.records import GivenHeaders, GivenOffsets, K, RecordMetadata, V
from tidelog.client.transacting import ReadsFromGroup, Transactions


class Producer(ProducerBase[K, V]):
    def _prepare(self) -> None:
        self._room = threading.Event()
        """Set whenever something was acknowledged."""

    # --- sending ----------------------------------------------------------------------------

    def send(
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
        return self.enqueue(
            topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
        ).result()

    def enqueue(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Future[RecordMetadata]:
        """Send a record; the future has where it is, once it is acknowledged."""
        self._require_may_send()
        record = self._maker.make(topic, value, key, headers, partition, timestamp)
        delivered: Future[RecordMetadata] = Future()
        if not self._outbox.offer(record, delivered):
            self._offer_when_there_is_room(record, delivered)
        return delivered

    def _offer_when_there_is_room(self, record: NewRecord, delivered: object) -> None:
        deadline = time.monotonic() + self._outbox.config.seconds("max.block.ms")
        while True:
            self._room.clear()  # before asking: what is acknowledged from now on is noticed
            if self._outbox.offer(record, delivered):
                return
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not self._room.wait(left_s):
                raise self._outbox.full()
            self._require_may_send()

    def _resolve(self, batch: list[Report]) -> None:
        for report in batch:
            delivered = cast("Future[RecordMetadata]", report.ticket)
            outcome = self._outbox.outcome(report)
            if not delivered.set_running_or_notify_cancel():
                continue
            if isinstance(outcome, RequestFailed):
                delivered.set_exception(outcome)
            else:
                delivered.set_result(outcome)
        self._room.set()

    # --- the end ----------------------------------------------------------------------------

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all that was enqueued is acknowledged or given up."""
        self._require_not_closed()
        wait_s = self._patience(timeout_s)
        if left := self._outbox.flush(wait_s):
            tried = self._outbox.troubles.tried()
            raise timed_out(f"{left} records are not acknowledged", wait_s, tried)

    def close(self, timeout_s: float | None = None) -> None:
        """Wait for acknowledgements; records that get none in time fail with ``_PURGE_QUEUE``."""
        if not self._is_closed:
            wait_s = self._patience(timeout_s)
            self._is_closed = True
            self._room.set()
            self._shut(wait_s)

    def __enter__(self) -> Self:
        self._require_not_closed()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TransactionalProducer(Producer[K, V]):
    """Sends only inside of ``with producer.transaction():``, all of it or nothing."""

    _is_transactional: ClassVar = True

    @cached_property
    def _transactions(self) -> Transactions:
        return Transactions(self._outbox)

    @contextmanager
    def transaction(self) -> Iterator[Transaction[K, V]]:
        """Commits at the end of the block; aborts if an exception leaves it."""
        self._require_not_closed()
        self._transactions.begin()
        try:
            yield Transaction(self)
        except BaseException:
            self._transactions.abort()
            raise
        self._require_not_closed()
        self._transactions.commit()

    def _shut(self, timeout_s: float) -> None:
        with suppress(RequestFailed):  # the cluster aborts it when its time is up
            self._transactions.abort(timeout_s)
        super()._shut(timeout_s)

    def _send_offsets(self, consumer: ReadsFromGroup, offsets: GivenOffsets | None) -> None:
        self._require_may_send()
        self._transactions.send_offsets(consumer, offsets)

    def _require_may_send(self) -> None:
        self._require_not_closed()
        self._transactions.require_open()


class Transaction(Generic[K, V]):
    """An open transaction. ``send`` and ``enqueue`` are the producer's."""

    def __init__(self, producer: TransactionalProducer[K, V]) -> None:
        self._producer = producer

    def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> RecordMetadata:
        return self._producer.send(
            topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
        )

    def enqueue(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Future[RecordMetadata]:
        return self._producer.enqueue(
            topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
        )

    def send_offsets(self, consumer: ReadsFromGroup, offsets: GivenOffsets | None = None) -> None:
        """Commit a consumer's positions, or these offsets, with the transaction."""
        self._producer._send_offsets(consumer, offsets)
