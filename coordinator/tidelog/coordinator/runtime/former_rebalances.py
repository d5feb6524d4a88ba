"""What this broker remembers of groups that it coordinates no more, for ``group explain``.

Bounded: the groups that went first are forgotten first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tidelog.coordinator.classic.history import MOST_REBALANCES, Rebalance

MOST_GROUPS: Final = 1_000


@dataclass(slots=True)
class FormerRebalances:
    _of_group: dict[str, tuple[Rebalance, ...]] = field(default_factory=dict)

    def keep(self, group_id: str, rebalances: tuple[Rebalance, ...]) -> None:
        """The group has gone to another coordinator."""
        if not rebalances:
            return
        known = (*self._of_group.pop(group_id, ()), *rebalances)
        self._of_group[group_id] = known[-MOST_REBALANCES:]
        while len(self._of_group) > MOST_GROUPS:
            del self._of_group[next(iter(self._of_group))]

    def of(self, group_id: str) -> tuple[Rebalance, ...]:
        """Oldest first."""
        return self._of_group.get(group_id, ())
