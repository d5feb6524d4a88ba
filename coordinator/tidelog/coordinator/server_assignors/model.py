"""What a server-side assignor knows and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from tidelog.kernel.ids import Uuid

Share = Mapping[Uuid, frozenset[int]]
"""Partitions by topic; no topic stands there without a partition."""
PartitionCounts = Mapping[Uuid, int]
Shares = dict[str, Share]

NOTHING: Final[Share] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class AssignorMember:
    """``topics`` is what it subscribes to, ``owned`` what the assignment before this one gave it.

    Members that subscribe alike should share one ``topics``: it is compared by identity first.
    """

    member_id: str
    topics: frozenset[Uuid]
    instance_id: str | None = None
    owned: Share = field(default_factory=lambda: NOTHING)


Assign = Callable[[PartitionCounts, Iterable[AssignorMember]], Shares]


def in_order(members: Iterable[AssignorMember]) -> list[AssignorMember]:
    """Static members first by their instance, so that a restart changes nothing; then the rest."""
    return sorted(
        members,
        key=lambda each: (each.instance_id is None, each.instance_id or "", each.member_id),
    )
