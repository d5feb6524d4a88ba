"""Producers under acks=all that wait for the high watermark, in the order they are let go. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from tidelog.kernel.ids import Offset

W = TypeVar("W")


class ProduceWaits(Generic[W]):
    """Whoever waits for the least offset comes first; equal ones by arrival.

    Nearly all are added at the back. Only a duplicate waits for an older offset than the last
    producer, and it is a resend, so the walk to its place is short and rare.
    """

    __slots__ = ("_waits",)

    def __init__(self) -> None:
        self._waits: deque[tuple[Offset, W]] = deque()

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, required_end: Offset, waiter: W) -> None:
        waits = self._waits
        place = len(waits)
        while place and waits[place - 1][0] > required_end:
            place -= 1
        if place == len(waits):
            waits.append((required_end, waiter))
        else:
            waits.insert(place, (required_end, waiter))

    def reached(self, high_watermark: Offset) -> Iterator[W]:
        """Take out everybody whose batch is below the high watermark."""
        waits = self._waits
        while waits and waits[0][0] <= high_watermark:
            yield waits.popleft()[1]

    def all(self) -> Iterator[W]:
        """Take out everybody: this replica leads no more."""
        while self._waits:
            yield self._waits.popleft()[1]
