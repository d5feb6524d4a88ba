"""Whether the offsets of groups only go forward. Pure.

Whoever is given a partition goes on from the group's offset, and those who are no longer members
are fenced. So a group's offset, fetched or committed after a commit was acknowledged, is not below
that commit: otherwise a commit was lost, or one who had been fenced got through.

One answer may be old. A coordinator that is cut off or stopped does not know that it was replaced,
and tells an onlooker, in Kafka as here, what it has in memory; commits and members it cannot take.
But it knows every commit that was acknowledged while it was the coordinator. So what is fetched
while such a fault acts, or so soon after that its victim may not have heard of it, is held against
the commits from before the fault.

One commit may be late. A member that gave up waiting for an answer and commits more may have both
requests under way on different connections, and nothing in the protocol orders them: the first,
in line behind a slow one, may be served last, as long as the member is what it was. So what a
member committed after one whose outcome it does not know binds only those who are below that one.
Any other member's commits fence it, and bind everybody.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog.chaos.checkers.anomaly import Anomaly, Kind, seconds
from tidelog.chaos.checkers.facts import Facts
from tidelog.chaos.history import FaultBand, Operation, Outcome, Verb

GroupPlace = tuple[str, str, int]
"""Group, topic and partition."""

_DEADLY: Final = (
    "kill-", "terminate-", "restart", "rolling-restart", "power-loss", "corrupt-", "administration",
)  # fmt: skip
"""How faults are called whose victims, if they have any, are dead: nobody goes on who has been
replaced."""
_HEARS_MS: Final = 3_000.0
"""By then a node that was cut off or stopped knows what happened meanwhile."""


class _Deafness(NamedTuple):
    """A time in which a node may not know that it was replaced."""

    from_ms: float
    to_ms: float


@dataclass(slots=True)
class _OnePlace:
    """What was done with the offset of one group in one partition."""

    commits: list[tuple[float, int, Operation]] = field(default_factory=list)
    """Those that must be there: since when that is known, their offset."""
    open: list[Operation] = field(default_factory=list)
    """Commits, not in transactions, of which nobody knows whether they were served, or will be."""
    later: list[Operation] = field(default_factory=list)
    """What must respect them."""


def stale_group_offsets(facts: Facts) -> Iterator[Anomaly]:
    places: dict[GroupPlace, _OnePlace] = {}
    for operation in facts.history.operations:
        is_commit = operation.verb is Verb.COMMIT_OFFSET
        if not is_commit and operation.verb is not Verb.FETCH_OFFSET:
            continue
        name = (operation.group, operation.topic, operation.partition)
        place = places.setdefault(name, _OnePlace())
        if is_commit and operation.outcome is Outcome.UNKNOWN and not operation.transaction:
            place.open.append(operation)
        elif facts.must_be_there(operation):
            place.later.append(operation)
            if is_commit:
                settled_ms = facts.settled_ms(operation)
                place.commits.append((settled_ms, _offset(operation), operation))
    deafnesses = list(_deafnesses(facts.history.faults))
    for place in places.values():
        yield from _judged(place, deafnesses)


def _deafnesses(faults: Iterable[FaultBand]) -> Iterator[_Deafness]:
    for fault in faults:
        if not fault.name.startswith(_DEADLY):
            healed_ms = float("inf") if fault.ended_ms is None else fault.ended_ms
            yield _Deafness(fault.began_ms, healed_ms + _HEARS_MS)


def _judged(place: _OnePlace, deafnesses: list[_Deafness]) -> Iterator[Anomaly]:
    commits = sorted(place.commits, key=lambda commit: (commit[0], commit[2].number))
    times = [settled_ms for settled_ms, _, _ in commits]
    highest = _rising(commits)
    told = 0
    """Below which commits are known to be lost; what follows from that is not told again."""
    for operation in sorted(place.later, key=lambda one: (one.invoked_ms, one.number)):
        count = bisect_right(times, _known_before_ms(operation, deafnesses))
        if count <= told:
            continue
        floor = highest[count - 1] if told == 0 else _rising(commits[told:count])[-1]
        if _offset(operation) < _offset(floor):
            binding = [one for one in commits[told:count] if _binds(one[2], operation, place.open)]
            if binding and _offset(operation) < _offset(floor := _rising(binding)[-1]):
                yield _stale(floor, operation)
                told = count


def _binds(commit: Operation, later: Operation, opened: list[Operation]) -> bool:
    """Unless the same member has an earlier commit under way that may have come in between."""
    return not any(
        one.client == commit.client
        and one.invoked_ms <= commit.invoked_ms
        and _offset(one) <= _offset(later)
        for one in opened
    )


def _known_before_ms(operation: Operation, deafnesses: list[_Deafness]) -> float:
    """Commits that were settled by then must show in it."""
    if operation.verb is Verb.COMMIT_OFFSET:
        return operation.invoked_ms
    ended_ms = operation.invoked_ms if operation.ended_ms is None else operation.ended_ms
    meanwhile = [
        deafness.from_ms
        for deafness in deafnesses
        if deafness.from_ms <= ended_ms and operation.invoked_ms <= deafness.to_ms
    ]
    return min([operation.invoked_ms, *meanwhile])


def _rising(commits: list[tuple[float, int, Operation]]) -> list[Operation]:
    """The highest of the commits up to each."""
    found: list[Operation] = []
    for _, offset, operation in commits:
        is_higher = not found or offset > _offset(found[-1])
        found.append(operation if is_higher else found[-1])
    return found


def _offset(operation: Operation) -> int:
    return -1 if operation.offset is None else operation.offset


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
