"""The two assignors without a memory."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.coordinator.assignors.model import (
    AssignorMember,
    PartitionCounts,
    Shares,
    in_order,
    partitions_of,
    wanted_partitions,
)
from tidelog.kernel.ids import TopicPartition


def assign_range(counts: PartitionCounts, members: Iterable[AssignorMember]) -> Shares:
    """Each topic by itself: contiguous pieces for those who subscribe to it, in their order.

    Equal indexes of topics with equal counts meet at the same member, which is what joins need.
    """
    ordered = in_order(members)
    shares: dict[str, list[TopicPartition]] = {each.member_id: [] for each in ordered}
    for topic in sorted(counts):
        takers = [each for each in ordered if topic in each.topics]
        partitions = partitions_of(topic, counts)
        start = 0
        for index, taker in enumerate(takers):
            size = len(partitions) // len(takers) + (index < len(partitions) % len(takers))
            shares[taker.member_id] += partitions[start : start + size]
            start += size
    return {member_id: tuple(share) for member_id, share in shares.items()}


def assign_round_robin(counts: PartitionCounts, members: Iterable[AssignorMember]) -> Shares:
    """All partitions in order, dealt out one by one, past those who do not subscribe."""
    ordered = in_order(members)
    shares: dict[str, list[TopicPartition]] = {each.member_id: [] for each in ordered}
    turn = 0
    for partition in wanted_partitions(counts, ordered):
        while partition.topic not in ordered[turn % len(ordered)].topics:
            turn += 1
        shares[ordered[turn % len(ordered)].member_id].append(partition)
        turn += 1
    return {member_id: tuple(share) for member_id, share in shares.items()}
