"""Whether consumers go forward, and leave nothing out. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tidelog.chaos.checkers.anomaly import Anomaly, Kind, named
from tidelog.chaos.checkers.facts import Facts, PlainPlace, is_same
from tidelog.chaos.history import History, Operation, Verb


def non_monotonic_polls(history: History) -> Iterator[Anomaly]:
    """Per client and partition; one that has read to the end starts over."""
    positions: dict[tuple[str, str, int], tuple[int, Operation]] = {}
    for operation in history.operations:
        if operation.verb is Verb.READ_TO_END:
            positions.pop((operation.client, operation.topic, operation.partition), None)
        elif operation.verb is Verb.POLL and operation.seen:
            yield from _one_poll(operation, positions)


def _one_poll(
    poll: Operation, positions: dict[tuple[str, str, int], tuple[int, Operation]]
) -> Iterator[Anomaly]:
    topic, partition, position = "", -1, -1
    before = poll
    for record in poll.seen:
        if record.partition != partition or record.topic != topic:
            if topic:
                positions[poll.client, topic, partition] = (position, poll)
            topic, partition = record.topic, record.partition
            position, before = positions.get((poll.client, topic, partition), (-1, poll))
        if record.offset <= position:
            yield Anomaly(
                Kind.NON_MONOTONIC_POLL,
                f"{poll.client} got offset {record.offset} of {topic}-{partition} after it had "
                f"got {position}.",
                (poll,) if before is poll else (before, poll),
                topic,
                partition,
                record.offset,
            )
        position, before = record.offset, poll
    positions[poll.client, topic, partition] = (position, poll)


def unseen(facts: Facts) -> Iterator[Anomaly]:
    """A group, or a client of none, has got records before and behind it, but not this one.

    What the last full read did not find either is lost rather than unseen.
    """
    required = _required(facts)
    offsets_of: dict[tuple[str, str, int], set[int]] = {}
    for (client, topic, partition), taken in facts.taken.items():
        if topic not in facts.compacted:
            reader = f"group {taken.group}" if taken.group else client
            got = offsets_of.setdefault((reader, topic, partition), set())
            got.update(record.offset for record in taken.records)
    for (reader, topic, partition), got in offsets_of.items():
        appends = required.get((topic, partition), {})
        first, last = min(got), max(got)
        for offset in sorted(appends.keys() - got):
            if first < offset < last and not _is_lost(facts, appends[offset]):
                yield _unseen(reader, appends[offset], last)


def _required(facts: Facts) -> dict[PlainPlace, dict[int, Operation]]:
    required: dict[PlainPlace, dict[int, Operation]] = defaultdict(dict)
    for append in facts.appends:
        if append.offset is not None and facts.must_be_there(append):
            required[append.topic, append.partition][append.offset] = append
    return required


def _is_lost(facts: Facts, append: Operation) -> bool:
    read = facts.final.get((append.topic, append.partition))
    if read is None or append.offset is None:
        return False
    record = read.records.get(append.offset)
    return record is None or not is_same(record, append)


def _unseen(reader: str, append: Operation, furthest: int) -> Anomaly:
    return Anomaly(
        Kind.UNSEEN,
        f"{reader} has read {append.topic}-{append.partition} up to {furthest} and never got "
        f"{named(append)}, acknowledged at {append.offset}.",
        (append,),
        append.topic,
        append.partition,
        append.offset,
    )
