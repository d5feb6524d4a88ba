"""Checking the directory of one partition: every byte of its logs, and all that is derived.

Nothing is changed and nothing is believed: batches are read whole, indexes are held against the
batches, the small files are decoded by the code a node would use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tidelog.cli import dump_state
from tidelog.cli.dump_items import Item, Problem
from tidelog.cli.index_check import Batches, wrong_offsets, wrong_timestamps
from tidelog.cli.progress import Advance
from tidelog.cli.walk import walk_batches
from tidelog.kernel.ids import LeaderEpoch, Offset
from tidelog.kernel.ports import Disk, File
from tidelog.storage.index import CorruptIndex, OffsetIndex, TimeIndex
from tidelog.storage.names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    SegmentFile,
    parse_segment_file,
    segment_file,
)
from tidelog.storage.scan import Flaw, VerifyProgress
from tidelog.storage.segment import MAX_RELATIVE_OFFSET
from tidelog.storage.txn_index import decode_aborted_txns

_SHOWN_PER_INDEX: Final = 5
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and where."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(slots=True)
class PartitionCheck:
    """What is known about a partition after its directory was checked."""

    directory: str
    segments: int = 0
    end: Offset | None = None
    """None if there is no segment, or the log breaks off somewhere."""
    findings: list[Finding] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)

    def add(self, path: str, texts: Iterable[str]) -> None:
        self.findings += [Finding(path, text) for text in texts]


def check_partition(disk: Disk, directory: str, advance: Advance) -> PartitionCheck:
    check = PartitionCheck(directory)
    live: list[SegmentFile] = []
    for name in disk.list_dir(directory):
        parsed = parse_segment_file(name)
        path = f"{directory}/{name}"
        if parsed is not None and not parsed.extra:
            live.append(parsed)
        elif parsed is not None and parsed.extra == DELETED_SUFFIX:
            continue  # no longer part of the log
        elif name in dump_state.READERS:
            check.add(path, problems(path, dump_state.READERS[name](disk, path)))
        else:
            check.not_checked.append(path)
    _check_segments(disk, check, live, advance)
    _check_snapshots(disk, check, live)
    return check


def problems(path: str, items: Iterator[Item]) -> Iterator[str]:
    """What is wrong with a file, without the file's own name."""
    return (item.text.removeprefix(f"{path}: ") for item in items if isinstance(item, Problem))


def _check_segments(
    disk: Disk, check: PartitionCheck, live: list[SegmentFile], advance: Advance
) -> None:
    bases = sorted(name.base_offset for name in live if name.suffix == LOG_SUFFIX)
    check.segments = len(bases)
    epoch = LeaderEpoch(-1)
    unbroken = bool(bases)
    for base, next_base in zip(bases, [*bases[1:], None], strict=True):
        limit = base + MAX_RELATIVE_OFFSET if next_base is None else next_base - 1
        progress = VerifyProgress(base, Offset(limit), epoch)
        unbroken &= _check_segment(disk, check, base, progress, advance)
        epoch = progress.leader_epoch
        check.end = progress.next_offset
    if not unbroken:
        check.end = None
    for name in live:
        if name.suffix not in (LOG_SUFFIX, SNAPSHOT_SUFFIX) and name.base_offset not in bases:
            path = segment_file(check.directory, name.base_offset, name.suffix)
            check.add(path, ["there is no log of this segment"])


def _check_segment(
    disk: Disk, check: PartitionCheck, base: Offset, progress: VerifyProgress, advance: Advance
) -> bool:
    """True if the log is sound from its first to its last byte."""
    path = segment_file(check.directory, base, LOG_SUFFIX)
    batches, flaw = _read_log(disk, path, progress, advance)
    if flaw is not None:
        check.add(path, [flaw.reason])
        # What lies behind the flaw cannot be judged, and neither can what points there.
        batches.end_is_known = False
    _check_offset_index(disk, check, base, batches)
    _check_time_index(disk, check, base, batches)
    if flaw is None:
        _check_txn_index(disk, check, base, progress.next_offset)
    return flaw is None


def _read_log(
    disk: Disk, path: str, progress: VerifyProgress, advance: Advance
) -> tuple[Batches, Flaw | None]:
    batches = Batches()
    file = disk.open(path, read_only=True)
    try:
        size = file.size()
        flaw = walk_batches(file, size, progress, batches.add, advance)
        if flaw is not None and _is_zero(file, flaw.position, size):
            left = size - flaw.position
            flaw = Flaw(flaw.position, f"{left} zero bytes from {flaw.position} to the end")
    finally:
        file.close()
    return batches, flaw


def _is_zero(file: File, position: int, end: int) -> bool:
    """Whether nothing but zeros is left: a preallocated file, or blocks lost in a crash."""
    chunks = (file.pread(_CHUNK_BYTES, at) for at in range(position, end, _CHUNK_BYTES))
    return not any(any(chunk) for chunk in chunks)


def _check_offset_index(disk: Disk, check: PartitionCheck, base: Offset, batches: Batches) -> None:
    path = segment_file(check.directory, base, INDEX_SUFFIX)
    try:
        entries = list(OffsetIndex(disk, path, base, 0))
    except FileNotFoundError:
        check.add(path, ["missing; `tidelog log reindex` makes it"])
    except CorruptIndex as error:
        check.add(path, [str(error).removeprefix(f"{path}: ")])
    else:
        check.add(path, _first_few(wrong_offsets(entries, batches)))


def _check_time_index(disk: Disk, check: PartitionCheck, base: Offset, batches: Batches) -> None:
    path = segment_file(check.directory, base, TIME_INDEX_SUFFIX)
    try:
        entries = list(TimeIndex(disk, path, base, 0))
    except FileNotFoundError:
        check.add(path, ["missing; `tidelog log reindex` makes it"])
    except CorruptIndex as error:
        check.add(path, [str(error).removeprefix(f"{path}: ")])
    else:
        check.add(path, _first_few(wrong_timestamps(entries, batches).all()))


def _check_txn_index(disk: Disk, check: PartitionCheck, base: Offset, end: Offset) -> None:
    path = segment_file(check.directory, base, TXN_INDEX_SUFFIX)
    if disk.stat(path) is None:
        return  # most segments have none
    try:
        txns = decode_aborted_txns(disk.read(path), path)
    except CorruptIndex as error:
        check.add(path, [str(error).removeprefix(f"{path}: ")])
        return
    outside = [txn.last_offset for txn in txns if not base <= txn.last_offset < end]
    check.add(
        path, (f"marker {offset} is not in the segment [{base}, {end})" for offset in outside)
    )


def _check_snapshots(disk: Disk, check: PartitionCheck, live: list[SegmentFile]) -> None:
    for name in live:
        if name.suffix != SNAPSHOT_SUFFIX:
            continue
        path = segment_file(check.directory, name.base_offset, SNAPSHOT_SUFFIX)
        check.add(path, problems(path, dump_state.snapshot_items(disk, path)))
        if check.end is not None and name.base_offset > check.end:
            check.add(path, [f"it is of an offset behind the log's end, {check.end}"])


def _first_few(texts: list[str]) -> list[str]:
    """A broken index is wrong everywhere; a handful of entries shows it."""
    if len(texts) <= _SHOWN_PER_INDEX:
        return texts
    return [*texts[:_SHOWN_PER_INDEX], f"and {len(texts) - _SHOWN_PER_INDEX} entries more"]
