"""What only the real disk does: go on after short calls, respect limits, lock across processes."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import tidelog.kernel.real.disk as real_disk
from tidelog.kernel.ports import ByteView, Disk
from tidelog.kernel.real import OsDisk, OsFile


@pytest.fixture
def file(tmp_path: Path) -> OsFile:
    disk: Disk = OsDisk()
    opened = disk.open(str(tmp_path / "f"), create=True)
    assert isinstance(opened, OsFile)
    return opened


@pytest.fixture
def short_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let every read and write stop after three bytes; collects the sizes asked for."""
    asked: list[int] = []
    pread, pwrite = os.pread, os.pwrite

    def short_pread(descriptor: int, length: int, position: int) -> bytes:
        asked.append(length)
        return pread(descriptor, min(3, length), position)

    def short_pwrite(descriptor: int, data: ByteView, position: int) -> int:
        asked.append(len(data))
        return pwrite(descriptor, memoryview(data)[:3], position)

    def short_pwritev(descriptor: int, buffers: Sequence[ByteView], position: int) -> int:
        asked.append(len(buffers))
        return pwrite(descriptor, b"".join(buffers)[:3], position)

    monkeypatch.setattr(os, "pread", short_pread)
    monkeypatch.setattr(os, "pwrite", short_pwrite)
    monkeypatch.setattr(os, "pwritev", short_pwritev)
    return asked


def test_a_short_write_is_continued(file: OsFile, short_calls: list[int]) -> None:
    file.pwrite(b"abcdefgh", 2)
    assert short_calls == [8, 5, 2]
    assert Path(file.path).read_bytes() == b"\0\0abcdefgh"


@pytest.mark.parametrize(
    ("buffers", "asked"),
    [
        ([b"abcdefgh"], [1, 5, 2]),
        ([b"ab", b"cdef", b"gh"], [3, 3, 2]),
        ([b"abc", b"", b"defgh"], [3, 5, 2]),
        ([b"a"] * 3 + [b"b"], [4, 1]),
    ],
)
def test_a_short_gathered_write_is_continued_where_it_stopped(
    file: OsFile, short_calls: list[int], buffers: list[bytes], asked: list[int]
) -> None:
    file.pwritev(buffers, 1)
    assert Path(file.path).read_bytes() == b"\0" + b"".join(buffers)
    assert short_calls == asked


def test_a_short_read_is_continued_to_the_end(file: OsFile, short_calls: list[int]) -> None:
    Path(file.path).write_bytes(b"abcdefgh")
    assert file.pread(7, 0) == b"abcdefg"
    assert file.pread(99, 2) == b"cdefgh"
    assert file.pread(99, 8) == b""


def test_a_write_that_makes_no_progress_is_an_error(
    file: OsFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, position: 0)
    with pytest.raises(OSError) as caught:
        file.pwrite(b"abc", 0)
    assert caught.value.errno == errno.EIO


def test_no_call_exceeds_the_limits(file: OsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_disk, "_MAX_BYTES_PER_CALL", 10)
    monkeypatch.setattr(real_disk, "_IOV_MAX", 4)
    calls: list[tuple[str, int]] = []
    pwrite, pwritev = os.pwrite, os.pwritev

    def noted_pwrite(descriptor: int, data: ByteView, position: int) -> int:
        calls.append(("pwrite", len(data)))
        return pwrite(descriptor, data, position)

    def noted_pwritev(descriptor: int, buffers: Sequence[ByteView], position: int) -> int:
        calls.append(("pwritev", len(buffers)))
        return pwritev(descriptor, buffers, position)

    monkeypatch.setattr(os, "pwrite", noted_pwrite)
    monkeypatch.setattr(os, "pwritev", noted_pwritev)
    file.pwrite(b"x" * 25, 0)
    file.pwritev([b"yy"] * 5, 25)
    file.pwritev([b"z" * 9, b"z" * 9], 35)
    assert file.pread(99, 0) == b"x" * 25 + b"y" * 10 + b"z" * 18
    assert calls == [
        *(("pwrite", size) for size in (10, 10, 5)),
        *(("pwritev", count) for count in (4, 1)),
        *(("pwrite", size) for size in (9, 9)),
    ]


def test_remove_tree_goes_on_when_a_file_vanishes_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "f").write_bytes(b"")
    rmtree = shutil.rmtree
    attempts: list[str] = []

    def rmtree_with_a_rival(path: str) -> None:
        attempts.append(path)
        if len(attempts) == 1:
            raise FileNotFoundError(errno.ENOENT, "a rival was faster", path)
        rmtree(path)

    monkeypatch.setattr(shutil, "rmtree", rmtree_with_a_rival)
    OsDisk().remove_tree(str(tmp_path / "tree"))
    assert len(attempts) == 2
    assert not (tmp_path / "tree").exists()


def test_another_process_respects_the_lock(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    script = (
        "import sys; from tidelog.kernel.real import OsDisk\n"
        "try:\n    OsDisk().lock(sys.argv[1]).__enter__()\n"
        "except BlockingIOError:\n    sys.exit(7)\n"
    )
    command = [sys.executable, "-c", script, path]
    with OsDisk().lock(path):
        assert subprocess.run(command, check=False).returncode == 7
    assert subprocess.run(command, check=False).returncode == 0


def test_the_descriptor_is_for_sendfile_until_closed(file: OsFile) -> None:
    assert os.fstat(file.fileno()).st_size == 0
    file.close()
    assert file.fileno() == -1


def test_what_the_system_holds_in_memory_is_cached(
    file: OsFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.pwrite(b"x" * 1_000_000, 0)
    assert file.is_cached(1_000_000, 0)
    preadv = os.preadv

    def cold_from_the_middle(fd: int, buffers: Sequence[bytearray], place: int, flags: int) -> int:
        if place >= 600_000:
            raise BlockingIOError(errno.EAGAIN, "it would have to wait")
        return preadv(fd, buffers, place, flags)

    monkeypatch.setattr(os, "preadv", cold_from_the_middle)
    assert file.is_cached(500_000, 0)
    assert not file.is_cached(1_000_000, 0)
    assert not file.is_cached(1, 999_999)


def test_where_the_system_cannot_tell_everything_counts_as_cached(
    file: OsFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "not on this file system")

    monkeypatch.setattr(os, "preadv", refuse)
    assert file.is_cached(10, 0)
