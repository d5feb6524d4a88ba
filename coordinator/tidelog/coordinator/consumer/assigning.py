"""The target assignment: who should have what, at which epoch of the group.

A new epoch gets its target with the next heartbeat, but a group waits a while after the last one
(``group.consumer.assignment.interval.ms``), so that many changes at once are one assignment.
"""

from __future__ import annotations

from collections import Counter

from tidelog.coordinator import consumer_records as r
from tidelog.coordinator.consumer.core import ConsumerCore
from tidelog.coordinator.consumer.subscribing import subscribed_ids
from tidelog.coordinator.server_assignors import SERVER_ASSIGNORS, AssignorMember
from tidelog.kernel.ids import Uuid


def assignor_name(core: ConsumerCore) -> str:
    """What most members ask for among what is on offer; else the first on offer."""
    offered = core.settings.assignors
    asked = Counter(member.metadata.server_assignor for member in core.members.values())
    return max(offered, key=lambda name: (asked[name], -offered.index(name)))


def assign_if_due(core: ConsumerCore) -> None:
    if core.epoch <= core.target_epoch:
        return
    waited_ms = core.now_ms - core.assigned_ms
    # A time to come is another machine's clock: nobody waits for that.
    if core.target_epoch == 0 or not 0 <= waited_ms < core.settings.assignment_interval_ms:
        _assign(core)


def _assign(core: ConsumerCore) -> None:
    members, counts = _assignor_input(core)
    shares = SERVER_ASSIGNORS[assignor_name(core)](counts, members)
    for member_id in sorted(shares):
        if core.targets.get(member_id) != shares[member_id]:
            core.put_target(member_id, shares[member_id])
    core.put(core.group_key(r.TARGET_EPOCH_KEY), r.TargetEpoch(core.epoch, core.now_ms))


def _assignor_input(core: ConsumerCore) -> tuple[list[AssignorMember], dict[Uuid, int]]:
    alike: dict[tuple[tuple[str, ...], str | None], frozenset[Uuid]] = {}
    counts: dict[Uuid, int] = {}
    members = []
    for member in core.members.values():
        metadata = member.metadata
        kind = (metadata.topic_names, metadata.topic_regex)
        topics = alike.get(kind)
        if topics is None:
            topics = alike[kind] = subscribed_ids(core, member)
            for topic in topics:
                info = core.topics.with_id(topic)
                counts[topic] = info.partitions if info else 0
        owned = core.target_for(member.member_id)
        members.append(AssignorMember(member.member_id, topics, metadata.instance_id, owned))
    return members, counts
