"""Producer state as the log keeps it: in memory, with snapshots on disk to start from.

A snapshot named N holds the state made by all batches below offset N, but of each producer
only the last batch. Snapshots are taken when a segment is rolled, when the log is closed and
after recovery; a corrupt one is deleted and an older one used, at the price of a longer replay.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.kernel.ids import Offset, ProducerId
from tidelog.kernel.ports import Disk, Steps
from tidelog.storage.atomic import DISK_FULL, write_atomically
from tidelog.storage.names import SNAPSHOT_SUFFIX, segment_file
from tidelog.storage.producer_snapshot import (
    CorruptSnapshot,
    decode_snapshot,
    encode_snapshot,
)
from tidelog.storage.producer_state import WINDOW, CompletedTxn, ProducerStates
from tidelog.storage.segment import Segment
from tidelog.wire.batch import BatchHeader
from tidelog.wire.control import EndTxnMarker, read_marker

_BATCHES_PER_STEP: Final = 4096
_REFILL_BYTES: Final = 64 * 1024 * 1024


class ProducerLog:
    """Owned by the log. ``end_offset`` is the first offset whose batch is not applied yet."""

    __slots__ = ("_directory", "_disk", "_snapshots", "end_offset", "states")

    def __init__(self, disk: Disk, directory: str, snapshots: Iterable[Offset]) -> None:
        self._disk = disk
        self._directory = directory
        self._snapshots = sorted(snapshots)
        self.states = ProducerStates()
        self.end_offset = Offset(0)

    @property
    def snapshots(self) -> list[Offset]:
        return list(self._snapshots)

    def apply(self, header: BatchHeader, marker: EndTxnMarker | None) -> CompletedTxn | None:
        """Take over a batch that is in the log, whatever the client checks would say."""
        self.end_offset = header.next_offset
        if header.producer_id < 0:
            return None
        return self.states.update(header, marker)

    def load(self, up_to: Offset, log_start: Offset) -> Offset:
        """Start from the newest good snapshot at or below ``up_to``; where replay must begin.

        A snapshot at or below the log start speaks only of batches that are gone, and goes
        with them.
        """
        self.states = ProducerStates()
        for offset in self._snapshots[: bisect_right(self._snapshots, log_start)]:
            self.delete_snapshot(offset)
        for offset in reversed(self._snapshots[: bisect_right(self._snapshots, up_to)]):
            try:
                entries = decode_snapshot(self._disk.read(self._path(offset)))
            except (CorruptSnapshot, FileNotFoundError):
                self.delete_snapshot(offset)
                continue
            self.states.load(entries)
            self.end_offset = max(offset, log_start)
            return self.end_offset
        self.end_offset = log_start
        return log_start

    def replay(self, segments: Iterable[Segment], start: Offset, end: Offset) -> Steps[None]:
        """Apply the batches of ``[start, end)`` in order."""
        count = 0
        for segment in segments:
            position = segment.position_of(start) if start > segment.base_offset else 0
            for at, header in segment.batches(position):
                if header.base_offset >= end:
                    break
                if header.last_offset >= start:
                    self.apply(header, marker_of(segment, at, header))
                count += 1
                if count % _BATCHES_PER_STEP == 0:
                    yield
        self.end_offset = end

    def refill_windows(self, segments: Sequence[Segment]) -> Steps[None]:
        """Find the last batches of each producer, of which a snapshot keeps only one.

        A resend of any of the last five batches must be recognised, also right after a
        failover to a replica that was restarted. They lie near the end of the log: the walk
        goes backwards, segment by segment, and ends when all windows are full or the batches
        are too far back for a client to resend them.
        """
        missing = {entry.producer_id: WINDOW for entry in self.states.entries() if entry.batches}
        found: list[list[BatchHeader]] = []
        bytes_left = _REFILL_BYTES
        for segment in reversed(segments):
            if not missing or bytes_left <= 0:
                break
            start = segment.start_before_position(max(0, segment.size - bytes_left))
            bytes_left -= segment.size - start
            found.append([])
            for count, (_, header) in enumerate(segment.batches(start)):
                if header.producer_id >= 0 and not header.is_control:
                    found[-1].append(header)
                if count % _BATCHES_PER_STEP == 0:
                    yield
            for header in found[-1]:
                _count_down(missing, header.producer_id)
        self.states.refill(header for part in reversed(found) for header in part)

    def take_snapshot(self) -> bool:
        """Write the state as of ``end_offset``, unless there is one that new already.

        A snapshot only saves a longer replay, so a full disk is no reason not to go on.
        """
        if self._snapshots and self._snapshots[-1] >= self.end_offset:
            return False
        if self.end_offset == 0:
            return False
        data = encode_snapshot(self.states.snapshot_entries())
        try:
            write_atomically(self._disk, self._path(self.end_offset), data)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            return False
        insort(self._snapshots, self.end_offset)
        return True

    def delete_snapshot(self, offset: Offset) -> None:
        self._disk.unlink(self._path(offset))
        if offset in self._snapshots:
            self._snapshots.remove(offset)

    def delete_snapshots_above(self, offset: Offset) -> None:
        for snapshot in self._snapshots[bisect_right(self._snapshots, offset) :]:
            self.delete_snapshot(snapshot)

    def delete_strays(self, bases: list[Offset]) -> None:
        """Keep the snapshots at segment borders, and the newest one if it lies behind them."""
        newest = self._snapshots[-1] if self._snapshots else None
        for snapshot in self.snapshots:
            is_tail = snapshot == newest and bool(bases) and snapshot > bases[-1]
            if snapshot not in bases and not is_tail:
                self.delete_snapshot(snapshot)

    def forget_snapshot(self, offset: Offset) -> str | None:
        """Take a snapshot out of the account because its segment goes; its path if there."""
        if offset not in self._snapshots:
            return None
        self._snapshots.remove(offset)
        return self._path(offset)

    def _path(self, offset: Offset) -> str:
        return segment_file(self._directory, offset, SNAPSHOT_SUFFIX)


def _count_down(missing: dict[ProducerId, int], producer_id: ProducerId) -> None:
    left = missing.get(producer_id, 0) - 1
    if left > 0:
        missing[producer_id] = left
    else:
        missing.pop(producer_id, None)


def marker_of(segment: Segment, position: int, header: BatchHeader) -> EndTxnMarker | None:
    """The transaction marker in a batch of the file; None if it is an ordinary batch."""
    if not header.is_control:
        return None
    return read_marker(segment.read_batch(position, header.size), header)
