"""``tidelog log verify``: check everything below a data directory and list what is wrong.

After the partitions have been checked one by one, what the directory says about them is held
against what they are: no checkpoint may lie behind the end of its log, and all partitions of a
topic must be of the same topic id.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tidelog.cli import dump_state, exit_codes
from tidelog.cli.directories import NotALogDirectory, Target, find_target, is_locked, log_bytes
from tidelog.cli.progress import Advance, byte_progress
from tidelog.cli.verify_partition import Finding, PartitionCheck, check_partition, problems
from tidelog.kernel.ids import Offset, TopicId, TopicPartition
from tidelog.kernel.ports import Disk
from tidelog.kernel.real.disk import OsDisk
from tidelog.storage.checkpoints import CorruptCheckpoint, read_offset_checkpoint
from tidelog.storage.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    DirKind,
    parse_partition_dir,
    partition_dir_name,
)

_OFFSET_CHECKPOINTS: Final = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_CHECKPOINT,
)


@dataclass(slots=True)
class Verified:
    partitions: int = 0
    segments: int = 0
    findings: list[Finding] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)

    def as_object(self, total_bytes: int) -> dict[str, object]:
        return {
            "partitions": self.partitions,
            "segments": self.segments,
            "bytes": total_bytes,
            "problems": [{"path": one.path, "problem": one.text} for one in self.findings],
            "not_checked": self.not_checked,
        }

    def add(self, check: PartitionCheck) -> None:
        self.partitions += 1
        self.segments += check.segments
        self.findings += check.findings
        self.not_checked += check.not_checked


def verify_command(directory: str, *, as_json: bool) -> int:
    disk = OsDisk()
    try:
        target = find_target(disk, directory)
    except NotALogDirectory as error:
        print(error, file=sys.stderr)
        return exit_codes.USAGE
    if is_locked(target.lock_path):
        print("a node is running here; what it is writing may look torn", file=sys.stderr)
    total = sum(log_bytes(disk, partition) for partition in target.partitions)
    with byte_progress("verifying", total) as advance:
        verified = verify_target(disk, target, advance)
    if as_json:
        print(json.dumps(verified.as_object(total)))
    else:
        _print_verified(verified, total)
    return exit_codes.PROBLEM if verified.findings else exit_codes.OK


def _print_verified(verified: Verified, total_bytes: int) -> None:
    for finding in verified.findings:
        print(finding)
    for path in verified.not_checked:
        print(f"{path}: not checked, no file of a log has this name", file=sys.stderr)
    print(
        f"partitions: {verified.partitions}, segments: {verified.segments},"
        f" bytes of logs: {total_bytes}, problems: {len(verified.findings)}",
        file=sys.stderr,
    )


def verify_target(disk: Disk, target: Target, advance: Advance) -> Verified:
    verified = Verified()
    ends: dict[str, Offset | None] = {}
    for partition in target.partitions:
        try:
            check = check_partition(disk, partition, advance)
        except OSError as error:
            check = PartitionCheck(partition)
            check.add(error.filename or partition, [error.strerror or str(error)])
        verified.add(check)
        ends[os.path.basename(partition)] = check.end
    if target.data_dir is not None:
        _check_own_files(disk, target.data_dir, verified)
        verified.findings += _checkpoints_behind_ends(disk, target.data_dir, ends)
        verified.findings += _differing_topic_ids(disk, target.partitions)
    return verified


def _check_own_files(disk: Disk, data_dir: str, verified: Verified) -> None:
    for name in disk.list_dir(data_dir):
        path = f"{data_dir}/{name}"
        reader = dump_state.READERS.get(name)
        if reader is not None:
            texts = problems(path, reader(disk, path))
            verified.findings += [Finding(path, text) for text in texts]
        elif name != LOCK and parse_partition_dir(name) is None:
            verified.not_checked.append(path)


def _checkpoints_behind_ends(
    disk: Disk, data_dir: str, ends: dict[str, Offset | None]
) -> Iterator[Finding]:
    for name in _OFFSET_CHECKPOINTS:
        path = f"{data_dir}/{name}"
        for tp, offset in sorted(_offsets(disk, path).items()):
            end = ends.get(partition_dir_name(tp))
            if end is not None and offset > end:
                yield Finding(path, f"{tp} has {offset}, but its log ends at {end}")


def _offsets(disk: Disk, path: str) -> dict[TopicPartition, Offset]:
    if disk.stat(path) is None:
        return {}
    try:
        return read_offset_checkpoint(disk, path)
    except CorruptCheckpoint:
        return {}  # listed already, as a file that cannot be read


def _differing_topic_ids(disk: Disk, partitions: list[str]) -> Iterator[Finding]:
    seen: dict[str, tuple[TopicId, str]] = {}
    for partition in partitions:
        parsed = parse_partition_dir(os.path.basename(partition))
        topic_id = dump_state.topic_id(disk, f"{partition}/{PARTITION_METADATA}")
        if parsed is None or parsed.kind is not DirKind.LIVE or topic_id is None:
            continue
        first_id, first = seen.setdefault(parsed.tp.topic, (topic_id, partition))
        if first_id != topic_id:
            yield Finding(
                f"{partition}/{PARTITION_METADATA}",
                f"the topic id is {topic_id}, but {first_id} in {os.path.basename(first)}",
            )
