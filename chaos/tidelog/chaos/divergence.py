"""Where the files of two replicas differ though they must be the same.

Compared is what both replicas know to be committed (below both high watermarks, as they noted them
when they stopped) and neither has cleaned. There the batches must be the same: their offsets, their
leader epochs, and the checksums over the rest, which are held against the bytes.

The cleaner notes how far it got after it has put its files in place, so a node that was killed
between the two has cleaned more than it knows. Of a compacted partition therefore only the last
segment is compared, which the cleaner leaves alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.kernel.ids import Offset, TopicPartition
from tidelog.kernel.ports import Disk
from tidelog.kernel.real.disk import OsDisk
from tidelog.storage.checkpoints import CorruptCheckpoint, read_offset_checkpoint
from tidelog.storage.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_SUFFIX,
    MAX_OFFSET,
    DirKind,
    parse_partition_dir,
    parse_segment_file,
    segment_file,
)
from tidelog.storage.scan import Flaw, VerifyProgress, verify_batches

_NOT_COMPACTED: Final = -1


def divergences(
    log_dirs: Mapping[int, Sequence[Path]],
    topics: Collection[str] | None = None,
    compacted_topics: Collection[str] = (),
) -> list[str]:
    """A sentence for each pair of replicas of a partition that differ; nodes must have stopped.

    ``topics``: only these; None: all there are. A partition that any node has cleaned counts as
    compacted without being named.
    """
    directories = {node: [str(path) for path in paths] for node, paths in log_dirs.items()}
    return list(find_divergences(OsDisk(), directories, topics, compacted_topics))


def find_divergences(
    disk: Disk,
    log_dirs: Mapping[int, Sequence[str]],
    topics: Collection[str] | None = None,
    compacted_topics: Collection[str] = (),
) -> Iterator[str]:
    found: dict[TopicPartition, list[_Replica]] = {}
    for node, directories in sorted(log_dirs.items()):
        for directory in directories:
            for tp, replica in _replicas(disk, node, directory):
                if topics is None or tp.topic in topics:
                    found.setdefault(tp, []).append(replica)
    for tp, replicas in sorted(found.items()):
        is_compacted = tp.topic in compacted_topics or any(
            replica.clean_point != _NOT_COMPACTED for replica in replicas
        )
        logs = [_read_log(disk, replica) for replica in replicas]
        for log in logs:
            if log.flaw:
                yield f"{tp}: node {log.replica.node} holds damaged bytes: {log.flaw}"
        for one, other in combinations(logs, 2):
            yield from _compared(tp, one, other, is_compacted=is_compacted)


@dataclass(frozen=True, slots=True)
class _Replica:
    node: int
    path: str
    high_watermark: int
    clean_point: int


class _Batch(NamedTuple):
    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int

    def __str__(self) -> str:
        return (
            f"{self.base_offset}–{self.last_offset} of epoch {self.leader_epoch} "
            f"(checksum {self.crc:08x})"
        )


@dataclass(slots=True)
class _LogFiles:
    replica: _Replica
    batches: list[_Batch]
    last_segment: int
    """Its base offset."""
    flaw: str = ""
    """Below the high watermark; above, a torn end is nothing."""


def _replicas(disk: Disk, node: int, directory: str) -> Iterator[tuple[TopicPartition, _Replica]]:
    watermarks = _offsets(disk, f"{directory}/{HIGH_WATERMARK_CHECKPOINT}")
    clean_points = _offsets(disk, f"{directory}/{CLEANER_CHECKPOINT}")
    for name in sorted(disk.list_dir(directory)):
        parsed = parse_partition_dir(name)
        if parsed is not None and parsed.kind is DirKind.LIVE:
            yield (
                parsed.tp,
                _Replica(
                    node,
                    f"{directory}/{name}",
                    watermarks.get(parsed.tp, Offset(0)),
                    clean_points.get(parsed.tp, Offset(_NOT_COMPACTED)),
                ),
            )


def _offsets(disk: Disk, path: str) -> dict[TopicPartition, Offset]:
    """What cannot be read says nothing, and then nothing is compared."""
    try:
        return read_offset_checkpoint(disk, path)
    except CorruptCheckpoint:
        return {}


def _read_log(disk: Disk, replica: _Replica) -> _LogFiles:
    parsed = (parse_segment_file(name) for name in disk.list_dir(replica.path))
    bases = sorted(
        one.base_offset
        for one in parsed
        if one is not None and one.suffix == LOG_SUFFIX and not one.extra
    )
    log = _LogFiles(replica, [], bases[-1] if bases else 0)
    for base in bases:
        log.flaw = log.flaw or _read_segment(disk, replica, base, log.batches)
    return log


def _read_segment(disk: Disk, replica: _Replica, base: Offset, into: list[_Batch]) -> str:
    """What is wrong with committed bytes, if anything is."""
    path = segment_file(replica.path, base, LOG_SUFFIX)
    progress = VerifyProgress(base, Offset(MAX_OFFSET))
    file = disk.open(path, read_only=True)
    try:
        for found in verify_batches(file, file.size(), progress):
            if isinstance(found, Flaw):
                is_committed = progress.next_offset < replica.high_watermark
                return f"{path}: {found.reason}" if is_committed else ""
            into += [
                _Batch(header.base_offset, header.last_offset, header.leader_epoch, header.crc)
                for _, header in found
            ]
    finally:
        file.close()
    return ""


def _compared(
    tp: TopicPartition, one: _LogFiles, other: _LogFiles, *, is_compacted: bool
) -> Iterator[str]:
    """The first difference, if there is one."""
    if not one.batches or not other.batches:
        return
    start = max(
        one.batches[0].base_offset,
        other.batches[0].base_offset,
        one.replica.clean_point,
        other.replica.clean_point,
    )
    if is_compacted:
        start = max(start, one.last_segment, other.last_segment)
    end = min(
        one.replica.high_watermark,
        other.replica.high_watermark,
        one.batches[-1].last_offset + 1,
        other.batches[-1].last_offset + 1,
    )
    ours, theirs = _between(one.batches, start, end), _between(other.batches, start, end)
    nodes = f"node {one.replica.node} and node {other.replica.node}"
    for mine, its in zip(ours, theirs, strict=False):
        if mine != its:
            at = min(mine.base_offset, its.base_offset)
            yield (
                f"{tp}: {nodes} differ at offset {at}: the one holds batch {mine}, the other {its}."
            )
            return
    if len(ours) != len(theirs):
        more = ours if len(ours) > len(theirs) else theirs
        who = one.replica.node if more is ours else other.replica.node
        extra = more[min(len(ours), len(theirs))]
        yield f"{tp}: {nodes} differ: only node {who} holds batch {extra}."


def _between(batches: Sequence[_Batch], start: int, end: int) -> list[_Batch]:
    return [one for one in batches if one.base_offset >= start and one.last_offset < end]
