"""Which partitions of a history must be judged together. Pure.

A judge looks at partitions, keys and transactions. So partitions can be judged apart unless a key
or a transaction is in both, and then they and all that hangs together with them are one part: the
judge finds in the parts what it would find in the whole.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.pipeline.positions import Place


def parts_of(
    written: Iterable[Place], seen: Iterable[Place], links: Iterable[Iterable[Place]]
) -> dict[Place, int]:
    """The number of each partition's part.

    ``links`` are sets of partitions that hang together. Whether a record was invented depends on
    whether anybody wrote to its topic; so a partition that nobody wrote to goes with one of its
    topic that somebody did.
    """
    sets = _Sets()
    first_of: dict[str, Place] = {}
    of_writers = set(written)
    for place in sorted(of_writers):
        sets.add(place)
        first_of.setdefault(place[0], place)
    for place in sorted(set(seen) - of_writers):
        sets.join(first_of.get(place[0], place), place)
    for together in links:
        first, *others = together
        for other in others:
            sets.join(first, other)
    return sets.numbered()


class _Sets:
    """Disjoint sets of partitions."""

    def __init__(self) -> None:
        self._parents: dict[Place, Place] = {}

    def add(self, place: Place) -> None:
        self._parents.setdefault(place, place)

    def join(self, one: Place, other: Place) -> None:
        self.add(one)
        self.add(other)
        self._parents[self._root(other)] = self._root(one)

    def _root(self, place: Place) -> Place:
        while self._parents[place] != place:
            self._parents[place] = self._parents[self._parents[place]]
            place = self._parents[place]
        return place

    def numbered(self) -> dict[Place, int]:
        numbers: dict[Place, int] = {}
        return {
            place: numbers.setdefault(self._root(place), len(numbers))
            for place in sorted(self._parents)
        }
