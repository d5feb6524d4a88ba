"""From a classic group to one of the consumer protocol and back, while the members go on (KIP-848).

*Upgrade*: a member of the consumer protocol joins a classic group of consumers. The classic members
stay, with what they were assigned, and are served as ``classic_members`` says.

*Downgrade*: the last member of the consumer protocol is gone, and only classic ones are left. They
are told to join again, and their leader assigns from now on.

Both are one write: the tombstones of the one kind and the records of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.coordinator import consumer_records as r
from tidelog.coordinator.classic import events as e
from tidelog.coordinator.classic_group import ClassicGroup
from tidelog.coordinator.consumer.classic_members import assignment_bytes
from tidelog.coordinator.consumer.context import ConsumerGroupSettings
from tidelog.coordinator.consumer.core import ConsumerCore
from tidelog.coordinator.consumer.members import Held, Member
from tidelog.coordinator.consumer.topics import Topics
from tidelog.coordinator.record_fields import MalformedRecord
from tidelog.coordinator.records import (
    CoordinatorRecord,
    GroupKey,
    GroupRecord,
    GroupValue,
    StoredMember,
)
from tidelog.coordinator.subscriptions import CONSUMER, decode_assignment, decode_subscription
from tidelog.kernel.ids import Uuid

Protocols = Mapping[str, tuple[e.Protocol, ...]]
"""What each member offers, by its id: a classic record only has the one that was chosen."""


class NotConvertible(Exception):
    """Why a classic group stays one."""


@dataclass(frozen=True, slots=True)
class ClassicSnapshot:
    """A classic group as it has to be rebuilt, now or if a write fails."""

    value: GroupValue
    protocols: Protocols


# --- upgrade ---------------------------------------------------------------------------------


def check_upgrade(group: ClassicGroup, settings: ConsumerGroupSettings) -> None:
    name = f"classic group {group.group_id!r} cannot be upgraded"
    if not settings.migration_policy.allows_upgrade:
        raise NotConvertible(f"{name}: group.consumer.migration.policy does not allow it")
    if group.protocol_type != CONSUMER:
        raise NotConvertible(f"{name}: its members are not consumers")
    if len(group.protocols()) > settings.max_size:
        raise NotConvertible(f"{name}: it has more members than group.consumer.max.size")


def upgraded_members(group: ClassicGroup, topics: Topics) -> list[Member]:
    """The classic members with what they have, at the generation as their epoch."""
    value = group.record().value
    assert value is not None, "a group that has members has a value"
    protocols = group.protocols()
    try:
        return [_upgraded(each, value, protocols[each.member_id], topics) for each in value.members]
    except MalformedRecord as error:
        raise NotConvertible(
            f"classic group {group.group_id!r} cannot be upgraded: {error}"
        ) from error


def _upgraded(
    stored: StoredMember, value: GroupValue, protocols: tuple[e.Protocol, ...], topics: Topics
) -> Member:
    said = decode_subscription(protocols[0].metadata)
    metadata = r.ConsumerMember(
        stored.instance_id,
        said.rack,
        stored.client_id,
        stored.client_host,
        tuple(sorted(set(said.topics))),
        "",
        stored.rebalance_timeout_ms,
        None,
        r.ClassicMemberMetadata(
            stored.session_timeout_ms,
            tuple(r.ClassicProtocol(each.name, each.metadata) for each in protocols),
        ),
    )
    epoch = value.generation
    held = _held(stored.assignment, epoch, topics) if stored.assignment else {}
    return Member(stored.member_id, metadata, epoch, epoch, assigned=held)


def _held(assignment: bytes, epoch: int, topics: Topics) -> Held:
    given = decode_assignment(assignment)
    if given.user_data:
        # An assignor of the client's own keeps something there that nobody here could keep up.
        raise MalformedRecord("its assignor is not one of the usual ones")
    held: dict[Uuid, dict[int, int]] = {}
    for each in given.partitions:
        info = topics.named(each.topic)
        if info is not None:
            held.setdefault(info.topic_id, {})[each.partition] = epoch
    return held


def seed(core: ConsumerCore, members: list[Member], generation: int) -> None:
    """Puts the classic members into a new group, each with its present share as its target."""
    core.add_foreign([GroupRecord(GroupKey(core.group_id), None)])
    for member in members:
        core.put(core.member_key(r.MEMBER_KEY, member.member_id), member.metadata)
    core.put_epoch(generation, 0)
    for member in members:
        share = {topic: frozenset(indexes) for topic, indexes in member.assigned.items()}
        core.put_target(member.member_id, share)
    core.put(core.group_key(r.TARGET_EPOCH_KEY), r.TargetEpoch(generation))
    for member in members:
        core.put_member(member)
        core.arm_session(member)


# --- downgrade -------------------------------------------------------------------------------


def can_downgrade(core: ConsumerCore) -> bool:
    """Whether only classic members are left, and a classic group may have as many."""
    settings = core.settings
    fits = 0 < len(core.members) <= settings.max_classic_size
    allowed = settings.migration_policy.allows_downgrade
    return fits and allowed and all(each.is_classic for each in core.members.values())


def classic_snapshot(core: ConsumerCore, generation: int) -> ClassicSnapshot:
    """The group as a classic one; all of its members have to be classic ones."""
    protocols = {
        each.member_id: tuple(e.Protocol(one.name, one.metadata) for one in classic.protocols)
        for each in core.members.values()
        if (classic := each.metadata.classic) is not None
    }
    chosen = _vote(protocols)
    members = tuple(
        _stored(core, each, _metadata_for(protocols[each.member_id], chosen))
        for each in core.members.values()
    )
    leader = members[0].member_id
    value = GroupValue(CONSUMER, generation, chosen, leader, core.now_ms, members)
    return ClassicSnapshot(value, protocols)


def _metadata_for(protocols: tuple[e.Protocol, ...], name: str) -> bytes:
    return next(each.metadata for each in protocols if each.name == name)


def _vote(protocols: Protocols) -> str:
    """As in a classic group: each for its first choice among what all know, the most votes win."""
    offers = [[one.name for one in offered] for offered in protocols.values()]
    common = set(offers[0]).intersection(*offers)
    votes = dict.fromkeys((name for name in offers[0] if name in common), 0)
    for names in offers:
        votes[next(name for name in names if name in common)] += 1
    return max(votes, key=votes.__getitem__)


def _stored(core: ConsumerCore, member: Member, subscription: bytes) -> StoredMember:
    metadata = member.metadata
    assert metadata.classic is not None, "only classic members go into a classic group"
    return StoredMember(
        member.member_id,
        metadata.instance_id,
        metadata.client_id,
        metadata.client_host,
        metadata.rebalance_timeout_ms,
        metadata.classic.session_timeout_ms,
        subscription,
        assignment_bytes(core, member),
    )


def put_tombstones(core: ConsumerCore) -> None:
    """Takes all that is there of a group out of the log."""
    for member_id in list(core.members):
        core.remove_member(member_id)
    for regex in list(core.regexes):
        core.put_regex(regex, None)
    for key_type in (r.TARGET_EPOCH_KEY, r.PARTITION_METADATA_KEY, r.EPOCH_KEY):
        core.put(core.group_key(key_type), None)


def classic_record(group_id: str, snapshot: ClassicSnapshot) -> CoordinatorRecord:
    return GroupRecord(GroupKey(group_id), snapshot.value)
