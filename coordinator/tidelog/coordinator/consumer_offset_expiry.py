"""When offsets of a group of the consumer protocol are forgotten.

The clock starts at the commit, and runs for topics that nobody subscribes to: so for all of them
when the group is empty. (``offset_expiry`` tells of classic groups.)
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.coordinator.consumer_group import ConsumerGroup, ConsumerGroupState
from tidelog.coordinator.offsets import CommittedOffsets
from tidelog.coordinator.records import OffsetKey, OffsetRecord, OffsetValue


@dataclass(frozen=True, slots=True)
class ConsumerExpiry:
    """Tombstones to write; ``is_abandoned``: nothing is left, delete the group as well."""

    offsets: tuple[OffsetRecord, ...] = ()
    is_abandoned: bool = False


def expire_consumer_offsets(
    now_ms: int, group: ConsumerGroup, offsets: CommittedOffsets
) -> ConsumerExpiry:
    name = group.group_id
    in_use = group.subscribed_topics()
    expired = tuple(
        OffsetRecord(OffsetKey(name, *place), None)
        for place, value in sorted(offsets.committed(name), key=lambda entry: entry[0])
        if place[0] not in in_use
        and not offsets.is_pending(name, place)
        and _is_expired(now_ms, value, offsets.settings.retention_ms)
    )
    remaining = sum(1 for _ in offsets.committed(name)) - len(expired)
    empty = group.state is ConsumerGroupState.EMPTY
    return ConsumerExpiry(expired, empty and remaining == 0 and not offsets.has_pending(name))


def _is_expired(now_ms: int, value: OffsetValue, retention_ms: int) -> bool:
    if value.expire_ms is not None and value.expire_ms >= 0:
        return now_ms >= value.expire_ms
    return now_ms - value.commit_ms >= retention_ms
