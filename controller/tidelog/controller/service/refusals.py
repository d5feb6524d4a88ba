"""Saying no: which error a refused caller gets, and where it should turn."""

from __future__ import annotations

from typing import Protocol, TypeVar

from google.protobuf.message import Message

from tidelog.controller.decisions.outcome import ApiError
from tidelog.controller.quorum.errors import RequestRefused
from tidelog.controller.quorum.interface import MetadataQuorum, NotController, QuorumOverloaded
from tidelog.controller.raft.effects import RejectReason
from tidelog.controller.service.contract import Malformed, words
from tidelog.controller.service.controller import DecisionTooLarge
from tidelog.kernel.errors import ErrorCode
from tidelog.v1 import common_pb2 as common


class Answer(Protocol):
    """What every answer of the contract has."""

    error_code: int
    error_message: str

    @property
    def active_controller(self) -> common.ActiveController: ...


A = TypeVar("A", bound=Message)

_CODES_OF_REASONS = {
    RejectReason.NOT_LEADER: ErrorCode.NOT_CONTROLLER,
    RejectReason.TRANSFERRING: ErrorCode.NOT_CONTROLLER,
    RejectReason.TOO_LARGE: ErrorCode.POLICY_VIOLATION,
    RejectReason.OVERLOADED: ErrorCode.REQUEST_TIMED_OUT,
    RejectReason.NOT_ESTABLISHED: ErrorCode.REQUEST_TIMED_OUT,
    RejectReason.CHANGE_IN_PROGRESS: ErrorCode.REQUEST_TIMED_OUT,
    RejectReason.ALREADY_VOTER: ErrorCode.DUPLICATE_VOTER,
    RejectReason.NODE_ALREADY_VOTES: ErrorCode.DUPLICATE_VOTER,
    RejectReason.NOT_A_VOTER: ErrorCode.VOTER_NOT_FOUND,
    RejectReason.UNKNOWN_LEARNER: ErrorCode.VOTER_NOT_FOUND,
    RejectReason.LAST_VOTER: ErrorCode.INVALID_REQUEST,
    RejectReason.CATCH_UP_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    RejectReason.TRANSFER_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
}

REFUSALS = (NotController, QuorumOverloaded, DecisionTooLarge, Malformed)


def error_of(
    refusal: NotController | QuorumOverloaded | DecisionTooLarge | Malformed,
) -> ApiError:
    match refusal:
        case NotController():
            return ApiError(ErrorCode.NOT_CONTROLLER, str(refusal))
        case QuorumOverloaded():
            # Kafka has no code for it; this one makes every client try again.
            return ApiError(ErrorCode.REQUEST_TIMED_OUT, str(refusal))
        case DecisionTooLarge():
            return ApiError(ErrorCode.POLICY_VIOLATION, str(refusal))
        case _:
            return ApiError(ErrorCode.INVALID_REQUEST, str(refusal))


def error_of_change(refusal: RequestRefused) -> ApiError:
    """Why the quorum did not change its members or its leader."""
    return ApiError(_CODES_OF_REASONS[refusal.reason], str(refusal))


def active_controller(quorum: MetadataQuorum) -> common.ActiveController | None:
    leader = quorum.leader_id
    return None if leader is None else common.ActiveController(node_id=leader, term=quorum.term)


def set_error(answer: Answer, error: ApiError) -> None:
    answer.error_code = error.code
    answer.error_message = words(error)


def name_active(answer: Answer, quorum: MetadataQuorum) -> None:
    active = active_controller(quorum)
    if active is not None:
        answer.active_controller.CopyFrom(active)
