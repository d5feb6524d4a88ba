"""InitProducerId and AddPartitionsToTxn: who may write, and where.

A producer that begins fences every earlier one of the same transactional id: it gets a higher
epoch, and a transaction the earlier one left open is aborted first (the new one is told to come
again meanwhile). A producer that names its id and epoch only bumps its own (KIP-360).
"""

from __future__ import annotations

from tidelog.coordinator.transactions.core import (
    LAST_EPOCH,
    TransactionCore,
    is_foreign_producer,
)
from tidelog.coordinator.transactions.ending import fence
from tidelog.coordinator.transactions.events import (
    AddPartitions,
    InitProducerId,
    InitResult,
    PartitionsResult,
    Respond,
    failed,
)
from tidelog.coordinator.transactions.states import TransactionState
from tidelog.coordinator.transactions.transaction_records import by_topic
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId

_FIRST_EPOCH = ProducerEpoch(0)


def init_error(request: InitProducerId, max_timeout_ms: int) -> ErrorCode:
    """What is wrong with the request whatever the state of the id."""
    if not 0 < request.timeout_ms <= max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    has_id = request.producer_id != NO_PRODUCER_ID
    has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
    return ErrorCode.NONE if has_id == has_epoch else ErrorCode.INVALID_REQUEST


def rotates_producer_id(core: TransactionCore, request: InitProducerId) -> bool:
    """Whether the producer gets another id, because its epochs are used up."""
    at_rest = core.state is TransactionState.EMPTY or core.state.is_complete
    return (
        at_rest
        and core.pending is None
        and core.is_epoch_exhausted
        and request.producer_epoch in (NO_PRODUCER_EPOCH, core.value.producer_epoch)
    )


def init_producer_id(core: TransactionCore, request: InitProducerId) -> None:
    if core.pending is not None:
        core.respond(failed(request, ErrorCode.CONCURRENT_TRANSACTIONS))
    elif not _may_go_on(core, request):
        core.respond(failed(request, ErrorCode.PRODUCER_FENCED))
    elif core.state.is_prepared:
        core.respond(failed(request, ErrorCode.CONCURRENT_TRANSACTIONS))
    elif core.state is TransactionState.ONGOING:
        _fence_other(core, request)
    elif rotates_producer_id(core, request):
        _rotate(core, request)
    else:
        _bump(core, request)


def _may_go_on(core: TransactionCore, request: InitProducerId) -> bool:
    """Whether the producer that the request names, if any, is still this id's (KIP-360)."""
    if request.producer_id == NO_PRODUCER_ID or core.value.producer_epoch == NO_PRODUCER_EPOCH:
        return True
    if request.producer_id == core.value.producer_id:
        return True
    # It may not have heard that its id was exchanged.
    was_exchanged = request.producer_id == core.value.previous_producer_id
    return was_exchanged and request.producer_epoch >= LAST_EPOCH


def _fence_other(core: TransactionCore, request: InitProducerId) -> None:
    """The transaction of an earlier producer, or of an earlier life of this one, is aborted."""
    is_named = request.producer_epoch != NO_PRODUCER_EPOCH
    if is_named and request.producer_epoch != core.value.producer_epoch:
        core.respond(failed(request, ErrorCode.PRODUCER_FENCED))
        return
    # Even when all is well it has to come again: markers must be written first.
    fence(core, request, failed(request, ErrorCode.CONCURRENT_TRANSACTIONS))


def _rotate(core: TransactionCore, request: InitProducerId) -> None:
    if request.fresh_producer_id is None:
        core.respond(failed(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return
    is_named = request.producer_epoch != NO_PRODUCER_EPOCH
    last = core.value.producer_epoch if is_named else NO_PRODUCER_EPOCH
    _write_empty(core, request, request.fresh_producer_id, _FIRST_EPOCH, last)


def _bump(core: TransactionCore, request: InitProducerId) -> None:
    value = core.value
    expected = request.producer_epoch
    if expected == NO_PRODUCER_EPOCH:
        epoch, last = value.producer_epoch + 1, NO_PRODUCER_EPOCH
    elif expected == value.producer_epoch or value.producer_epoch == NO_PRODUCER_EPOCH:
        epoch, last = value.producer_epoch + 1, value.producer_epoch
    elif expected == core.last_producer_epoch:
        # It did not hear of the bump it asked for: there is nothing to bump again.
        epoch, last = value.producer_epoch, core.last_producer_epoch
    else:
        core.respond(failed(request, ErrorCode.PRODUCER_FENCED))
        return
    _write_empty(core, request, value.producer_id, ProducerEpoch(epoch), last)


def _write_empty(
    core: TransactionCore,
    request: InitProducerId,
    producer_id: ProducerId,
    epoch: ProducerEpoch,
    last_epoch: ProducerEpoch,
) -> None:
    target = core.changed(
        TransactionState.EMPTY,
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=request.timeout_ms,
        partitions=None,
        start_ms=-1,
    )
    answer = Respond(request.request_id, InitResult(ErrorCode.NONE, producer_id, epoch))
    core.write(target, last_producer_epoch=last_epoch, request=request, answer=answer)


def add_partitions(core: TransactionCore, request: AddPartitions) -> None:
    error = _sender_error(core, request)
    if error is not None:
        core.respond(failed(request, error))
    elif request.verify_only:
        core.respond(_verified(core, request))
    elif core.pending is not None:
        core.respond(failed(request, ErrorCode.CONCURRENT_TRANSACTIONS))
    else:
        _add(core, request)


def _sender_error(core: TransactionCore, request: AddPartitions) -> ErrorCode | None:
    if is_foreign_producer(core, request.producer_id):
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if request.producer_epoch != core.value.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if core.state.is_prepared else None


def _verified(core: TransactionCore, request: AddPartitions) -> Respond:
    """What is written about the transaction; a change on its way does not count.

    If that change ends the transaction, its marker reaches the partition and takes the permission
    to write away again.
    """
    known = core.value.places() if core.state is TransactionState.ONGOING else frozenset()
    errors = tuple(
        ErrorCode.NONE if place in known else ErrorCode.TRANSACTION_ABORTABLE
        for place in request.partitions
    )
    return Respond(request.request_id, PartitionsResult(ErrorCode.NONE, errors))


def _add(core: TransactionCore, request: AddPartitions) -> None:
    done = Respond(request.request_id, PartitionsResult(ErrorCode.NONE))
    value, is_ongoing = core.value, core.state is TransactionState.ONGOING
    known = value.places()
    if is_ongoing and known.issuperset(request.partitions):
        core.respond(done)
        return
    target = core.changed(
        TransactionState.ONGOING,
        partitions=by_topic(known.union(request.partitions)),
        start_ms=value.start_ms if is_ongoing else core.now_ms,
        client_version=request.client_version,
    )
    core.write(target, request=request, answer=done)
