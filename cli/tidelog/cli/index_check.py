"""Whether the entries of an index say the truth about the log beside it.

An offset entry is true if a batch begins at its position and ends with its offset; then a look-up
can never start behind what it looks for. A time entry is true if the batch that holds its offset
has its timestamp as the largest. Kafka before 3.7 stored the offset of the record itself instead
of the batch's last one; both lead a look-up to the same batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

from tidelog.kernel.ids import NO_TIMESTAMP
from tidelog.kernel.ports import Disk
from tidelog.storage.index import OffsetPosition, TimestampOffset
from tidelog.storage.scan import scan_headers
from tidelog.wire.batch import BatchHeader


@dataclass(slots=True)
class Batches:
    """What an index can be held against: each batch's position, last offset and largest time."""

    positions: list[int] = field(default_factory=list)
    last_offsets: list[int] = field(default_factory=list)
    max_timestamps: list[int] = field(default_factory=list)
    end_is_known: bool = True
    """False if the log breaks off; then entries that point behind these batches are not judged."""

    def add(self, position: int, header: BatchHeader) -> None:
        self.positions.append(position)
        self.last_offsets.append(header.last_offset)
        self.max_timestamps.append(header.max_timestamp)


@dataclass(slots=True)
class WrongTimestamps:
    mismatches: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    not_found: list[str] = field(default_factory=list)

    def all(self) -> list[str]:
        return [*self.mismatches, *self.out_of_order, *self.not_found]


def read_batches(disk: Disk, log_path: str) -> Batches:
    """The batches of a log, their checksums unchecked."""
    batches = Batches()
    file = disk.open(log_path, read_only=True)
    try:
        for position, header in scan_headers(file, 0, file.size()):
            batches.add(position, header)
    finally:
        file.close()
    return batches


def wrong_offsets(entries: Iterable[OffsetPosition], batches: Batches) -> list[str]:
    wrong = []
    last_offset_at = dict(zip(batches.positions, batches.last_offsets, strict=True))
    for entry in entries:
        found = last_offset_at.get(entry.position)
        if found is None and (batches.end_is_known or _lies_within(entry.position, batches)):
            wrong.append(f"Index offset: {entry.offset}, no batch at position {entry.position}")
        elif found is not None and found != entry.offset:
            wrong.append(f"Index offset: {entry.offset}, log offset: {found}")
    return wrong


def _lies_within(position: int, batches: Batches) -> bool:
    return bool(batches.positions) and position < batches.positions[-1]


def wrong_timestamps(entries: Iterable[TimestampOffset], batches: Batches) -> WrongTimestamps:
    wrong = WrongTimestamps()
    previous = int(NO_TIMESTAMP)
    for entry in entries:
        at = bisect_left(batches.last_offsets, entry.offset)
        if at == len(batches.last_offsets):
            if not batches.end_is_known:
                break
            wrong.not_found.append(f"Indexed offset: {entry.offset}, timestamp: {entry.timestamp}")
        elif batches.max_timestamps[at] != entry.timestamp:
            found = batches.max_timestamps[at]
            wrong.mismatches.append(f"Index timestamp: {entry.timestamp}, log timestamp: {found}")
        if entry.timestamp <= previous:
            wrong.out_of_order.append(
                f"Index timestamp: {entry.timestamp}, Previously indexed timestamp: {previous}"
            )
        previous = entry.timestamp
    return wrong
