"""What became of single records: lost, twice, out of order, elsewhere, from nowhere. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tidelog.chaos.checkers.anomaly import Anomaly, Kind, named, seconds
from tidelog.chaos.checkers.facts import Facts, FullRead, PlainPlace, is_same
from tidelog.chaos.history import Operation, Outcome, Record


def lost_writes(facts: Facts) -> Iterator[Anomaly]:
    """Must be there, and is not among what the last full read of its partition found.

    Judged is what the read must have come across: all that it passed, and all that was
    acknowledged before it began. Of a compacted topic only the newest of a key must be there.
    """
    newest = _newest_of_keys(facts)
    for append in facts.appends:
        read = facts.final.get((append.topic, append.partition))
        if read is None or not facts.must_be_there(append) or _is_found(read, append):
            continue
        if append.topic in facts.compacted and append is not newest[append.topic, append.key]:
            continue
        if _is_due(facts, read, append) and not _is_found_elsewhere(facts, append):
            yield _lost(read, append)


def unjudged_writes(facts: Facts) -> dict[PlainPlace, int]:
    """How many acknowledged writes nobody looked for, by partition: they may be lost or not."""
    found: dict[PlainPlace, int] = {}
    for append in facts.appends:
        place = (append.topic, append.partition)
        read = facts.final.get(place)
        is_judged = read is not None and (_is_found(read, append) or _is_due(facts, read, append))
        if not is_judged and facts.must_be_there(append):
            found[place] = found.get(place, 0) + 1
    return found


def _is_due(facts: Facts, read: FullRead, append: Operation) -> bool:
    """Whether the read must have come across what must be there."""
    is_passed = append.offset is not None and append.offset < read.end
    return is_passed or facts.settled_ms(append) <= read.began_ms


def _newest_of_keys(facts: Facts) -> dict[tuple[str, str], Operation | None]:
    """The write of each key of a compacted topic that nothing may have taken the place of.

    None if its newest write is one that may or may not be there, or a tombstone, which may go.
    """
    newest: dict[tuple[str, str], Operation] = {}
    for append in facts.appends:
        if append.topic not in facts.compacted or not facts.can_be_there(append):
            continue
        known = newest.get((append.topic, append.key))
        if known is None or _order(append) > _order(known):
            newest[append.topic, append.key] = append
    return {
        key: append if facts.must_be_there(append) and append.sequence is not None else None
        for key, append in newest.items()
    }


def _order(append: Operation) -> tuple[float, int]:
    """A key has one writer at a time, so its records lie in the order in which it wrote them."""
    return (append.invoked_ms, -1 if append.offset is None else append.offset)


def _is_found(read: FullRead, append: Operation) -> bool:
    if append.offset is None:
        return False
    record = read.records.get(append.offset)
    return record is not None and is_same(record, append)


def _is_found_elsewhere(facts: Facts, append: Operation) -> bool:
    """At another offset than was acknowledged: bad, but not lost."""
    if append.sequence is None:
        return append.offset is None
    return any(
        (read := facts.final.get((record.topic, record.partition))) is not None
        and read.records.get(record.offset) == record
        for record in facts.sightings_of(append)
    )


def _lost(read: FullRead, append: Operation) -> Anomaly:
    at = "" if append.offset is None else f" at offset {append.offset}"
    return Anomaly(
        Kind.LOST_WRITE,
        f"{named(append)} of {read.place} was acknowledged{at} to {append.client} at "
        f"{seconds(append.ended_ms)}, and was not there when all was read up to {read.end}.",
        (append, read.operation),
        append.topic,
        append.partition,
        append.offset,
    )


def duplicates(facts: Facts) -> Iterator[Anomaly]:
    for records in facts.seen_often():
        where = ", ".join(f"{one.topic}-{one.partition} at {one.offset}" for one in records)
        last = records[-1]
        yield Anomaly(
            Kind.DUPLICATE,
            f"{named(last)} is there {len(records)} times: {where}.",
            (*facts.writers_of(last), *_polls(facts, *records)),
            last.topic,
            last.partition,
            last.offset,
        )


def _polls(facts: Facts, *records: Record) -> list[Operation]:
    polls = [facts.poll_of(record) for record in records]
    return list({poll.number: poll for poll in polls}.values())


def reorders(facts: Facts) -> Iterator[Anomaly]:
    """Of a key's records in a partition the first sightings must rise; a second one of the same
    record is a duplicate and says nothing about order."""
    for place in sorted(facts.logs):
        log = facts.logs[place]
        last: dict[str, Record] = {}
        for offset in sorted(log):
            record = log[offset]
            if record.sequence is None:
                continue
            before = last.get(record.key)
            if before is None or before.sequence is None or before.sequence < record.sequence:
                last[record.key] = record
            elif facts.sightings_of(record)[0] is record:
                yield _reorder(facts, before, record)


def _reorder(facts: Facts, before: Record, after: Record) -> Anomaly:
    return Anomaly(
        Kind.REORDER,
        f"{named(after)} was written before {named(before)}, and lies behind it in "
        f"{after.topic}-{after.partition}: at {after.offset}, not below {before.offset}.",
        (*facts.writers_of(after), *facts.writers_of(before), *_polls(facts, before, after)),
        after.topic,
        after.partition,
        after.offset,
    )


def inconsistent_offsets(facts: Facts) -> Iterator[Anomaly]:
    for first, second, second_poll in facts.conflicts:
        first_poll = facts.poll_of(first)
        yield Anomaly(
            Kind.INCONSISTENT_OFFSET,
            f"{first_poll.client} got {named(first)} at offset {first.offset} of "
            f"{first.topic}-{first.partition}, and {second_poll.client} got {named(second)}.",
            (first_poll, second_poll),
            first.topic,
            first.partition,
            first.offset,
        )
    acknowledged: dict[PlainPlace, dict[int, Operation]] = defaultdict(dict)
    for append in facts.appends:
        if append.outcome is not Outcome.OK or append.offset is None:
            continue
        other = acknowledged[append.topic, append.partition].setdefault(append.offset, append)
        if other is not append:
            yield _two_writers(other, append)
        record = facts.seen_at(append)
        if record is None:
            yield from _elsewhere(facts, append)
        elif not is_same(record, append):
            yield _other_record(append, record, facts.poll_of(record))


def _two_writers(first: Operation, second: Operation) -> Anomaly:
    return Anomaly(
        Kind.INCONSISTENT_OFFSET,
        f"Offset {first.offset} of {first.topic}-{first.partition} was acknowledged for both "
        f"{named(first)} and {named(second)}.",
        (first, second),
        first.topic,
        first.partition,
        first.offset,
    )


def _other_record(append: Operation, record: Record, poll: Operation) -> Anomaly:
    return Anomaly(
        Kind.INCONSISTENT_OFFSET,
        f"{named(append)} was acknowledged at offset {append.offset} of "
        f"{append.topic}-{append.partition}, where {poll.client} got {named(record)}.",
        (append, poll),
        append.topic,
        append.partition,
        append.offset,
    )


def _elsewhere(facts: Facts, append: Operation) -> Iterator[Anomaly]:
    """Nothing was seen where it was acknowledged, but it was seen, and nobody else wrote it."""
    if not facts.must_be_there(append):
        return
    for record in facts.sightings_of(append):
        poll = facts.poll_of(record)
        if any(other.offset == record.offset for other in facts.writers_of(record)):
            continue
        yield Anomaly(
            Kind.INCONSISTENT_OFFSET,
            f"{named(append)} was acknowledged at offset {append.offset} of "
            f"{append.topic}-{append.partition}, but {poll.client} got it at {record.offset} of "
            f"{record.topic}-{record.partition}.",
            (append, poll),
            append.topic,
            append.partition,
            append.offset,
        )


def invented_records(facts: Facts) -> Iterator[Anomaly]:
    """Of a run that was cut off, writes may not have been noted: only failed ones are judged."""
    is_whole = facts.history.end is not None
    written_topics = {append.topic for append in facts.appends}
    for record in facts.seen():
        writer = facts.writer_of(record)
        if writer is not None and writer.outcome is not Outcome.FAILED:
            continue
        writers = facts.writers_of(record)
        if any(writer.outcome is not Outcome.FAILED for writer in writers):
            continue
        if writers:
            reason = f"though {writers[0].client} was told that it could not be written"
        elif is_whole and record.topic in written_topics:
            reason = "which nobody wrote"
        else:
            continue
        poll = facts.poll_of(record)
        yield Anomaly(
            Kind.INVENTED_RECORD,
            f"{poll.client} got {named(record)} at offset {record.offset} of "
            f"{record.topic}-{record.partition}, {reason}.",
            (*writers, poll),
            record.topic,
            record.partition,
            record.offset,
        )
