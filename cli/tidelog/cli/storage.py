"""The directories of a node: given their identity, and looked at.

Both work from the node's own configuration, read exactly as the node reads it, so that what is
formatted here is what will be opened there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tidelog.broker.directories import all_directories
from tidelog.cli.directories import NotALogDirectory, find_target, is_locked, log_bytes
from tidelog.cli.exit_codes import OK, PROBLEM
from tidelog.cli.failures import CommandFailed, WrongUse
from tidelog.kernel.ids import NodeId
from tidelog.kernel.real import OsDisk, SystemRandom
from tidelog.kernel.settings import InvalidSettings, Settings
from tidelog.kernel.settings.load import load
from tidelog.storage import format as storage_format
from tidelog.storage.names import CLEAN_SHUTDOWN, FAILED_MARKER, LOCK
from tidelog.storage.node_files import (
    CorruptNodeFile,
    InconsistentDirectory,
    MetaProperties,
    read_clean_shutdown,
    verify_same_cluster,
)


@dataclass(frozen=True, slots=True)
class DirectoryInfo:
    path: str
    cluster_id: str
    node_id: int
    directory_id: str
    version: int
    is_in_use: bool
    was_shut_down_cleanly: bool
    had_a_failed_sync: bool
    partitions: int
    log_bytes: int

    @property
    def state(self) -> str:
        if self.is_in_use:
            return "in use by a running node"
        if self.had_a_failed_sync:
            return "a sync failed here: its logs are cut back at the next start"
        if self.partitions == 0:
            return "never used"
        return "cleanly shut down" if self.was_shut_down_cleanly else "not cleanly shut down"


def new_uuid() -> str:
    return str(storage_format.random_uuid(SystemRandom()))


def load_settings(config: Path, overrides: Sequence[str]) -> Settings:
    try:
        text = config.read_text(encoding="utf-8")
        return load(
            file_text=text,
            file_name=str(config),
            environment=dict(os.environ),
            overrides=overrides,
        ).settings
    except InvalidSettings as invalid:
        raise WrongUse("\n".join(invalid.errors)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"{config}: {error}") from None


def format_storage(
    config: Path,
    overrides: Sequence[str],
    cluster_id: str,
    *,
    ignore_formatted: bool,
    as_json: bool,
) -> None:
    if not cluster_id or any(character.isspace() for character in cluster_id):
        raise WrongUse("--cluster-id: one word; tidelog storage random-uuid makes a good one")
    settings = load_settings(config, overrides)
    try:
        formatted = storage_format.format_directories(
            OsDisk(),
            all_directories(settings),
            SystemRandom(),
            cluster_id=cluster_id,
            node_id=NodeId(settings.get_int("node.id")),
            ignore_formatted=ignore_formatted,
        )
    except storage_format.AlreadyFormatted as error:
        raise CommandFailed(
            f"{error}. Use --ignore-formatted to leave it and format the others"
        ) from None
    except (InconsistentDirectory, CorruptNodeFile, OSError) as error:
        raise CommandFailed(str(error)) from None
    if as_json:
        print(json.dumps([_as_object(one) for one in formatted]))
        return
    for one in formatted:
        if one.is_new:
            print(f"Formatting {one.path} for node {one.meta.node_id} of cluster {cluster_id}.")
    if not any(one.is_new for one in formatted):
        print("All of the log directories are already formatted.")


def _as_object(formatted: storage_format.Formatted) -> dict[str, object]:
    meta = formatted.meta
    return {
        "path": formatted.path,
        "cluster_id": meta.cluster_id,
        "node_id": int(meta.node_id),
        "directory_id": str(meta.directory_id),
        "is_new": formatted.is_new,
    }


def storage_info(config: Path, overrides: Sequence[str], *, as_json: bool) -> int:
    found, problems = inspect(all_directories(load_settings(config, overrides)))
    if as_json:
        directories = [asdict(one) for one in found]
        print(json.dumps({"directories": directories, "problems": problems}))
    else:
        print("\n".join(info_lines(found, problems)))
    return PROBLEM if problems else OK


def inspect(paths: Sequence[str]) -> tuple[list[DirectoryInfo], list[str]]:
    """What is in each directory, and what is wrong with one or between them."""
    disk = OsDisk()
    found: list[tuple[str, MetaProperties]] = []
    problems: list[str] = []
    for path in paths:
        try:
            meta = storage_format.read_identity(disk, path)
        except (CorruptNodeFile, OSError) as error:
            problems.append(str(error))
            continue
        if meta is not None:
            found.append((path, meta))
        elif disk.stat(path) is None:
            problems.append(f"{path} does not exist")
        else:
            problems.append(f"{path} is not formatted")
    try:
        verify_same_cluster(found)
    except InconsistentDirectory as error:
        problems.append(str(error))
    return [_inspect_one(disk, path, meta) for path, meta in found], problems


def _inspect_one(disk: OsDisk, path: str, meta: MetaProperties) -> DirectoryInfo:
    try:
        partitions = find_target(disk, path).partitions
    except NotALogDirectory:
        partitions = []
    return DirectoryInfo(
        path=path,
        cluster_id=meta.cluster_id,
        node_id=int(meta.node_id),
        directory_id=str(meta.directory_id),
        version=meta.version,
        is_in_use=is_locked(f"{path}/{LOCK}"),
        was_shut_down_cleanly=read_clean_shutdown(disk, f"{path}/{CLEAN_SHUTDOWN}") is not None,
        had_a_failed_sync=disk.stat(f"{path}/{FAILED_MARKER}") is not None,
        partitions=len(partitions),
        log_bytes=sum(log_bytes(disk, partition) for partition in partitions),
    )


def info_lines(found: Sequence[DirectoryInfo], problems: Sequence[str]) -> list[str]:
    """First what kafka-storage prints, then what else is known of each directory."""
    lines = []
    if found:
        lines += ["Found log directories:" if len(found) > 1 else "Found log directory:"]
        lines += [*(f"  {one.path}" for one in found), ""]
        lines += [f"Found metadata: {_metadata(found)}", ""]
        lines += [_line(one) for one in found] + [""]
    if problems:
        lines += ["Found problems:" if len(problems) > 1 else "Found problem:"]
        lines += [*(f"  {problem}" for problem in problems), ""]
    return lines[:-1]


def _metadata(found: Sequence[DirectoryInfo]) -> str:
    one = found[0]
    directory = f"directory.id={one.directory_id}, " if len(found) == 1 else ""
    return (
        f"{{cluster.id={one.cluster_id}, {directory}node.id={one.node_id}, version={one.version}}}"
    )


def _line(one: DirectoryInfo) -> str:
    count = "1 partition" if one.partitions == 1 else f"{one.partitions} partitions"
    return f"{one.path}: {one.directory_id}, {count}, {one.log_bytes:,} bytes, {one.state}"
