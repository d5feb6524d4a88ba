"""Where the clients of a run note what they did: one clock, one count, one order.

Any thread may note; the sink is called by one at a time. Nothing is kept here but totals, so that
a long run costs no memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidelog.chaos.history import Event, Note, Operation, Outcome, Record, Verb

Sink = Callable[[Event], None]
_SECOND_MS: Final = 1_000.0


@dataclass(frozen=True, slots=True)
class Totals:
    """How many records of each kind there were so far."""

    acknowledged: int = 0
    failed: int = 0
    unknown: int = 0
    read: int = 0


class Recorder:
    def __init__(self, sink: Sink, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._sink = sink
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._lock = threading.Lock()
        self._number = 0
        self._totals = Totals()
        self._acknowledged_ms: dict[tuple[str, int], float] = {}
        self._written: set[tuple[str, int]] = set()

    def now_ms(self) -> float:
        return (self._clock_s() - self._began_s) * _SECOND_MS

    @property
    def totals(self) -> Totals:
        return self._totals

    def is_acknowledging(self, since_ms: float) -> bool:
        """Every partition that ever acknowledged a write has done so since then.

        Writes in transactions do not count: they come when their writer's turn comes.
        """
        with self._lock:
            return all(at_ms > since_ms for at_ms in self._acknowledged_ms.values())

    def unwritten(self, places: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Partitions that have not acknowledged any write yet, in a transaction or not."""
        with self._lock:
            return [place for place in places if place not in self._written]

    def add(self, event: Event) -> None:
        """Anything but an operation, which gets its number here."""
        with self._lock:
            self._sink(event)

    def note(self, text: str) -> None:
        self.add(Note(self.now_ms(), text))

    def operation(
        self,
        client: str,
        verb: Verb,
        invoked_ms: float,
        outcome: Outcome,
        *,
        has_ended: bool = True,
        topic: str = "",
        partition: int = -1,
        offset: int | None = None,
        key: str = "",
        sequence: int | None = None,
        group: str = "",
        transaction: str = "",
        is_commit: bool = False,
        seen: Sequence[Record] = (),
        error: str = "",
    ) -> None:
        """An operation that ends now, or on which the run gives up (``has_ended`` is False)."""
        ended_ms = self.now_ms() if has_ended else None
        with self._lock:
            self._number += 1
            self._count(verb, outcome, len(seen))
            if verb is Verb.APPEND and outcome is Outcome.OK and ended_ms is not None:
                self._written.add((topic, partition))
                if not transaction:
                    self._acknowledged_ms[topic, partition] = ended_ms
            self._sink(
                Operation(
                    self._number, client, verb, invoked_ms, ended_ms, outcome,
                    topic=topic, partition=partition, offset=offset, key=key, sequence=sequence,
                    group=group, transaction=transaction, is_commit=is_commit, seen=tuple(seen),
                    error=error,
                )
            )  # fmt: skip

    def _count(self, verb: Verb, outcome: Outcome, seen: int) -> None:
        totals = self._totals
        if verb is Verb.POLL:
            self._totals = replace(totals, read=totals.read + seen)
        elif verb is Verb.APPEND:
            match outcome:
                case Outcome.OK:
                    self._totals = replace(totals, acknowledged=totals.acknowledged + 1)
                case Outcome.FAILED:
                    self._totals = replace(totals, failed=totals.failed + 1)
                case Outcome.UNKNOWN:
                    self._totals = replace(totals, unknown=totals.unknown + 1)
