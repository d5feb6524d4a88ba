"""librdkafka's producer, the one thread that serves it, and whoever waits for a delivery.

Theory: librdkafka sends from threads of its own and reports each record once it is acknowledged or
given up. The reports are handed to Python while somebody polls, so one thread does nothing else. It
collects all that one poll brings and passes them on together: a client on an event loop is woken
once per batch of reports and not once per record.

An idempotent producer needs an id before it can send. librdkafka asks for one when it is told of
the cluster and has a connection; its first connection it gives up as soon as it knows the brokers'
names, and then it tries again after half a second. So the thread asks for the cluster itself at the
first record, once for either connection, and the first acknowledgement takes some 50 ms instead.

Invariants: a record that ``offer`` took is reported exactly once, also when the outbox is closed;
``deliver`` is called by one thread at a time.

Owner: a producer. ``offer`` may be called from any thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as RdProducer

from tidelog.client.config import ClientConfig
from tidelog.client.errors import (
    MESSAGE_TIMED_OUT,
    RequestFailed,
    not_made,
    request_failed,
    timed_out,
)
from tidelog.client.records import RecordMetadata
from tidelog.client.troubles import Troubles

_POLL_S: Final = 0.1
_CLOSE_SLICE_S: Final = 0.2
_PURGE_S: Final = 1.0
_INTRODUCTIONS: Final = 2
_PURGED: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


class Report(NamedTuple):
    """What came of one record. ``ticket`` is what ``offer`` was given for it."""

    ticket: Any
    error: KafkaError | None
    message: Message


class NewRecord(NamedTuple):
    """A record as librdkafka takes it."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, str | bytes | None]] | None
    partition: int
    timestamp_ms: int


class Outbox:
    def __init__(self, config: ClientConfig, deliver: Callable[[list[Report]], None]) -> None:
        self.config = config
        self.troubles = Troubles(config)
        try:
            self.rd = RdProducer({**config.librdkafka, **self.troubles.options()})
        except KafkaException as error:
            raise not_made(error, "the producer could not be made") from None
        self._deliver = deliver
        self._reports: deque[Report] = deque()
        self._handing_over = threading.Lock()
        self._is_closing = False
        self._fatal: KafkaError | None = None
        """After this error nothing can be sent any more."""
        self._first_topic: str | None = None
        self._has_first = threading.Event()
        self._server = threading.Thread(
            target=self._serve, name="tidelog-client-outbox", daemon=True
        )
        self._server.start()

    # --- records ----------------------------------------------------------------------------

    def offer(self, record: NewRecord, ticket: object) -> bool:
        """Take a record, or False if ``buffer.memory`` is used up."""
        topic, value, key, headers, partition, timestamp_ms = record
        if self._first_topic is None:
            self._first_topic = topic
            self._has_first.set()
        try:
            self.rd.produce(
                topic,
                value,
                key,
                partition,
                partial(self._note, ticket),
                timestamp=timestamp_ms,
                headers=headers,
            )
        except BufferError:
            return False
        except KafkaException as error:
            what = f"a record for topic {topic!r} was refused"
            raise request_failed(self._fatal or error.args[0], what) from None
        return True

    def _note(self, ticket: object, error: KafkaError | None, message: Message) -> None:
        self._reports.append(Report(ticket, error, message))

    def _serve(self) -> None:
        if self.config.flag("enable.idempotence") and not self.config.text("transactional.id"):
            self._hasten()
        while not self._is_closing:
            self._guarded(lambda: self.rd.poll(_POLL_S))
            self._hand_over()

    def _hasten(self) -> None:
        while not self._is_closing and not self._has_first.wait(_POLL_S):
            self._guarded(lambda: self.rd.poll(0))
        for _ in range(_INTRODUCTIONS):
            if self._is_closing or self._first_topic is None:
                return
            with suppress(KafkaException):  # nobody there yet: librdkafka goes on by itself
                self.rd.list_topics(self._first_topic, timeout=_POLL_S)

    def _guarded(self, call: Callable[[], int]) -> int:
        """Polls raise what ends a producer, such as being fenced; then nothing waits any longer."""
        try:
            return call()
        except KafkaException as error:
            self._fatal = error.args[0]
            self.rd.purge()
            return len(self.rd)

    def _hand_over(self) -> None:
        with self._handing_over:
            batch = []
            while self._reports:
                batch.append(self._reports.popleft())
            if batch:
                self._deliver(batch)

    def outcome(self, report: Report) -> RecordMetadata | RequestFailed:
        """What to tell whoever sent the record."""
        message = report.message
        if report.error is None:
            return RecordMetadata(
                message.topic() or "",
                _number(message.partition()),
                _number(message.offset()),
                message.timestamp()[1],
            )
        what = f"a record for topic {message.topic()!r} was not acknowledged"
        if self._fatal is not None and report.error.code() in _PURGED:
            return request_failed(self._fatal, what)
        if report.error.code() == MESSAGE_TIMED_OUT:
            waited_ms = self.config.librdkafka["message.timeout.ms"]
            what = f"{what} within delivery.timeout.ms={waited_ms}"
        return request_failed(report.error, what, self.troubles.tried)

    def full(self) -> RequestFailed:
        """What to raise when ``buffer.memory`` stayed used up for ``max.block.ms``."""
        size = self.config.number("buffer.memory")
        return timed_out(
            f"{len(self.rd)} records wait for acknowledgement and fill buffer.memory={size}; no "
            "room (max.block.ms)",
            self.config.seconds("max.block.ms"),
            self.troubles.tried(),
        )

    # --- the end ----------------------------------------------------------------------------

    def flush(self, timeout_s: float) -> int:
        """Send what waits without lingering; how many are still unacknowledged afterwards."""
        deadline = time.monotonic() + timeout_s
        while True:
            left_s = deadline - time.monotonic()
            slice_s = max(0.0, min(_CLOSE_SLICE_S, left_s))
            waiting = self._guarded(partial(self.rd.flush, slice_s))
            self._hand_over()
            if waiting == 0 or left_s <= 0:
                return waiting

    def close(self, timeout_s: float) -> int:
        """Wait for acknowledgements, give up on the rest, stop; how many were given up."""
        left = self.flush(timeout_s)
        if left:
            self.rd.purge()
            self.flush(_PURGE_S)
        self._is_closing = True  # its thread notices when its poll is over, with nothing to report
        self._hand_over()
        return left

    def abandon(self) -> None:
        """Stop serving, without waiting for anything; for a producer nobody closed."""
        self._is_closing = True


def _number(value: int | None) -> int:
    return -1 if value is None else value
