"""The names of files and directories below a log directory, made and read back.

Pure: nothing here touches a disk. A segment's files carry its base offset in twenty digits,
so that a sorted listing is in log order. A partition's directory carries topic and partition;
one that is on its way out or in carries a unique mark as well, so that a topic created again
under the same name does not collide with what is left of the old one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidelog.kernel.ids import Offset, PartitionIndex, TopicPartition

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"

DELETED_SUFFIX: Final = ".deleted"
"""Out of the log; unlinked after ``file.delete.delay.ms``."""
CLEANED_SUFFIX: Final = ".cleaned"
"""Being written by the cleaner; worthless after a crash."""
SWAP_SUFFIX: Final = ".swap"
"""Complete, about to take the place of what it was made from."""

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
SUSPECTS_CHECKPOINT: Final = "suspect-replicas-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"

METADATA_TOPIC: Final = "__cluster_metadata"
"""The quorum's own log; it lies among the others but belongs to the controller role."""
FAILED_MARKER: Final = ".tidelog_failed"
"""An fsync failed in this log directory, and its logs have not been cut back since."""

MAX_DIR_NAME: Final = 255
"""The longest name the usual file systems take (also Kafka's cap)."""
MAX_TOPIC_NAME: Final = 249
MAX_OFFSET: Final = 2**63 - 1
MAX_PARTITION: Final = 2**31 - 1

_SEGMENT_FILE: Final = re.compile(
    r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.deleted|\.cleaned|\.swap|)"
)
_LIVE_DIR: Final = re.compile(r"([a-zA-Z0-9._-]+)-(0|[1-9][0-9]{0,9})")
_MARKED_DIR: Final = re.compile(r"(.+)\.([0-9a-f]{32})-(delete|future|stray)")


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """What a file's name says: its segment, its role, and how far it is from being live."""

    base_offset: Offset
    suffix: str
    extra: str
    """``DELETED_SUFFIX``, ``CLEANED_SUFFIX``, ``SWAP_SUFFIX`` or nothing."""


class DirKind(Enum):
    LIVE = "live"
    DELETE = "delete"
    """Its topic is gone; removed with all files after the delay."""
    FUTURE = "future"
    """The target of a move between log directories."""
    STRAY = "stray"
    """The cluster's metadata does not place this replica here; kept until somebody decides."""


@dataclass(frozen=True, slots=True)
class PartitionDir:
    tp: TopicPartition
    """For a ``DELETE``, ``FUTURE`` or ``STRAY`` directory the end of a long topic may be cut."""
    kind: DirKind


def segment_file(directory: str, base_offset: int, suffix: str, extra: str = "") -> str:
    return f"{directory}/{base_offset:020d}{suffix}{extra}"


def segment_paths(directory: str, base_offset: int) -> list[str]:
    """All files a segment may have; the ``.log`` first, without which the others are orphans."""
    suffixes = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
    return [segment_file(directory, base_offset, suffix) for suffix in suffixes]


def parse_segment_file(file_name: str) -> SegmentFile | None:
    """None for a name that is not of a segment's file or a producer snapshot."""
    found = _SEGMENT_FILE.fullmatch(file_name)
    if found is None:
        return None
    base_offset = int(found[1])
    if base_offset > MAX_OFFSET:
        return None
    return SegmentFile(Offset(base_offset), found[2], found[3])


def parse_base_offset(file_name: str) -> Offset | None:
    parsed = parse_segment_file(file_name)
    return None if parsed is None else parsed.base_offset


def partition_dir_name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"


def delete_dir_name(tp: TopicPartition, unique_hex: str) -> str:
    return _marked_dir_name(tp, unique_hex, DirKind.DELETE)


def future_dir_name(tp: TopicPartition, unique_hex: str) -> str:
    return _marked_dir_name(tp, unique_hex, DirKind.FUTURE)


def stray_dir_name(tp: TopicPartition, unique_hex: str) -> str:
    return _marked_dir_name(tp, unique_hex, DirKind.STRAY)


def _marked_dir_name(tp: TopicPartition, unique_hex: str, kind: DirKind) -> str:
    if re.fullmatch(r"[0-9a-f]{32}", unique_hex) is None:
        raise ValueError(f"the mark of a directory is 32 hex digits, not {unique_hex!r}")
    ending = f"-{tp.partition}.{unique_hex}-{kind.value}"
    return tp.topic[: MAX_DIR_NAME - len(ending)] + ending


def parse_partition_dir(name: str) -> PartitionDir | None:
    """None for a name that no partition's directory has."""
    marked = _MARKED_DIR.fullmatch(name)
    kind = DirKind.LIVE if marked is None else DirKind(marked[3])
    found = _LIVE_DIR.fullmatch(name if marked is None else marked[1])
    if found is None:
        return None
    topic, partition = found[1], int(found[2])
    if topic in (".", "..") or len(topic) > MAX_TOPIC_NAME or partition > MAX_PARTITION:
        return None
    return PartitionDir(TopicPartition(topic, PartitionIndex(partition)), kind)
