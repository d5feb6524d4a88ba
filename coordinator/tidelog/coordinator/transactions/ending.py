"""EndTxn, time-outs and fencing: how a transaction gets its outcome, and its markers.

The outcome is decided by the record of the Prepare state, and the client is answered when that is
replicated. Markers follow; only when every partition has acknowledged its own is Complete written.

With transaction.version=2 each end begins a new epoch, which the markers carry (KIP-890): a late
request of this transaction can never be taken for one of the next. Before that, the epoch changes
only when a producer begins, or when the coordinator itself ends the transaction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tidelog.coordinator.transactions.core import (
    EPOCH_BUMP_VERSION,
    HIGHEST_EPOCH,
    LAST_EPOCH,
    TransactionCore,
    is_foreign_producer,
)
from tidelog.coordinator.transactions.events import (
    EndResult,
    EndTxn,
    MarkersAnswered,
    Request,
    Respond,
    SendMarkers,
    failed,
)
from tidelog.coordinator.transactions.states import TransactionState, check_transition
from tidelog.coordinator.transactions.transaction_records import TransactionValue
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId

_S = TransactionState
_SETTLED: Final = frozenset(
    {
        ErrorCode.NONE,
        # The partition has moved on to a later epoch of the producer, so this end was there.
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


def bumps_epoch(client_version: int) -> bool:
    return client_version >= EPOCH_BUMP_VERSION


def end_needs_producer_id(core: TransactionCore, request: EndTxn) -> bool:
    """Whether the end would use up the last epoch of the producer id."""
    return (
        bumps_epoch(request.client_version)
        and core.is_epoch_exhausted
        and core.pending is None
        and not core.state.is_prepared
        and request.producer_epoch == core.value.producer_epoch
    )


def end_transaction(core: TransactionCore, request: EndTxn) -> None:
    is_retry = _is_retry(core, request)
    error = _sender_error(core, request, is_retry)
    if error is not None:
        core.respond(failed(request, error))
    elif bumps_epoch(request.client_version):
        _end_with_bump(core, request, is_retry)
    else:
        _end_in_epoch(core, request)


def _is_retry(core: TransactionCore, request: EndTxn) -> bool:
    """Whether the epoch is the one that this id's last end left behind.

    Also while the next change is under way, such as completion: the sender comes again then. To
    call it fenced would end a producer for good whose answer was lost at the wrong moment.
    """
    value = core.value
    if not bumps_epoch(min(value.client_version, request.client_version)):
        return False
    is_exchanged = (
        request.producer_id == value.previous_producer_id
        and request.producer_id != value.producer_id
        and request.producer_epoch == LAST_EPOCH
        and value.producer_epoch == 0
    )
    is_bumped = (
        request.producer_id == value.producer_id
        and request.producer_epoch == value.producer_epoch - 1
    )
    ended = value.state.is_prepared or value.state.is_complete
    return ended and (is_exchanged or is_bumped)


def _sender_error(core: TransactionCore, request: EndTxn, is_retry: bool) -> ErrorCode | None:
    if not is_retry:
        if is_foreign_producer(core, request.producer_id):
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if request.producer_epoch != core.value.producer_epoch:
            return ErrorCode.PRODUCER_FENCED
    return None if core.pending is None else ErrorCode.CONCURRENT_TRANSACTIONS


def _end_in_epoch(core: TransactionCore, request: EndTxn) -> None:
    """Before KIP-890: nothing tells a retry from a second end but the outcome."""
    state, wanted = core.state, _prepared(request.committed)
    if state is _S.ONGOING:
        _prepare(core, request)
    elif state is wanted:
        core.respond(failed(request, ErrorCode.CONCURRENT_TRANSACTIONS))
    elif state is _completed(request.committed):
        core.respond(_ended(request, core.value))
    else:
        core.respond(failed(request, ErrorCode.INVALID_TXN_STATE))


def _end_with_bump(core: TransactionCore, request: EndTxn, is_retry: bool) -> None:
    state = core.state
    if is_retry and state is _prepared(request.committed):
        core.respond(failed(request, ErrorCode.CONCURRENT_TRANSACTIONS))
    elif is_retry and state is _completed(request.committed):
        core.respond(_ended(request, core.value))
    elif is_retry or state.is_prepared:
        core.respond(failed(request, ErrorCode.INVALID_TXN_STATE))
    elif state is _S.ONGOING or not request.committed:
        # A producer may abort what it never began: it does not know whether a write arrived.
        _prepare(core, request)
    else:
        core.respond(failed(request, ErrorCode.INVALID_TXN_STATE))


def _prepare(core: TransactionCore, request: EndTxn) -> None:
    value = core.value
    epoch, last, following = value.producer_epoch, core.last_producer_epoch, NO_PRODUCER_ID
    if bumps_epoch(request.client_version):
        if core.is_epoch_exhausted:
            if request.fresh_producer_id is None:
                core.respond(failed(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
                return
            following = request.fresh_producer_id
        epoch, last = _next_epoch(value), value.producer_epoch
    is_begun = core.state is _S.ONGOING
    target = core.changed(
        _prepared(request.committed),
        producer_epoch=epoch,
        next_producer_id=following,
        client_version=request.client_version,
        partitions=value.partitions if is_begun else (),
        start_ms=value.start_ms if is_begun else core.now_ms,
    )
    core.write(
        target, last_producer_epoch=last, request=request, answer=_ended(request, _after(target))
    )


def fence(core: TransactionCore, request: Request | None, answer: Respond | None) -> None:
    """End the open transaction under an epoch that its producer does not have (KAFKA-6119)."""
    check_transition(core.transactional_id, core.state, _S.PREPARE_EPOCH_FENCE)
    check_transition(core.transactional_id, _S.PREPARE_EPOCH_FENCE, _S.PREPARE_ABORT)
    target = core.changed(
        _S.PREPARE_ABORT, producer_epoch=_next_epoch(core.value), next_producer_id=NO_PRODUCER_ID
    )
    core.write(target, last_producer_epoch=NO_PRODUCER_EPOCH, request=request, answer=answer)


def send_markers(core: TransactionCore) -> None:
    """The outcome is on record: every partition that nobody was asked about gets its marker."""
    waiting = core.unmarked - core.on_the_way
    if waiting:
        core.on_the_way |= waiting
        value = core.value
        core.effects.append(
            SendMarkers(
                core.transactional_id,
                value.producer_id,
                value.producer_epoch,
                core.coordinator_epoch,
                value.state is _S.PREPARE_COMMIT,
                value.client_version,
                tuple(sorted(waiting)),
                core.decision,
            )
        )
    elif not core.unmarked:
        core.write(_after(core.value, completed_ms=core.now_ms))


def markers_answered(core: TransactionCore, event: MarkersAnswered) -> None:
    value = core.value
    is_current = (event.producer_id, event.producer_epoch) == (
        value.producer_id,
        value.producer_epoch,
    )
    if not is_current or not core.state.is_prepared or core.pending is not None:
        return
    for place, error in event.outcomes:
        core.on_the_way.discard(place)
        if error in _SETTLED:
            core.unmarked.discard(place)
        elif error is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            core.is_halted = True
    if core.is_halted:
        return
    if not core.unmarked:
        send_markers(core)
    elif core.unmarked - core.on_the_way:
        core.not_before_ms = core.now_ms + core.settings.marker_retry_ms


def _after(prepared: TransactionValue, completed_ms: int | None = None) -> TransactionValue:
    """The Complete value that follows a Prepare one."""
    is_exchanged = prepared.next_producer_id != NO_PRODUCER_ID
    return replace(
        prepared,
        state=_completed(prepared.state is _S.PREPARE_COMMIT),
        producer_id=prepared.next_producer_id if is_exchanged else prepared.producer_id,
        producer_epoch=ProducerEpoch(0) if is_exchanged else prepared.producer_epoch,
        previous_producer_id=prepared.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions=(),
        last_update_ms=prepared.last_update_ms if completed_ms is None else completed_ms,
    )


def _ended(request: EndTxn, value: TransactionValue) -> Respond:
    result = EndResult(ErrorCode.NONE, ProducerId(value.producer_id), value.producer_epoch)
    return Respond(request.request_id, result)


def _next_epoch(value: TransactionValue) -> ProducerEpoch:
    return ProducerEpoch(min(value.producer_epoch + 1, HIGHEST_EPOCH))


def _prepared(committed: bool) -> TransactionState:
    return _S.PREPARE_COMMIT if committed else _S.PREPARE_ABORT


def _completed(committed: bool) -> TransactionState:
    return _S.COMPLETE_COMMIT if committed else _S.COMPLETE_ABORT
