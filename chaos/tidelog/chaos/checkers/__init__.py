"""Judges of a history: pure functions that say what it shows and must not."""

from __future__ import annotations

from tidelog.chaos.checkers.anomaly import Anomaly, Kind
from tidelog.chaos.checkers.facts import Facts
from tidelog.chaos.checkers.groups import stale_group_offsets
from tidelog.chaos.checkers.reading import non_monotonic_polls, unseen
from tidelog.chaos.checkers.records import (
    duplicates,
    inconsistent_offsets,
    invented_records,
    lost_writes,
    reorders,
    unjudged_writes,
)
from tidelog.chaos.checkers.tables import resurrected_keys
from tidelog.chaos.checkers.transactions import aborted_reads, torn_transactions
from tidelog.chaos.history import History

__all__ = ["Anomaly", "Facts", "Kind", "check_facts", "check_history", "unjudged_writes"]


def check_history(history: History) -> list[Anomaly]:
    """Everything that must not be, in a fixed order; an empty list is a good run."""
    return check_facts(Facts(history))


def check_facts(facts: Facts) -> list[Anomaly]:
    history = facts.history
    divergences = () if history.end is None else history.end.divergences
    return [
        *lost_writes(facts),
        *duplicates(facts),
        *reorders(facts),
        *inconsistent_offsets(facts),
        *invented_records(facts),
        *aborted_reads(facts),
        *torn_transactions(facts),
        *non_monotonic_polls(history),
        *unseen(facts),
        *stale_group_offsets(facts),
        *resurrected_keys(facts),
        *(Anomaly(Kind.DIVERGENCE, text) for text in divergences),
    ]
