"""Snapshots of the metadata: ``<end offset>-<term>.checkpoint`` files beside the log.

A file holds batches whose offsets count from 0 without a gap: a control batch with the header, one
with the voters in force, the records, and a control batch with the footer. A file is used only if
every batch is sound and the footer is the last; the records end with a count of themselves
(``EndOfImage``) that the state machine checks. It gets its name when all of it is synced.

Taking a snapshot and receiving one go to different unfinished files, so that neither can spoil
the other. Unfinished files are worthless after a crash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from tidelog.controller.metadata.codec import UnreadableRecord
from tidelog.controller.metadata.records import MetadataRecord
from tidelog.controller.quorum.batches import batch_to_records, control_batch, records_to_batch
from tidelog.controller.quorum.control_records import (
    kraft_version_value,
    read_voters,
    snapshot_footer_value,
    snapshot_header_value,
    voters_value,
)
from tidelog.controller.raft.model import MAX_TERM, SnapshotId, Term, Voters
from tidelog.kernel.ids import Offset, TimestampMs
from tidelog.kernel.ports import Disk, File, Steps
from tidelog.wire.batch import HEADER_SIZE, BatchHeader, check_batch, read_header
from tidelog.wire.control import ControlType, read_control_type
from tidelog.wire.errors import MalformedBatch
from tidelog.wire.records import Record, decode_records

SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".checkpoint.part"
RECEIVED_SUFFIX: Final = ".checkpoint.received.part"
DELETED_SUFFIX: Final = ".checkpoint.deleted"
DAMAGED_SUFFIX: Final = ".checkpoint.damaged"

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})(\.checkpoint[a-z.]*)")
_RECORDS_PER_BATCH: Final = 500
_MAX_BATCH_BYTES: Final = 64 << 20


class DamagedSnapshot(Exception):
    """A file that is no whole snapshot; the message names it."""


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    snapshot: SnapshotId
    size_bytes: int
    mtime_ms: TimestampMs


@dataclass(frozen=True, slots=True)
class LoadedSnapshot:
    snapshot: SnapshotId
    voters: Voters
    records: tuple[MetadataRecord, ...]


def snapshot_path(directory: str, snapshot: SnapshotId, suffix: str = SUFFIX) -> str:
    return f"{directory}/{snapshot.end_offset:020d}-{snapshot.term:010d}{suffix}"


def parse_name(name: str) -> tuple[SnapshotId, str] | None:
    """The snapshot a file name speaks of, and how far the file is from being live."""
    found = _NAME.fullmatch(name)
    if found is None or not 0 < int(found[1]) < 2**63 or int(found[2]) > MAX_TERM:
        return None
    return SnapshotId(Offset(int(found[1])), Term(int(found[2]))), found[3]


def list_snapshots(disk: Disk, directory: str) -> list[SnapshotFile]:
    """The live ones, the oldest first."""
    found = []
    for name in disk.list_dir(directory):
        parsed = parse_name(name)
        if parsed is not None and parsed[1] == SUFFIX:
            stat = disk.stat(f"{directory}/{name}")
            if stat is not None:
                found.append(SnapshotFile(parsed[0], stat.size, stat.mtime_ms))
    return sorted(found, key=lambda file: file.snapshot)


def remove_leftovers(disk: Disk, directory: str) -> None:
    """What a crash left unfinished, whether coming or going."""
    for name in disk.list_dir(directory):
        parsed = parse_name(name)
        if parsed is not None and parsed[1] not in (SUFFIX, DAMAGED_SUFFIX):
            disk.unlink(f"{directory}/{name}")


# --- writing -------------------------------------------------------------------------------------


def write_snapshot(
    disk: Disk,
    directory: str,
    snapshot: SnapshotId,
    voters: Voters,
    records: Iterable[MetadataRecord],
    now_ms: TimestampMs,
) -> Steps[int]:
    """Take a snapshot; durable when this ends. Its size in bytes."""
    part = snapshot_path(directory, snapshot, PART_SUFFIX)
    file = disk.open(part, create=True)
    try:
        file.truncate(0)
        position = 0
        for batch in _batches_of(snapshot, voters, records, now_ms):
            file.pwrite(batch, position)
            position += len(batch)
            yield
        file.sync()
    except OSError:
        # On a full disk every byte counts; what went wrong matters more than the leftover.
        with suppress(OSError):
            disk.unlink(part)
        raise
    finally:
        file.close()
    yield
    disk.rename(part, snapshot_path(directory, snapshot))
    disk.sync_dir(directory)
    return position


def _batches_of(
    snapshot: SnapshotId, voters: Voters, records: Iterable[MetadataRecord], now_ms: TimestampMs
) -> Iterator[bytes]:
    offset, term = 0, snapshot.term

    def control(*values: tuple[ControlType, bytes]) -> bytes:
        return control_batch(values, base_offset=offset, term=term, now_ms=now_ms)

    yield control((ControlType.SNAPSHOT_HEADER, snapshot_header_value(now_ms)))
    offset += 1
    yield control(
        (ControlType.KRAFT_VERSION, kraft_version_value()),
        (ControlType.KRAFT_VOTERS, voters_value(voters)),
    )
    offset += 2
    iterator = iter(records)
    while chunk := list(islice(iterator, _RECORDS_PER_BATCH)):
        yield records_to_batch(chunk, base_offset=offset, term=term, now_ms=now_ms)
        offset += len(chunk)
    yield control((ControlType.SNAPSHOT_FOOTER, snapshot_footer_value()))


# --- reading -------------------------------------------------------------------------------------


def read_snapshot(disk: Disk, path: str, snapshot: SnapshotId) -> Steps[LoadedSnapshot]:
    """Everything in a file, checked; raises ``DamagedSnapshot``."""
    file = disk.open(path, read_only=True)
    content = _Content(path)
    try:
        size, position = file.size(), 0
        while position < size:
            batch, header = _batch_at(file, position, size, path)
            content.add(batch, header, snapshot.term)
            position += header.size
            yield
    except (MalformedBatch, UnreadableRecord) as error:
        raise DamagedSnapshot(f"{path}: {error}") from error
    finally:
        file.close()
    return LoadedSnapshot(snapshot, content.finished(), tuple(content.records))


def _batch_at(file: File, position: int, size: int, path: str) -> tuple[bytes, BatchHeader]:
    length = read_header(file.pread(HEADER_SIZE, position)).size
    if not HEADER_SIZE <= length <= min(_MAX_BATCH_BYTES, size - position):
        raise DamagedSnapshot(f"{path}: {length} bytes of a batch at {position} of {size}")
    batch = file.pread(length, position)
    return batch, check_batch(batch)


class _Content:
    """What a file must hold, in order; tells what it does not."""

    def __init__(self, path: str) -> None:
        self.records: list[MetadataRecord] = []
        self._path = path
        self._next_offset = 0
        self._voters: Voters | None = None
        self._has_header = False
        self._has_footer = False

    def add(self, batch: bytes, header: BatchHeader, term: Term) -> None:
        if header.base_offset != self._next_offset or header.leader_epoch != term:
            raise self._damaged(
                f"batch {header.base_offset} of term {header.leader_epoch} stands where"
                f" {self._next_offset} of term {term} belongs"
            )
        if self._has_footer:
            raise self._damaged("it goes on behind its footer")
        self._next_offset = header.next_offset
        if header.is_control:
            for record in decode_records(batch, header):
                self._add_control(record)
        elif self._voters is None:
            raise self._damaged("records stand before the voters")
        else:
            self.records.extend(batch_to_records(batch, header))

    def _add_control(self, record: Record) -> None:
        match read_control_type(record.key):
            case ControlType.SNAPSHOT_HEADER if record.offset == 0:
                self._has_header = True
            case ControlType.KRAFT_VOTERS if self._has_header and self._voters is None:
                self._voters = read_voters(record.value)
            case ControlType.KRAFT_VERSION if self._has_header:
                pass
            case ControlType.SNAPSHOT_FOOTER if self._voters is not None:
                self._has_footer = True
            case found:
                raise self._damaged(f"a control record {found} at {record.offset}")

    def finished(self) -> Voters:
        if not self._has_footer or self._voters is None:
            raise self._damaged("its end is missing")
        return self._voters

    def _damaged(self, what: str) -> DamagedSnapshot:
        return DamagedSnapshot(f"{self._path}: {what}")


def read_chunk(
    disk: Disk, directory: str, snapshot: SnapshotId, position: int, max_bytes: int
) -> Steps[tuple[bytes, int]]:
    """A piece of a snapshot and the size of all of it; ``OSError`` if it is gone.

    One that is on its way out can still be read, so that a transfer comes to its end.
    """
    live, doomed = (snapshot_path(directory, snapshot, s) for s in (SUFFIX, DELETED_SUFFIX))
    is_doomed = disk.stat(live) is None and disk.stat(doomed) is not None
    file = disk.open(doomed if is_doomed else live, read_only=True)
    try:
        data, size = file.pread(max_bytes, position), file.size()
        yield
        return data, size
    finally:
        file.close()


# --- receiving -----------------------------------------------------------------------------------


def write_received(
    disk: Disk, directory: str, snapshot: SnapshotId, position: int, data: bytes
) -> None:
    """Put a piece into the unfinished file of a snapshot that a leader sends."""
    file = disk.open(snapshot_path(directory, snapshot, RECEIVED_SUFFIX), create=True)
    try:
        if position == 0:
            file.truncate(0)
        file.pwrite(data, position)
    finally:
        file.close()


def install_received(disk: Disk, directory: str, snapshot: SnapshotId) -> Steps[LoadedSnapshot]:
    """Check what was received, sync it and give it its name; raises ``DamagedSnapshot``."""
    part = snapshot_path(directory, snapshot, RECEIVED_SUFFIX)
    loaded = yield from read_snapshot(disk, part, snapshot)
    file = disk.open(part)
    try:
        file.sync()
    finally:
        file.close()
    yield
    disk.rename(part, snapshot_path(directory, snapshot))
    disk.sync_dir(directory)
    return loaded


# --- retention -----------------------------------------------------------------------------------


def plan_snapshot_retention(
    files: list[SnapshotFile],
    log_bytes: int,
    now_ms: TimestampMs,
    *,
    retention_bytes: int,
    retention_ms: int,
) -> list[SnapshotFile]:
    """Which snapshots go, the oldest first; negative limits mean none. The newest always stays."""
    going: list[SnapshotFile] = []
    total = log_bytes + sum(file.size_bytes for file in files)
    for file in files[:-1]:
        is_too_much = 0 <= retention_bytes < total
        is_too_old = 0 <= retention_ms < now_ms - file.mtime_ms
        if not (is_too_much or is_too_old):
            break
        going.append(file)
        total -= file.size_bytes
    return going
