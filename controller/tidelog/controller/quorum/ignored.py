"""Messages that had no effect: counted, and told to the operator when they mean a mistake."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from tidelog.controller.raft.effects import IgnoreReason
from tidelog.kernel.ports import Clock

_log = logging.getLogger(__name__)

_MISTAKES: Final = {
    IgnoreReason.FOREIGN_CLUSTER: "a node of another cluster talks to this one",
    IgnoreReason.FROM_OURSELVES: "another node has this node's id",
    IgnoreReason.VOTER_LIST_DIFFERS: "the quorum cannot be founded: voter lists differ",
    IgnoreReason.TOO_MANY_OBSERVERS: "too many nodes follow the metadata log",
    IgnoreReason.BAD_FIELD: "a controller sends what no controller should",
    IgnoreReason.TOO_LARGE: "a controller sends too much at once",
    IgnoreReason.ACKNOWLEDGED_TOO_MUCH: "a controller confirms what it was never sent",
}
_QUIET_MS: Final = 10_000.0


class IgnoredMessages:
    """One line per kind of mistake and ten seconds is enough."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told_ms: dict[IgnoreReason, float] = {}
        self.counts: Counter[IgnoreReason] = Counter()

    def note(self, reason: IgnoreReason, detail: str) -> None:
        self.counts[reason] += 1
        mistake = _MISTAKES.get(reason)
        if mistake is None:
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._told_ms.get(reason, -_QUIET_MS) >= _QUIET_MS:
            self._told_ms[reason] = now_ms
            _log.error("%s: %s", mistake, detail)
