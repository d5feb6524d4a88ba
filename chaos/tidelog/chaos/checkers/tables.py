"""Whether a compacted topic forgets what it must: an old value of a key never comes back. Pure.

Compaction may leave out any record whose key has a newer one, and a tombstone after its time. It
must not leave out the newer and keep the older: a table read from its start would then show a
value that was replaced or deleted. So no full read may show as a key's last record one that lies
below what was known of the key before the read began.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.chaos.checkers.anomaly import Anomaly, Kind, named
from tidelog.chaos.checkers.facts import Facts, FullRead, Place
from tidelog.chaos.history import Operation, Record

_Known = tuple[float, int, str, Operation]
"""Since when, the offset, the key, and who wrote or read it."""


def resurrected_keys(facts: Facts) -> Iterator[Anomaly]:
    for place in sorted({read.place for read in facts.full_reads}):
        if place.topic in facts.compacted:
            yield from _one_partition(facts, place)


def _one_partition(facts: Facts, place: Place) -> Iterator[Anomaly]:
    known = sorted(_known(facts, place), key=lambda one: (one[0], one[1]))
    reads = [read for read in facts.full_reads if read.place == place]
    newest: dict[str, tuple[int, Operation]] = {}
    told: set[tuple[str, int]] = set()
    at = 0
    for read in sorted(reads, key=lambda read: read.began_ms):
        while at < len(known) and known[at][0] <= read.began_ms:
            _, offset, key, operation = known[at]
            if key not in newest or newest[key][0] < offset:
                newest[key] = (offset, operation)
            at += 1
        for key, record in _last_of_keys(read).items():
            newer = newest.get(key)
            if newer is not None and record.offset < newer[0] and (key, record.offset) not in told:
                told.add((key, record.offset))
                yield _resurrected(read, record, newer)


def _known(facts: Facts, place: Place) -> Iterator[_Known]:
    for append in facts.appends:
        is_here = append.partition == place.partition and append.topic == place.topic
        if is_here and append.offset is not None and facts.must_be_there(append):
            yield facts.settled_ms(append), append.offset, append.key, append
    for offset, record in facts.logs.get(place, {}).items():
        poll = facts.poll_of(record)
        if poll.ended_ms is not None:
            yield poll.ended_ms, offset, record.key, poll


def _last_of_keys(read: FullRead) -> dict[str, Record]:
    last: dict[str, Record] = {}
    for offset in sorted(read.records):
        last[read.records[offset].key] = read.records[offset]
    return last


def _resurrected(read: FullRead, record: Record, newer: tuple[int, Operation]) -> Anomaly:
    offset, operation = newer
    return Anomaly(
        Kind.RESURRECTED_KEY,
        f"{read.operation.client} read {named(record)} at offset {record.offset} of {read.place} "
        f"as the last of its key, after a newer one at {offset} was known to {operation.client}.",
        (operation, read.operation),
        record.topic,
        record.partition,
        record.offset,
    )
