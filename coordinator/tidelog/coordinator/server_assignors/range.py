"""Contiguous pieces of every topic, in the order of the members.

Equal indexes of topics with equal counts and equal subscribers meet at the same member, which is
what joins of topics need. The order alone decides, so a restarted static member finds its pieces
again; a change among the members may move much.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.coordinator.server_assignors.model import (
    AssignorMember,
    PartitionCounts,
    Shares,
    in_order,
)
from tidelog.kernel.ids import Uuid


def assign_range(counts: PartitionCounts, members: Iterable[AssignorMember]) -> Shares:
    ordered = in_order(members)
    takers: dict[Uuid, list[str]] = {}
    for member in ordered:
        for topic in member.topics:
            if counts.get(topic, 0) > 0:
                takers.setdefault(topic, []).append(member.member_id)
    shares: dict[str, dict[Uuid, frozenset[int]]] = {each.member_id: {} for each in ordered}
    for topic in sorted(takers):
        smaller, ones_more = divmod(counts[topic], len(takers[topic]))
        start = 0
        for index, member_id in enumerate(takers[topic]):
            size = smaller + (index < ones_more)
            if size:
                shares[member_id][topic] = frozenset(range(start, start + size))
            start += size
    return {member_id: share for member_id, share in shares.items()}
