"""Whether transactions are all or nothing for those who read committed. Pure.

A copier that was cut off copies the same records again in another transaction, so a record's key
and number do not say which transaction it came from. Its offset does, wherever it is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog.chaos.checkers.anomaly import Anomaly, Kind, named
from tidelog.chaos.checkers.facts import Ending, Facts, is_same
from tidelog.chaos.history import Operation, Outcome, Record

_NAMED_AT_MOST: Final = 5


def aborted_reads(facts: Facts) -> Iterator[Anomaly]:
    for append in facts.appends:
        if not append.transaction or facts.ending(append.transaction) is not Ending.ABORTED:
            continue
        record = _sighting_of(facts, append)
        if record is not None:
            poll = facts.poll_of(record)
            yield Anomaly(
                Kind.ABORTED_READ,
                f"{poll.client} got {named(record)} at offset {record.offset} of "
                f"{record.topic}-{record.partition}, of transaction {append.transaction}, "
                "which was aborted.",
                (append, *facts.ends[append.transaction], poll),
                record.topic,
                record.partition,
                record.offset,
            )


def _sighting_of(facts: Facts, append: Operation) -> Record | None:
    at = facts.seen_at(append)
    if at is not None and is_same(at, append):
        return at
    for record in facts.sightings_of(append):
        if not any(facts.can_be_there(writer) for writer in facts.writers_of(record)):
            return record
    return None


def torn_transactions(facts: Facts) -> Iterator[Anomaly]:
    """Judged by what full reads passed: what lies behind their ends is not decided yet."""
    members: dict[str, list[Operation]] = {}
    for append in facts.appends:
        if append.transaction and append.outcome is Outcome.OK and append.offset is not None:
            members.setdefault(append.transaction, []).append(append)
    for transaction, appends in members.items():
        if facts.ending(transaction) is Ending.ABORTED:
            continue
        present = [append for append in appends if _is_present(facts, append) is True]
        missing = [append for append in appends if _is_present(facts, append) is False]
        if present and missing:
            yield _torn(facts, transaction, present, missing)


def _is_present(facts: Facts, append: Operation) -> bool | None:
    """None: it cannot be known."""
    record = facts.seen_at(append)
    if record is not None and is_same(record, append):
        return True
    read = facts.final.get((append.topic, append.partition))
    if read is None or append.topic in facts.compacted:
        return None
    return False if append.offset is not None and append.offset < read.end else None


def _torn(
    facts: Facts, transaction: str, present: list[Operation], missing: list[Operation]
) -> Anomaly:
    first = missing[0]
    return Anomaly(
        Kind.TORN_TRANSACTION,
        f"Of transaction {transaction} ({facts.ending(transaction).value}) {_listed(present)} "
        f"can be read and {_listed(missing)} cannot.",
        (*missing, *present, *facts.ends.get(transaction, ())),
        first.topic,
        first.partition,
        first.offset,
    )


def _listed(appends: list[Operation]) -> str:
    shown = ", ".join(
        f"{named(append)} in {append.topic}-{append.partition}"
        for append in appends[:_NAMED_AT_MOST]
    )
    left = len(appends) - _NAMED_AT_MOST
    return f"{shown} and {left} more" if left > 0 else shown
