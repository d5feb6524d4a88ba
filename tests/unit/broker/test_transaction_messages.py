"""What coordinators and partition leaders tell each other arrives as it was meant."""

from __future__ import annotations

import pytest

from tidelog.broker.transaction_messages import (
    Marker,
    MarkerOrder,
    Question,
    error_of,
    marker_codes,
    marker_orders,
    markers_request,
    markers_response,
    question_codes,
    question_request,
    question_response,
    questions,
)
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
from tidelog.kernel.peers import PeerRefused
from tidelog.v1 import coordinator_pb2 as pb

E = ErrorCode
ONE = PartitionRef(TopicId(Uuid(bytes(range(16)))), PartitionIndex(0))
TWO = PartitionRef(TopicId(Uuid(bytes(range(16)))), PartitionIndex(7))
MARKER = Marker(ProducerId(5), ProducerEpoch(3), True, CoordinatorEpoch(9), 2, decision=7)
ORDERS = [
    MarkerOrder(MARKER, (ONE, TWO), (LeaderEpoch(3), LeaderEpoch(0))),
    MarkerOrder(Marker(ProducerId(6), ProducerEpoch(0), False, CoordinatorEpoch(1), 0), (TWO,)),
]
QUESTION = Question("tx ü", ProducerId(5), ProducerEpoch(3), True, (ONE, TWO))


def test_markers_and_their_outcomes() -> None:
    assert marker_orders(markers_request(ORDERS)) == ORDERS
    codes = [[E.NONE, E.NOT_LEADER_OR_FOLLOWER], [E.INVALID_PRODUCER_EPOCH]]
    assert marker_codes(ORDERS, markers_response(ORDERS, codes)) == codes


def test_leader_epochs_are_of_all_partitions_or_of_none() -> None:
    request = markers_request(ORDERS)
    request.markers[0].leader_epochs.pop()
    with pytest.raises(PeerRefused, match="1 leader epochs for 2 partitions"):
        marker_orders(request)


def test_an_answer_that_lacks_partitions_answers_nothing_for_them() -> None:
    whole = markers_response(ORDERS, [[E.NONE, E.NONE], [E.NONE]])
    del whole.markers[0].partitions[1]
    unknown = E.UNKNOWN_SERVER_ERROR
    assert marker_codes(ORDERS, whole) == [[E.NONE, unknown], [E.NONE]]
    del whole.markers[1]
    assert marker_codes(ORDERS, whole) == [[unknown, unknown], [unknown]]


@pytest.mark.parametrize("verify_only", [True, False])
def test_questions_and_their_answers(verify_only: bool) -> None:
    asked = Question("tx ü", ProducerId(5), ProducerEpoch(3), verify_only, (ONE, TWO))
    assert questions(question_request(asked)) == [asked]
    codes = [E.NONE, E.TRANSACTION_ABORTABLE]
    assert question_codes(asked, question_response([asked], [codes])) == codes


def test_an_error_of_the_whole_answer_is_one_of_every_partition() -> None:
    told = pb.AddPartitionsToTxnResponse(error_code=E.NOT_COORDINATOR)
    assert question_codes(QUESTION, told) == [E.NOT_COORDINATOR] * 2
    empty = pb.AddPartitionsToTxnResponse()
    assert question_codes(QUESTION, empty) == [E.UNKNOWN_SERVER_ERROR] * 2


def test_codes_of_newer_nodes_are_failures() -> None:
    assert error_of(30_000) is E.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("topic_id", [b"", b"short", bytes(17)])
def test_partitions_that_make_no_sense_are_refused(topic_id: bytes) -> None:
    request = markers_request(ORDERS)
    request.markers[0].partitions[0].topic_id = topic_id
    with pytest.raises(PeerRefused, match="INVALID_REQUEST"):
        marker_orders(request)
    asked = question_request(QUESTION)
    asked.transactions[0].partitions[0].partition = -1
    with pytest.raises(PeerRefused, match="INVALID_REQUEST"):
        questions(asked)
