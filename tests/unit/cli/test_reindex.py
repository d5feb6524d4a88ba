"""``tidelog log reindex`` makes the indexes that Kafka made, and touches nothing it should not."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.kernel.real import disk
from tidelog.kernel.real.disk import OsDisk

Run = Callable[..., Any]
Copy = Callable[..., Path]
SEGMENTS = Path(__file__).parents[2] / "data/golden/segments"
DIRECTORIES = sorted(str(path.parent.relative_to(SEGMENTS)) for path in SEGMENTS.rglob("dump.txt"))
INDEXES = (".index", ".timeindex", ".txnindex")


def index_interval(case: str) -> int:
    configs = json.loads((SEGMENTS / case / "input.json").read_text(encoding="utf-8"))["configs"]
    return int((configs or {}).get("index.interval.bytes", 4096))


def was_reopened(log: Path) -> bool:
    """Whether an earlier state of the case has the beginning of this log, or a snapshot does.

    When a broker reopens a segment it forgets how many bytes have gone by since the last index
    entry, so its index is sparser from there on than one made in one go.
    """
    bases = sorted(int(path.stem) for path in log.parent.glob("*.log"))
    if any(base_of(bases, snapshot) == int(log.stem) for snapshot in log.parent.glob("*.snapshot")):
        return True
    earlier = [path for path in log.parents[1].glob(f"*/{log.name}") if path != log]
    content = log.read_bytes()
    states = [path.read_bytes() for path in earlier]
    return any(0 < len(state) < len(content) and content.startswith(state) for state in states)


def was_killed(index: Path) -> bool:
    """Of a segment that was active when the broker was killed: preallocated, nothing written."""
    content = index.read_bytes()
    return len(content) > 4000 and not any(content)


def base_of(bases: list[int], snapshot: Path) -> int | None:
    """The segment in the middle of which a snapshot was taken, other than the last one."""
    offset = int(snapshot.stem)
    if offset in bases or offset > bases[-1]:
        return None
    return max((base for base in bases if base < offset), default=None)


def was_cleaned(directory: str) -> bool:
    """The cleaner keeps index entries of aborted transactions whose records it removed."""
    return directory.startswith("compact-txn") and not directory.endswith("before-1")


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_the_indexes_are_kafkas_byte_for_byte(
    tidelog: Run, golden_copy: Copy, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    monkeypatch.setattr(disk, "_sync_descriptor", lambda *_, **__: None)  # bytes, not durability
    partition = golden_copy(f"segments/{directory}")
    for file in partition.iterdir():
        if file.suffix in INDEXES:
            file.unlink()

    interval = index_interval(directory.split("/")[0])
    ran = tidelog("log", "reindex", "--index-interval-bytes", str(interval), partition)

    assert (ran.code, ran.out) == (0, "")
    originals = {path.name: path for path in (SEGMENTS / directory).iterdir()}
    assert {path.name for path in partition.iterdir()} <= originals.keys()
    for name, original in originals.items():
        comparable = original.suffix in (".index", ".timeindex") and not (
            was_reopened(original.with_suffix(".log")) or was_killed(original)
        )
        if comparable or (original.suffix == ".txnindex" and not was_cleaned(directory)):
            made = partition / name
            content = made.read_bytes() if made.exists() else b""
            assert content == original.read_bytes(), name
    assert tidelog("log", "verify", partition).code == 0


def test_most_segments_are_compared() -> None:
    logs = [log for directory in DIRECTORIES for log in (SEGMENTS / directory).glob("*.log")]
    assert sum(map(was_reopened, logs)) < len(logs) / 10


def test_wrong_indexes_of_a_whole_data_directory_are_replaced(tidelog: Run, data_dir: Path) -> None:
    broken = [path for path in data_dir.rglob("*") if path.suffix in INDEXES]
    before = {path: path.read_bytes() for path in broken}
    for path in broken:
        path.write_bytes(b"rubbish")
    assert tidelog("log", "verify", data_dir).code == 1

    ran = tidelog("log", "reindex", "--index-interval-bytes", "200", data_dir)

    assert ran.code == 0
    assert "partitions: 4, segments reindexed: " in ran.err
    assert tidelog("log", "verify", data_dir).code == 0
    assert before.keys() >= {path for path in data_dir.rglob("*") if path.suffix in INDEXES}


def test_a_damaged_log_keeps_its_indexes(tidelog: Run, data_dir: Path) -> None:
    partition = data_dir / "plain-0"
    log = partition / "00000000000000000118.log"
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    before = {path.name: path.read_bytes() for path in partition.iterdir()}

    ran = tidelog("log", "reindex", "--index-interval-bytes", "1", data_dir)

    assert ran.code == 1
    assert f"{log}: batch at 0" in ran.out and "not reindexed from here on" in ran.out
    after = {path.name: path.read_bytes() for path in partition.iterdir()}
    assert after.keys() == before.keys()
    changed = {name for name in after if after[name] != before[name]}
    assert changed <= {"00000000000000000000.index", "00000000000000000000.timeindex"}


def test_unfinished_work_of_the_cleaner_is_left_to_a_node(tidelog: Run, data_dir: Path) -> None:
    swap = data_dir / "plain-0/00000000000000000000.log.swap"
    swap.write_bytes(b"")
    ran = tidelog("log", "reindex", data_dir / "plain-0")
    assert ran.code == 1
    assert f"{swap}: unfinished work" in ran.out


@pytest.mark.parametrize("target", [".", "plain-0"])
def test_a_running_node_is_not_disturbed(tidelog: Run, data_dir: Path, target: str) -> None:
    index = data_dir / "plain-0/00000000000000000000.index"
    before = index.stat()
    with OsDisk().lock(str(data_dir / ".lock")):
        ran = tidelog("log", "reindex", data_dir / target)
    assert ran.code == 1
    assert "a running node holds it" in ran.err
    assert index.stat() == before


def hold_posix_lock(path: str, ready: Any, done: Any) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    ready.set()
    done.wait(30)


def test_a_running_kafka_is_not_disturbed(tidelog: Run, data_dir: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()
    holder = context.Process(target=hold_posix_lock, args=(str(data_dir / ".lock"), ready, done))
    holder.start()
    try:
        assert ready.wait(30)
        assert tidelog("log", "reindex", data_dir).code == 1
    finally:
        done.set()
        holder.join(30)
    assert tidelog("log", "reindex", data_dir).code == 0


def test_a_lock_file_left_behind_is_no_lock(tidelog: Run, data_dir: Path) -> None:
    (data_dir / ".lock").touch()
    assert tidelog("log", "reindex", data_dir).code == 0
