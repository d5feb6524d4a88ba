"""Two sides of an audit, partition by partition and day by day: are they the same? Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Day: TypeAlias = tuple[int, str]
"""A partition and a date."""


@dataclass(frozen=True, slots=True)
class Digest:
    """Of the records of one partition and day."""

    records: int
    duplicates: int
    """Records whose offset another one has, too."""
    first_offset: int
    last_offset: int
    checksum: tuple[int, int]
    """Does not depend on the order of records."""

    @property
    def gaps(self) -> int:
        """Offsets between the first and the last that no record has. Transactions and compaction
        leave some, so a gap is no difference by itself."""
        return self.last_offset - self.first_offset + 1 - (self.records - self.duplicates)


@dataclass(frozen=True, slots=True)
class DayVerdict:
    partition: int
    date: str
    left: Digest | None
    right: Digest | None
    difference: str
    """Empty: they are the same."""


def compare(left: Mapping[Day, Digest], right: Mapping[Day, Digest]) -> list[DayVerdict]:
    return [
        DayVerdict(*day, left.get(day), right.get(day), _difference(left.get(day), right.get(day)))
        for day in sorted(left.keys() | right.keys())
    ]


def _difference(left: Digest | None, right: Digest | None) -> str:
    if left is None or right is None:
        side, there = ("right", left) if right is None else ("left", right)
        return f"{there.records if there else 0} records are missing on the {side}"
    problems = []
    if left.records != right.records:
        problems.append(f"{left.records} records on the left and {right.records} on the right")
    for side, one in (("left", left), ("right", right)):
        if one.duplicates:
            problems.append(f"{one.duplicates} duplicates on the {side}")
    if not problems and left.checksum != right.checksum:
        problems.append("the same number of records, but not the same records")
    return ", ".join(problems)


def common_extent(
    left: Mapping[int, tuple[int, int]], right: Mapping[int, tuple[int, int]]
) -> tuple[dict[int, tuple[int, int]], list[str]]:
    """The offsets both sides should have, and what makes that impossible.

    One side may begin later (retention) or end earlier (an archive that is behind); only what both
    have can be compared. A partition that is only on one side is a difference.
    """
    both: dict[int, tuple[int, int]] = {}
    problems = []
    for partition in sorted(left.keys() | right.keys()):
        if partition not in left or partition not in right:
            side = "left" if partition not in left else "right"
            start, end = right[partition] if partition not in left else left[partition]
            if end > start:
                problems.append(f"partition {partition} is missing on the {side}")
            continue
        start = max(left[partition][0], right[partition][0])
        end = min(left[partition][1], right[partition][1])
        if end > start:
            both[partition] = start, end
    return both, problems


def described(verdicts: Sequence[DayVerdict]) -> list[str]:
    return [
        f"partition {one.partition}, {one.date}: {one.difference}"
        for one in verdicts
        if one.difference
    ]
