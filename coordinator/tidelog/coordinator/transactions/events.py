"""What happens to a transactional id, what its coordinator answers, and what it wants done.

Requests carry an id under which they are answered. Producer ids come from blocks that the
controller gives out, so a request that may need one brings it along (``needs_producer_id`` tells
beforehand); what depends on a request's version comes in as ``client_version``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.coordinator.transactions.transaction_records import TransactionRecord
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    CoordinatorEpoch,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """A producer begins, or asks for a new epoch of the id it names (KIP-360)."""

    request_id: int
    timeout_ms: int
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    fresh_producer_id: ProducerId | None = None


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Partitions join the transaction; ``verify_only`` asks whether they have (KIP-890)."""

    request_id: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: tuple[TopicPartition, ...]
    client_version: int = 0
    verify_only: bool = False


@dataclass(frozen=True, slots=True)
class EndTxn:
    request_id: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    committed: bool
    client_version: int = 0
    fresh_producer_id: ProducerId | None = None


@dataclass(frozen=True, slots=True)
class AppendFinished:
    """An ``Append`` is replicated, or failed with the error of the partition."""

    write_id: int
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class AppendDelayed:
    """An ``Append`` takes too long for whoever waits; it may still be replicated.

    The change stays under way until ``AppendFinished``, so that what is in memory and what the
    next coordinator will read cannot differ.
    """

    write_id: int


@dataclass(frozen=True, slots=True)
class MarkersAnswered:
    """What became of markers: for each partition sent, the error of its leader.

    A partition that exists no more counts as NONE.
    """

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    outcomes: tuple[tuple[TopicPartition, ErrorCode], ...]


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The ``next_deadline_ms`` of the transaction may be reached."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Another broker coordinates the id; whoever waits is told ``error``."""

    error: ErrorCode


Request = InitProducerId | AddPartitions | EndTxn
Event = Request | AppendFinished | AppendDelayed | MarkersAnswered | TimePassed | Closed


@dataclass(frozen=True, slots=True)
class InitResult:
    error: ErrorCode
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class PartitionsResult:
    """``error`` for all of them, or each by itself in the order asked (verification only)."""

    error: ErrorCode
    errors: tuple[ErrorCode, ...] = ()


@dataclass(frozen=True, slots=True)
class EndResult:
    """With NONE, the producer id and epoch of the next transaction."""

    error: ErrorCode
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


Result = InitResult | PartitionsResult | EndResult


@dataclass(frozen=True, slots=True)
class Respond:
    request_id: int
    result: Result


@dataclass(frozen=True, slots=True)
class Append:
    """Write these to the id's partition with acks=all, then say ``AppendFinished``.

    What depends on the records is answered only then.
    """

    transactional_id: str
    write_id: int
    records: tuple[TransactionRecord, ...]


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """Have the leader of each partition write a marker, then say ``MarkersAnswered`` for all.

    One answer for each partition, in any number of events; a leader that is not known or not
    reached is an answer too.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: CoordinatorEpoch
    committed: bool
    client_version: int
    partitions: tuple[TopicPartition, ...]
    decision: int
    """The same for all markers of one transaction, higher for those of the next."""


Effect = Respond | Append | SendMarkers


def failed(request: Request, error: ErrorCode) -> Respond:
    """The request refused."""
    match request:
        case InitProducerId():
            return Respond(request.request_id, InitResult(error))
        case AddPartitions():
            return Respond(request.request_id, PartitionsResult(error))
        case EndTxn():
            return Respond(request.request_id, EndResult(error))
