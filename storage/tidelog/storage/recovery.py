"""Opening a log: tidy up, verify what a crash may have damaged, rebuild what is derived.

After a clean shutdown the files are believed, unless the log does not end where it did. In any
other case every segment from the recovery point on is read batch by batch (``unclean``).
What was found is told as a verdict (``opening``).
"""

from __future__ import annotations

from tidelog.kernel.ids import LeaderEpoch, Offset
from tidelog.kernel.ports import Steps
from tidelog.storage.atomic import make_dirs_durably
from tidelog.storage.checkpoints import CorruptCheckpoint, read_epoch_checkpoint
from tidelog.storage.epoch_cache import EpochCache
from tidelog.storage.index_repair import bases_without_index, index_flaw, rebuild_bad_indexes
from tidelog.storage.index_repair import note_recovered as note_recovered
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
from tidelog.storage.opening import Opening as Opening
from tidelog.storage.opening import Report as Report
from tidelog.storage.opening import Verdict as Verdict
from tidelog.storage.producer_log import ProducerLog
from tidelog.storage.segment import Segment
from tidelog.storage.segments import SegmentList
from tidelog.storage.tidy import finish_interrupted_work
from tidelog.storage.unclean import UncleanRecovery, delete_segments
from tidelog.wire.errors import CorruptBatch


def open_log(opening: Opening) -> Steps[tuple[Log, Report]]:
    """The whole of opening one log, in steps for an ``Offload``."""
    report = Report(opening.tp)
    try:
        log = yield from _open(opening, report, verify_all=False)
    except CorruptBatch as error:
        report.note(f"{opening.directory}: {error}; the whole log is verified")
        log = yield from _open(opening, report, verify_all=True)
    report.end_offset = log.end_offset
    latest = log.epochs.latest_epoch
    report.last_epoch = LeaderEpoch(-1) if latest is None else latest
    return log, report


def _open(opening: Opening, report: Report, *, verify_all: bool) -> Steps[Log]:
    disk, directory = opening.disk, opening.directory
    make_dirs_durably(disk, directory)
    finish_interrupted_work(disk, directory, report.note)
    yield
    names = [name for name in map(parse_segment_file, disk.list_dir(directory)) if name]
    _drop_orphans(opening, names, report)
    unindexed = bases_without_index(names)
    segments = _without_removed(opening, _load_segments(opening, names), report)
    producers = ProducerLog(
        disk, directory, [n.base_offset for n in names if n.suffix == SNAPSHOT_SUFFIX]
    )
    epochs = _load_epochs(opening, report)
    if not verify_all and _is_believed(opening, segments, report):
        changed = yield from rebuild_bad_indexes(opening, segments, names, unindexed, report)
        yield from _restore_epochs(opening, epochs, segments)
        log = yield from _assemble(opening, segments, producers, epochs, report, is_clean=True)
    else:
        recovery = UncleanRecovery(
            opening, segments, producers, epochs, report, verify_all=verify_all
        )
        flushed = segments[: recovery.first]
        changed = yield from rebuild_bad_indexes(opening, flushed, names, unindexed, report)
        yield from _restore_epochs(opening, epochs, flushed)
        yield from recovery.run()
        changed += recovery.segments[recovery.first :]
        log = yield from _assemble(
            opening, recovery.segments, producers, epochs, report, is_clean=False
        )
    if changed or not segments:
        log.distrust_flushes(changed)
    _cut_distrusted(opening, log, report)
    return log


def _is_believed(opening: Opening, segments: list[Segment], report: Report) -> bool:
    """Whether the clean-shutdown marker and the files say the same."""
    if not opening.was_clean or opening.is_distrusted:
        return False
    doubt = _doubt(opening, segments)
    if doubt is not None:
        report.note(f"{opening.directory} was closed cleanly, but {doubt}; it is verified")
    return doubt is None


def _doubt(opening: Opening, segments: list[Segment]) -> str | None:
    end, position, size = Offset(0), 0, 0
    if segments:
        active = segments[-1]
        end, size = active.base_offset, active.size
        if index_flaw(active) is None:  # else it is rebuilt later, and told
            position = active.start_before(Offset(2**63 - 1))
        try:
            for at, header in active.batches(position):
                end, position = header.next_offset, at + header.size
        except CorruptBatch as error:
            return str(error)
    if position != size:
        return f"{size - position} bytes behind its last batch are none"
    if opening.recovery_point > 0 and end != opening.recovery_point:
        return f"it ends at {end} and not at {opening.recovery_point}"
    return None


def _cut_distrusted(opening: Opening, log: Log, report: Report) -> None:
    """After a failed fsync only the recovery point is believed: pages may have been dropped."""
    if opening.is_distrusted:
        log.truncate_to(max(opening.recovery_point, log.log_start), opening.now_ms)
        # Suspect also if nothing is left to cut: more had been flushed, and told, than the
        # checkpoint knows.
        report.suspect(f"kept up to {log.end_offset}, the recovery point, after a failed fsync")


def _assemble(
    opening: Opening,
    segments: list[Segment],
    producers: ProducerLog,
    epochs: EpochCache,
    report: Report,
    *,
    is_clean: bool,
) -> Steps[Log]:
    end = _end_offset(segments)
    if segments and end < opening.log_start:
        report.suspect(f"log end {end} lies below the log start {opening.log_start}: emptied")
        delete_segments(opening, segments)
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
        recovery_point=end if is_clean else min(opening.recovery_point, end),
    )
    log.last_flush_ms = opening.now_ms
    log.epochs_are_dirty = dirty or not is_clean
    producers.delete_snapshots_above(end)
    producers.delete_strays(listed.bases)
    if is_clean or producers.end_offset != end:
        yield from log.rebuild_producers()
    else:
        # The walk over the log has brought the producers to its end already.
        producers.states.on_high_watermark(log.high_watermark)
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


def _without_removed(opening: Opening, segments: list[Segment], report: Report) -> list[Segment]:
    """Segments below the log start were on their way out; some of them may be gone already."""
    bases = [segment.base_offset for segment in segments]
    count = sum(1 for following in bases[1:] if following <= opening.log_start)
    if count > 0:
        delete_segments(opening, segments[:count])
        report.note(f"removed {count} segments below the log start {opening.log_start}")
    return segments[count:]


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
    try:
        return EpochCache(read_epoch_checkpoint(opening.disk, path))
    except CorruptCheckpoint as error:
        report.note(f"{error}; leader epochs are read from the batches")
        return EpochCache([])


def _restore_epochs(opening: Opening, epochs: EpochCache, segments: list[Segment]) -> Steps[None]:
    """Where the checkpoint is lost, or begins behind the log's start, the batches know.

    The latter happens when a raised log start was forgotten in a crash, but not the epochs
    that had been cut to it.
    """
    known = epochs.entries
    if not segments or (known and opening.was_clean):
        return
    start = known[0].start_offset if known else Offset(2**63 - 1)
    if start <= max(opening.log_start, segments[0].base_offset):
        return
    epochs.clear()
    for segment in segments:
        if segment.base_offset >= start:
            break
        for count, (_, header) in enumerate(segment.batches()):
            latest = epochs.latest_epoch
            is_new = header.leader_epoch > (-1 if latest is None else latest)
            if is_new and header.base_offset < start:
                epochs.assign(header.leader_epoch, header.base_offset)
            if count % 4096 == 0:
                yield
    for entry in known:
        epochs.assign(*entry)
