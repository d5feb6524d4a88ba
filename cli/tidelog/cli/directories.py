"""What a directory given on the command line holds: one partition, or a node's data.

A data directory is one that has partitions or ``meta.properties`` in it, a partition's directory
one that has segments in it. Directories of partitions on their way out (``…-delete``) are left
alone: nobody reads them any more.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass

from tidelog.kernel.ids import Offset
from tidelog.kernel.ports import Disk
from tidelog.storage.names import (
    LOCK,
    LOG_SUFFIX,
    META_PROPERTIES,
    DirKind,
    parse_partition_dir,
    parse_segment_file,
    segment_file,
)


class NotALogDirectory(Exception):
    """The directory holds neither a partition nor a node's data."""


@dataclass(frozen=True, slots=True)
class Target:
    data_dir: str | None
    """None if the directory of one partition was given."""
    partitions: list[str]

    @property
    def lock_path(self) -> str:
        """A node locks its data directory, which is the parent of each partition's."""
        if self.data_dir is not None:
            return os.path.join(self.data_dir, LOCK)
        return os.path.join(os.path.dirname(self.partitions[0]), LOCK)


def find_target(disk: Disk, directory: str) -> Target:
    directory = os.path.abspath(directory)
    names = disk.list_dir(directory)
    if live_bases(disk, directory):
        return Target(None, [directory])
    partitions = [os.path.join(directory, name) for name in names if _is_partition(name)]
    partitions = [path for path in partitions if os.path.isdir(path)]
    if not partitions and META_PROPERTIES not in names:
        raise NotALogDirectory(
            f"{directory}: no segments (.log), no partitions (TOPIC-NUMBER) and no"
            f" {META_PROPERTIES} in it; give a data directory or the directory of a partition"
        )
    return Target(directory, partitions)


def live_bases(disk: Disk, directory: str) -> list[Offset]:
    """The base offsets of a partition's segments, ascending."""
    return sorted(base for base in map(_live_base, disk.list_dir(directory)) if base is not None)


def log_bytes(disk: Disk, directory: str) -> int:
    """The size of a partition's segments, for a progress bar."""
    paths = (segment_file(directory, base, LOG_SUFFIX) for base in live_bases(disk, directory))
    stats = map(disk.stat, paths)
    return sum(stat.size for stat in stats if stat is not None)


def _live_base(name: str) -> Offset | None:
    parsed = parse_segment_file(name)
    is_live_log = parsed is not None and parsed.suffix == LOG_SUFFIX and not parsed.extra
    return parsed.base_offset if parsed is not None and is_live_log else None


def _is_partition(name: str) -> bool:
    parsed = parse_partition_dir(name)
    return parsed is not None and parsed.kind is not DirKind.DELETE


def is_locked(lock_path: str) -> bool:
    """Whether a running node holds the lock, be it Tidelog (flock) or Kafka (a POSIX lock)."""
    try:
        descriptor = os.open(lock_path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
