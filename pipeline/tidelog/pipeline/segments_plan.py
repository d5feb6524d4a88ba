"""Which parts of which files a query over log directories reads.

File names give the offsets of segments, time indexes the youngest record of a closed one; what
cannot hold a wanted record is never opened. A large segment is cut where an index entry points at
a batch, after a look that the batch is there.

``read_committed`` needs to know how transactions ended, and no broker is asked: all batch headers
are walked once, from the first segment on, because a transaction may begin anywhere.

Reads through the ``Disk`` port only; the same plan for the same files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tidelog.kernel.ids import TopicPartition
from tidelog.kernel.ports import Disk, File
from tidelog.pipeline.errors import CorruptData, WrongOptions
from tidelog.pipeline.planner import dashed
from tidelog.pipeline.positions import Place
from tidelog.pipeline.segment_index import offset_entries, time_entries
from tidelog.pipeline.segments_options import SegmentsOptions
from tidelog.storage.checkpoints import read_offset_checkpoint
from tidelog.storage.names import (
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    MAX_OFFSET,
    DirKind,
    parse_partition_dir,
    parse_segment_file,
    segment_file,
)
from tidelog.storage.scan import scan_headers
from tidelog.wire.batch import HEADER_SIZE, MAGIC, read_header
from tidelog.wire.control import ControlType, read_marker
from tidelog.wire.errors import MalformedBatch

_INTERNAL: Final = "__"


@dataclass(frozen=True, slots=True)
class AbortedRange:
    producer_id: int
    first_offset: int
    last_offset: int
    """Where the marker is."""


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """The bytes of one task, and which of their records are wanted."""

    path: str
    topic: str
    partition: int
    position: int
    end_position: int
    start_offset: int
    end_offset: int
    may_be_torn: bool
    """The last bytes of a log may be those of a batch that was never finished."""
    aborted: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    place: Place
    directory: str
    log_start: int
    segments: tuple[tuple[int, int], ...]
    """Base offset and size in bytes, in order."""


@dataclass(slots=True)
class Transactions:
    """How the transactions of a log ended. Owner: one walk over its headers."""

    aborted: list[AbortedRange] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)

    @property
    def last_stable_offset(self) -> int:
        return min(self.open.values(), default=MAX_OFFSET)


# --- what is there ---------------------------------------------------------------------------


def find_partitions(disk: Disk, options: SegmentsOptions) -> list[PartitionFiles]:
    """``WrongOptions`` for a directory that is none, and for a partition that is there twice."""
    found: dict[Place, PartitionFiles] = {}
    for path in options.paths:
        for files in _partitions_below(disk, path.rstrip("/") or "/", options):
            if files.place in found:
                raise WrongOptions(
                    f"{dashed(files.place)} is both in {found[files.place].directory} and in "
                    f"{files.directory}: replicas of one partition would be read twice"
                )
            found[files.place] = files
    return [found[place] for place in sorted(found)]


def _partitions_below(disk: Disk, path: str, options: SegmentsOptions) -> Iterator[PartitionFiles]:
    stat = disk.stat(path)
    if stat is None or not stat.is_dir:
        raise WrongOptions(f"path: {path} is not a directory")
    parent, _, own_name = path.rpartition("/")
    children = disk.list_dir(path)
    is_one_partition = any(_base_offset(name) is not None for name in children)
    root, candidates = (parent, [own_name]) if is_one_partition else (path, children)
    log_starts = read_offset_checkpoint(disk, f"{root}/{LOG_START_CHECKPOINT}")
    for name in candidates:
        parsed = parse_partition_dir(name)
        if parsed is None or parsed.kind is not DirKind.LIVE or not _is_meant(parsed.tp, options):
            continue
        directory = f"{root}/{name}"
        names_and_bases = [(one, _base_offset(one)) for one in disk.list_dir(directory)]
        segments = tuple(
            (base, _size(disk, f"{directory}/{one}"))
            for one, base in names_and_bases
            if base is not None
        )
        place = str(parsed.tp.topic), int(parsed.tp.partition)
        yield PartitionFiles(place, directory, log_starts.get(parsed.tp, 0), segments)


def _base_offset(name: str) -> int | None:
    parsed = parse_segment_file(name)
    if parsed is None or parsed.suffix != LOG_SUFFIX or parsed.extra:
        return None
    return int(parsed.base_offset)


def _size(disk: Disk, path: str) -> int:
    stat = disk.stat(path)
    return 0 if stat is None else stat.size  # removed by retention a moment ago


def _is_meant(tp: TopicPartition, options: SegmentsOptions) -> bool:
    if options.topics is not None:
        return tp.topic in options.topics
    if options.topics_pattern is not None:
        return re.fullmatch(options.topics_pattern, tp.topic) is not None
    return not tp.topic.startswith(_INTERNAL)


# --- what is read of it ----------------------------------------------------------------------


def plan(disk: Disk, options: SegmentsOptions) -> list[SegmentRange]:
    tasks: list[SegmentRange] = []
    for files in find_partitions(disk, options):
        transactions = Transactions()
        if options.read_committed:
            transactions = walk_transactions(disk, files)
        tasks += _plan_partition(disk, options, files, transactions)
    return tasks


def _plan_partition(
    disk: Disk, options: SegmentsOptions, files: PartitionFiles, transactions: Transactions
) -> Iterator[SegmentRange]:
    start = max(files.log_start, options.start.get(files.place, 0))
    end = min(transactions.last_stable_offset, options.end.get(files.place, MAX_OFFSET))
    for index, (base, size) in enumerate(files.segments):
        is_last = index + 1 == len(files.segments)
        next_base = MAX_OFFSET if is_last else files.segments[index + 1][0]
        if next_base <= start or base >= end or not size:
            continue
        own_start = start
        if options.start_ms is not None:
            offsets, times = time_entries(disk, files.directory, base)
            if not is_last and len(times) and times[-1] < options.start_ms:
                continue
            older = int((times < options.start_ms).sum())
            own_start = max(start, int(offsets[older - 1]) + 1) if older else start
        yield from _cut(
            disk,
            options,
            SegmentRange(
                path=segment_file(files.directory, base, LOG_SUFFIX),
                topic=files.place[0],
                partition=files.place[1],
                position=0,
                end_position=size,
                start_offset=max(own_start, base),
                end_offset=min(end, next_base),
                may_be_torn=is_last,
            ),
            transactions,
            files.directory,
            base,
        )


def _cut(
    disk: Disk,
    options: SegmentsOptions,
    whole: SegmentRange,
    transactions: Transactions,
    directory: str,
    base: int,
) -> Iterator[SegmentRange]:
    """Pieces of about the size that was asked for; what lies outside the offsets is left out."""
    offsets, positions = offset_entries(disk, directory, base)
    file = disk.open(whole.path, read_only=True)
    try:
        edges: list[tuple[int, int]] = [(0, whole.start_offset)]
        for offset, position in zip(offsets.tolist(), positions.tolist(), strict=True):
            is_before = offset <= whole.start_offset
            if not is_before and position - edges[-1][0] < options.bytes_per_task:
                continue
            first = _batch_at(file, position, offset, whole.end_position)
            if first is None or (not is_before and first >= whole.end_offset):
                break
            if is_before:
                edges = [(position, whole.start_offset)]
            else:
                edges.append((position, max(first, whole.start_offset)))
    finally:
        file.close()
    ends = [*edges[1:], (whole.end_position, whole.end_offset)]
    for (position, start), (end_position, end) in zip(edges, ends, strict=True):
        aborted = tuple(
            (one.producer_id, one.first_offset)
            for one in transactions.aborted
            if one.last_offset >= start and one.first_offset < end
        )
        yield SegmentRange(
            whole.path, whole.topic, whole.partition, position, end_position, start, end,
            whole.may_be_torn and end_position == whole.end_position, aborted,
        )  # fmt: skip


def _batch_at(file: File, position: int, last_offset: int, size: int) -> int | None:
    """The base offset of the batch that an index says is there; None if it is not."""
    if position < 0 or position + HEADER_SIZE > size:
        return None
    header = read_header(file.pread(HEADER_SIZE, position))
    if header.magic != MAGIC or header.last_offset != last_offset:
        return None
    return int(header.base_offset)


# --- transactions ----------------------------------------------------------------------------


def walk_transactions(disk: Disk, files: PartitionFiles) -> Transactions:
    """Of the whole log, header by header; only markers are read in full."""
    found = Transactions()
    for base, size in files.segments:
        path = segment_file(files.directory, base, LOG_SUFFIX)
        file = disk.open(path, read_only=True)
        try:
            _walk_segment(file, size, found)
        except MalformedBatch as error:
            raise CorruptData(
                f"{path}: {error}; how transactions ended cannot be known, "
                "isolationLevel=read_uncommitted reads without"
            ) from error
        finally:
            file.close()
    return found


def _walk_segment(file: File, size: int, found: Transactions) -> None:
    for position, header in scan_headers(file, 0, size):
        producer = int(header.producer_id)
        if header.is_control:
            marker = read_marker(file.pread(header.size, position), header)
            first = found.open.pop(producer, None) if marker is not None else None
            if marker is not None and marker.type is ControlType.ABORT and first is not None:
                found.aborted.append(AbortedRange(producer, first, int(header.base_offset)))
        elif header.is_transactional:
            found.open.setdefault(producer, int(header.base_offset))
