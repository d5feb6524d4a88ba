"""A line in the node's log for every rebalance: why it was, how long it took, who held it up."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from tidelog.coordinator.classic.history import Rebalance

log = logging.getLogger(__name__)


@dataclass(slots=True)
class RebalanceLog:
    _last: dict[str, int] = field(default_factory=dict)
    """When the last rebalance began that was told of, by group."""

    def look(self, group_id: str, rebalances: tuple[Rebalance, ...]) -> None:
        """After something happened to a group."""
        if not rebalances:
            return
        newest = rebalances[-1]
        if newest.ended_ms is None or self._last.get(group_id) == newest.started_ms:
            return
        self._last[group_id] = newest.started_ms
        log.info("group %r rebalanced %s", group_id, described(newest))

    def forget(self, group_id: str) -> None:
        self._last.pop(group_id, None)


def described(rebalance: Rebalance) -> str:
    assert rebalance.ended_ms is not None, "only rebalances that are over are told of"
    to = "" if rebalance.generation is None else f"to generation {rebalance.generation} "
    text = f"{to}in {rebalance.ended_ms - rebalance.started_ms} ms: {_causes(rebalance)}"
    if rebalance.dropped:
        return f"{text}; waited in vain for {_listed(rebalance.dropped)}"
    if rebalance.last_to_join is not None:
        return f"{text}; last to join was {rebalance.last_to_join!r}"
    return text


def _causes(rebalance: Rebalance) -> str:
    more = f" and {rebalance.causes_left_out} more" if rebalance.causes_left_out else ""
    return ", ".join(f"{cause.member_id!r} {cause.kind.value}" for cause in rebalance.causes) + more


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
