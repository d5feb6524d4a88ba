"""All transactional ids of one partition of ``__transaction_state``.

Looks an id up, creates it when a producer begins, refuses what needs no transaction at all, and
keeps one queue of deadlines: time-outs of transactions, markers to send again, ids that expire.
What happens to one id is decided by ``Transaction``.

What is answered after a write is certain: only who still coordinates can have it replicated. What
is answered from memory is as old as the last word from the controllers. A broker that has heard
none for a while may have been replaced, and the producer gone on at its successor: to call it
fenced, or its transaction committed already, could be wrong. It is told to look for its coordinator
instead, and so is one that would otherwise ask the same broker again and again.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from tidelog.coordinator.transactions import events as e
from tidelog.coordinator.transactions.beginning import init_error
from tidelog.coordinator.transactions.states import TransactionState
from tidelog.coordinator.transactions.transaction import Transaction, TransactionSettings
from tidelog.coordinator.transactions.transaction_records import (
    TransactionRecord,
    TransactionValue,
)
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import CoordinatorEpoch, ProducerId

_SMALL_QUEUE: Final = 64


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of ListTransactions."""

    transactional_id: str
    producer_id: ProducerId
    state: TransactionState


@dataclass(slots=True)
class Transactions:
    settings: TransactionSettings
    coordinator_epoch: CoordinatorEpoch
    """The leader epoch of the partition: markers of an older one are refused."""
    record_version: int = 1
    """0 while the cluster's transaction.version is 0."""
    may_be_replaced: bool = False
    """Another broker may coordinate by now, and this one could not hear of it."""
    _known: dict[str, Transaction] = field(default_factory=dict)
    _queue: list[tuple[int, str]] = field(default_factory=list)
    _queued: dict[str, int] = field(default_factory=dict)
    """The deadline under which an id stands in the queue; other entries are out of date."""

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def get(self, transactional_id: str) -> Transaction | None:
        return self._known.get(transactional_id)

    # --- requests ------------------------------------------------------------------------------

    def needs_producer_id(self, transactional_id: str, request: e.Request) -> bool:
        """Whether the request is to bring a producer id that nobody had before."""
        transaction = self._known.get(transactional_id)
        if transaction is None:
            return isinstance(request, e.InitProducerId)
        return transaction.needs_producer_id(request)

    def handle(self, now_ms: int, transactional_id: str, request: e.Request) -> list[e.Effect]:
        error = self._refusal(transactional_id, request)
        if error is not ErrorCode.NONE:
            return [e.failed(request, error)]
        effects = self._handle(now_ms, transactional_id, request)
        if self.may_be_replaced:
            return [_doubted(request, effect) for effect in effects]
        return effects

    def _handle(self, now_ms: int, transactional_id: str, request: e.Request) -> list[e.Effect]:
        transaction = self._known.get(transactional_id)
        if transaction is None:
            if not isinstance(request, e.InitProducerId):
                return [e.failed(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)]
            if request.fresh_producer_id is None:
                return [e.failed(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
            transaction = Transaction.new(
                transactional_id,
                request.fresh_producer_id,
                self.settings,
                self.coordinator_epoch,
            )
            self._known[transactional_id] = transaction
        return self._step(now_ms, transaction, request)

    def _refusal(self, transactional_id: str, request: e.Request) -> ErrorCode:
        """What is wrong whatever the state of the id."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        if isinstance(request, e.InitProducerId):
            return init_error(request, self.settings.max_timeout_ms)
        return ErrorCode.NONE

    # --- what became of effects ----------------------------------------------------------------

    def append_finished(
        self, now_ms: int, transactional_id: str, write_id: int, error: ErrorCode
    ) -> list[e.Effect]:
        transaction = self._known.get(transactional_id)
        if transaction is None:
            return []
        return self._step(now_ms, transaction, e.AppendFinished(write_id, error))

    def append_delayed(self, now_ms: int, transactional_id: str, write_id: int) -> list[e.Effect]:
        transaction = self._known.get(transactional_id)
        if transaction is None:
            return []
        return self._step(now_ms, transaction, e.AppendDelayed(write_id))

    def markers_answered(
        self, now_ms: int, transactional_id: str, event: e.MarkersAnswered
    ) -> list[e.Effect]:
        transaction = self._known.get(transactional_id)
        return [] if transaction is None else self._step(now_ms, transaction, event)

    # --- time ----------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        while self._queue and self._queued.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def expire(self, now_ms: int) -> list[e.Effect]:
        """Lets every id whose deadline is reached know the time."""
        effects: list[e.Effect] = []
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            _, transactional_id = heapq.heappop(self._queue)
            del self._queued[transactional_id]
            effects += self._step(now_ms, self._known[transactional_id], e.TimePassed())
        return effects

    # --- life ----------------------------------------------------------------------------------

    def load(self, record: TransactionRecord) -> None:
        """Replays a record: the last one of an id counts, a tombstone removes it."""
        self._forget(record.transactional_id)
        if record.value is not None:
            self._known[record.transactional_id] = Transaction.load(
                record.transactional_id, record.value, self.settings, self.coordinator_epoch
            )

    def begin(self) -> None:
        """All records are replayed: from here on deadlines count.

        Transactions whose outcome is on record have one at once, and send their markers.
        """
        for transaction in self._known.values():
            self._queue_deadline(transaction)

    def unload(self, now_ms: int) -> list[e.Effect]:
        """Another broker leads the partition now: whoever waits has to find it."""
        effects: list[e.Effect] = []
        for transaction in self._known.values():
            effects += transaction.step(now_ms, e.Closed(ErrorCode.NOT_COORDINATOR))
        self._known.clear()
        self._queue.clear()
        self._queued.clear()
        return effects

    # --- views ---------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> TransactionValue | ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        transaction = self._known.get(transactional_id)
        if transaction is None:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return transaction.value

    def select(
        self,
        now_ms: int,
        states: Collection[TransactionState] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int = -1,
    ) -> list[Listed]:
        """The ids that pass every filter; an empty filter lets all pass."""
        return [
            Listed(each.transactional_id, each.value.producer_id, each.state)
            for each in self._known.values()
            if (not states or each.state in states)
            and (not producer_ids or each.value.producer_id in producer_ids)
            and (longer_than_ms < 0 or now_ms - each.value.start_ms > longer_than_ms)
        ]

    # --- inside --------------------------------------------------------------------------------

    def _step(self, now_ms: int, transaction: Transaction, event: e.Event) -> list[e.Effect]:
        effects = transaction.step(now_ms, event, record_version=self.record_version)
        if transaction.is_unused:
            self._forget(transaction.transactional_id)
        else:
            self._queue_deadline(transaction)
        return effects

    def _forget(self, transactional_id: str) -> None:
        self._known.pop(transactional_id, None)
        self._queued.pop(transactional_id, None)

    def _queue_deadline(self, transaction: Transaction) -> None:
        deadline_ms, name = transaction.next_deadline_ms, transaction.transactional_id
        if deadline_ms is None:
            self._queued.pop(name, None)
        elif self._queued.get(name) != deadline_ms:
            self._queued[name] = deadline_ms
            heapq.heappush(self._queue, (deadline_ms, name))
            if len(self._queue) > 2 * len(self._queued) + _SMALL_QUEUE:
                self._drop_old_entries()

    def _drop_old_entries(self) -> None:
        """Each transaction leaves some behind, a week in the future: they must not pile up."""
        self._queue = [(deadline_ms, name) for name, deadline_ms in self._queued.items()]
        heapq.heapify(self._queue)


def _doubted(request: e.Request, effect: e.Effect) -> e.Effect:
    """What a coordinator that may have been replaced says at once, from memory.

    Only that a partition is part of a transaction can be said without harm: a leader that asks
    here is as old as this coordinator, and what it appends counts no more than it does.
    """
    if not isinstance(effect, e.Respond):
        return effect
    result = effect.result
    is_verified = isinstance(result, e.PartitionsResult) and set(result.errors) == {ErrorCode.NONE}
    return effect if is_verified else e.failed(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
