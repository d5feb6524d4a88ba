"""A segment that grows fast takes blocks ahead of what it holds, and gives the rest back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidelog.kernel.ids import LeaderEpoch, PartitionIndex, TimestampMs, TopicPartition
from tidelog.kernel.ports import in_one_go
from tidelog.kernel.real import OsDisk, SystemRandom
from tidelog.kernel.settings import TopicConfig
from tidelog.storage.log import Appended, Log
from tidelog.storage.opening import Opening
from tidelog.storage.recovery import open_log
from tidelog.wire.records import Record, build_batch

NOW = TimestampMs(1_800_000_000_000)
MIB = 1024 * 1024
BATCH = build_batch([Record(0, NOW, b"k", bytes(MIB - 200))])
SLACK = MIB  # what file systems take for themselves, or give in large pieces


def open_in(directory: Path, *, was_clean: bool = True) -> Log:
    opening = Opening(
        OsDisk(),
        str(directory),
        TopicPartition("events", PartitionIndex(0)),
        TopicConfig.defaults(),
        SystemRandom(1),
        NOW,
        was_clean=was_clean,
    )
    return in_one_go(open_log(opening))[0]


def append(log: Log, count: int) -> None:
    for _ in range(count):
        answer = log.append_as_leader(BATCH, leader_epoch=LeaderEpoch(0), now_ms=NOW)
        assert isinstance(answer, Appended)
    log.segments.active.file.sync()  # blocks are counted when they are given


def size_and_blocks(log: Log) -> tuple[int, int]:
    stat = os.fstat(log.segments.active.file.fileno())
    return stat.st_size, stat.st_blocks * 512


@pytest.fixture
def can_reserve(tmp_path: Path) -> None:
    file = OsDisk().open(str(tmp_path / "probe"), create=True)
    file.reserve(0, 8 * MIB)
    if os.fstat(file.fileno()).st_blocks * 512 < 8 * MIB:
        pytest.skip("this file system does not set blocks aside; ext4 and xfs do")


@pytest.mark.usefixtures("can_reserve")
def test_a_large_segment_has_blocks_ahead_and_returns_them_when_closed(tmp_path: Path) -> None:
    log = open_in(tmp_path / "log")
    append(log, 6)
    size, blocks = size_and_blocks(log)
    assert size == 6 * len(BATCH), "the size does not change"
    assert blocks > size + 8 * MIB
    log.close()
    (path,) = (tmp_path / "log").glob("*.log")
    assert path.stat().st_size == size
    assert path.stat().st_blocks * 512 < size + SLACK


@pytest.mark.usefixtures("can_reserve")
def test_blocks_left_by_a_killed_node_are_returned_when_it_closes(tmp_path: Path) -> None:
    log = open_in(tmp_path / "log")
    append(log, 6)
    log.close_files()
    log = open_in(tmp_path / "log", was_clean=False)
    assert log.end_offset == 6
    log.close()
    (path,) = (tmp_path / "log").glob("*.log")
    assert path.stat().st_blocks * 512 < path.stat().st_size + SLACK


def test_a_small_segment_takes_no_block_ahead(tmp_path: Path) -> None:
    log = open_in(tmp_path / "log")
    append(log, 2)
    size, blocks = size_and_blocks(log)
    assert blocks < size + SLACK
    log.close_files()
