"""``tidelog log reindex``: make the indexes of segments anew from their batches.

The new files are written beside the old ones under the suffix of unfinished work, which a node
removes when it starts, and take their place by renaming only when they are complete and synced.
Interrupted at any moment, a partition is left with good indexes. A segment whose log has a flaw
is left as it is, and so are those behind it: an index of half a log would hide the other half.

Aborted transactions are found by following all producers from the first segment on, so the
segments of a partition are walked in order.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from tidelog.cli import exit_codes
from tidelog.cli.directories import (
    NotALogDirectory,
    find_target,
    is_locked,
    live_bases,
    log_bytes,
)
from tidelog.cli.progress import Advance, byte_progress
from tidelog.cli.walk import walk_batches
from tidelog.kernel.ids import LeaderEpoch, Offset, TimestampMs
from tidelog.kernel.ports import Disk
from tidelog.kernel.real.disk import OsDisk
from tidelog.kernel.settings import TopicConfig
from tidelog.storage.index import OffsetIndex, TimeIndex
from tidelog.storage.names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    parse_segment_file,
    segment_file,
)
from tidelog.storage.producer_log import ProducerLog
from tidelog.storage.producer_snapshot import CorruptSnapshot, decode_snapshot
from tidelog.storage.recovery import note_recovered
from tidelog.storage.scan import Flaw, VerifyProgress
from tidelog.storage.segment import MAX_RELATIVE_OFFSET, Segment
from tidelog.storage.txn_index import TxnIndex

_NO_LIMIT_BYTES: Final = 2**31 - 1
"""An index that is not preallocated may grow as far as its entries can point."""


@dataclass(slots=True)
class Outcome:
    segments: int = 0
    findings: list[str] = field(default_factory=list)


def reindex_command(directory: str, index_interval_bytes: int, *, as_json: bool) -> int:
    disk = OsDisk()
    try:
        target = find_target(disk, directory)
    except NotALogDirectory as error:
        print(error, file=sys.stderr)
        return exit_codes.USAGE
    if is_locked(target.lock_path):
        print(f"{target.lock_path}: a running node holds it; stop the node first", file=sys.stderr)
        return exit_codes.PROBLEM
    outcome = Outcome()
    total = sum(log_bytes(disk, partition) for partition in target.partitions)
    with byte_progress("reindexing", total) as advance:
        for partition in target.partitions:
            reindex_partition(disk, partition, index_interval_bytes, outcome, advance)
    count = len(target.partitions)
    if as_json:
        told = {"partitions": count, "segments": outcome.segments, "problems": outcome.findings}
        print(json.dumps(told))
    else:
        for finding in outcome.findings:
            print(finding)
        print(f"partitions: {count}, segments reindexed: {outcome.segments}", file=sys.stderr)
    return exit_codes.PROBLEM if outcome.findings else exit_codes.OK


def reindex_partition(
    disk: Disk, directory: str, index_interval_bytes: int, outcome: Outcome, advance: Advance
) -> None:
    unfinished = _unfinished_work(disk, directory)
    if unfinished is not None:
        outcome.findings.append(f"{unfinished}: unfinished work; a node has to start here first")
        return
    bases = live_bases(disk, directory)
    config = replace(
        TopicConfig.defaults(),
        index_interval_bytes=index_interval_bytes,
        segment_index_bytes=_NO_LIMIT_BYTES,
    )
    if not bases:
        return
    producers = _producers_at(disk, directory, bases[0])
    epoch = LeaderEpoch(-1)
    for base, next_base in zip(bases, [*bases[1:], None], strict=True):
        limit = base + MAX_RELATIVE_OFFSET if next_base is None else next_base - 1
        progress = VerifyProgress(base, Offset(limit), epoch)
        segment = _segment_with_new_indexes(disk, directory, base, config)
        flaw = _index(segment, producers, progress, advance)
        if flaw is not None:
            _discard(segment)
            path = segment.path(LOG_SUFFIX)
            outcome.findings.append(f"{path}: {flaw.reason}; not reindexed from here on")
            return
        _put_in_place(disk, directory, segment)
        outcome.segments += 1
        epoch = progress.leader_epoch


def _unfinished_work(disk: Disk, directory: str) -> str | None:
    for name in disk.list_dir(directory):
        parsed = parse_segment_file(name)
        if parsed is not None and parsed.extra in (CLEANED_SUFFIX, SWAP_SUFFIX):
            return f"{directory}/{name}"
    return None


def _producers_at(disk: Disk, directory: str, base: Offset) -> ProducerLog:
    """Producers as they were at the log's first segment, if a good snapshot tells."""
    producers = ProducerLog(disk, directory, [])
    path = segment_file(directory, base, SNAPSHOT_SUFFIX)
    with suppress(FileNotFoundError, CorruptSnapshot):  # then the batches have to do
        producers.states.load(decode_snapshot(disk.read(path)))
    return producers


def _segment_with_new_indexes(
    disk: Disk, directory: str, base: Offset, config: TopicConfig
) -> Segment:
    stat = disk.stat(segment_file(directory, base, LOG_SUFFIX))
    size = 0 if stat is None else stat.size
    segment = Segment(
        disk, directory, base, config, size=size, is_active=False, created_ms=TimestampMs(0)
    )
    limit = config.segment_index_bytes
    offset_path, time_path, txn_path = (
        segment_file(directory, base, suffix, CLEANED_SUFFIX)
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
    )
    segment.offset_index = OffsetIndex(disk, offset_path, base, limit)
    segment.time_index = TimeIndex(disk, time_path, base, limit)
    segment.txn_index = TxnIndex(disk, txn_path)
    return segment


def _index(
    segment: Segment, producers: ProducerLog, progress: VerifyProgress, advance: Advance
) -> Flaw | None:
    size = segment.size
    segment.reset_indexes()
    take = partial(note_recovered, segment, producers)
    flaw = walk_batches(segment.file, size, progress, take, advance)
    if flaw is None:
        segment.close_for_writing()
    return flaw


def _put_in_place(disk: Disk, directory: str, segment: Segment) -> None:
    has_aborts = not segment.txn_index.is_empty
    for index in (segment.offset_index, segment.time_index):
        index.sync()
    if has_aborts:
        segment.txn_index.sync()
    segment.unload()
    segment.offset_index.rename(segment.path(INDEX_SUFFIX))
    segment.time_index.rename(segment.path(TIME_INDEX_SUFFIX))
    if has_aborts:
        segment.txn_index.rename(segment.path(TXN_INDEX_SUFFIX))
    else:
        disk.unlink(segment.path(TXN_INDEX_SUFFIX))
    disk.sync_dir(directory)


def _discard(segment: Segment) -> None:
    for index in (segment.offset_index, segment.time_index, segment.txn_index):
        index.delete()
    segment.discard()
