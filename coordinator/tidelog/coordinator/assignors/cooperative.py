"""Sticky in two steps, so that nobody stops what it keeps (KIP-429).

A partition that has to move is given to nobody this time: its owner sees that it lost it, gives it
up and joins again, and the next rebalance hands it to its new owner. So no partition has two
owners, although the members keep working on all others meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.coordinator.assignors.model import AssignorMember, PartitionCounts, Shares
from tidelog.coordinator.assignors.sticky import assign_sticky
from tidelog.kernel.ids import TopicPartition


def assign_cooperative_sticky(counts: PartitionCounts, members: Iterable[AssignorMember]) -> Shares:
    known = list(members)
    shares = assign_sticky(counts, known)
    owners: dict[TopicPartition, set[str]] = {}
    for member in known:
        for partition in member.owned:
            owners.setdefault(partition, set()).add(member.member_id)
    return {
        member_id: tuple(each for each in share if not owners.get(each, set()) - {member_id})
        for member_id, share in shares.items()
    }


def needs_another_round(members: Iterable[AssignorMember], shares: Shares) -> bool:
    """Whether somebody has to give something up, and so will join again."""
    return any(set(each.owned) - set(shares[each.member_id]) for each in members)
