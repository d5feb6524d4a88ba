"""The contract between a transaction's coordinator and partition leaders, to protobuf and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    CoordinatorEpoch,
    LeaderEpoch,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicId,
    Uuid,
)
from tidelog.kernel.peers import PeerRefused, Unary
from tidelog.v1 import common_pb2
from tidelog.v1 import coordinator_pb2 as pb

WRITE_TXN_MARKERS: Final = Unary(
    "/tidelog.v1.Coordinator/WriteTxnMarkers",
    pb.WriteTxnMarkersRequest,
    pb.WriteTxnMarkersResponse,
)
ADD_PARTITIONS_TO_TXN: Final = Unary(
    "/tidelog.v1.Coordinator/AddPartitionsToTxn",
    pb.AddPartitionsToTxnRequest,
    pb.AddPartitionsToTxnResponse,
)


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of one transaction, for any number of partitions."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    is_commit: bool
    coordinator_epoch: CoordinatorEpoch
    transaction_version: int
    decision: int = 0
    """Counts the ends of a producer's transactions, within its coordinator's epoch; 0: not told."""

    @property
    def begins_epoch(self) -> bool:
        """Its epoch is the one after the transaction's (KIP-890)."""
        return self.transaction_version >= 2


@dataclass(frozen=True, slots=True)
class MarkerOrder:
    marker: Marker
    refs: tuple[PartitionRef, ...]
    leader_epochs: tuple[LeaderEpoch, ...] = ()
    """Of the leaders that are meant, one for each partition; empty: whoever leads."""


@dataclass(frozen=True, slots=True)
class Question:
    """Whether partitions are part of a transaction, or make them so."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    verify_only: bool
    refs: tuple[PartitionRef, ...]


def _key(ref: PartitionRef) -> common_pb2.PartitionKey:
    return common_pb2.PartitionKey(topic_id=ref.topic_id.raw, partition=ref.partition)


def _ref(key: common_pb2.PartitionKey) -> PartitionRef:
    if len(key.topic_id) != 16 or key.partition < 0:
        raise PeerRefused(
            ErrorCode.INVALID_REQUEST.name,
            f"no partition: topic id {key.topic_id.hex()}, index {key.partition}",
        )
    return PartitionRef(TopicId(Uuid(key.topic_id)), PartitionIndex(key.partition))


def _results(refs: Iterable[PartitionRef], codes: Iterable[ErrorCode]) -> list[pb.PartitionResult]:
    return [
        pb.PartitionResult(partition=_key(ref), error_code=code)
        for ref, code in zip(refs, codes, strict=True)
    ]


def _codes(refs: Sequence[PartitionRef], rows: Iterable[pb.PartitionResult]) -> list[ErrorCode]:
    """In the order asked; what the other side left out did not happen."""
    told = {_ref(row.partition): error_of(row.error_code) for row in rows}
    return [told.get(ref, ErrorCode.UNKNOWN_SERVER_ERROR) for ref in refs]


def error_of(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


# --- markers ---------------------------------------------------------------------------


def markers_request(orders: Iterable[MarkerOrder]) -> pb.WriteTxnMarkersRequest:
    message = pb.WriteTxnMarkersRequest()
    for order in orders:
        marker = order.marker
        message.markers.add(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            is_commit=marker.is_commit,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
            partitions=map(_key, order.refs),
            decision=marker.decision,
            leader_epochs=order.leader_epochs,
        )
    return message


def marker_orders(message: pb.WriteTxnMarkersRequest) -> list[MarkerOrder]:
    return [
        MarkerOrder(
            Marker(
                ProducerId(one.producer_id),
                ProducerEpoch(one.producer_epoch),
                one.is_commit,
                CoordinatorEpoch(one.coordinator_epoch),
                one.transaction_version,
                one.decision,
            ),
            tuple(map(_ref, one.partitions)),
            _leader_epochs(one),
        )
        for one in message.markers
    ]


def _leader_epochs(marker: pb.TxnMarker) -> tuple[LeaderEpoch, ...]:
    if marker.leader_epochs and len(marker.leader_epochs) != len(marker.partitions):
        raise PeerRefused(
            ErrorCode.INVALID_REQUEST.name,
            f"{len(marker.leader_epochs)} leader epochs for {len(marker.partitions)} partitions",
        )
    return tuple(map(LeaderEpoch, marker.leader_epochs))


def markers_response(
    orders: Iterable[MarkerOrder], codes: Iterable[Sequence[ErrorCode]]
) -> pb.WriteTxnMarkersResponse:
    message = pb.WriteTxnMarkersResponse()
    for order, of_order in zip(orders, codes, strict=True):
        message.markers.add(
            producer_id=order.marker.producer_id, partitions=_results(order.refs, of_order)
        )
    return message


def marker_codes(
    orders: Sequence[MarkerOrder], message: pb.WriteTxnMarkersResponse
) -> list[list[ErrorCode]]:
    """For every order, in order; an answer of another length answers nothing."""
    if len(message.markers) != len(orders):
        return [[ErrorCode.UNKNOWN_SERVER_ERROR] * len(order.refs) for order in orders]
    return [
        _codes(order.refs, one.partitions)
        for order, one in zip(orders, message.markers, strict=True)
    ]


# --- questions -------------------------------------------------------------------------


def question_request(question: Question) -> pb.AddPartitionsToTxnRequest:
    message = pb.AddPartitionsToTxnRequest()
    message.transactions.add(
        transactional_id=question.transactional_id,
        producer_id=question.producer_id,
        producer_epoch=question.producer_epoch,
        verify_only=question.verify_only,
        partitions=map(_key, question.refs),
    )
    return message


def questions(message: pb.AddPartitionsToTxnRequest) -> list[Question]:
    return [
        Question(
            one.transactional_id,
            ProducerId(one.producer_id),
            ProducerEpoch(one.producer_epoch),
            one.verify_only,
            tuple(map(_ref, one.partitions)),
        )
        for one in message.transactions
    ]


def question_response(
    asked: Iterable[Question], codes: Iterable[Sequence[ErrorCode]]
) -> pb.AddPartitionsToTxnResponse:
    message = pb.AddPartitionsToTxnResponse()
    for question, of_question in zip(asked, codes, strict=True):
        message.transactions.add(
            transactional_id=question.transactional_id,
            partitions=_results(question.refs, of_question),
        )
    return message


def question_codes(question: Question, message: pb.AddPartitionsToTxnResponse) -> list[ErrorCode]:
    if message.error_code or len(message.transactions) != 1:
        code = error_of(message.error_code) if message.error_code else None
        return [code or ErrorCode.UNKNOWN_SERVER_ERROR] * len(question.refs)
    return _codes(question.refs, message.transactions[0].partitions)
