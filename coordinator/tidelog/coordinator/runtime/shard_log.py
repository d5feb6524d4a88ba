"""The writing half of a shard: records in, batches with acks=all out, answers after replication.

What is written in one turn of the event loop goes into one batch, so that many small commits cost
one append, one fsync and one round of replication. A writer waits for its answer no longer than the
time-out, and hardly at all once this broker is cut off. The records of one that waited in vain are
in the log all the same, and are applied whenever they are replicated: the state is always what the
replicated log says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.coordinator.patience import Patience
from tidelog.coordinator.runtime.coordinator_clock import CoordinatorClock
from tidelog.coordinator.runtime.ports import ShardPartition
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from tidelog.wire.batch import HEADER_SIZE
from tidelog.wire.records import Record, build_batch

KeyValue = tuple[bytes, bytes | None]
Apply = Callable[[int], None]
"""Called with the offset of the first record when the records are replicated."""

_RECORD_OVERHEAD: Final = 32
"""More than the lengths and deltas of a record ever take."""
_IN_THE_LOG: Final = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""Below the high watermark: with the second the ISR is smaller than it should be."""


@dataclass(frozen=True, slots=True)
class Producer:
    """On whose behalf offsets are written in a transaction."""

    producer_id: ProducerId = NO_PRODUCER_ID
    epoch: ProducerEpoch = NO_PRODUCER_EPOCH

    @property
    def is_transactional(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


NOBODY: Final = Producer()


@dataclass(slots=True, eq=False)
class _Write:
    records: tuple[KeyValue, ...]
    apply: Apply
    producer: Producer
    answer: asyncio.Future[ErrorCode]
    size: int

    def finish(self, code: ErrorCode) -> None:
        if not self.answer.done():
            self.answer.set_result(code)


@dataclass(slots=True, eq=False)
class _Flight:
    """A batch between its append and its replication."""

    writes: list[_Write]
    patience: Patience
    began_ms: float
    base_offset: int = -1
    timer: asyncio.TimerHandle | None = None

    def finish(self, code: ErrorCode) -> None:
        for write in self.writes:
            write.finish(code)


@dataclass(slots=True)
class ShardLog:
    """Owner: a ``Shard``, which says in which epoch it leads."""

    partition: ShardPartition
    clock: CoordinatorClock
    timeout_ms: Callable[[], int]
    leader_epoch: int
    is_cut_off: Callable[[], bool]
    """Whether another broker may lead by now, and this one could not hear of it."""
    is_closed: bool = False
    start_over: Callable[[], None] = lambda: None
    """For a machine that cannot take back what was not written: it is loaded anew."""
    _queue: list[_Write] = field(default_factory=list)
    _flights: dict[_Flight, None] = field(default_factory=dict)

    def write(
        self, records: Sequence[KeyValue], apply: Apply, producer: Producer = NOBODY
    ) -> asyncio.Future[ErrorCode]:
        """Done when the records are replicated and applied, or with the error of the partition."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[ErrorCode] = loop.create_future()
        size = sum(_RECORD_OVERHEAD + len(key) + len(value or b"") for key, value in records)
        if self.is_closed:
            answer.set_result(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif not records:
            answer.set_result(ErrorCode.NONE)
        elif size + HEADER_SIZE > self.partition.max_batch_bytes:
            answer.set_result(ErrorCode.RECORD_LIST_TOO_LARGE)
        else:
            self._queue.append(_Write(tuple(records), apply, producer, answer, size))
            if len(self._queue) == 1:
                loop.call_soon(self._flush)
        return answer

    def under_way(self) -> asyncio.Future[ErrorCode] | None:
        """The end of all that is being written now; None: nothing is."""
        if self._queue:
            return self._queue[-1].answer
        if self._flights:
            return next(reversed(self._flights)).writes[-1].answer
        return None

    def close(self) -> None:
        """Leadership is lost: nothing is written or applied any more."""
        self.is_closed = True
        for write in self._queue:
            write.finish(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for flight in self._flights:
            flight.finish(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if flight.timer is not None:
                flight.timer.cancel()
        self._queue.clear()
        self._flights.clear()

    def _flush(self) -> None:
        queue, self._queue = self._queue, []
        for writes in _batches(queue, self.partition.max_batch_bytes - HEADER_SIZE):
            self._append(writes)

    def _append(self, writes: list[_Write]) -> None:
        now_ms = self.clock.wall_ms()
        pairs = [pair for write in writes for pair in write.records]
        records = [Record(i, now_ms, key, value) for i, (key, value) in enumerate(pairs)]
        producer = writes[0].producer
        batch = build_batch(
            records,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            is_transactional=producer.is_transactional,
        )
        flight = _Flight(writes, Patience(self.timeout_ms()), self.clock.monotonic_ms())
        appended = self.partition.append(
            batch, self.leader_epoch, lambda code: self._landed(flight, code)
        )
        if isinstance(appended, ErrorCode):
            flight.finish(appended)
            return
        flight.base_offset = appended
        self._flights[flight] = None
        self._look_at(flight)

    def _look_at(self, flight: _Flight) -> None:
        """Whether whoever waits for it is to be sent away; now, and again until it lands."""
        waited_ms = self.clock.monotonic_ms() - flight.began_ms
        if flight.patience.is_over(waited_ms, is_cut_off=self.is_cut_off()):
            flight.finish(ErrorCode.REQUEST_TIMED_OUT)
            return
        next_s = flight.patience.next_look_ms(waited_ms) / 1000
        flight.timer = asyncio.get_running_loop().call_later(next_s, self._look_at, flight)

    def _landed(self, flight: _Flight, code: ErrorCode) -> None:
        self._flights.pop(flight, None)
        if flight.timer is not None:
            flight.timer.cancel()
        if self.is_closed:
            return
        position = flight.base_offset
        for write in flight.writes:
            if code in _IN_THE_LOG:
                write.apply(position)
            write.finish(code)
            position += len(write.records)


def _batches(queue: Iterable[_Write], max_bytes: int) -> Iterator[list[_Write]]:
    """In order; a transaction's records have a batch of their own."""
    batch: list[_Write] = []
    size = 0
    for write in queue:
        is_apart = bool(batch) and (
            size + write.size > max_bytes
            or write.producer.is_transactional
            or batch[-1].producer.is_transactional
        )
        if is_apart:
            yield batch
            batch, size = [], 0
        batch.append(write)
        size += write.size
    if batch:
        yield batch
