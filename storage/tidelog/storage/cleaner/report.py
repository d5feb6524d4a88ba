"""What one pass of the cleaner did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as fields_of
from enum import Enum
from typing import Final

from tidelog.kernel.ids import Offset, TimestampMs, TopicPartition
from tidelog.storage.cleaner.plan import Hold, Reason


class Outcome(Enum):
    CLEANED = "cleaned"
    ABORTED = "aborted"
    """The log changed, or its owner asked for it; it is to be tried again."""
    DISK_FULL = "disk full"
    """Nothing was lost; it is to be tried again when there is room."""
    WORKER_LOST = "worker lost"
    """The process that did the work ended in the middle of it; it is to be tried again."""
    UNCLEANABLE = "uncleanable"
    """The log holds something that cannot be read; it is let be until somebody looks at it."""


@dataclass(slots=True)
class CleaningReport:
    """Filled while the pass goes on; the counts are of the rewriting, and so of every record."""

    tp: TopicPartition
    first_dirty: Offset
    outcome: Outcome | None = None
    """None while the pass goes on."""
    reason: str = ""
    clean_point: Offset | None = None
    """How far the log is clean now; None if the pass did not come to its end."""
    map_is_full: bool = False
    """There was more to clean than the map could hold: another pass is due at once."""
    keys: int = 0
    segments_before: int = 0
    segments_after: int = 0
    bytes_mapped: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    batches_read: int = 0
    batches_kept: int = 0
    records_read: int = 0
    records_kept: int = 0
    tombstones_dropped: int = 0
    markers_dropped: int = 0
    aborted_dropped: int = 0
    keyless_dropped: int = 0
    horizons_set: int = 0
    next_horizon_ms: TimestampMs | None = None
    """When the first of the tombstones and markers that are left may go."""
    held_back: int = 0
    """Tombstones and markers whose time is over, but which another replica may still need."""
    first_held_back: Offset | None = None

    @property
    def records_dropped(self) -> int:
        return self.records_read - self.records_kept

    @property
    def bytes_moved(self) -> int:
        """What a limit of bytes per second counts."""
        return self.bytes_mapped + self.bytes_read + self.bytes_written

    @property
    def held_back_reason(self) -> Reason | None:
        if self.first_held_back is None:
            return None
        detail = f"{self.held_back} tombstones and markers"
        return Reason(Hold.REPLICA_BEHIND, self.first_held_back, detail)

    def as_fields(self) -> dict[str, object]:
        """Everything but the first two fields, which never change, in plain values."""
        found: dict[str, object] = {name: getattr(self, name) for name in _COUNTED}
        found["outcome"] = None if self.outcome is None else self.outcome.value
        return found

    def take_over(self, fields: Mapping[str, object]) -> None:
        """What ``as_fields`` of the same pass gave in another process."""
        for name in _COUNTED:
            setattr(self, name, fields[name])
        outcome = fields["outcome"]
        self.outcome = None if outcome is None else Outcome(outcome)

    def hold_back(self, count: int, first: Offset) -> None:
        self.held_back += count
        if self.first_held_back is None or first < self.first_held_back:
            self.first_held_back = first

    def note_horizon(self, horizon_ms: TimestampMs) -> None:
        if self.next_horizon_ms is None or horizon_ms < self.next_horizon_ms:
            self.next_horizon_ms = horizon_ms


_COUNTED: Final = tuple(
    field.name
    for field in fields_of(CleaningReport)
    if field.name not in ("tp", "first_dirty", "outcome")
)
