"""The step of one member towards its target assignment.

A partition may only go to its new owner when the old one has said that it gave it up. So a member
first loses, at its old epoch, then gains, at the new one:

| state | when | next |
|---|---|---|
| STABLE | it is at the target's epoch | as it is |
| STABLE, UNRELEASED | it has partitions beyond its target, and says or may have them | UNREVOKED |
| UNREVOKED | it still has, or may have, what it is to give up | as it is |
| any of the three | it has none of these; some of its target are with others | UNRELEASED |
| any of the three | it has none of these; all of its target is free or its own | STABLE |
| UNKNOWN | it says that it has nothing | as above, from the new epoch on |
| UNKNOWN | otherwise | it is told to start anew |

In UNREVOKED the member keeps its epoch, in the other two it has the target's. Partitions of topics
that it no longer subscribes to are no longer its target, even before the next target is made.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace

from tidelog.coordinator.consumer.members import (
    NO_PARTITIONS,
    Held,
    Member,
    MemberState,
    Owned,
    overlap,
)
from tidelog.coordinator.server_assignors import Share
from tidelog.kernel.ids import Uuid


@dataclass(frozen=True, slots=True)
class Target:
    epoch: int
    share: Share
    subscribed: Container[Uuid]
    """The topics the member subscribes to as of now."""
    is_free: Callable[[Uuid, int], bool]
    """Whether nobody else has a partition."""


class MustStartAnew(Exception):
    """The member is in a state that is not understood, and may have partitions."""


def reconcile(member: Member, target: Target, owned: Owned | None, changed: bool) -> Member:
    """The member after the step; ``changed`` says that it has a new subscription."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch != target.epoch:
                return _advance(member, target, owned)
            return _drop_unsubscribed(member, target, owned) if changed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if _may_have(owned, member.revoking):
                return _drop_unsubscribed(member, target, owned) if changed else member
            return _advance(member, target, owned)
        case MemberState.UNRELEASED_PARTITIONS:
            return _advance(member, target, owned)
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise MustStartAnew
            return _advance(replace(member, epoch=target.epoch), target, owned)


def _may_have(owned: Owned | None, held: Held) -> bool:
    """Who does not say what it has may have everything."""
    return bool(held) and (owned is None or overlap(owned, held))


def _advance(member: Member, target: Target, owned: Owned | None) -> Member:
    kept: dict[Uuid, Mapping[int, int]] = {}
    lost: dict[Uuid, Mapping[int, int]] = {}
    nothing: frozenset[int] = frozenset()
    for topic, held in member.assigned.items():
        wanted = target.share.get(topic, nothing) if topic in target.subscribed else nothing
        if stays := {index: since for index, since in held.items() if index in wanted}:
            kept[topic] = stays
        if goes := {index: since for index, since in held.items() if index not in wanted}:
            lost[topic] = goes
    if _may_have(owned, lost):
        return replace(
            member,
            previous_epoch=member.epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            revoking=lost,
        )
    gained, waits = _gain(member, target, kept)
    return replace(
        member,
        epoch=target.epoch,
        previous_epoch=member.epoch,
        state=MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE,
        assigned=gained,
        revoking=NO_PARTITIONS,
    )


def _gain(
    member: Member, target: Target, kept: Mapping[Uuid, Mapping[int, int]]
) -> tuple[Held, bool]:
    """What it has with all that is free added, and whether some of its target is not free."""
    waits = False
    gained = dict(kept)
    nothing: Mapping[int, int] = {}
    for topic, wanted in target.share.items():
        if topic not in target.subscribed:
            continue
        have = kept.get(topic, nothing)
        added = {}
        for index in wanted - have.keys():
            own = index in member.revoking.get(topic, nothing)
            if own or target.is_free(topic, index):
                added[index] = target.epoch
            else:
                waits = True
        if added:
            gained[topic] = {**have, **added}
    return gained, waits


def _drop_unsubscribed(member: Member, target: Target, owned: Owned | None) -> Member:
    """Gives up topics it turned away from at once: the next target may be a while to come."""
    gone = {topic for topic in member.assigned if topic not in target.subscribed}
    if not gone:
        return member
    kept = {topic: held for topic, held in member.assigned.items() if topic not in gone}
    revoking = dict(member.revoking)
    for topic in gone:
        revoking[topic] = {**revoking.get(topic, {}), **member.assigned[topic]}
    if not _may_have(owned, revoking):
        return replace(member, previous_epoch=member.epoch, assigned=kept)
    return replace(
        member,
        previous_epoch=member.epoch,
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned=kept,
        revoking=revoking,
    )
