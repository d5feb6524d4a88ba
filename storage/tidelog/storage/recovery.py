"""Opening a log: tidy up, verify what a crash may have damaged, rebuild what is derived.

After a clean shutdown the files are believed. Otherwise every segment from the recovery point
on is read batch by batch; the log is cut at the first batch that is not sound, its indexes are
made anew, and epochs and producers are replayed.

What was found is told as a verdict, because a replica that lost acknowledged data must not
lead while a sound one exists:

- *clean*: nothing had to be cut;
- *torn tail*: a write that was under way; nothing sound lies behind the cut, and the cut lies
  at or above both the recovery point and the checkpointed high watermark;
- *suspect*: anything else. The bytes that were cut off are kept in a file beside the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tidelog.kernel.ids import LeaderEpoch, Offset, TimestampMs, TopicPartition
from tidelog.kernel.ports import Disk, Random, Steps
from tidelog.kernel.settings import TopicConfig
from tidelog.storage.checkpoints import CorruptCheckpoint, read_epoch_checkpoint
from tidelog.storage.epoch_cache import EpochCache
from tidelog.storage.index import CorruptIndex
from tidelog.storage.log import Log
from tidelog.storage.names import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    SegmentFile,
    parse_segment_file,
    segment_file,
)
from tidelog.storage.producer_log import ProducerLog, marker_of
from tidelog.storage.scan import (
    Flaw,
    Located,
    VerifyProgress,
    find_sound_batch,
    scan_headers,
    verify_batches,
)
from tidelog.storage.segment import MAX_RELATIVE_OFFSET, Segment
from tidelog.storage.segments import SegmentList
from tidelog.storage.tidy import finish_interrupted_work
from tidelog.storage.txn_index import AbortedTxn
from tidelog.wire.batch import BatchHeader

_SUSPECT_SUFFIX: Final = ".suspect"
_COPY_BYTES: Final = 4 * 1024 * 1024
_NO_LIMIT: Final = Offset(2**63 - 1)


class Verdict(Enum):
    CLEAN = "clean"
    TORN_TAIL = "torn tail"
    SUSPECT = "suspect"


@dataclass(slots=True)
class Report:
    """What opening a log found and did; for the node's log and for its registration."""

    tp: TopicPartition
    verdict: Verdict = Verdict.CLEAN
    last_epoch: LeaderEpoch = LeaderEpoch(-1)
    end_offset: Offset = Offset(0)
    bytes_verified: int = 0
    bytes_cut: int = 0
    repairs: list[str] = field(default_factory=list)

    def note(self, repair: str) -> None:
        self.repairs.append(repair)


@dataclass(frozen=True, slots=True)
class Opening:
    """What the node knows about a log before it is opened."""

    disk: Disk
    directory: str
    tp: TopicPartition
    config: TopicConfig
    random: Random
    now_ms: TimestampMs
    was_clean: bool
    """The clean-shutdown marker was there and this log is not otherwise in doubt."""
    recovery_point: Offset = Offset(0)
    log_start: Offset = Offset(0)
    high_watermark: Offset = Offset(0)
    is_distrusted: bool = False
    """An fsync failed here: only what the recovery point vouches for is kept."""


def open_log(opening: Opening) -> Steps[tuple[Log, Report]]:
    """The whole of opening one log, in steps for an ``Offload``."""
    disk, directory = opening.disk, opening.directory
    report = Report(opening.tp)
    disk.make_dirs(directory)
    finish_interrupted_work(disk, directory, report.note)
    yield
    names = [name for name in map(parse_segment_file, disk.list_dir(directory)) if name]
    _drop_orphans(opening, names, report)
    unindexed = _bases_without_index(names)
    segments = _load_segments(opening, names)
    producers = ProducerLog(
        disk, directory, [n.base_offset for n in names if n.suffix == SNAPSHOT_SUFFIX]
    )
    epochs = _load_epochs(opening, report)
    if opening.was_clean:
        yield from _rebuild_bad_indexes(opening, segments, unindexed, report)
    else:
        recovery = _Recovery(opening, segments, producers, epochs, report)
        yield from _rebuild_bad_indexes(opening, recovery.flushed_whole, unindexed, report)
        yield from recovery.run()
        segments = recovery.segments
    log = yield from _assemble(opening, segments, producers, epochs, report)
    if opening.is_distrusted and log.truncate_to(opening.recovery_point, opening.now_ms):
        report.verdict = Verdict.SUSPECT
        report.note(f"cut to the recovery point {log.end_offset} after a failed fsync")
    report.end_offset = log.end_offset
    latest = log.epochs.latest_epoch
    report.last_epoch = LeaderEpoch(-1) if latest is None else latest
    return log, report


def _assemble(
    opening: Opening,
    segments: list[Segment],
    producers: ProducerLog,
    epochs: EpochCache,
    report: Report,
) -> Steps[Log]:
    end = _end_offset(segments)
    if segments and end < opening.log_start:
        report.note(f"log end {end} lies below the log start {opening.log_start}: emptied")
        report.verdict = Verdict.SUSPECT
        _delete_segments(opening, segments)
        segments = []
    if not segments:
        epochs.truncate_from_end(Offset(0))
        producers.delete_snapshots_above(Offset(-1))
        end = opening.log_start
        segments = [
            Segment.create(
                opening.disk, opening.directory, end, opening.config, now_ms=opening.now_ms
            )
        ]
    listed = SegmentList(segments)
    log_start = max(opening.log_start, listed[0].base_offset)
    dirty = epochs.truncate_from_end(end) | epochs.truncate_from_start(log_start)
    log = Log(
        opening.disk,
        opening.directory,
        opening.tp,
        opening.config,
        opening.random,
        segments=listed,
        producers=producers,
        epochs=epochs,
        log_start=log_start,
        end_offset=end,
        high_watermark=max(log_start, min(opening.high_watermark, end)),
        recovery_point=end if opening.was_clean else min(opening.recovery_point, end),
    )
    log.epochs_are_dirty = dirty or not opening.was_clean
    if not opening.was_clean:
        log.distrust_flushes()
    producers.delete_strays(listed.bases)
    yield from log.rebuild_producers()
    return log


def _end_offset(segments: list[Segment]) -> Offset:
    return segments[-1].next_offset() if segments else Offset(0)


def _load_segments(opening: Opening, names: list[SegmentFile]) -> list[Segment]:
    bases = sorted(n.base_offset for n in names if n.suffix == LOG_SUFFIX and not n.extra)
    segments: list[Segment] = []
    for base in bases:
        stat = opening.disk.stat(segment_file(opening.directory, base, LOG_SUFFIX))
        segments.append(
            Segment(
                opening.disk,
                opening.directory,
                base,
                opening.config,
                size=0 if stat is None else stat.size,
                is_active=base == bases[-1],
                created_ms=opening.now_ms if stat is None else stat.mtime_ms,
            )
        )
    return segments


def _drop_orphans(opening: Opening, names: list[SegmentFile], report: Report) -> None:
    bases = {n.base_offset for n in names if n.suffix == LOG_SUFFIX and not n.extra}
    for name in names:
        is_index = name.suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
        if is_index and not name.extra and name.base_offset not in bases:
            path = segment_file(opening.directory, name.base_offset, name.suffix)
            opening.disk.unlink(path)
            report.note(f"removed {path}: there is no such segment")


def _load_epochs(opening: Opening, report: Report) -> EpochCache:
    path = f"{opening.directory}/{LEADER_EPOCH_CHECKPOINT}"
    if opening.disk.stat(path) is None:
        return EpochCache([])
    try:
        return EpochCache(read_epoch_checkpoint(opening.disk, path))
    except CorruptCheckpoint as error:
        report.note(f"{error}; leader epochs are read from the batches")
        return EpochCache([])


def _delete_segments(opening: Opening, segments: list[Segment]) -> None:
    for segment in reversed(segments):
        segment.discard()
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
            opening.disk.unlink(segment.path(suffix))
    opening.disk.sync_dir(opening.directory)


def _bases_without_index(names: list[SegmentFile]) -> set[Offset]:
    """Asked before the active segment is opened, which makes its index files."""
    there = {(name.base_offset, name.suffix) for name in names if not name.extra}
    return {
        base
        for base, suffix in there
        if suffix == LOG_SUFFIX and not {(base, INDEX_SUFFIX), (base, TIME_INDEX_SUFFIX)} <= there
    }


def _rebuild_bad_indexes(
    opening: Opening, segments: list[Segment], unindexed: set[Offset], report: Report
) -> Steps[None]:
    """What is plainly missing or wrong is made anew; the rest is judged when it is used."""
    for segment in segments:
        reason = "it is not there" if segment.base_offset in unindexed else None
        if reason is None and segment.is_active:
            reason = index_flaw(segment)
        if reason is not None:
            report.note(f"{segment.path(INDEX_SUFFIX)}: {reason}; rebuilt from the log")
            yield from rebuild_indexes(opening, segments, segment)


def _has_sound_txn_index(opening: Opening, segment: Segment) -> bool:
    if opening.disk.stat(segment.path(TXN_INDEX_SUFFIX)) is None:
        return False
    try:
        segment.txn_index.sanity_check(segment.base_offset)
    except CorruptIndex:
        return False
    return True


def index_flaw(segment: Segment) -> str | None:
    """Why a segment's indexes cannot be believed; None if they fit its log."""
    try:
        segment.offset_index.sanity_check()
        segment.time_index.sanity_check()
        segment.txn_index.sanity_check(segment.base_offset)
    except CorruptIndex as error:
        return str(error)
    offset, position = segment.offset_index.last_entry
    if position >= segment.size and segment.offset_index.entries > 0:
        return f"entry {offset} points to {position}, the log ends at {segment.size}"
    return None


def rebuild_indexes(opening: Opening, segments: list[Segment], segment: Segment) -> Steps[None]:
    """Make a segment's indexes from its batches, which are believed.

    A transaction index that is sound is kept: in a log that was compacted it may name aborted
    transactions whose first batches are gone. Otherwise they are found by replaying producers
    from the snapshot below the segment.
    """
    if _has_sound_txn_index(opening, segment):
        segment.reindex()
        return
    snapshots = [
        n.base_offset
        for n in map(parse_segment_file, opening.disk.list_dir(opening.directory))
        if n is not None and n.suffix == SNAPSHOT_SUFFIX and not n.extra
    ]
    producers = ProducerLog(opening.disk, opening.directory, snapshots)
    start = producers.load(segment.base_offset, opening.log_start)
    before = [other for other in segments if other.base_offset < segment.base_offset]
    yield from producers.replay(before, start, segment.base_offset)
    end = segment.size
    segment.reset_indexes()
    for count, (position, header) in enumerate(scan_headers(segment.file, 0, end)):
        note_recovered(segment, producers, position, header)
        if count % 4096 == 0:
            yield
    segment.size = end
    if not segment.is_active:
        segment.close_for_writing()


def note_recovered(
    segment: Segment, producers: ProducerLog, position: int, header: BatchHeader
) -> None:
    """Index a batch that is in the file, and let the producers' state follow."""
    segment.note_batch(position, header)
    if header.producer_id < 0:
        return
    completed = producers.apply(header, marker_of(segment, position, header))
    if completed is not None and completed.is_aborted:
        stable = producers.states.last_stable_offset_after(completed)
        segment.txn_index.append(
            AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, stable)
        )


class _Recovery:
    """The walk over everything from the recovery point on."""

    def __init__(
        self,
        opening: Opening,
        segments: list[Segment],
        producers: ProducerLog,
        epochs: EpochCache,
        report: Report,
    ) -> None:
        self._opening = opening
        self._producers = producers
        self._epochs = epochs
        self._report = report
        self.segments = segments

    @property
    def flushed_whole(self) -> list[Segment]:
        return self.segments[: self._first_unflushed()]

    def run(self) -> Steps[None]:
        first = self._first_unflushed()
        if first < len(self.segments):
            yield from self._start_producers(first)
        progress = self._progress(first)
        for index in range(first, len(self.segments)):
            flaw = yield from self._recover_segment(index, progress)
            if flaw is not None:
                yield from self._cut(index, flaw, progress.next_offset)
                break
        self._judge_end(progress.next_offset)

    def _judge_end(self, end: Offset) -> None:
        """Bytes may also be missing without a trace, when a file's size was never synced."""
        if end < self._floor and self._report.verdict is not Verdict.SUSPECT:
            self._report.verdict = Verdict.SUSPECT
            self._report.note(f"the log ends at {end}, it had been flushed to {self._floor}")

    @property
    def _floor(self) -> Offset:
        """Nothing below this was under way when the node stopped."""
        return max(self._opening.recovery_point, self._opening.high_watermark)

    def _first_unflushed(self) -> int:
        """The segment that holds the recovery point; all before it were flushed whole."""
        point = self._opening.recovery_point
        bases = [segment.base_offset for segment in self.segments]
        flushed = [index for index, base in enumerate(bases) if base <= point]
        return flushed[-1] if flushed else 0

    def _progress(self, first: int) -> VerifyProgress:
        start = self.segments[first].base_offset if first < len(self.segments) else Offset(0)
        epoch = self._epochs.epoch_for_offset(Offset(start - 1)) if start > 0 else None
        return VerifyProgress(start, _NO_LIMIT, LeaderEpoch(-1) if epoch is None else epoch)

    def _start_producers(self, first: int) -> Steps[None]:
        base = self.segments[first].base_offset
        start = self._producers.load(base, self.segments[0].base_offset)
        yield from self._producers.replay(self.segments[:first], start, base)

    def _recover_segment(self, index: int, progress: VerifyProgress) -> Steps[Flaw | None]:
        segment = self.segments[index]
        size = segment.size
        is_last = index == len(self.segments) - 1
        limit = _NO_LIMIT if is_last else Offset(self.segments[index + 1].base_offset - 1)
        progress.max_offset = min(limit, Offset(segment.base_offset + MAX_RELATIVE_OFFSET))
        progress.next_offset = max(progress.next_offset, segment.base_offset)
        segment.reset_indexes()
        flaw: Flaw | None = None
        for found in verify_batches(segment.file, size, progress):
            if isinstance(found, Flaw):
                flaw = found
                break
            self._take_over(segment, found)
            yield
        self._report.bytes_verified += segment.size
        if flaw is None and not is_last:
            segment.close_for_writing()
            self._producers.end_offset = self.segments[index + 1].base_offset
            self._producers.take_snapshot()
        return flaw

    def _take_over(self, segment: Segment, sound: list[Located]) -> None:
        """Index the batches and let epochs and producers follow."""
        latest = self._epochs.latest_epoch
        for position, header in sound:
            if latest is None or header.leader_epoch > latest:
                self._epochs.assign(header.leader_epoch, header.base_offset)
                latest = header.leader_epoch
            note_recovered(segment, self._producers, position, header)

    def _cut(self, index: int, flaw: Flaw, end: Offset) -> Steps[None]:
        """Judge the damage, keep what is suspect aside, and end the log before it."""
        segment = self.segments[index]
        file_size = segment.file.size()
        later = self.segments[index + 1 :]
        sound = find_sound_batch(segment.file, flaw.position, file_size, Offset(end - 1))
        yield
        data_behind = sound is not None or any(other.size > 0 for other in later)
        self._report.verdict = (
            Verdict.SUSPECT if data_behind or end < self._floor else Verdict.TORN_TAIL
        )
        self._report.bytes_cut += file_size - flaw.position + sum(s.size for s in later)
        self._report.note(f"{segment.path(LOG_SUFFIX)} cut at {flaw.position}: {flaw.reason}")
        if self._report.verdict is Verdict.SUSPECT:
            yield from self._keep_aside(segment, flaw.position, file_size)
            for other in later:
                yield from self._keep_aside(other, 0, other.size)
        _delete_segments(self._opening, later)
        self.segments = self.segments[: index + 1]
        segment.file.truncate(flaw.position)
        segment.make_active()

    def _keep_aside(self, segment: Segment, start: int, end: int) -> Steps[None]:
        path = f"{segment.path(LOG_SUFFIX)}.{start}{_SUSPECT_SUFFIX}"
        copy = self._opening.disk.open(path, create=True)
        for position in range(start, end, _COPY_BYTES):
            length = min(_COPY_BYTES, end - position)
            copy.pwrite(segment.file.pread(length, position), position - start)
            yield
        copy.sync()
        copy.close()
        self._report.note(f"kept {end - start} bytes in {path}")
