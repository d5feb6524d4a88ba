"""One partition's log: the only thing that writes to its directory.

Theory: a log is a list of segments of which the last is written, plus three small histories
that are derived from the batches and kept beside them: leader epochs, producers, and what has
been flushed. All methods are synchronous and run on one thread; what blocks for long (fsync,
recovery, replay) is handed out as steps for an ``Offload``.

Offsets are exclusive ends: ``log_start`` ≤ last stable offset ≤ ``high_watermark`` ≤
``end_offset``, and ``recovery_point`` ≤ ``end_offset``.

After an I/O error that leaves the file in doubt the log refuses every further write until it
is opened again (hazard: going on appending behind a hole). A full disk is not such an error:
the partial write is cut off and the producer is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from tidelog.kernel.ports import ByteView, Disk, Random, Steps, in_one_go
from tidelog.kernel.settings import TopicConfig
from tidelog.storage.atomic import DISK_FULL
from tidelog.storage.checkpoints import write_epoch_checkpoint
from tidelog.storage.epoch_cache import EpochCache
from tidelog.storage.flush import Flush, FlushState
from tidelog.storage.leader_bounds import NO_BOUNDS, LeaderBounds
from tidelog.storage.names import LEADER_EPOCH_CHECKPOINT, segment_paths
from tidelog.storage.producer_log import ProducerLog
from tidelog.storage.producer_state import Duplicate
from tidelog.storage.removal import DelayedRemoval
from tidelog.storage.retention import RetentionPlan, plan_retention
from tidelog.storage.roll import Incoming, roll_reason
from tidelog.storage.segment import MAX_RELATIVE_OFFSET, Segment
from tidelog.storage.segments import SegmentList
from tidelog.storage.swapping import CompactableLog
from tidelog.storage.txn_index import AbortedTxn
from tidelog.storage.validation import BatchRules, Origin, Rejected, refused_producer, validate
from tidelog.wire.batch import STAMP_SIZE, BatchHeader, check_batch, stamped_prefix
from tidelog.wire.control import EndTxnMarker, build_marker_batch, read_marker
from tidelog.wire.errors import CorruptBatch, IncompleteBatch


class LogFailed(Exception):
    """The log met an I/O error and is closed to writers until it is opened again."""


class OffsetsNotContiguous(Exception):
    """A replicated batch does not follow the log's end; the fetcher asked for another offset."""


@dataclass(frozen=True, slots=True)
class Appended:
    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: TimestampMs
    is_duplicate: bool = False
    """The batch was there already; nothing was written (idempotent producer)."""


class Log(CompactableLog):
    """See the module. Made by ``tidelog.storage.recovery.open_log``."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        tp: TopicPartition,
        config: TopicConfig,
        random: Random,
        *,
        segments: SegmentList,
        producers: ProducerLog,
        epochs: EpochCache,
        log_start: Offset,
        end_offset: Offset,
        high_watermark: Offset,
        recovery_point: Offset,
    ) -> None:
        self._disk = disk
        self._random = random
        self.directory = directory
        self.tp = tp
        self.update_config(config)
        self.segments = segments
        self.producers = producers
        self.epochs = epochs
        self.epochs_are_dirty = False
        self.log_start = log_start
        self.end_offset = end_offset
        self.high_watermark = high_watermark
        self.failure: str | None = None
        self.is_short_of_space = False
        self.last_flush_ms = TimestampMs(0)
        self.on_truncating: Callable[[TopicPartition, Offset], None] | None = None
        """Told, before anything is cut, up to where checkpoints may go on vouching for the log."""
        self.on_removing: Callable[[TopicPartition, Offset], None] | None = None
        """Told, before old segments go, where the log will start."""
        self._flush = FlushState(directory, recovery_point)
        self.removal = DelayedRemoval(disk)

    def update_config(self, config: TopicConfig) -> None:
        """New settings hold from the next append on."""
        self.config = config
        self._rules = BatchRules.of(config)

    # --- where the log stands ----------------------------------------------------------

    @property
    def recovery_point(self) -> Offset:
        """Everything below is on stable storage, with its indexes and directory entries."""
        return self._flush.flushed_end

    @property
    def flushed_end(self) -> Offset:
        """How far an acknowledgement may count on this replica (DESIGN: two ends of a log)."""
        if self.config.flush_policy == "page-cache":
            return self.end_offset
        return self._flush.flushed_end

    @property
    def last_stable_offset(self) -> Offset:
        unstable = self.producers.states.first_unstable_offset(self.high_watermark)
        if unstable is None:
            return self.high_watermark
        return max(self.log_start, min(self.high_watermark, unstable))

    @property
    def unflushed_records(self) -> int:
        """What ``flush.messages`` counts."""
        return self.end_offset - self.recovery_point

    @property
    def has_unsynced_names(self) -> bool:
        """Whether files were made, renamed or removed that may still be lost, or come back."""
        return self._flush.directory_is_dirty or self._flush.under_way is not None

    @property
    def has_unflushed_segments(self) -> bool:
        """Whether segments were closed that no flush has covered yet."""
        return bool(self._flush.closed)

    @property
    def size(self) -> int:
        return self.segments.size

    def advance_high_watermark(self, offset: Offset) -> Offset:
        """Move the high watermark, within the log; its new value."""
        self.high_watermark = max(self.log_start, min(offset, self.end_offset))
        self.producers.states.on_high_watermark(self.high_watermark)
        return self.high_watermark

    def begin_epoch(self, epoch: LeaderEpoch) -> None:
        """This replica leads from here on: note where the epoch starts (KIP-101)."""
        if self.epochs.assign(epoch, self.end_offset):
            self.epochs_are_dirty = True

    # --- appending ---------------------------------------------------------------------

    def append_as_leader(
        self,
        data: ByteView,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
        origin: Origin = Origin.CLIENT,
    ) -> Appended | Rejected:
        """Validate one batch, give it its offsets and write it."""
        self._refuse_if_failed()
        if self.is_short_of_space:
            return Rejected(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.tp}: the disk is nearly full")
        accepted = validate(data, origin, self._rules, now_ms)
        if isinstance(accepted, Rejected):
            return accepted
        header = accepted.header
        if header.producer_id >= 0:
            outcome = self.producers.states.check(
                header, is_sequenced=origin is Origin.CLIENT, is_first=self.end_offset == 0
            )
            if isinstance(outcome, Duplicate):
                return Appended(
                    outcome.first_offset, outcome.last_offset, outcome.timestamp, is_duplicate=True
                )
            if outcome is not None:
                return refused_producer(self.tp, outcome, header)
        return self._append_stamped(
            header, accepted.data, leader_epoch, now_ms, accepted.log_append_time_ms, None
        )

    def append_marker(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        marker: EndTxnMarker,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
        begins_epoch: bool = False,
    ) -> Appended | Rejected:
        """End the producer's transaction; ``begins_epoch``: under the next epoch (KIP-890)."""
        self._refuse_if_failed()
        states = self.producers.states
        refused = states.check_marker(producer_id, producer_epoch, marker.coordinator_epoch)
        if refused is not None:
            return Rejected(refused, f"marker of producer {producer_id} epoch {producer_epoch}")
        if begins_epoch and states.has_marker(producer_id, producer_epoch):
            # Where it is nobody remembers; it is replicated when everything up to here is.
            last = Offset(self.end_offset - 1)
            return Appended(last, last, NO_TIMESTAMP, is_duplicate=True)
        data = build_marker_batch(
            marker.type,
            coordinator_epoch=marker.coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=now_ms,
        )
        return self._append_stamped(
            check_batch(data), data, leader_epoch, now_ms, NO_TIMESTAMP, marker
        )

    def _append_stamped(
        self,
        header: BatchHeader,
        data: ByteView,
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
        log_append_time_ms: TimestampMs,
        marker: EndTxnMarker | None,
    ) -> Appended | Rejected:
        base = self.end_offset
        stamped = BatchHeader(base, header[1], leader_epoch, *header[3:])
        prefix = stamped_prefix(header, base, leader_epoch)
        full = self._write(stamped, (prefix, memoryview(data)[STAMP_SIZE:]), now_ms)
        if full is not None:
            return full
        self._take_over(stamped, marker)
        return Appended(base, stamped.last_offset, log_append_time_ms)

    def append_as_follower(
        self, data: ByteView, now_ms: TimestampMs, bounds: LeaderBounds = NO_BOUNDS
    ) -> Rejected | None:
        """Append replicated batches as they are; an unfinished one at the end is left out.

        Producer state is updated without the checks a leader makes: what the leader accepted
        is history, and a replica that lacks some of that history must not refuse it.
        """
        self._refuse_if_failed()
        view, position = memoryview(data), 0
        while position < len(view):
            try:
                header = check_batch(view, position)
            except IncompleteBatch:
                return None
            batch = view[position : position + header.size]
            bounds.check(self.tp, header)
            self._check_follows(header, now_ms)
            full = self._write(header, (batch,), now_ms)
            if full is not None:
                return full
            self._take_over(header, read_marker(batch, header) if header.is_control else None)
            position += header.size
        return None

    def _check_follows(self, header: BatchHeader, now_ms: TimestampMs) -> None:
        if header.base_offset >= self.end_offset:
            return
        if self.end_offset == self.log_start and header.last_offset >= self.end_offset:
            # An empty replica asked from the middle of a batch; it takes the whole of it.
            self.truncate_fully_and_start_at(header.base_offset, now_ms)
            return
        raise OffsetsNotContiguous(
            f"{self.tp}: batch at offset {header.base_offset} does not follow the log end "
            f"{self.end_offset}"
        )

    def _write(
        self, header: BatchHeader, buffers: Sequence[ByteView], now_ms: TimestampMs
    ) -> Rejected | None:
        """Into the active segment, or a new one; ``Rejected`` if the disk is full."""
        incoming = Incoming(header.size, header.max_timestamp, header.last_offset)
        try:
            if roll_reason(self.segments.active, incoming, self.config, now_ms) is not None:
                self.roll(self._roll_base(header), now_ms)
            self.segments.active.write(buffers, (header,))
        except OSError as error:
            return self._after_write_error(error)
        return None

    def _roll_base(self, header: BatchHeader) -> Offset:
        """Segments join without a gap, even where offsets have one (a compacted leader).

        So recovery can tell the lost end of a segment from offsets that were never there. Only
        offsets too far apart for one segment's index begin a segment of their own.
        """
        if header.last_offset - self.end_offset > MAX_RELATIVE_OFFSET:
            return header.base_offset
        return self.end_offset

    def _after_write_error(self, error: OSError) -> Rejected:
        """Cut off the partial write; if even that fails, or the disk is broken, give up."""
        if error.errno in DISK_FULL:
            try:
                self.segments.active.forget_bytes_behind_size()
            except OSError as second:
                self.fail(f"could not cut off a partial write: {second}")
            else:
                return Rejected(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.tp}: {error}")
        else:
            self.fail(f"write failed: {error}")
        raise LogFailed(f"{self.tp}: {self.failure}") from error

    def _take_over(self, header: BatchHeader, marker: EndTxnMarker | None) -> None:
        """A batch is in the file: move the end, the epochs and the producers along."""
        if header.leader_epoch >= 0 and self.epochs.assign(header.leader_epoch, header.base_offset):
            self.epochs_are_dirty = True
        self.end_offset = Offset(header.base_offset + header.last_offset_delta + 1)
        completed = self.producers.apply(header, marker)
        if completed is not None and completed.is_aborted:
            stable = self.producers.states.last_stable_offset_after(completed)
            self.segments.active.txn_index.append(
                AbortedTxn(
                    completed.producer_id, completed.first_offset, completed.last_offset, stable
                )
            )

    def fail(self, reason: str) -> None:
        """Accept nothing more until the log is opened again (KAFKA-10778)."""
        self.failure = self.failure or reason

    def _refuse_if_failed(self) -> None:
        if self.failure is not None:
            raise LogFailed(f"{self.tp}: {self.failure}")

    # --- rolling -----------------------------------------------------------------------

    def roll(self, base_offset: Offset, now_ms: TimestampMs) -> None:
        """Close the active segment and begin a new one at ``base_offset``.

        The new files are made first: if the disk is full, the old segment stays as it is.
        """
        old = self.segments.active
        if old.size == 0 and old.base_offset == base_offset:
            return
        self.producers.end_offset = base_offset
        self.producers.take_snapshot()
        new = self._new_segment(base_offset, now_ms)
        try:
            old.close_for_writing()
        except OSError:
            # The file of a later segment would hide what is yet appended to this one.
            new.discard()
            self._remove_files(base_offset)
            old.make_active()
            raise
        self._flush.closed.append(old)
        self._flush.directory_is_dirty = True
        self.segments.append(new)

    def _new_segment(self, base_offset: Offset, now_ms: TimestampMs) -> Segment:
        jitter_limit = min(self.config.segment_jitter_ms, self.config.segment_ms)
        jitter_ms = self._random.randrange(0, jitter_limit) if jitter_limit > 0 else 0
        try:
            return Segment.create(
                self._disk,
                self.directory,
                base_offset,
                self.config,
                now_ms=now_ms,
                roll_jitter_ms=jitter_ms,
            )
        except OSError:
            self._remove_files(base_offset)
            raise

    def _remove_files(self, base_offset: Offset) -> None:
        self._flush.directory_is_dirty = True
        for path in segment_paths(self.directory, base_offset):
            self._disk.unlink(path)

    # --- flushing ----------------------------------------------------------------------

    def begin_flush(self, now_ms: TimestampMs | None = None) -> Flush | None:
        """Decide the next group commit; None if nothing is due or one is under way.

        ``now_ms`` is for ``flush.ms``, where that is set.
        """
        self._refuse_if_failed()
        if now_ms is not None:
            self.last_flush_ms = now_ms
        return self._flush.begin(self.end_offset, self.segments.active.file)

    def complete_flush(self, flush: Flush) -> Offset:
        """The steps of ``flush`` ran without an error; the new recovery point."""
        self._refuse_if_failed()
        return self._flush.complete(flush)

    def flush_now(self) -> None:
        """A flush on the spot, for closing and for tools; not for the event loop."""
        self._refuse_if_flushing()
        flush = self.begin_flush()
        if flush is not None:
            in_one_go(flush.steps(self._disk))
            self.complete_flush(flush)

    def _refuse_if_flushing(self) -> None:
        if self._flush.under_way is not None:
            raise RuntimeError(f"{self.tp}: a flush is under way; drain the flusher first")

    def distrust_flushes(self, changed: Sequence[Segment]) -> None:
        """What opening found or made may only be cached: the next flush covers ``changed``."""
        self._flush.closed = [segment for segment in changed if not segment.is_active]
        self._flush.directory_is_dirty = True

    def write_epochs(self) -> None:
        """Make the leader epochs durable; due before a recovery point passes a new entry."""
        if self.epochs_are_dirty:
            path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
            write_epoch_checkpoint(self._disk, path, self.epochs.entries)
            self.epochs_are_dirty = False

    # --- cutting from the front --------------------------------------------------------

    def raise_log_start(self, offset: Offset) -> bool:
        """Records below ``offset`` are gone for readers (DeleteRecords, a leader's start)."""
        if offset <= self.log_start:
            return False
        if offset > self.end_offset:
            raise ValueError(f"{self.tp}: log start {offset} beyond the end {self.end_offset}")
        self.log_start = offset
        if self.epochs.truncate_from_start(offset):
            self.epochs_are_dirty = True
        self.high_watermark = max(self.high_watermark, offset)
        return True

    def start_after_retention(self, now_ms: TimestampMs) -> Offset | None:
        """Where the log will start once the first rule of its policy is applied; None: as now."""
        plan = self._plan_retention(now_ms)
        return None if plan is None else self.segments.end_of(plan.count - 1, self.end_offset)

    def apply_retention(self, now_ms: TimestampMs) -> list[RetentionPlan]:
        """Take out what the policy lets go; what was done, for the log."""
        self._refuse_if_failed()
        done: list[RetentionPlan] = []
        while (plan := self._plan_retention(now_ms)) is not None:
            count = plan.count
            if count == len(self.segments):
                # What can go without a new segment goes first: the disk may be full.
                self._remove_first(count - 1, now_ms)
                self.roll(self.end_offset, now_ms)
                count = 1
            self._remove_first(count, now_ms)
            done.append(plan)
        return done

    def _plan_retention(self, now_ms: TimestampMs) -> RetentionPlan | None:
        return plan_retention(
            self.segments.retention_facts(self.end_offset),
            self.config,
            log_start=self.log_start,
            high_watermark=self.high_watermark,
            now_ms=now_ms,
        )

    def _remove_first(self, count: int, now_ms: TimestampMs) -> None:
        self.finish_swap()
        # The start moves first, for readers and on disk: of the renames a power failure may
        # undo any, and of a log with a hole in it the older part would look like the sound one.
        start = self.segments[count].base_offset
        if count > 0 and self.on_removing is not None:
            self.on_removing(self.tp, start)
        self.raise_log_start(start)
        for segment in self.segments.remove_first(count):
            paths = segment.paths()
            snapshot = self.producers.forget_snapshot(segment.base_offset)
            if snapshot is not None:
                paths.append(snapshot)
            self._discard(segment)
            self.removal.add(paths, TimestampMs(now_ms + self.config.file_delete_delay_ms))
        self._flush.directory_is_dirty = True

    # --- cutting from the end ----------------------------------------------------------

    def truncate_to(self, offset: Offset, now_ms: TimestampMs) -> bool:
        """Drop the batch that holds ``offset`` and all behind it; False if there is none.

        The log then ends where its last batch does, which is below ``offset`` if that lay
        inside a batch. Checkpoints are lowered first; then whole segments are unlinked, and the
        directory and the cut file are synced before anything is appended: if a part of this
        were lost in a power failure, old batches would come back among newer ones.
        """
        self._refuse_if_failed()
        if offset >= self.end_offset:
            return False
        try:
            end = self.segments[self.segments.floor_index(offset)].end_below(offset)
            if offset < self.segments[0].base_offset or end < self.log_start:
                self.truncate_fully_and_start_at(min(offset, self.log_start), now_ms)
                return True
            self._announce_truncation(end)
            self._remove_segments_above(offset)
            self.segments.active.make_active()
            self.segments.active.truncate_to(offset)
            self.segments.active.file.sync()
            self._after_truncation(end)
        except (OSError, CorruptBatch) as error:
            self.fail(f"truncation failed: {error}")
            raise LogFailed(f"{self.tp}: {self.failure}") from error
        return True

    def truncate_fully_and_start_at(self, offset: Offset, now_ms: TimestampMs) -> None:
        """Empty the log; the next batch may be at ``offset``."""
        self._refuse_if_failed()
        try:
            self._announce_truncation(Offset(0))
            self._remove_segments_above(Offset(-1))
            self.segments.append(self._new_segment(offset, now_ms))
            self._disk.sync_dir(self.directory)
            self.log_start = offset
            self._after_truncation(offset)
            self._flush.restarted_at(offset)
            self.high_watermark = offset
        except OSError as error:
            self.fail(f"truncation failed: {error}")
            raise LogFailed(f"{self.tp}: {self.failure}") from error

    def _announce_truncation(self, end: Offset) -> None:
        self.finish_swap()
        if self.on_truncating is not None:
            self.on_truncating(self.tp, end)

    def _remove_segments_above(self, offset: Offset) -> None:
        # Newest first, and the very first for itself: what a crash leaves begins where it did.
        removed = self.segments.remove_above(offset)
        for segment in removed:
            if not self.segments and segment is removed[-1]:
                self._disk.sync_dir(self.directory)
            self._discard(segment)
            self._remove_files(segment.base_offset)
        if removed:
            self._disk.sync_dir(self.directory)

    def _after_truncation(self, offset: Offset) -> None:
        self.end_offset = offset
        self._flush.truncated(offset)
        self.high_watermark = min(self.high_watermark, offset)
        if self.epochs.truncate_from_end(offset):
            self.epochs_are_dirty = True
        self.producers.delete_snapshots_above(offset)
        self._flush.directory_is_dirty = True
        before = self.producers.states
        in_one_go(self.rebuild_producers())
        self.producers.states.recall(before, offset)

    def rebuild_producers(self) -> Steps[None]:
        """Producer state from the newest snapshot and the batches behind it."""
        start = self.producers.load(self.end_offset, self.log_start)
        yield from self.producers.replay(self.segments.from_offset(start), start, self.end_offset)
        self.producers.states.on_high_watermark(self.high_watermark)

    def refill_producer_windows(self) -> Steps[None]:
        """Due when a reopened log becomes leader; see ``ProducerLog.refill_windows``."""
        return self.producers.refill_windows(list(self.segments))

    def expire_producers(self, now_ms: TimestampMs, expiration_ms: int) -> list[ProducerId]:
        """Forget producers that were silent for so long (``producer.id.expiration.ms``)."""
        return self.producers.states.expire(now_ms, expiration_ms)

    # --- ending ------------------------------------------------------------------------

    def close(self) -> None:
        """A clean end: final index entries, producer snapshot, epochs, everything synced."""
        self._refuse_if_failed()
        self._refuse_if_flushing()
        self.producers.end_offset = self.end_offset
        self.producers.take_snapshot()
        self.segments.active.close_for_writing()
        self._flush.closed.append(self.segments.active)
        self._flush.directory_is_dirty = True
        self.flush_now()
        self.write_epochs()
        self.close_files()

    def close_files(self) -> None:
        """Let go of every file as it is, as after a clean close or a failure."""
        for segment in self.segments:
            segment.discard()
