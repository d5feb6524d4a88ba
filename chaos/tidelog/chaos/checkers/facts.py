"""A history sorted for the checkers, in one walk over its operations. Pure.

Checkers ask: what lay at an offset, who wrote a record, how did a transaction end, what did the
last full read of a partition find. All of that is in dictionaries that the walk fills, so that a
run of a million operations is judged in seconds; what only bad histories need is made when asked.
No tuple or list is made per record: a million of them would cost more in collecting garbage than
all else.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from tidelog.chaos.history import History, Operation, Outcome, Record, Verb

T = TypeVar("T")


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Identity = tuple[str, str, int]
"""Topic, key and sequence: no two records of a run share them, whatever is tried again."""

PlainPlace = tuple[str, int]
"""A ``Place`` where there are too many to make one of each."""


class Ending(Enum):
    """How a transaction ended, as far as its producer can know."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Taken:
    """What one client got of one partition, in its order."""

    group: str
    records: list[Record] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FullRead:
    """A partition as it was read from its start to its end."""

    operation: Operation
    records: dict[int, Record]

    @property
    def place(self) -> Place:
        return Place(self.operation.topic, self.operation.partition)

    @property
    def end(self) -> int:
        """Everything below was read."""
        assert self.operation.offset is not None
        return self.operation.offset

    @property
    def began_ms(self) -> float:
        return self.operation.invoked_ms


class Facts:
    def __init__(self, history: History) -> None:
        self.history = history
        self.compacted = frozenset(history.header.compacted_topics)
        self.appends: list[Operation] = []
        self.ends: dict[str, list[Operation]] = {}
        """The operations that ended each transaction."""
        self.logs: dict[PlainPlace, dict[int, Record]] = defaultdict(dict)
        """What was first seen at each offset."""
        self._polls: dict[PlainPlace, dict[int, Operation]] = defaultdict(dict)
        """Who saw that."""
        self.conflicts: list[tuple[Record, Record, Operation]] = []
        """What was first seen at an offset, another record that was seen there, and by whom."""
        self.taken: dict[tuple[str, str, int], Taken] = {}
        """By client, topic and partition."""
        self.full_reads: list[FullRead] = []
        self._scan_starts: dict[tuple[str, str, int], int] = {}
        self._walk()
        self.final: dict[PlainPlace, FullRead] = {read.place: read for read in self.full_reads}
        """The last full read of each partition."""
        self._endings = {name: _ending(ends) for name, ends in self.ends.items()}

    def _walk(self) -> None:
        for operation in self.history.operations:
            match operation.verb:
                case Verb.APPEND:
                    self.appends.append(operation)
                case Verb.POLL:
                    self._note_seen(operation)
                case Verb.READ_TO_END:
                    self._note_full_read(operation)
                case Verb.END_TRANSACTION:
                    self.ends.setdefault(operation.transaction, []).append(operation)
                case Verb.COMMIT_OFFSET | Verb.FETCH_OFFSET:
                    pass

    def _note_seen(self, poll: Operation) -> None:
        topic, partition = "", -1
        for record in poll.seen:
            if record.partition != partition or record.topic != topic:
                topic, partition = record.topic, record.partition
                log, polls = self.logs[topic, partition], self._polls[topic, partition]
                records = self._taken_by(poll, topic, partition).records
            records.append(record)
            known = log.get(record.offset)
            if known is None:
                log[record.offset] = record
                polls[record.offset] = poll
            elif known.key != record.key or known.sequence != record.sequence:
                self.conflicts.append((known, record, poll))

    def _taken_by(self, poll: Operation, topic: str, partition: int) -> Taken:
        who = (poll.client, topic, partition)
        taken = self.taken.get(who)
        if taken is None:
            taken = self.taken[who] = Taken(poll.group)
        return taken

    def _note_full_read(self, operation: Operation) -> None:
        who = (operation.client, operation.topic, operation.partition)
        taken = self.taken.get(who)
        records = [] if taken is None else taken.records
        start = self._scan_starts.get(who, 0)
        self._scan_starts[who] = len(records)
        if operation.outcome is Outcome.OK and operation.offset is not None:
            found = {record.offset: record for record in records[start:]}
            self.full_reads.append(FullRead(operation, found))

    # --- transactions ------------------------------------------------------------------

    def ending(self, transaction: str) -> Ending:
        return self._endings.get(transaction, Ending.UNKNOWN)

    def must_be_there(self, append: Operation) -> bool:
        """Acknowledged, and by itself or in a transaction whose commit was acknowledged."""
        return append.outcome is Outcome.OK and (
            not append.transaction or self.ending(append.transaction) is Ending.COMMITTED
        )

    def can_be_there(self, append: Operation) -> bool:
        return append.outcome is not Outcome.FAILED and (
            not append.transaction or self.ending(append.transaction) is not Ending.ABORTED
        )

    def settled_ms(self, append: Operation) -> float:
        """Since when its writer knows that it is there; for what must be there."""
        ended_ms = math.inf if append.ended_ms is None else append.ended_ms
        for end in self.ends.get(append.transaction, ()) if append.transaction else ():
            if end.is_commit and end.outcome is Outcome.OK and end.ended_ms is not None:
                return max(ended_ms, end.ended_ms)
        return ended_ms

    # --- records -----------------------------------------------------------------------

    @cached_property
    def _writers(self) -> _ByIdentity[Operation]:
        found: _ByIdentity[Operation] = _ByIdentity()
        for append in self.appends:
            if append.sequence is not None:
                found.add(append.topic, append.key, append.sequence, append)
        return found

    def writer_of(self, record: Record) -> Operation | None:
        """The first of its writers."""
        if record.sequence is None:
            return None
        return self._writers.first(record.topic, record.key, record.sequence)

    def writers_of(self, record: Record) -> Sequence[Operation]:
        """All appends of it; nobody knows those of a tombstone."""
        if record.sequence is None:
            return ()
        return self._writers.get(record.topic, record.key, record.sequence)

    @cached_property
    def _sightings(self) -> _ByIdentity[Record]:
        found: _ByIdentity[Record] = _ByIdentity()
        for place in sorted(self.logs):
            log = self.logs[place]
            for offset in sorted(log):
                record = log[offset]
                if record.sequence is not None:
                    found.add(record.topic, record.key, record.sequence, record)
        return found

    def sightings_of(self, record: Record | Operation) -> Sequence[Record]:
        """Everywhere it was seen, in the order of the log; none of a tombstone."""
        if record.sequence is None:
            return ()
        return self._sightings.get(record.topic, record.key, record.sequence)

    def seen_often(self) -> Iterable[Sequence[Record]]:
        """The sightings of each record that was seen at more than one offset."""
        return self._sightings.several.values()

    def seen(self) -> Iterator[Record]:
        """Each record that was seen, once, but for tombstones."""
        return self._sightings.firsts()

    def seen_at(self, append: Operation) -> Record | None:
        """What was seen at the offset that was acknowledged."""
        if append.offset is None:
            return None
        log = self.logs.get((append.topic, append.partition))
        return None if log is None else log.get(append.offset)

    def poll_of(self, record: Record) -> Operation:
        """The first that gave it, of a record in ``logs``."""
        return self._polls[record.topic, record.partition][record.offset]


class _ByIdentity(Generic[T]):
    """Things by topic, key and sequence: one each, and a list where there are several."""

    def __init__(self) -> None:
        self.several: dict[Identity, list[T]] = {}
        self._first: dict[str, dict[str, dict[int, T]]] = defaultdict(lambda: defaultdict(dict))

    def add(self, topic: str, key: str, sequence: int, thing: T) -> None:
        first = self._first[topic][key].setdefault(sequence, thing)
        if first is not thing:
            self.several.setdefault((topic, key, sequence), [first]).append(thing)

    def first(self, topic: str, key: str, sequence: int) -> T | None:
        return self._first[topic][key].get(sequence)

    def get(self, topic: str, key: str, sequence: int) -> Sequence[T]:
        first = self.first(topic, key, sequence)
        if first is None:
            return ()
        return self.several.get((topic, key, sequence)) or (first,)

    def firsts(self) -> Iterator[T]:
        for keys in self._first.values():
            for sequences in keys.values():
                yield from sequences.values()


def is_same(record: Record, append: Operation) -> bool:
    return record.key == append.key and record.sequence == append.sequence


def _ending(ends: list[Operation]) -> Ending:
    """Only a commit that was asked for can have happened, and one that failed has not."""
    outcomes = {end.outcome for end in ends if end.is_commit}
    if Outcome.OK in outcomes:
        return Ending.COMMITTED
    return Ending.UNKNOWN if Outcome.UNKNOWN in outcomes else Ending.ABORTED
