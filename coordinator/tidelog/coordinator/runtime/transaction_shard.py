"""The transactional ids of one partition of ``__transaction_state``, behind one front.

A request goes to the machine of its id; the effects are carried out here: answers complete the
future of whoever waits, records are written through the shard's log, markers are handed to whoever
can reach the partitions' leaders. A change counts when its record is replicated, however long that
takes: who waits for it is sent away when the write is slow, and the change is still under way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from tidelog.coordinator.record_fields import MalformedRecord
from tidelog.coordinator.runtime.ports import LogEntry
from tidelog.coordinator.runtime.shard_log import ShardLog
from tidelog.coordinator.transactions import events as e
from tidelog.coordinator.transactions.transaction import TransactionSettings
from tidelog.coordinator.transactions.transaction_records import (
    decode_transaction,
    encode_transaction,
)
from tidelog.coordinator.transactions.transactions import Transactions
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import CoordinatorEpoch, ProducerId

log = logging.getLogger(__name__)

TellOutcome = Callable[[e.MarkersAnswered], None]


@dataclass(frozen=True, slots=True)
class TransactionPorts:
    """What a shard needs of its broker; settings are asked anew each time."""

    settings: Callable[[], TransactionSettings]
    feature_level: Callable[[], int]
    """The cluster's transaction.version."""
    take_producer_id: Callable[[], ProducerId | None]
    send_markers: Callable[[e.SendMarkers, TellOutcome], None]
    """Has every partition answered for, in one or more outcomes, never at once."""
    is_in_touch: Callable[[], bool]
    """With the controllers: no other broker coordinates that this one has not heard of."""


class TransactionShard:
    """A ``ShardMachine``."""

    def __init__(
        self, writer: ShardLog, watch: Callable[[], None], ports: TransactionPorts
    ) -> None:
        self._writer = writer
        self._clock = writer.clock
        self._watch = watch
        self._ports = ports
        self.transactions = Transactions(ports.settings(), CoordinatorEpoch(writer.leader_epoch))
        self._waiting: dict[int, asyncio.Future[e.Result]] = {}
        self._next_request = 0
        self._is_closed = False

    # --- loading -----------------------------------------------------------------------

    def replay(self, entry: LogEntry) -> None:
        try:
            record = decode_transaction(entry.key, entry.value)
        except MalformedRecord as error:
            log.error("the record at offset %d of the transaction topic: %s", entry.offset, error)
            return
        if record is not None:
            self.transactions.load(record)

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        """Nobody writes to this topic in a transaction."""

    def finish_loading(self) -> Iterator[None]:
        self.transactions.begin()
        yield

    # --- time --------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        return self.transactions.next_deadline_ms()

    def expire(self) -> None:
        self._refresh()
        self._carry_out(self.transactions.expire(self.now_ms()))

    def close(self) -> None:
        self._carry_out(self.transactions.unload(self.now_ms()))
        self._is_closed = True

    def update_settings(self) -> None:
        """Transactions that exist keep the limits they were made with."""
        self.transactions.settings = self._ports.settings()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    # --- requests ----------------------------------------------------------------------

    def ask(self, transactional_id: str, request: e.Request) -> asyncio.Future[e.Result]:
        """The answer to a request; its id, and a producer id if it needs one, are given here."""
        self._refresh()
        request_id = self._next_request
        self._next_request += 1
        answer: asyncio.Future[e.Result] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        request = replace(request, request_id=request_id)
        if not isinstance(request, e.AddPartitions) and self.transactions.needs_producer_id(
            transactional_id, request
        ):
            request = replace(request, fresh_producer_id=self._ports.take_producer_id())
        self._carry_out(self.transactions.handle(self.now_ms(), transactional_id, request))
        self._watch()
        return answer

    def _refresh(self) -> None:
        """What may have changed since the last step."""
        self.transactions.record_version = min(self._ports.feature_level(), 1)
        self.transactions.may_be_replaced = not self._ports.is_in_touch()

    # --- effects -----------------------------------------------------------------------

    def _carry_out(self, effects: Iterable[e.Effect]) -> None:
        for effect in effects:
            match effect:
                case e.Respond(request_id, result):
                    answer = self._waiting.pop(request_id, None)
                    if answer is not None and not answer.done():
                        answer.set_result(result)
                case e.Append():
                    _PendingWrite(self, effect).begin(self._writer)
                case e.SendMarkers():
                    self._send(effect)
                case other:
                    assert_never(other)

    def _send(self, effect: e.SendMarkers) -> None:
        # A leader that was elected again goes on without loading: markers carry its new epoch.
        current = replace(effect, coordinator_epoch=CoordinatorEpoch(self._writer.leader_epoch))
        name = effect.transactional_id
        self._ports.send_markers(current, lambda outcome: self._markers_answered(name, outcome))

    def _markers_answered(self, transactional_id: str, outcome: e.MarkersAnswered) -> None:
        self._step(self.transactions.markers_answered(self.now_ms(), transactional_id, outcome))

    def write_ended(self, effect: e.Append, error: ErrorCode) -> None:
        self._step(
            self.transactions.append_finished(
                self.now_ms(), effect.transactional_id, effect.write_id, error
            )
        )

    def write_is_slow(self, effect: e.Append) -> None:
        self._step(
            self.transactions.append_delayed(
                self.now_ms(), effect.transactional_id, effect.write_id
            )
        )

    def _step(self, effects: Iterable[e.Effect]) -> None:
        if not self._is_closed:
            self._carry_out(effects)
            self._watch()


class _PendingWrite:
    """One append: replicated, refused, or slow and then one of the two."""

    def __init__(self, shard: TransactionShard, effect: e.Append) -> None:
        self._shard = shard
        self._effect = effect
        self._is_replicated = False

    def begin(self, writer: ShardLog) -> None:
        encoded = [encode_transaction(record) for record in self._effect.records]
        written = writer.write(encoded, self._replicated)
        written.add_done_callback(lambda done: self._answered(done.result()))

    def _replicated(self, position: int) -> None:
        self._is_replicated = True
        self._shard.write_ended(self._effect, ErrorCode.NONE)

    def _answered(self, code: ErrorCode) -> None:
        if self._is_replicated:
            return
        if code is ErrorCode.REQUEST_TIMED_OUT:
            self._shard.write_is_slow(self._effect)
        else:
            self._shard.write_ended(self._effect, code)
