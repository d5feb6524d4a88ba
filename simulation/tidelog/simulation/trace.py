"""What happened in a run, in order: the last part of it to read, all of it as a hash to compare.

Two runs of one seed must give the same digest, in any process. So an event may say nothing that
differs between processes: no address of an object, no order of a set, no real time.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_DEFAULT_CAPACITY: Final = 5_000
NOBODY: Final = ""
"""The place of an event that concerns the whole simulation."""


@dataclass(frozen=True, slots=True)
class TraceEvent:
    number: int
    at_ms: float
    place: str
    """The node or client it happened at."""
    what: str
    details: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return _text(self.number, self.at_ms, self.place, self.what, dict(self.details))


def _text(number: int, at_ms: float, place: str, what: str, told: dict[str, str]) -> str:
    details = " ".join([f"{key}={value}" for key, value in told.items()])
    return f"{number:>7} {at_ms:>12.3f} ms  {place:<10} {what} {details}".rstrip()


class Trace:
    """A ring of the newest events and a digest of all; ``now_ms`` is the true virtual time."""

    def __init__(self, now_ms: Callable[[], float], capacity: int = _DEFAULT_CAPACITY) -> None:
        self._now_ms = now_ms
        # As arguments of TraceEvent: few are ever read.
        self._events: deque[tuple[int, float, str, str, dict[str, str]]] = deque(maxlen=capacity)
        self._hash = hashlib.blake2b(digest_size=16)
        self._is_closed = False
        self.count = 0

    def close(self) -> None:
        """The run is judged: what happens while it is wound up is nobody's concern."""
        self._is_closed = True

    def note(self, place: str, what: str, **details: object) -> None:
        if self._is_closed:
            return
        told = {key: str(value) for key, value in details.items()}
        event = (self.count, self._now_ms(), place, what, told)
        self.count += 1
        self._events.append(event)
        self._hash.update(f"{_text(*event)}\n".encode())

    def digest(self) -> str:
        """Of every event since the start, also of those the ring has forgotten."""
        return self._hash.hexdigest()

    def events(self, place: str | None = None) -> list[TraceEvent]:
        """Those the ring still has, oldest first; of one place if one is given."""
        return [
            TraceEvent(number, at_ms, at, what, tuple(told.items()))
            for number, at_ms, at, what, told in self._events
            if place is None or at == place
        ]

    def tail(self, last: int = 50, place: str | None = None) -> str:
        """The newest events as text, to be printed with a failure."""
        chosen = self.events(place)
        shown = chosen[-last:] if last > 0 else []
        left_out = (self.count if place is None else len(chosen)) - len(shown)
        head = [f"… {left_out} earlier events"] if left_out > 0 else []
        return "\n".join([*head, *map(str, shown)])
