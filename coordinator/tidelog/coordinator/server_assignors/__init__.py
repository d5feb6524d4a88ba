"""How the coordinator shares partitions in groups of the consumer protocol (KIP-848).

    assign(partition_counts, members) -> {member id: its partitions}

Topics are ids. Topics without a count do not exist and are ignored; partitions that nobody wants go
to nobody. Every member is in the result. Racks are not looked at.

| name | loads | moves on a change |
|---|---|---|
| ``uniform`` | even over all topics | as few as possible |
| ``range`` | even per topic only; equal indexes of topics meet | many |
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidelog.coordinator.server_assignors.model import (
    NOTHING,
    Assign,
    AssignorMember,
    PartitionCounts,
    Share,
    Shares,
)
from tidelog.coordinator.server_assignors.range import assign_range
from tidelog.coordinator.server_assignors.uniform import assign_uniform

__all__ = [
    "NOTHING",
    "SERVER_ASSIGNORS",
    "Assign",
    "AssignorMember",
    "PartitionCounts",
    "Share",
    "Shares",
]

SERVER_ASSIGNORS: Final[Mapping[str, Assign]] = MappingProxyType(
    {"uniform": assign_uniform, "range": assign_range}
)
"""By the name under which members ask for them in ConsumerGroupHeartbeat."""
