"""The simulated disk behaves as the real one: one table of expectations, run on both."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.kernel.ids import TimestampMs
from tidelog.kernel.ports import Disk, File
from tidelog.kernel.real import OsDisk
from tidelog.simulation import SimDisk


@pytest.fixture(params=["os", "sim-512", "sim-4096"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    """A disk and an empty directory on it."""
    if request.param == "os":
        return OsDisk(), str(tmp_path)
    sim = SimDisk(sector_bytes=int(request.param.removeprefix("sim-")))
    sim.make_dirs("/data")
    return sim, "/data"


def put(disk: Disk, path: str, content: bytes) -> None:
    file = disk.open(path, create=True)
    file.pwrite(content, 0)
    file.close()


def with_tree(disk: Disk, root: str) -> None:
    """file, dir/inner, empty/"""
    put(disk, f"{root}/file", b"content")
    disk.make_dirs(f"{root}/dir")
    put(disk, f"{root}/dir/inner", b"inner")
    disk.make_dirs(f"{root}/empty")


FileStep = Callable[[File], object]
FILE_CASES: list[tuple[str, list[FileStep], bytes]] = [
    ("write", [lambda f: f.pwrite(b"abc", 0)], b"abc"),
    ("write nothing", [lambda f: f.pwrite(b"", 5)], b""),
    ("write nothing, gathered", [lambda f: f.pwritev([], 5)], b""),
    ("hole", [lambda f: f.pwrite(b"abc", 3)], b"\0\0\0abc"),
    ("overwrite", [lambda f: f.pwrite(b"abcdef", 0), lambda f: f.pwrite(b"XY", 2)], b"abXYef"),
    ("over the end", [lambda f: f.pwrite(b"abc", 0), lambda f: f.pwrite(b"XYZ", 2)], b"abXYZ"),
    ("bytearray", [lambda f: f.pwrite(bytearray(b"abc"), 0)], b"abc"),
    ("slice of a view", [lambda f: f.pwrite(memoryview(b"abcdef")[2:4], 0)], b"cd"),
    ("view of words", [lambda f: f.pwrite(memoryview(b"abcdefgh").cast("I"), 0)], b"abcdefgh"),
    ("gather", [lambda f: f.pwritev([b"ab", b"", memoryview(b"cd")], 1)], b"\0abcd"),
    ("gather many", [lambda f: f.pwritev([b"ab"] * 3000, 0)], b"ab" * 3000),
    ("truncate down", [lambda f: f.pwrite(b"abcdef", 0), lambda f: f.truncate(2)], b"ab"),
    ("truncate up", [lambda f: f.pwrite(b"ab", 0), lambda f: f.truncate(5)], b"ab\0\0\0"),
    (
        "what truncate cut off is gone",
        [lambda f: f.pwrite(b"abcdef", 0), lambda f: f.truncate(2), lambda f: f.truncate(5)],
        b"ab\0\0\0",
    ),
    (
        "write behind a cut",
        [
            lambda f: f.pwrite(b"abcdef", 0),
            lambda f: f.sync(),
            lambda f: f.truncate(1),
            lambda f: f.pwrite(b"Z", 3),
        ],
        b"a\0\0Z",
    ),
    (
        "write into preallocated space",
        [lambda f: f.truncate(9), lambda f: f.pwrite(b"x", 4)],
        b"\0\0\0\0x\0\0\0\0",
    ),
    ("sync changes nothing", [lambda f: f.pwrite(b"abc", 0), lambda f: f.sync()], b"abc"),
]


@pytest.mark.parametrize(
    ("steps", "expected"), [case[1:] for case in FILE_CASES], ids=[case[0] for case in FILE_CASES]
)
def test_file_content(place: tuple[Disk, str], steps: list[FileStep], expected: bytes) -> None:
    disk, root = place
    file = disk.open(f"{root}/f", create=True)
    for step in steps:
        step(file)
    found = disk.stat(f"{root}/f")
    assert found is not None
    assert (file.size(), found.size, found.is_dir) == (len(expected), len(expected), False)
    assert file.pread(10_000, 0) == expected
    file.close()
    assert disk.read(f"{root}/f") == expected


@pytest.mark.parametrize(
    ("length", "position", "expected"),
    [
        (3, 0, b"abc"),
        (3, 2, b"cde"),
        (3, 4, b"ef"),
        (3, 6, b""),
        (3, 99, b""),
        (0, 0, b""),
        (99, 0, b"abcdef"),
    ],
)
def test_pread(place: tuple[Disk, str], length: int, position: int, expected: bytes) -> None:
    disk, root = place
    put(disk, f"{root}/f", b"abcdef")
    file = disk.open(f"{root}/f", read_only=True)
    assert file.pread(length, position) == expected
    file.close()


ERROR_CASES: list[tuple[str, Callable[[Disk, str], object], int]] = [
    ("open missing", lambda d, r: d.open(f"{r}/no"), errno.ENOENT),
    ("open below missing", lambda d, r: d.open(f"{r}/no/f", create=True), errno.ENOENT),
    ("open below a file", lambda d, r: d.open(f"{r}/file/f", create=True), errno.ENOTDIR),
    ("open a directory", lambda d, r: d.open(f"{r}/dir"), errno.EISDIR),
    ("open a directory to read", lambda d, r: d.open(f"{r}/dir", read_only=True), errno.EISDIR),
    ("read missing", lambda d, r: d.read(f"{r}/no"), errno.ENOENT),
    ("read a directory", lambda d, r: d.read(f"{r}/dir"), errno.EISDIR),
    (
        "write read-only",
        lambda d, r: d.open(f"{r}/file", read_only=True).pwrite(b"x", 0),
        errno.EBADF,
    ),
    (
        "truncate read-only",
        lambda d, r: d.open(f"{r}/file", read_only=True).truncate(0),
        errno.EINVAL,
    ),
    ("read before the start", lambda d, r: d.open(f"{r}/file").pread(1, -1), errno.EINVAL),
    ("write before the start", lambda d, r: d.open(f"{r}/file").pwrite(b"x", -1), errno.EINVAL),
    ("truncate below 0", lambda d, r: d.open(f"{r}/file").truncate(-1), errno.EINVAL),
    ("list missing", lambda d, r: d.list_dir(f"{r}/no"), errno.ENOENT),
    ("list a file", lambda d, r: d.list_dir(f"{r}/file"), errno.ENOTDIR),
    ("make a directory over a file", lambda d, r: d.make_dirs(f"{r}/file"), errno.EEXIST),
    ("make a directory below a file", lambda d, r: d.make_dirs(f"{r}/file/x/y"), errno.ENOTDIR),
    ("rename missing", lambda d, r: d.rename(f"{r}/no", f"{r}/x"), errno.ENOENT),
    ("rename to below missing", lambda d, r: d.rename(f"{r}/file", f"{r}/no/x"), errno.ENOENT),
    ("rename file over directory", lambda d, r: d.rename(f"{r}/file", f"{r}/dir"), errno.EISDIR),
    ("rename directory over file", lambda d, r: d.rename(f"{r}/dir", f"{r}/file"), errno.ENOTDIR),
    (
        "rename over a full directory",
        lambda d, r: d.rename(f"{r}/empty", f"{r}/dir"),
        errno.ENOTEMPTY,
    ),
    ("rename into itself", lambda d, r: d.rename(f"{r}/dir", f"{r}/dir/sub"), errno.EINVAL),
    ("unlink a directory", lambda d, r: d.unlink(f"{r}/dir"), errno.EISDIR),
    ("unlink below a file", lambda d, r: d.unlink(f"{r}/file/x"), errno.ENOTDIR),
    ("remove a file as a tree", lambda d, r: d.remove_tree(f"{r}/file"), errno.ENOTDIR),
    ("sync_dir missing", lambda d, r: d.sync_dir(f"{r}/no"), errno.ENOENT),
    ("sync_dir of a file", lambda d, r: d.sync_dir(f"{r}/file"), errno.ENOTDIR),
    ("set_mtime missing", lambda d, r: d.set_mtime(f"{r}/no", TimestampMs(1)), errno.ENOENT),
    ("free_bytes missing", lambda d, r: d.free_bytes(f"{r}/no"), errno.ENOENT),
    ("lock below missing", lambda d, r: d.lock(f"{r}/no/.lock").__enter__(), errno.ENOENT),
]


@pytest.mark.parametrize(
    ("do", "expected"), [c[1:] for c in ERROR_CASES], ids=[c[0] for c in ERROR_CASES]
)
def test_errors(place: tuple[Disk, str], do: Callable[[Disk, str], object], expected: int) -> None:
    disk, root = place
    with_tree(disk, root)
    with pytest.raises(OSError) as caught:
        do(disk, root)
    assert caught.value.errno == expected
    assert disk.list_dir(root) == ["dir", "empty", "file"]
    assert disk.list_dir(f"{root}/dir") == ["inner"]


def test_each_call_of_a_closed_file_fails_and_closing_again_is_fine(
    place: tuple[Disk, str],
) -> None:
    disk, root = place
    file = disk.open(f"{root}/f", create=True)
    file.close()
    file.close()
    calls: list[Callable[[], Any]] = [
        lambda: file.pread(1, 0),
        lambda: file.pwrite(b"x", 0),
        lambda: file.pwritev([b"x"], 0),
        file.size,
        lambda: file.truncate(0),
        file.sync,
    ]
    for call in calls:
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.EBADF


def test_an_open_file_outlives_its_name(place: tuple[Disk, str]) -> None:
    disk, root = place
    with_tree(disk, root)
    renamed, unlinked = disk.open(f"{root}/file"), disk.open(f"{root}/dir/inner")
    disk.rename(f"{root}/file", f"{root}/dir/moved")
    disk.remove_tree(f"{root}/dir")
    renamed.pwrite(b"C", 0)
    unlinked.pwrite(b"I", 0)
    assert (renamed.pread(99, 0), unlinked.pread(99, 0)) == (b"Content", b"Inner")
    assert disk.list_dir(root) == ["empty"]


def test_rename_replaces_and_moves(place: tuple[Disk, str]) -> None:
    disk, root = place
    with_tree(disk, root)
    old = disk.open(f"{root}/dir/inner")
    disk.rename(f"{root}/file", f"{root}/dir/inner")
    assert disk.read(f"{root}/dir/inner") == b"content"
    assert old.pread(99, 0) == b"inner"
    disk.rename(f"{root}/dir", f"{root}/empty")
    assert disk.list_dir(root) == ["empty"]
    disk.rename(f"{root}/empty", f"{root}/empty")
    assert disk.list_dir(f"{root}/empty") == ["inner"]


def test_removing_what_is_not_there_is_fine(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.unlink(f"{root}/no")
    disk.unlink(f"{root}/no/no")
    disk.remove_tree(f"{root}/no")
    disk.remove_tree(f"{root}/no/no")
    assert disk.stat(f"{root}/no/no") is None
    assert disk.list_dir(root) == []


def test_make_dirs_makes_parents_and_accepts_what_is_there(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.make_dirs(f"{root}/b/c")
    disk.make_dirs(f"{root}/b/c")
    disk.make_dirs(f"{root}/a")
    found = disk.stat(f"{root}/b/c")
    assert found is not None and found.is_dir
    assert disk.list_dir(root) == ["a", "b"]


def test_open_with_create_keeps_what_is_there(place: tuple[Disk, str]) -> None:
    disk, root = place
    put(disk, f"{root}/f", b"abc")
    assert disk.open(f"{root}/f", create=True).pread(9, 0) == b"abc"


def test_mtime_is_set_in_milliseconds(place: tuple[Disk, str]) -> None:
    disk, root = place
    put(disk, f"{root}/f", b"abc")
    disk.set_mtime(f"{root}/f", TimestampMs(1_600_000_000_123))
    found = disk.stat(f"{root}/f")
    assert found is not None and found.mtime_ms == 1_600_000_000_123


def test_a_lock_is_exclusive_until_released(place: tuple[Disk, str]) -> None:
    disk, root = place
    with disk.lock(f"{root}/.lock"):
        with pytest.raises(BlockingIOError), disk.lock(f"{root}/.lock"):
            pytest.fail("locked twice")
        with disk.lock(f"{root}/.other"):
            pass
    with disk.lock(f"{root}/.lock"):
        pass
    assert disk.read(f"{root}/.lock") == b""


def test_there_is_space_and_a_directory_can_be_synced(place: tuple[Disk, str]) -> None:
    disk, root = place
    put(disk, f"{root}/f", b"abc")
    disk.sync_dir(root)
    assert disk.free_bytes(root) > 0
    assert disk.free_bytes(f"{root}/f") > 0
