"""The anomalies of transactional logs, found in a history of what clients did and saw.

Theory. Every write carries a value that no other write carries, so a value seen tells which write
it came from. A transaction has one of three outcomes: its producer was told that it committed, was
told that it aborted, or does not know (the answer was lost). What is *there* is judged by a final
read of every partition under read_committed, made when all is quiet; what consumers polled on the
way may only be less than that, never other.

- aborted read: a value of an aborted transaction was seen;
- lost write: a value of a committed transaction, or an acknowledged single write, is not there;
- duplicate: a value is there twice;
- torn transaction: of a transaction some values are there and others are not;
- non-monotonic poll: a consumer's positions in a partition went back or stood still;
- reordered: two values of one producer are there in another order than they were written;
- invented record: a value that nobody wrote was seen, or a polled value is not there at its offset.

Pure: a history goes in, the anomalies come out, in a fixed order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

Partition = tuple[str, int]
"""A topic's name and the index of a partition."""


class Outcome(Enum):
    """What the producer knows of its transaction; ``UNKNOWN`` may be either."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Write:
    """One record that a producer handed over; ``transaction`` None: outside of any."""

    producer: str
    partition: Partition
    value: str
    transaction: str | None = None
    is_acknowledged: bool = False
    """Counts only outside of transactions: inside, the outcome does."""


@dataclass(frozen=True, slots=True)
class End:
    transaction: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Seen:
    partition: Partition
    offset: int
    value: str


@dataclass(frozen=True, slots=True)
class Poll:
    """What one consumer was given under read_committed, in order.

    A consumer that starts over, or is assigned the partition again, is another one.
    """

    consumer: str
    records: tuple[Seen, ...]


@dataclass(frozen=True, slots=True)
class TransactionalHistory:
    writes: Sequence[Write]
    """In the order in which each producer made them."""
    ends: Sequence[End] = ()
    """At most one per transaction; one without is unknown."""
    polls: Sequence[Poll] = ()
    final: Mapping[Partition, Sequence[tuple[int, str]]] = field(default_factory=dict)
    """(offset, value) of every partition, read at the end."""


@dataclass(frozen=True, slots=True)
class AbortedRead:
    seen: Seen
    transaction: str


@dataclass(frozen=True, slots=True)
class LostWrite:
    write: Write


@dataclass(frozen=True, slots=True)
class Duplicate:
    value: str
    partition: Partition
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TornTransaction:
    transaction: str
    present: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NonMonotonicPoll:
    consumer: str
    partition: Partition
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Reordered:
    partition: Partition
    earlier: str
    later: str
    """Written after ``earlier`` and yet before it in the log."""


@dataclass(frozen=True, slots=True)
class InventedRecord:
    seen: Seen


Anomaly = (
    AbortedRead
    | LostWrite
    | Duplicate
    | TornTransaction
    | NonMonotonicPoll
    | Reordered
    | InventedRecord
)


def check_transactional_log(history: TransactionalHistory) -> list[Anomaly]:
    """Everything that must not be; an empty list is a good run."""
    judge = _Judge(history)
    return [
        *judge.aborted_reads(),
        *judge.lost_writes(),
        *judge.duplicates(),
        *judge.torn_transactions(),
        *judge.non_monotonic_polls(),
        *judge.reordered(),
        *judge.invented_records(),
    ]


class _Judge:
    def __init__(self, history: TransactionalHistory) -> None:
        self.history = history
        self.written: dict[str, Write] = {}
        for write in history.writes:
            if write.value in self.written:
                raise ValueError(f"two writes carry the value {write.value!r}: only one may")
            self.written[write.value] = write
        self.outcomes: dict[str, Outcome] = {}
        for end in history.ends:
            if self.outcomes.setdefault(end.transaction, end.outcome) is not end.outcome:
                raise ValueError(f"transaction {end.transaction!r} has two outcomes")
        self.final = [
            Seen(partition, offset, value)
            for partition, records in history.final.items()
            for offset, value in records
        ]
        self.present = {seen.value for seen in self.final}

    def outcome(self, transaction: str) -> Outcome:
        return self.outcomes.get(transaction, Outcome.UNKNOWN)

    def everything_seen(self) -> Iterable[Seen]:
        """Each record once, though many may have seen it."""
        polled = (seen for poll in self.history.polls for seen in poll.records)
        return dict.fromkeys([*self.final, *polled])

    def aborted_reads(self) -> Iterable[AbortedRead]:
        for seen in self.everything_seen():
            write = self.written.get(seen.value)
            if write is None or write.transaction is None:
                continue
            if self.outcome(write.transaction) is Outcome.ABORTED:
                yield AbortedRead(seen, write.transaction)

    def lost_writes(self) -> Iterable[LostWrite]:
        for write in self.history.writes:
            if write.transaction is None:
                must_be_there = write.is_acknowledged
            else:
                must_be_there = self.outcome(write.transaction) is Outcome.COMMITTED
            if must_be_there and write.value not in self.present:
                yield LostWrite(write)

    def duplicates(self) -> Iterable[Duplicate]:
        times = Counter((seen.partition, seen.value) for seen in self.final)
        for (partition, value), count in times.items():
            if count > 1:
                records = self.history.final[partition]
                at = tuple(offset for offset, other in records if other == value)
                yield Duplicate(value, partition, at)

    def torn_transactions(self) -> Iterable[TornTransaction]:
        values: dict[str, list[str]] = {}
        for write in self.history.writes:
            if write.transaction is not None:
                values.setdefault(write.transaction, []).append(write.value)
        for transaction, all_values in values.items():
            present = tuple(value for value in all_values if value in self.present)
            missing = tuple(value for value in all_values if value not in self.present)
            if present and missing:
                yield TornTransaction(transaction, present, missing)

    def non_monotonic_polls(self) -> Iterable[NonMonotonicPoll]:
        positions: dict[tuple[str, Partition], int] = {}
        for poll in self.history.polls:
            for seen in poll.records:
                place = (poll.consumer, seen.partition)
                before = positions.get(place, -1)
                if seen.offset <= before:
                    yield NonMonotonicPoll(poll.consumer, seen.partition, before, seen.offset)
                positions[place] = seen.offset

    def reordered(self) -> Iterable[Reordered]:
        order = {write.value: number for number, write in enumerate(self.history.writes)}
        for partition, records in self.history.final.items():
            last: dict[str, str] = {}
            for _, value in sorted(records):
                write = self.written.get(value)
                if write is None:
                    continue
                before = last.get(write.producer)
                if before is not None and order[before] > order[value]:
                    yield Reordered(partition, earlier=value, later=before)
                last[write.producer] = value

    def invented_records(self) -> Iterable[InventedRecord]:
        there = set(self.final)
        for seen in self.everything_seen():
            write = self.written.get(seen.value)
            if write is None or write.partition != seen.partition or seen not in there:
                yield InventedRecord(seen)
