"""What members of groups were told, and what must hold of it at every moment.

- No partition has two owners in one generation (classic) or member epoch (KIP-848).
- A committed offset never goes back: what OffsetFetch tells is at least what was acknowledged, or
  told by another OffsetFetch, before it was asked; a commit below what was acknowledged before it
  was sent is not accepted.
- Every record is processed before it is committed, so what is committed was read (at least once).

A static member is its instance: whoever comes back under its name takes over what it had.

Owner: the run of one seed; all members write here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.simulation.history import Violation


@dataclass(slots=True)
class GroupLedger:
    """Of one group. Partitions are those of one topic, by index."""

    group: str
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """By generation and partition."""
    floor: dict[int, int] = field(default_factory=dict)
    """The highest offset known to be committed, by partition."""
    processed: dict[int, set[int]] = field(default_factory=dict)
    commits: int = 0
    refusals: int = 0
    newest_generation: int = -1

    def owned(self, owner: str, generation: int, partition: int) -> None:
        """A member was given a partition."""
        known = self.owners.setdefault((generation, partition), owner)
        if known != owner:
            raise Violation(
                f"group {self.group}, generation {generation}: partition {partition} belongs to"
                f" {known} and to {owner}"
            )
        self.newest_generation = max(self.newest_generation, generation)

    def read(self, partition: int, begin: int, end: int) -> None:
        self.processed.setdefault(partition, set()).update(range(begin, end))

    def floors(self) -> dict[int, int]:
        """To be taken before a request is sent, and given with its answer."""
        return dict(self.floor)

    def committed(self, who: str, partition: int, offset: int, floors: Mapping[int, int]) -> None:
        """A commit was acknowledged."""
        self.commits += 1
        if offset < floors.get(partition, 0):
            raise Violation(
                f"group {self.group}: {who} committed {offset} of partition {partition} after"
                f" {floors[partition]} was committed"
            )
        self._raise_floor(partition, offset)

    def fetched(
        self,
        who: str,
        partition: int,
        offset: int,
        metadata: str,
        floors: Mapping[int, int],
    ) -> None:
        """OffsetFetch told what is committed; -1: nothing."""
        if offset < floors.get(partition, -1):
            raise Violation(
                f"group {self.group}: {who} is told that {offset} of partition {partition} is"
                f" committed, but {floors[partition]} was"
            )
        if offset < 0:
            return
        if metadata != str(offset):
            raise Violation(
                f"group {self.group}: {who} is told {offset} of partition {partition} with the"
                f" metadata {metadata!r} of another commit"
            )
        if not self.processed.get(partition, set()).issuperset(range(offset)):
            raise Violation(
                f"group {self.group}: {offset} of partition {partition} is committed, but not"
                " all before it was read"
            )
        self._raise_floor(partition, offset)

    def _raise_floor(self, partition: int, offset: int) -> None:
        self.floor[partition] = max(offset, self.floor.get(partition, 0))

    def unread(self, ends: Mapping[int, int]) -> str | None:
        """What is not read and committed up to these ends; None if all is."""
        for partition, end in sorted(ends.items()):
            if self.floor.get(partition, 0) < end:
                at = self.floor.get(partition, 0)
                return f"group {self.group}: partition {partition} is committed to {at} of {end}"
            missing = set(range(end)) - self.processed.get(partition, set())
            if missing:
                return f"group {self.group}: nobody read {partition}/{min(missing)}"
        return None

    def summary(self) -> str:
        return (
            f"{self.group}: {self.commits} commits, {self.refusals} refused, generation"
            f" {self.newest_generation}"
        )
