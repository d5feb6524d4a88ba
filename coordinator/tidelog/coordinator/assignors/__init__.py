"""How clients of the classic protocol share partitions: range, round robin, sticky, cooperative.

In the classic protocol the leader among the consumers assigns; the broker only carries bytes. These
are reference versions of what clients do, for tests and for planning. All are functions

    assign(partition_counts, members) -> {member id: its partitions}

of the number of partitions per topic and the members with their subscriptions. Topics that do not
exist are ignored, partitions that nobody wants go to nobody. Racks are not looked at.

| name | balanced | moves on a change |
|---|---|---|
| ``range`` | per topic only: the first members get one more of *each* topic | many |
| ``roundrobin`` | over all topics, if all subscribe alike | many |
| ``sticky`` | as well as the subscriptions allow | as few as possible if all subscribe alike |
| ``cooperative-sticky`` | after a second rebalance | as ``sticky``, and nothing stops that stays |
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidelog.coordinator.assignors.cooperative import assign_cooperative_sticky
from tidelog.coordinator.assignors.model import Assign, AssignorMember, PartitionCounts, Shares
from tidelog.coordinator.assignors.simple import assign_range, assign_round_robin
from tidelog.coordinator.assignors.sticky import assign_sticky

__all__ = ["ASSIGNORS", "Assign", "AssignorMember", "PartitionCounts", "Shares"]

ASSIGNORS: Final[Mapping[str, Assign]] = MappingProxyType(
    {
        "range": assign_range,
        "roundrobin": assign_round_robin,
        "sticky": assign_sticky,
        "cooperative-sticky": assign_cooperative_sticky,
    }
)
"""By the name under which clients offer them in JoinGroup."""
