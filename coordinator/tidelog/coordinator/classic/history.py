"""Why a group rebalanced, when, and who held it up: the memory behind ``group explain``.

Bounded: a group that rebalances all day keeps its last few rebalances, each with its first causes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

MOST_REBALANCES: Final = 10
MOST_CAUSES: Final = 20


class CauseKind(Enum):
    JOINED = "joined"
    LEFT = "left"
    REMOVED_BY_ADMIN = "was removed by an administrator"
    SESSION_EXPIRED = "sent no heartbeat in time"
    CHANGED = "changed its subscription"
    LEADER_REJOINED = "is the leader and asked for a new assignment"
    RESTARTED = "came back under its instance id"
    DID_NOT_SYNC = "did not fetch its assignment in time"
    WRITE_FAILED = "led a generation whose assignment could not be written"
    TOPICS_CHANGED = "was the first to ask after its topics had changed"
    DID_NOT_REVOKE = "did not give up partitions in time"
    DID_NOT_REJOIN = "did not join again in time"
    CONVERTED = "made the group change its protocol"


@dataclass(frozen=True, slots=True)
class Cause:
    at_ms: int
    kind: CauseKind
    member_id: str

    def __str__(self) -> str:
        return f"{self.member_id} {self.kind.value}"


@dataclass(slots=True)
class Rebalance:
    """One rebalance; ``joined_ms`` and ``ended_ms`` are None while they are to come."""

    started_ms: int
    causes: list[Cause]
    causes_left_out: int = 0
    generation: int | None = None
    last_to_join: str | None = None
    dropped: tuple[str, ...] = ()
    """Members that did not join again in time: the whole join phase was spent waiting for them."""
    joined_ms: int | None = None
    ended_ms: int | None = None


@dataclass(slots=True)
class RebalanceHistory:
    _entries: deque[Rebalance] | None = field(default=None)

    @property
    def entries(self) -> tuple[Rebalance, ...]:
        """Oldest first."""
        return tuple(self._entries or ())

    def start(self, cause: Cause) -> None:
        if self._entries is None:  # an idle group should cost nothing
            self._entries = deque(maxlen=MOST_REBALANCES)
        self._entries.append(Rebalance(cause.at_ms, [cause]))

    def note(self, cause: Cause) -> None:
        """One more reason while the rebalance is under way."""
        if entry := self._current():
            if len(entry.causes) < MOST_CAUSES:
                entry.causes.append(cause)
            else:
                entry.causes_left_out += 1

    def note_joined(self, member_id: str) -> None:
        if (entry := self._current()) and entry.joined_ms is None:
            entry.last_to_join = member_id

    def finish_joining(self, now_ms: int, generation: int, dropped: tuple[str, ...]) -> None:
        if entry := self._current():
            entry.generation, entry.joined_ms, entry.dropped = generation, now_ms, dropped

    def finish(self, now_ms: int) -> None:
        if entry := self._current():
            entry.ended_ms = now_ms

    def _current(self) -> Rebalance | None:
        return self._entries[-1] if self._entries and self._entries[-1].ended_ms is None else None
