"""Text checkpoints: Kafka's files read back, damage named by line, replacement that is atomic."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tidelog.kernel.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.kernel.real.disk import OsDisk, OsFile
from tidelog.storage.atomic import write_atomically
from tidelog.storage.checkpoints import (
    CorruptCheckpoint,
    decode_epochs,
    decode_offsets,
    encode_epochs,
    encode_offsets,
    read_epoch_checkpoint,
    read_offset_checkpoint,
    write_epoch_checkpoint,
    write_offset_checkpoint,
)
from tidelog.storage.epoch_cache import EpochEntry

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
DISK = OsDisk()


def tp(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(topic, PartitionIndex(partition))


def test_golden_offset_checkpoints_read_back() -> None:
    files = sorted(GOLDEN.rglob("*-offset-checkpoint"))
    assert len(files) == 8 + 3 * 15
    entries = 0
    for file in files:
        offsets = read_offset_checkpoint(DISK, str(file))
        assert encode_offsets(offsets) == (file.read_bytes() or b"0\n0\n"), file
        entries += len(offsets)
    assert entries > 500


def test_golden_epoch_checkpoints_read_back() -> None:
    files = sorted(GOLDEN.rglob("leader-epoch-checkpoint"))
    assert len(files) == 197
    for file in files:
        entries = read_epoch_checkpoint(DISK, str(file))
        assert encode_epochs(entries) == file.read_bytes(), file


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "recovery-point-offset-checkpoint")
    assert read_offset_checkpoint(DISK, path) == {}
    offsets = {tp("b", 10): Offset(2**63 - 1), tp("b", 9): Offset(0), tp("a.x-y_Z", 0): Offset(5)}
    write_offset_checkpoint(DISK, path, offsets)
    assert Path(path).read_bytes() == b"0\n3\na.x-y_Z 0 5\nb 9 0\nb 10 9223372036854775807\n"
    assert read_offset_checkpoint(DISK, path) == offsets
    write_offset_checkpoint(DISK, path, {})
    assert Path(path).read_bytes() == b"0\n0\n"

    epochs = [EpochEntry(LeaderEpoch(0), Offset(0)), EpochEntry(LeaderEpoch(3), Offset(17))]
    path = str(tmp_path / "leader-epoch-checkpoint")
    assert read_epoch_checkpoint(DISK, path) == []
    write_epoch_checkpoint(DISK, path, epochs)
    assert Path(path).read_bytes() == b"0\n2\n0 0\n3 17\n"
    assert read_epoch_checkpoint(DISK, path) == epochs
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "leader-epoch-checkpoint",
        "recovery-point-offset-checkpoint",
    ]


@pytest.mark.parametrize("data", [b"", b"0\n0\n", b"0\n0"])
def test_no_entries(data: bytes) -> None:
    assert decode_offsets(data, "f") == {}
    assert decode_epochs(data, "f") == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\n", "f, line 1: version is ''"),
        (b"1\n0\n", "f, line 1: version is '1', only 0 is known"),
        (b"\0\0\0\0", "f, line 1: version"),
        (b"0\n", "f, line 2: says nothing"),
        (b"0\nx\n", "f, line 2: says 'x', there are 0"),
        (b"0\n-1\n", "f, line 2"),
        (b"0\n1\n", "f, line 2: says '1', there are 0"),
        (b"0\n0\nt 0 1\n", "f, line 2: says '0', there are 1"),
        (b"0\n2\nt 0 1\n", "f, line 2: says '2', there are 1"),
        (b"0\n2\nt 0 1\n\n", "f, line 4: ''"),
        (b"0\n1\nt 0\n", "f, line 3: 't 0' is not a topic"),
        (b"0\n1\nt 0 1 2\n", "f, line 3"),
        (b"0\n1\n 0 1\n", "f, line 3"),
        (b"0\n2\nt 0 1\nt x 1\n", "f, line 4: 'x' is not a number from 0 to 2147483647"),
        (b"0\n1\nt 2147483648 1\n", "f, line 3: '2147483648'"),
        (b"0\n1\nt 0 -1\n", "f, line 3: '-1' is not a number"),
        (b"0\n1\nt 0 9223372036854775808\n", "f, line 3: '9223372036854775808'"),
        (b"0\n2\nt 0 1\nt 0 2\n", "f, line 4: t-0 is listed twice"),
        (b"0\n1\nt\xff 0 1\n", "f: byte 5 is not ASCII"),
    ],
)
def test_damaged_offset_checkpoints(data: bytes, message: str) -> None:
    with pytest.raises(CorruptCheckpoint) as caught:
        decode_offsets(data, "f")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"0\n1\n0\n", "f, line 3: '0' is not an epoch"),
        (b"0\n1\n0 1 2\n", "f, line 3"),
        (b"0\n1\n-1 0\n", "f, line 3"),
        (b"0\n2\n0 0\nx 0\n", "f, line 4"),
        (b"0\n3\n0 0\n", "f, line 2: says '3', there are 1"),
    ],
)
def test_damaged_epoch_checkpoints(data: bytes, message: str) -> None:
    with pytest.raises(CorruptCheckpoint) as caught:
        decode_epochs(data, "f")
    assert message in str(caught.value)


class RecordingDisk(OsDisk):
    """Notes what happens to a file, in order, and fails its sync if told to."""

    def __init__(self, *, full: bool = False) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.full = full

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> OsFile:
        self.calls.append(f"open {Path(path).name}")
        return RecordingFile(super().open(path, create=create, read_only=read_only), self)

    def rename(self, old: str, new: str) -> None:
        self.calls.append(f"rename {Path(old).name} {Path(new).name}")
        super().rename(old, new)

    def sync_dir(self, path: str) -> None:
        self.calls.append("sync dir")
        super().sync_dir(path)


class RecordingFile(OsFile):
    def __init__(self, file: OsFile, disk: RecordingDisk) -> None:
        super().__init__(os.dup(file.fileno()), file.path)
        self._disk = disk

    def sync(self) -> None:
        self._disk.calls.append("sync")
        if self._disk.full:
            raise OSError(errno.ENOSPC, "no space left")
        super().sync()


def test_a_file_is_replaced_only_by_a_durable_one(tmp_path: Path) -> None:
    disk = RecordingDisk()
    path = tmp_path / "f"
    (tmp_path / "f.tmp").write_bytes(b"a longer leftover of a crash")
    write_atomically(disk, str(path), b"new")
    assert disk.calls == ["open f.tmp", "sync", "rename f.tmp f", "sync dir"]
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_and_no_leftover(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="no space left"):
        write_atomically(RecordingDisk(full=True), str(path), b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
