"""``tidelog log compact --dry-run``: what the cleaner would make of logs, without touching them.

Reads the files only: no log is opened, so none is repaired. The plan and the pass are those of a
node (``tidelog.storage.cleaner``); instead of writing what stays, it is counted. Without a node
nobody knows what other replicas have cleaned, so tombstones and markers count as free to go when
their own time is over.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.cli import exit_codes
from tidelog.cli.directories import NotALogDirectory, find_target, live_bases
from tidelog.kernel.ids import Offset, PartitionIndex, TimestampMs, TopicPartition
from tidelog.kernel.ports import ByteView, Disk, in_one_go
from tidelog.kernel.real import OsDisk, SystemClock, SystemRandom
from tidelog.kernel.settings import InvalidSettings, Settings, TopicConfig
from tidelog.storage.checkpoints import CorruptCheckpoint, read_offset_checkpoint
from tidelog.storage.cleaner.cleaning import NO_FLOOR, SECRET_BYTES
from tidelog.storage.cleaner.engine import (
    CleaningPass,
    LastOfProducer,
    PassInputs,
    Source,
)
from tidelog.storage.cleaner.plan import CleaningPlan, LogFacts, SegmentFacts, plan_cleaning
from tidelog.storage.cleaner.report import CleaningReport
from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.index import CorruptIndex
from tidelog.storage.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    INDEX_SUFFIX,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    parse_partition_dir,
    segment_file,
)
from tidelog.storage.producer_state import ProducerStates
from tidelog.storage.scan import scan_headers
from tidelog.storage.txn_index import AbortedTxn, decode_aborted_txns
from tidelog.wire.batch import BatchHeader
from tidelog.wire.control import read_marker
from tidelog.wire.errors import MalformedBatch


@dataclass(slots=True)
class LogOnDisk:
    """What the files of a partition say about its log."""

    directory: str
    tp: TopicPartition
    end_offset: Offset = Offset(0)
    sizes: dict[Offset, int] = field(default_factory=dict)
    times: dict[Offset, tuple[TimestampMs | None, TimestampMs]] = field(default_factory=dict)
    """Of each segment the first batch's and the largest timestamp."""
    producers: ProducerStates = field(default_factory=ProducerStates)
    aborted: list[AbortedTxn] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DryRun:
    """What would be done to one partition; no report if nothing would."""

    plan: CleaningPlan
    report: CleaningReport | None


class _Counting:
    """Takes what would be written, and keeps nothing; the report has counted it."""

    def write(self, buffers: Sequence[ByteView], headers: Iterable[BatchHeader]) -> None: ...

    def add_aborted(self, entries: Iterable[AbortedTxn]) -> None: ...


def compact_command(directory: str, overrides: Mapping[str, str], *, as_json: bool) -> int:
    disk = OsDisk()
    try:
        target = find_target(disk, directory)
        config = TopicConfig.resolve({"cleanup.policy": "compact", **overrides}, Settings())
    except (NotALogDirectory, InvalidSettings) as error:
        print(error, file=sys.stderr)
        return exit_codes.USAGE
    now_ms = SystemClock().wall_ms()
    problems = 0
    for partition in target.partitions:
        try:
            run = dry_run(disk, partition, config, now_ms)
        except (MalformedBatch, CorruptIndex, CorruptCheckpoint, OSError) as error:
            print(f"{partition}: cannot be compacted: {error}", file=sys.stderr)
            problems += 1
            continue
        if run is not None:
            print(json.dumps(as_object(run)) if as_json else "\n".join(lines_of(run)))
    return exit_codes.PROBLEM if problems else exit_codes.OK


def dry_run(disk: Disk, directory: str, config: TopicConfig, now_ms: TimestampMs) -> DryRun | None:
    """None if the directory holds no segment."""
    log = _read(disk, directory)
    if not log.sizes:
        return None
    facts = _facts(disk, log, config)
    plan = plan_cleaning(facts, now_ms)
    if not plan.is_due:
        return DryRun(plan, None)
    work = CleaningPass(disk, _inputs(log, facts, plan, now_ms))
    in_one_go(work.map_keys())
    for group in work.groups():
        in_one_go(work.rewrite(group, _Counting()))
    work.report.clean_point = work.end_offset
    return DryRun(plan, work.report)


# --- reading -----------------------------------------------------------------------------


def _read(disk: Disk, directory: str) -> LogOnDisk:
    named = parse_partition_dir(os.path.basename(directory))
    tp = named.tp if named is not None else TopicPartition("log", PartitionIndex(0))
    log = LogOnDisk(directory, tp)
    for base in live_bases(disk, directory):
        _read_segment(disk, log, base)
        path = segment_file(directory, base, TXN_INDEX_SUFFIX)
        if disk.stat(path) is not None:
            log.aborted += decode_aborted_txns(disk.read(path), path)
    return log


def _read_segment(disk: Disk, log: LogOnDisk, base: Offset) -> None:
    file = disk.open(segment_file(log.directory, base, LOG_SUFFIX), read_only=True)
    try:
        size = file.size()
        log.sizes[base] = size
        log.end_offset = max(log.end_offset, base)
        first, largest = None, TimestampMs(-1)
        for position, header in scan_headers(file, 0, size):
            first = header.max_timestamp if first is None else first
            largest = max(largest, header.max_timestamp)
            log.end_offset = header.next_offset
            is_control = header.is_control
            data = file.pread(header.size, position) if is_control else b""
            log.producers.update(header, read_marker(data, header) if is_control else None)
        log.times[base] = first, largest
    finally:
        file.close()


def _facts(disk: Disk, log: LogOnDisk, config: TopicConfig) -> LogFacts:
    known = {
        name: _checkpointed(disk, log, name)
        for name in (LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT)
    }
    bases = sorted(log.sizes)
    watermark = known[HIGH_WATERMARK_CHECKPOINT]
    high_watermark = log.end_offset if watermark is None else min(watermark, log.end_offset)
    unstable = log.producers.first_unstable_offset(high_watermark)
    return LogFacts(
        tp=log.tp,
        config=config,
        segments=_segments(disk, log, bases),
        log_start=max(bases[0], known[LOG_START_CHECKPOINT] or Offset(0)),
        high_watermark=high_watermark,
        last_stable_offset=high_watermark if unstable is None else min(unstable, high_watermark),
        flushed_end=log.end_offset,
        end_offset=log.end_offset,
        clean_point=known[CLEANER_CHECKPOINT],
    )


def _checkpointed(disk: Disk, log: LogOnDisk, name: str) -> Offset | None:
    path = os.path.join(os.path.dirname(log.directory), name)
    return read_offset_checkpoint(disk, path).get(log.tp)


def _segments(disk: Disk, log: LogOnDisk, bases: list[Offset]) -> list[SegmentFacts]:
    def size_of(base: Offset, suffix: str) -> int:
        stat = disk.stat(segment_file(log.directory, base, suffix))
        return 0 if stat is None else stat.size

    return [
        SegmentFacts(
            base_offset=base,
            end_offset=end,
            size=log.sizes[base],
            is_active=base == bases[-1],
            largest_timestamp=lambda base=base: log.times[base][1],  # type: ignore[misc]
            first_timestamp=lambda base=base: log.times[base][0],  # type: ignore[misc]
            index_bytes=size_of(base, INDEX_SUFFIX),
            time_index_bytes=size_of(base, TIME_INDEX_SUFFIX),
        )
        for base, end in zip(bases, [*bases[1:], log.end_offset], strict=True)
    ]


def _inputs(log: LogOnDisk, facts: LogFacts, plan: CleaningPlan, now_ms: TimestampMs) -> PassInputs:
    return PassInputs(
        tp=log.tp,
        directory=log.directory,
        config=facts.config,
        settings=CleanerSettings(),
        now_ms=now_ms,
        first_dirty=plan.first_dirty,
        first_uncleanable=plan.first_uncleanable,
        clean_floor=NO_FLOOR,
        sources=[
            Source(segment_file(log.directory, segment.base_offset, LOG_SUFFIX), segment, 0)
            for segment in facts.segments
            if segment.base_offset < plan.first_uncleanable
        ],
        aborted=log.aborted,
        producers={
            entry.producer_id: LastOfProducer(entry.epoch, entry.last_data_offset)
            for entry in log.producers.entries()
        },
        secret=SystemRandom().randbytes(SECRET_BYTES),
    )


# --- telling -----------------------------------------------------------------------------


def lines_of(run: DryRun) -> list[str]:
    plan, report = run.plan, run.report
    lines = [
        f"{plan.tp}: {'due' if plan.is_due else 'not due'}, dirty ratio {plan.dirty_ratio:.2f}: "
        f"clean below offset {plan.first_dirty} ({plan.clean_bytes:,} bytes), "
        f"cleanable below {plan.first_uncleanable} ({plan.cleanable_bytes:,} bytes)"
    ]
    if report is not None:
        lines.append(
            f"  would keep {report.records_kept:,} of {report.records_read:,} records, "
            f"{report.bytes_written:,} of {report.bytes_read:,} bytes, "
            f"{report.segments_after} of {report.segments_before} segments"
        )
        lines.append(
            f"  would drop {report.tombstones_dropped:,} tombstones, "
            f"{report.markers_dropped:,} markers, {report.aborted_dropped:,} aborted records, "
            f"{report.keyless_dropped:,} without a key"
        )
        if report.map_is_full:
            lines.append(f"  would go on from offset {report.clean_point}: too many keys at once")
    return [*lines, *(f"  held back: {reason}" for reason in plan.reasons)]


def as_object(run: DryRun) -> dict[str, object]:
    plan, report = run.plan, run.report
    told: dict[str, object] = {
        "topic": plan.tp.topic,
        "partition": plan.tp.partition,
        "due": plan.is_due,
        "mustCleanNow": plan.must_clean_now,
        "dirtyRatio": round(plan.dirty_ratio, 4),
        "firstDirtyOffset": plan.first_dirty,
        "firstUncleanableOffset": plan.first_uncleanable,
        "cleanBytes": plan.clean_bytes,
        "cleanableBytes": plan.cleanable_bytes,
        "heldBack": [
            {
                "reason": reason.hold.value,
                "fromOffset": reason.offset,
                "detail": reason.detail,
                "setting": reason.setting,
            }
            for reason in plan.reasons
        ],
    }
    if report is not None:
        told["would"] = {
            "recordsRead": report.records_read,
            "recordsKept": report.records_kept,
            "bytesRead": report.bytes_read,
            "bytesWritten": report.bytes_written,
            "segmentsBefore": report.segments_before,
            "segmentsAfter": report.segments_after,
            "tombstonesDropped": report.tombstones_dropped,
            "markersDropped": report.markers_dropped,
            "abortedDropped": report.aborted_dropped,
            "keylessDropped": report.keyless_dropped,
            "cleanPoint": report.clean_point,
        }
    return told
