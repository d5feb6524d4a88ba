"""Judges of histories: pure functions that say what a run shows and must not."""

from tidelog.testing.checkers.transactional_log import (
    AbortedRead,
    Anomaly,
    Duplicate,
    End,
    InventedRecord,
    LostWrite,
    NonMonotonicPoll,
    Outcome,
    Poll,
    Reordered,
    Seen,
    TornTransaction,
    TransactionalHistory,
    Write,
    check_transactional_log,
)

__all__ = [
    "AbortedRead",
    "Anomaly",
    "Duplicate",
    "End",
    "InventedRecord",
    "LostWrite",
    "NonMonotonicPoll",
    "Outcome",
    "Poll",
    "Reordered",
    "Seen",
    "TornTransaction",
    "TransactionalHistory",
    "Write",
    "check_transactional_log",
]
