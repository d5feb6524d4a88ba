"""The entries of the quorum on disk: ``__cluster_metadata-0``, an ordinary partition log.

One batch per entry, the term as leader epoch. The machine keeps the entries since the last snapshot
in memory, so the log is only written, cut, and read once when the node starts.

Owner: the one writer of the quorum. Every method blocks and runs in the writer's steps. After an
I/O error, a full disk included, nothing is written any more: the node halts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidelog.controller.quorum.batches import batch_to_entry, entry_to_batch
from tidelog.controller.quorum.errors import RefusedToStart
from tidelog.controller.quorum.log_examination import Examined, examine
from tidelog.controller.raft.model import Entry, SnapshotId, Term
from tidelog.kernel.ids import Offset, PartitionIndex, TimestampMs, TopicPartition
from tidelog.kernel.ports import Disk, Random, Steps
from tidelog.kernel.settings import TopicConfig
from tidelog.storage.checkpoints import (
    CorruptCheckpoint,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from tidelog.storage.log import Log, LogFailed
from tidelog.storage.names import (
    LOG_SUFFIX,
    METADATA_TOPIC,
    RECOVERY_POINT_CHECKPOINT,
    segment_file,
)
from tidelog.storage.recovery import Opening, open_log
from tidelog.storage.validation import Rejected
from tidelog.wire.batch import check_batch

METADATA_PARTITION: Final = TopicPartition(METADATA_TOPIC, PartitionIndex(0))
_COPY_BYTES: Final = 1 << 20
_UNLIMITED: Final = -1


@dataclass(frozen=True, slots=True)
class EntryLogSettings:
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    file_delete_delay_ms: int = 60_000

    def topic_config(self) -> TopicConfig:
        """Synced before it counts; what may go is decided by snapshots, never by age or size."""
        return replace(
            TopicConfig.defaults(),
            cleanup_policy=("delete",),
            file_delete_delay_ms=self.file_delete_delay_ms,
            flush_policy="fsync",
            internal_segment_bytes=None,
            preallocate=False,
            retention_bytes=_UNLIMITED,
            retention_ms=_UNLIMITED,
            segment_bytes=self.segment_bytes,
            segment_jitter_ms=0,
            segment_ms=self.segment_ms,
        )


class EntryLog:
    """See the module. Made by ``open_entry_log``."""

    def __init__(self, disk: Disk, log: Log, repairs: Sequence[str]) -> None:
        self._disk = disk
        self._log = log
        self._checkpointed = Offset(-1)
        self.repairs = tuple(repairs)
        log.on_truncating = self._before_cut

    @property
    def start(self) -> Offset:
        return self._log.log_start

    @property
    def end(self) -> Offset:
        return self._log.end_offset

    @property
    def size_bytes(self) -> int:
        return self._log.size

    # --- writing -----------------------------------------------------------------------

    def append(
        self, truncate_to: Offset | None, entries: Sequence[Entry], now_ms: TimestampMs
    ) -> None:
        """Not durable before ``flush``."""
        if truncate_to is not None:
            self._log.truncate_to(truncate_to, now_ms)
            if self._log.end_offset != truncate_to:
                raise LogFailed(f"the log was cut to {self._log.end_offset}, not to {truncate_to}")
        for entry in entries:
            if entry.base_offset != self._log.end_offset:
                raise LogFailed(f"entry {entry.base_offset} does not fit at {self._log.end_offset}")
            refused = self._log.append_as_follower(entry_to_batch(entry, now_ms), now_ms)
            if isinstance(refused, Rejected):
                raise LogFailed(f"the metadata log cannot be written: {refused.message}")

    def flush(self) -> Steps[None]:
        """All that was appended is on stable storage when this ends."""
        flush = self._log.begin_flush()
        if flush is not None:
            yield from flush.steps(self._disk)
            self._log.complete_flush(flush)

    def restart_at(self, offset: Offset, now_ms: TimestampMs) -> None:
        """A snapshot takes the place of the whole log."""
        self._log.truncate_fully_and_start_at(offset, now_ms)

    def forget_below(self, offset: Offset, now_ms: TimestampMs) -> None:
        """Whole segments below a snapshot's end go."""
        self._log.advance_high_watermark(offset)
        self._log.raise_log_start(offset)
        self._log.apply_retention(now_ms)

    def unlink_due(self, now_ms: TimestampMs) -> None:
        self._log.removal.unlink_due(now_ms)

    # --- the recovery point ------------------------------------------------------------

    def write_recovery_point(self) -> None:
        """Vouch for what is flushed: damage below it will be taken for what it is."""
        point = self._log.recovery_point
        if point != self._checkpointed:
            self._log.write_epochs()
            self._write_recovery_point(point)

    def _before_cut(self, _: TopicPartition, end: Offset) -> None:
        if end < self._checkpointed or self._checkpointed < 0:
            self._write_recovery_point(end)

    def _write_recovery_point(self, point: Offset) -> None:
        path = f"{self._log.directory}/{RECOVERY_POINT_CHECKPOINT}"
        write_offset_checkpoint(self._disk, path, {METADATA_PARTITION: point})
        self._checkpointed = point

    # --- reading -----------------------------------------------------------------------

    def read_from(self, start: Offset) -> Steps[list[Entry]]:
        """Every entry from ``start``, a boundary, to the end; ``MalformedBatch`` if one is bad."""
        entries: list[Entry] = []
        for segment in self._log.segments.from_offset(start):
            for position, header in segment.batches(segment.start_before(start)):
                if header.base_offset < start:
                    continue
                batch = segment.read_batch(position, header.size)
                entries.append(batch_to_entry(batch, check_batch(batch)))
                if len(entries) % 256 == 0:
                    yield
        return entries

    def continues(self, snapshot: SnapshotId) -> bool:
        """Whether the log holds the last entry that the snapshot covers, so that it goes on
        where the snapshot ends; otherwise it is older, or of another history."""
        end = snapshot.end_offset
        if not self.start <= end <= self.end:
            return False
        if end == self.start:
            return True
        segment = self._log.segments[self._log.segments.floor_index(Offset(end - 1))]
        for _, header in segment.batches(segment.start_before(Offset(end - 1))):
            if header.next_offset >= end:
                return header.next_offset == end and Term(header.leader_epoch) == snapshot.term
        return False

    # --- ending ------------------------------------------------------------------------

    def close(self) -> None:
        """A clean end; what follows an I/O error is ``abandon``."""
        self.write_recovery_point()
        self.abandon()

    def abandon(self) -> None:
        self._log.close_files()


@dataclass(frozen=True, slots=True)
class Inspected:
    """What lies there, found sound as far as it was synced."""

    log: Examined
    recovery_point: Offset


def inspect_entry_log(disk: Disk, directory: str, snapshot_end: Offset) -> Steps[Inspected]:
    """Look at the log without touching it; raises ``RefusedToStart``."""
    recovery_point = _read_recovery_point(disk, directory)
    found = yield from examine(disk, directory, snapshot_end)
    _refuse_damage(found, recovery_point, directory)
    return Inspected(found, recovery_point)


def open_entry_log(
    disk: Disk,
    directory: str,
    inspected: Inspected,
    settings: EntryLogSettings,
    random: Random,
    now_ms: TimestampMs,
) -> Steps[EntryLog]:
    """The log with everything in it on stable storage; raises ``RefusedToStart``."""
    found, recovery_point = inspected.log, inspected.recovery_point
    _remove_strays(disk, directory, found.strays)
    opening = Opening(
        disk,
        directory,
        METADATA_PARTITION,
        settings.topic_config(),
        random,
        now_ms,
        was_clean=False,
        recovery_point=recovery_point,
    )
    log, report = yield from open_log(opening)
    if log.end_offset != found.end:
        raise RefusedToStart(
            f"the log in {directory} ends at {log.end_offset} after recovery, but was found sound"
            f" up to {found.end}",
            directory,
        )
    yield from _write_again(disk, log, recovery_point)
    entry_log = EntryLog(disk, log, report.repairs)
    yield from entry_log.flush()
    entry_log.write_recovery_point()
    return entry_log


def _remove_strays(disk: Disk, directory: str, strays: Sequence[Offset]) -> None:
    for base in strays:
        disk.unlink(segment_file(directory, base, LOG_SUFFIX))
    if strays:
        disk.sync_dir(directory)


def _refuse_damage(found: Examined, recovery_point: Offset, directory: str) -> None:
    if found.end < recovery_point:
        why = found.flaw or f"the log ends at {found.end}"
        raise RefusedToStart(
            f"the metadata log in {directory} is damaged at offset {found.end}, below"
            f" {recovery_point}, up to which it had been synced: {why}",
            directory,
        )


def _read_recovery_point(disk: Disk, directory: str) -> Offset:
    path = f"{directory}/{RECOVERY_POINT_CHECKPOINT}"
    try:
        return read_offset_checkpoint(disk, path).get(METADATA_PARTITION, Offset(0))
    except CorruptCheckpoint as error:
        raise RefusedToStart(f"it is not known how much was synced: {error}", directory) from error


def _write_again(disk: Disk, log: Log, start: Offset) -> Steps[None]:
    """Write what may never have reached the disk once more, so that the next sync covers it.

    After a failed sync the system may hold pages that it takes for written. A process that died
    of that and is started again reads them from the cache and would count them as durable.
    """
    for segment in log.segments.from_offset(start):
        file = disk.open(segment.path(LOG_SUFFIX))
        try:
            for position in range(segment.start_before(start), segment.size, _COPY_BYTES):
                count = min(_COPY_BYTES, segment.size - position)
                file.pwrite(file.pread(count, position), position)
                yield
            # Its size as well: a longer file that is cut back is a change of the size.
            file.pwrite(b"\0", segment.size)
            file.truncate(segment.size)
            file.sync()
        finally:
            file.close()
