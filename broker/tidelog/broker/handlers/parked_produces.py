"""Produces that wait for replicas, sent away when this broker is cut off.

A leader that was replaced and cannot hear of it would keep a producer for as long as that is
willing to wait (30 s, if nobody sets it otherwise), while the new leader would serve it. Nothing is
known of the batch then: it is in the log here, and the new leader may have it or not. The producer
is told what it would be told if this broker knew: to look for the leader and send it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tidelog.coordinator.patience import Patience
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ports import Clock
from tidelog.replication.outcomes import Produced

_LOOK_S: Final = 0.25
_PATIENCE: Final = Patience(float("inf"))
"""Partitions have the time-outs of requests."""

Outcome = asyncio.Future[Produced]


@dataclass(frozen=True, slots=True, eq=False)
class _Parked:
    began_ms: float
    outcomes: Sequence[Outcome]

    def send_away(self) -> None:
        for outcome in self.outcomes:
            if not outcome.done():
                outcome.set_result(Produced(ErrorCode.NOT_LEADER_OR_FOLLOWER))


class ParkedProduces:
    """Owner: the Produce handler. One timer for all of them, and only while there are some."""

    def __init__(self, clock: Clock, is_cut_off: Callable[[], bool]) -> None:
        self._clock = clock
        self._is_cut_off = is_cut_off
        self._parked: dict[_Parked, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def parked(self, outcomes: Sequence[Outcome]) -> Iterator[None]:
        """While somebody waits for these."""
        one = _Parked(self._clock.monotonic_ms(), outcomes)
        self._parked[one] = None
        if self._timer is None:
            self._set_timer()
        try:
            yield
        finally:
            del self._parked[one]

    def _set_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._parked:
            return
        self._set_timer()
        if self._is_cut_off():
            now_ms = self._clock.monotonic_ms()
            for one in self._parked:
                if _PATIENCE.is_over(now_ms - one.began_ms, is_cut_off=True):
                    one.send_away()
