"""Whether the offsets of groups only go forward. Pure.

Whoever is given a partition goes on from the group's offset, and those who are no longer members
are fenced. So a group's offset, fetched or committed after a commit was acknowledged, is not below
that commit: otherwise a commit was lost, or one who had been fenced got through.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.chaos.checkers.anomaly import Anomaly, Kind, seconds
from tidelog.chaos.checkers.facts import Facts
from tidelog.chaos.history import Operation, Verb

GroupPlace = tuple[str, str, int]
"""Group, topic and partition."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """A commit becomes known, or an operation begins that must respect what is known."""

    at_ms: float
    is_begin: bool
    """What ends at a time is known to what begins at it."""
    number: int
    operation: Operation

    def order(self) -> tuple[float, bool, int]:
        return (self.at_ms, self.is_begin, self.number)


def stale_group_offsets(facts: Facts) -> Iterator[Anomaly]:
    moments: dict[GroupPlace, list[_Moment]] = {}
    for operation in facts.history.operations:
        if operation.verb is Verb.COMMIT_OFFSET or operation.verb is Verb.FETCH_OFFSET:
            place = (operation.group, operation.topic, operation.partition)
            moments.setdefault(place, []).extend(_moments(facts, operation))
    for found in moments.values():
        found.sort(key=_Moment.order)
        yield from _one_place(found)


def _moments(facts: Facts, operation: Operation) -> Iterator[_Moment]:
    must_be = facts.must_be_there(operation)
    if operation.verb is Verb.COMMIT_OFFSET and must_be:
        yield _Moment(facts.settled_ms(operation), False, operation.number, operation)
    if must_be:
        yield _Moment(operation.invoked_ms, True, operation.number, operation)


def _one_place(moments: list[_Moment]) -> Iterator[Anomaly]:
    floor, floor_commit = -1, None
    for moment in moments:
        operation = moment.operation
        offset = -1 if operation.offset is None else operation.offset
        if not moment.is_begin:
            if offset > floor:
                floor, floor_commit = offset, operation
        elif offset < floor and floor_commit is not None:
            yield _stale(floor_commit, operation)
            # What goes on from here is a consequence, and not told again.
            floor = offset


def _stale(commit: Operation, later: Operation) -> Anomaly:
    got = "none" if later.offset is None else str(later.offset)
    verb = "fetched" if later.verb is Verb.FETCH_OFFSET else "committed"
    return Anomaly(
        Kind.STALE_GROUP_OFFSET,
        f"{later.client} {verb} {got} as the offset of group {later.group} in "
        f"{later.topic}-{later.partition}, after {commit.offset} had been acknowledged to "
        f"{commit.client} at {seconds(commit.ended_ms)}.",
        (commit, later),
        later.topic,
        later.partition,
        later.offset,
    )
