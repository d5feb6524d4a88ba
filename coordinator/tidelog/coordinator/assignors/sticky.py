"""Balanced, and as much as possible where it was (KIP-54).

Where all subscribe alike, everybody keeps what it owns up to its quota, the rest is dealt out: no
balanced assignment moves fewer partitions. Where subscriptions differ, partitions travel along
chains of members while that makes the loads more even, which ends at the most even loads possible
(cost-reducing paths: Harvey et al., *Semi-matchings for bipartite graphs*, 2006). Kafka's own
clients stop somewhat earlier in that case, at single moves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tidelog.coordinator.assignors.model import (
    AssignorMember,
    PartitionCounts,
    Shares,
    wanted_partitions,
)
from tidelog.kernel.ids import TopicPartition

_Lists = dict[str, list[TopicPartition]]


def assign_sticky(counts: PartitionCounts, members: Iterable[AssignorMember]) -> Shares:
    ordered = sorted(members, key=lambda each: each.member_id)
    partitions = wanted_partitions(counts, ordered)
    kept = rightful_claims(partitions, ordered)
    if len({frozenset(each.topics & counts.keys()) for each in ordered}) <= 1:
        shares = _assign_alike(partitions, kept)
    else:
        shares = _assign_unlike(partitions, ordered, kept)
    return {member_id: tuple(sorted(share)) for member_id, share in shares.items()}


def rightful_claims(partitions: list[TopicPartition], members: list[AssignorMember]) -> _Lists:
    """What each member owned and may keep.

    Of two claims the younger generation's counts: the other was away when it lost the partition.
    Two claims of one generation cannot both be right, so neither counts.
    """
    claims: dict[TopicPartition, list[AssignorMember]] = {each: [] for each in partitions}
    for member in members:
        for partition in dict.fromkeys(member.owned):
            if partition in claims:
                claims[partition].append(member)
    kept: _Lists = {each.member_id: [] for each in members}
    for partition, claimants in claims.items():
        newest = max((each.generation for each in claimants), default=None)
        rightful = [each for each in claimants if each.generation == newest]
        if len(rightful) == 1 and partition.topic in rightful[0].topics:
            kept[rightful[0].member_id].append(partition)
    return kept


def _assign_alike(partitions: list[TopicPartition], kept: _Lists) -> _Lists:
    """Everybody gets the floor of the average, as many as needed one more."""
    if not kept:
        return {}
    smaller, ones_more = divmod(len(partitions), len(kept))
    shares: _Lists = {}
    for member_id, owned in kept.items():
        quota = smaller
        if len(owned) > smaller and ones_more > 0:
            quota, ones_more = smaller + 1, ones_more - 1
        in_order = sorted(owned, key=lambda each: (each.partition, each.topic))
        shares[member_id] = in_order[:quota]
    _deal(partitions, shares, smaller, ones_more)
    return shares


def _deal(partitions: list[TopicPartition], shares: _Lists, smaller: int, ones_more: int) -> None:
    """The rest, in turns: first everybody up to the smaller quota, then one more for some."""
    taken = {partition for share in shares.values() for partition in share}
    rest = deque(partition for partition in partitions if partition not in taken)
    hungry = deque(share for share in shares.values() if len(share) < smaller)
    while hungry:
        share = hungry.popleft()
        share.append(rest.popleft())
        if len(share) < smaller:
            hungry.append(share)
    for share in [each for each in shares.values() if len(each) == smaller][:ones_more]:
        share.append(rest.popleft())


def _assign_unlike(
    partitions: list[TopicPartition], members: list[AssignorMember], kept: _Lists
) -> _Lists:
    takers: dict[str, list[str]] = {}
    for member in members:
        for topic in member.topics:
            takers.setdefault(topic, []).append(member.member_id)
    shares = {member_id: list(owned) for member_id, owned in kept.items()}
    taken = {partition for owned in kept.values() for partition in owned}
    # What few can take goes first, while those few still have room.
    rest = [partition for partition in partitions if partition not in taken]
    for partition in sorted(rest, key=lambda each: (len(takers[each.topic]), each)):
        shares[min(takers[partition.topic], key=lambda who: len(shares[who]))].append(partition)
    while path := _levelling_path(shares, takers):
        for giver, partition, receiver in path:
            shares[giver].remove(partition)
            shares[receiver].append(partition)
    return shares


_Path = list[tuple[str, TopicPartition, str]]


def _levelling_path(shares: _Lists, takers: dict[str, list[str]]) -> _Path:
    """The shortest chain of moves from a member to one that has at least two fewer, if any."""
    for start in sorted(shares, key=lambda who: (-len(shares[who]), who)):
        reached: dict[str, _Path] = {start: []}
        queue = deque([start])
        while queue:
            giver = queue.popleft()
            if len(shares[giver]) <= len(shares[start]) - 2:
                return reached[giver]
            for partition in shares[giver]:
                for receiver in takers[partition.topic]:
                    if receiver not in reached:
                        reached[receiver] = [*reached[giver], (giver, partition, receiver)]
                        queue.append(receiver)
    return []
