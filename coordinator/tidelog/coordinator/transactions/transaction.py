"""One transactional id as a pure machine.

``step(now_ms, event)`` changes the transaction and returns what is to be done: answers, records to
write, markers to send. Between steps the owner watches ``next_deadline_ms`` and sends
``TimePassed`` when it is reached. One that is loaded from its record goes on where that ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self, assert_never

from tidelog.coordinator.append_errors import group_write_error
from tidelog.coordinator.transactions import events as e
from tidelog.coordinator.transactions.beginning import (
    add_partitions,
    init_producer_id,
    rotates_producer_id,
)
from tidelog.coordinator.transactions.core import (
    Pending,
    TransactionCore,
    TransactionSettings,
)
from tidelog.coordinator.transactions.ending import (
    end_needs_producer_id,
    end_transaction,
    fence,
    markers_answered,
    send_markers,
)
from tidelog.coordinator.transactions.states import TransactionState
from tidelog.coordinator.transactions.transaction_records import TransactionValue
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    NO_PRODUCER_EPOCH,
    CoordinatorEpoch,
    ProducerId,
    TopicPartition,
)

__all__ = ["Transaction", "TransactionSettings", "TransactionState"]


class Transaction:
    __slots__ = ("_core",)

    def __init__(self, core: TransactionCore) -> None:
        self._core = core

    @classmethod
    def new(
        cls,
        transactional_id: str,
        producer_id: ProducerId,
        settings: TransactionSettings,
        coordinator_epoch: CoordinatorEpoch,
    ) -> Self:
        """An id nobody knew; it has no epoch before its first record is written."""
        value = TransactionValue(
            producer_id, NO_PRODUCER_EPOCH, 0, TransactionState.EMPTY, None, -1
        )
        return cls(TransactionCore(transactional_id, settings, coordinator_epoch, value))

    @classmethod
    def load(
        cls,
        transactional_id: str,
        value: TransactionValue,
        settings: TransactionSettings,
        coordinator_epoch: CoordinatorEpoch,
    ) -> Self:
        core = TransactionCore(transactional_id, settings, coordinator_epoch, value)
        if value.state.is_prepared:
            # The markers of the former coordinator may or may not have arrived.
            core.unmarked = set(value.places())
        return cls(core)

    @property
    def transactional_id(self) -> str:
        return self._core.transactional_id

    @property
    def value(self) -> TransactionValue:
        """Where the log says that the id stands."""
        return self._core.value

    @property
    def state(self) -> TransactionState:
        return self._core.state

    @property
    def is_changing(self) -> bool:
        return self._core.pending is not None

    @property
    def is_unused(self) -> bool:
        """Its first record was not written, or its tombstone was."""
        core = self._core
        never_written = core.value.producer_epoch == NO_PRODUCER_EPOCH and core.pending is None
        return core.is_forgotten or never_written

    @property
    def is_halted(self) -> bool:
        return self._core.is_halted

    @property
    def unmarked(self) -> frozenset[TopicPartition]:
        """Partitions that still need their marker."""
        return frozenset(self._core.unmarked)

    @property
    def next_deadline_ms(self) -> int | None:
        return None if self.is_unused else self._core.deadline_ms()

    def needs_producer_id(self, request: e.Request) -> bool:
        match request:
            case e.InitProducerId():
                return rotates_producer_id(self._core, request)
            case e.EndTxn():
                return end_needs_producer_id(self._core, request)
            case e.AddPartitions():
                return False

    def step(self, now_ms: int, event: e.Event, *, record_version: int = 1) -> list[e.Effect]:
        core = self._core
        core.now_ms = now_ms
        core.record_version = record_version
        core.effects = []
        match event:
            case e.InitProducerId():
                init_producer_id(core, event)
            case e.AddPartitions():
                add_partitions(core, event)
            case e.EndTxn():
                end_transaction(core, event)
            case e.AppendFinished():
                _append_finished(core, event)
            case e.AppendDelayed():
                _append_delayed(core, event)
            case e.MarkersAnswered():
                markers_answered(core, event)
            case e.TimePassed():
                _act_on_time(core)
            case e.Closed(error):
                _close(core, error)
            case other:
                assert_never(other)
        effects, core.effects = core.effects, []
        return effects


def _act_on_time(core: TransactionCore) -> None:
    deadline_ms = core.deadline_ms()
    if deadline_ms is None or core.now_ms < deadline_ms:
        return
    if core.state is TransactionState.ONGOING:
        fence(core, None, None)
    elif core.state.is_prepared:
        send_markers(core)
    else:
        core.write(None)


def _append_finished(core: TransactionCore, event: e.AppendFinished) -> None:
    pending = core.pending
    if pending is None or pending.write_id != event.write_id:
        return  # of a former life
    core.pending = None
    if event.error is not ErrorCode.NONE:
        _write_failed(core, pending, group_write_error(event.error))
        return
    core.not_before_ms = 0
    core.last_producer_epoch = pending.last_producer_epoch
    if pending.answer is not None:
        core.respond(pending.answer)
    if pending.target is None:
        core.is_forgotten = True
        return
    core.value = pending.target
    if core.state.is_prepared:
        core.unmarked = set(core.value.places())
        core.on_the_way = set()
        core.decision += 1
        send_markers(core)


def _append_delayed(core: TransactionCore, event: e.AppendDelayed) -> None:
    pending = core.pending
    if pending is None or pending.write_id != event.write_id or pending.request is None:
        return
    core.respond(e.failed(pending.request, ErrorCode.COORDINATOR_NOT_AVAILABLE))
    core.pending = replace(pending, request=None, answer=None)


def _write_failed(core: TransactionCore, pending: Pending, error: ErrorCode) -> None:
    """As if nobody had asked; what the coordinator wanted by itself it tries again later."""
    if pending.request is not None:
        core.respond(e.failed(pending.request, error))
    settings = core.settings
    if pending.target is None:
        core.not_before_ms = core.now_ms + settings.removal_retry_ms
    elif pending.target.state.is_complete:
        core.not_before_ms = core.now_ms + settings.marker_retry_ms
    elif pending.request is None:
        core.not_before_ms = core.now_ms + settings.abort_retry_ms


def _close(core: TransactionCore, error: ErrorCode) -> None:
    if core.pending is not None and core.pending.request is not None:
        core.respond(e.failed(core.pending.request, error))
    core.pending = None
    core.unmarked.clear()
    core.on_the_way.clear()
    core.is_forgotten = True
