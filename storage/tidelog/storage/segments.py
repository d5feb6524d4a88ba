"""The segments of one log, ordered by base offset; the last one is active."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import is_

from tidelog.kernel.ids import Offset
from tidelog.storage.retention import RetentionFacts
from tidelog.storage.segment import Segment


class SegmentList:
    """Never empty once a log is open."""

    __slots__ = ("_bases", "_segments")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._segments]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def bases(self) -> list[Offset]:
        return list(self._bases)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    def floor_index(self, offset: Offset) -> int:
        """Index of the segment that would hold ``offset``; 0 if it lies before all of them."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def from_offset(self, offset: Offset) -> Iterator[Segment]:
        return iter(self._segments[self.floor_index(offset) :])

    def end_of(self, index: int, log_end: Offset) -> Offset:
        """Where the segment's offsets end: the next one's base, or the end of the log."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else log_end

    def retention_facts(self, log_end: Offset) -> list[RetentionFacts]:
        return [
            RetentionFacts(self.end_of(index, log_end), segment.size, segment.retention_timestamp)
            for index, segment in enumerate(self._segments)
        ]

    def append(self, segment: Segment) -> None:
        if self._bases and segment.base_offset <= self._bases[-1]:
            raise ValueError(f"segment {segment.base_offset} does not follow {self._bases[-1]}")
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def holds(self, neighbours: Sequence[Segment]) -> bool:
        """Whether these very segments lie here, one behind the other."""
        start = self.floor_index(neighbours[0].base_offset)
        found = self._segments[start : start + len(neighbours)]
        return len(found) == len(neighbours) and all(map(is_, found, neighbours))

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Put ``new`` in the place of neighbours of which the first has its base offset."""
        if not self.holds(old) or new.base_offset != old[0].base_offset:
            raise ValueError(f"segment {new.base_offset} does not replace {len(old)} others")
        start = self.floor_index(new.base_offset)
        self._segments[start : start + len(old)] = [new]
        self._bases[start : start + len(old)] = [new.base_offset]

    def remove_first(self, count: int) -> list[Segment]:
        removed = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        return removed

    def remove_above(self, offset: Offset) -> list[Segment]:
        """Take out every segment whose base lies above ``offset``, the newest first."""
        index = bisect_right(self._bases, offset)
        removed = self._segments[index:][::-1]
        del self._segments[index:], self._bases[index:]
        return removed
