"""The states of a transaction and the only ways between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class TransactionState(Enum):
    """Numbers as they are stored, names as ListTransactions shows them."""

    EMPTY = (0, "Empty")
    """A producer has its id; nothing was added yet."""
    ONGOING = (1, "Ongoing")
    PREPARE_COMMIT = (2, "PrepareCommit")
    """The outcome is on record and cannot change any more; markers are being written."""
    PREPARE_ABORT = (3, "PrepareAbort")
    COMPLETE_COMMIT = (4, "CompleteCommit")
    """Every partition has its marker."""
    COMPLETE_ABORT = (5, "CompleteAbort")
    DEAD = (6, "Dead")
    """The transactional id expired."""
    PREPARE_EPOCH_FENCE = (7, "PrepareEpochFence")
    """In memory only: the coordinator itself ends the transaction, under the next epoch."""

    def __init__(self, number: int, label: str) -> None:
        self.number = number
        self.label = label

    @property
    def is_prepared(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


_S = TransactionState
_AT_REST: Final = frozenset({_S.EMPTY, _S.ONGOING, _S.DEAD})

TRANSITIONS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = MappingProxyType(
    {
        # With transaction.version=2 a transaction that was never begun can be aborted (KIP-890).
        _S.EMPTY: _AT_REST | {_S.PREPARE_ABORT},
        _S.ONGOING: frozenset(
            {_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT, _S.PREPARE_EPOCH_FENCE}
        ),
        _S.PREPARE_EPOCH_FENCE: frozenset({_S.PREPARE_ABORT}),
        _S.PREPARE_COMMIT: frozenset({_S.COMPLETE_COMMIT}),
        _S.PREPARE_ABORT: frozenset({_S.COMPLETE_ABORT}),
        _S.COMPLETE_COMMIT: _AT_REST | {_S.PREPARE_ABORT},
        _S.COMPLETE_ABORT: _AT_REST | {_S.PREPARE_ABORT},
        _S.DEAD: frozenset(),
    }
)

BY_NUMBER: Final[Mapping[int, TransactionState]] = MappingProxyType(
    {state.number: state for state in TransactionState}
)
BY_LABEL: Final[Mapping[str, TransactionState]] = MappingProxyType(
    {state.label: state for state in TransactionState}
)


class IllegalTransition(AssertionError):
    """A change of state that the table does not have: a defect of the machine itself."""


def check_transition(transactional_id: str, old: TransactionState, new: TransactionState) -> None:
    if new not in TRANSITIONS[old]:
        allowed = ", ".join(sorted(state.label for state in TRANSITIONS[old])) or "nothing"
        raise IllegalTransition(
            f"transactional id {transactional_id!r} cannot go from {old.label} to {new.label}; "
            f"allowed: {allowed}"
        )
