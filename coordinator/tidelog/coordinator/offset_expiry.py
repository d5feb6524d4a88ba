"""When committed offsets are forgotten (KIP-211, KAFKA-4682, KAFKA-8069).

The offsets of a group that is being used stay, however old they are. What starts the clock:

| the group | the clock starts | and runs for |
|---|---|---|
| Empty, once had members | when it became Empty (or at a later commit) | all its offsets |
| simple: nobody ever joined | at the commit | all its offsets |
| Stable, of consumers | at the commit | topics nobody subscribes to any more |
| all others | never | nothing |

"Or at a later commit" is for administrators who reset the offsets of a group that has been empty
for long: what they wrote a minute ago must not be gone at the next check.

An offset with an expiry of its own (clients of old) keeps that one, but only while one of the rows
applies. An offset that an open transaction is about to replace stays.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.coordinator.classic_group import ClassicGroup, GroupState
from tidelog.coordinator.offsets import CommittedOffsets, Place
from tidelog.coordinator.records import (
    GroupKey,
    GroupRecord,
    OffsetKey,
    OffsetRecord,
    OffsetValue,
)
from tidelog.coordinator.subscriptions import CONSUMER, subscribed_topics


@dataclass(frozen=True, slots=True)
class Expiry:
    """Tombstones to write; ``group`` is among them when nothing of the group is left."""

    offsets: tuple[OffsetRecord, ...] = ()
    group: GroupRecord | None = None


def expire_offsets(now_ms: int, group: ClassicGroup, offsets: CommittedOffsets) -> Expiry:
    name = group.group_id
    in_use = _topics_in_use(group)
    expired = tuple(
        OffsetRecord(OffsetKey(name, *place), None)
        for place, value in sorted(offsets.committed(name), key=_by_place)
        if not offsets.is_pending(name, place)
        and _is_expired(now_ms, clock_start_ms(group, in_use, place, value), value, offsets)
    )
    remaining = sum(1 for _ in offsets.committed(name)) - len(expired)
    abandoned = group.state is GroupState.EMPTY and group.pending_count == 0
    if abandoned and remaining == 0 and not offsets.has_pending(name):
        return Expiry(expired, GroupRecord(GroupKey(name), None))
    return Expiry(expired)


def _by_place(entry: tuple[Place, OffsetValue]) -> Place:
    return entry[0]


def _is_expired(
    now_ms: int, started_ms: int | None, value: OffsetValue, offsets: CommittedOffsets
) -> bool:
    if started_ms is None:
        return False
    if value.expire_ms is not None and value.expire_ms >= 0:
        return now_ms >= value.expire_ms
    return now_ms - started_ms >= offsets.settings.retention_ms


def clock_start_ms(
    group: ClassicGroup, in_use: frozenset[str] | None, place: Place, value: OffsetValue
) -> int | None:
    """Since when an offset counts as unused; None while it does not."""
    if group.is_simple:
        return value.commit_ms
    if group.state is GroupState.EMPTY:
        return max(value.commit_ms, group.state_changed_ms)
    if in_use is None or place[0] in in_use:
        return None
    return value.commit_ms


def _topics_in_use(group: ClassicGroup) -> frozenset[str] | None:
    """What the members of an active group subscribe to; None means that it may be anything."""
    if group.state is not GroupState.STABLE or group.protocol_type != CONSUMER:
        return None
    return subscribed_topics(group.subscriptions())
