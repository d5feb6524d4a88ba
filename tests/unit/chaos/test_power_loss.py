"""What a loss of power takes: the unsynced, all of it and nothing else."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.chaos.power_loss import Loss, lose_unsynced, replay
from tidelog.kernel.real.clock import SystemClock
from tidelog.kernel.real.rigged_disk import Journal, RiggedDisk
from tidelog.kernel.real.rigging import (
    SOUND,
    Orders,
    RiggedClock,
    Rigging,
    UnknownSwitch,
    give_orders,
    switches,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A node's log directory with a file from before."""
    home = tmp_path / "node-1"
    home.mkdir()
    (home / "meta").write_text("from before")
    return home


def disk_of(home: Path) -> RiggedDisk:
    """As a node would open it when it starts."""
    return RiggedDisk(Journal(str(home)), Orders(str(home)))


def write(disk: RiggedDisk, path: Path, data: bytes, position: int = 0) -> None:
    file = disk.open(str(path), create=True)
    file.pwrite(data, position)
    file.close()


def sync(disk: RiggedDisk, path: Path) -> None:
    file = disk.open(str(path))
    file.sync()
    file.close()


def content(home: Path) -> dict[str, str]:
    return {
        str(path.relative_to(home)): path.read_text()
        for path in sorted(home.rglob("*"))
        if path.is_file()
    }


BEFORE = {"meta": "from before"}


def append_synced_and_unsynced(disk: RiggedDisk, home: Path) -> None:
    write(disk, home / "log", b"synced")
    disk.sync_dir(str(home))
    sync(disk, home / "log")
    write(disk, home / "log", b", unsynced", 6)


def sync_and_leave_directory(disk: RiggedDisk, home: Path) -> None:
    write(disk, home / "log", b"synced, but where?")
    sync(disk, home / "log")


def write_to_what_was_there(disk: RiggedDisk, home: Path) -> None:
    write(disk, home / "meta", b" and after", 11)


def cut_and_write_anew(disk: RiggedDisk, home: Path) -> None:
    append_synced_and_unsynced(disk, home)
    file = disk.open(str(home / "log"))
    file.truncate(3)
    file.pwrite(b"other", 3)


def replace(disk: RiggedDisk, home: Path) -> None:
    write(disk, home / "meta.tmp", b"new")
    sync(disk, home / "meta.tmp")
    disk.rename(str(home / "meta.tmp"), str(home / "meta"))


def replace_and_sync(disk: RiggedDisk, home: Path) -> None:
    replace(disk, home)
    disk.sync_dir(str(home))


def replace_by_unsynced(disk: RiggedDisk, home: Path) -> None:
    write(disk, home / "meta.tmp", b"new")
    disk.rename(str(home / "meta.tmp"), str(home / "meta"))
    disk.sync_dir(str(home))


def unlink(disk: RiggedDisk, home: Path) -> None:
    disk.unlink(str(home / "meta"))


def unlink_and_sync(disk: RiggedDisk, home: Path) -> None:
    unlink(disk, home)
    disk.sync_dir(str(home))


def make_partition(disk: RiggedDisk, home: Path) -> None:
    disk.make_dirs(str(home / "t-0"))
    write(disk, home / "t-0" / "0.log", b"batch")
    sync(disk, home / "t-0" / "0.log")
    disk.sync_dir(str(home / "t-0"))


def make_synced_partition(disk: RiggedDisk, home: Path) -> None:
    make_partition(disk, home)
    disk.sync_dir(str(home))


def remove_partition(disk: RiggedDisk, home: Path) -> None:
    make_synced_partition(disk, home)
    disk.rename(str(home / "t-0"), str(home / "t-0.delete"))
    disk.remove_tree(str(home / "t-0.delete"))


def write_behind_a_rename(disk: RiggedDisk, home: Path) -> None:
    """The file is open under its old name, as a segment's is while its directory moves."""
    make_synced_partition(disk, home)
    file = disk.open(str(home / "t-0" / "0.log"))
    disk.rename(str(home / "t-0"), str(home / "t-1"))
    disk.sync_dir(str(home))
    file.pwrite(b", next", 5)
    file.sync()
    file.pwrite(b", lost", 11)


@pytest.mark.parametrize(
    ("act", "left"),
    [
        (append_synced_and_unsynced, BEFORE | {"log": "synced"}),
        (sync_and_leave_directory, BEFORE),
        (write_to_what_was_there, BEFORE),
        (cut_and_write_anew, BEFORE | {"log": "syn"}),
        (replace, BEFORE),
        (replace_and_sync, {"meta": "new"}),
        (replace_by_unsynced, {"meta": ""}),
        (unlink, BEFORE),
        (unlink_and_sync, {}),
        (make_partition, BEFORE),
        (make_synced_partition, BEFORE | {"t-0/0.log": "batch"}),
        (remove_partition, BEFORE | {"t-0/0.log": "batch"}),
        (write_behind_a_rename, BEFORE | {"t-1/0.log": "batch, next"}),
    ],
)
def test_what_is_left(
    home: Path, act: Callable[[RiggedDisk, Path], None], left: dict[str, str]
) -> None:
    act(disk_of(home), home)

    lose_unsynced(home)
    assert content(home) == left
    assert lose_unsynced(home) == Loss(), "what is left is on the disk for good"


def test_a_restart_syncs_nothing(home: Path) -> None:
    append_synced_and_unsynced(disk_of(home), home)
    after_restart = disk_of(home)
    write(after_restart, home / "log", b" twice", 16)

    assert lose_unsynced(home) == Loss(files_cut=1, bytes_lost=16)
    assert content(home)["log"] == "synced"


def test_what_is_kept_aside_goes_when_the_directory_is_synced(home: Path) -> None:
    disk = disk_of(home)
    remove_partition(disk, home)
    kept = Path(f"{home}.rigged") / "kept"
    assert os.listdir(kept)

    disk.sync_dir(str(home))
    assert not os.listdir(kept)
    lose_unsynced(home)
    assert content(home) == BEFORE


def test_a_half_written_note_is_no_note(home: Path) -> None:
    append_synced_and_unsynced(disk_of(home), home)
    with (Path(f"{home}.rigged") / "synced.journal").open("ab") as journal:
        journal.write(b'["synced", ')

    lose_unsynced(home)
    assert content(home)["log"] == "synced"


def test_a_journal_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="no line"):
        replay([["synced", "x"]])


def test_a_node_without_a_rigged_disk_cannot_lose_power(home: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not written by a node with a rigged disk"):
        lose_unsynced(home)


def test_a_full_disk_takes_what_needs_no_room(home: Path) -> None:
    disk = disk_of(home)
    file = disk.open(str(home / "meta"))
    give_orders(str(home), Rigging(is_disk_full=True))
    disk = disk_of(home)
    full = disk.open(str(home / "meta"))

    full.pwrite(b"FROM", 0)
    for refused in (
        lambda: full.pwrite(b"more", 10),
        lambda: full.pwritev([b"mo", b"re"], 10),
        lambda: disk.open(str(home / "new"), create=True),
        lambda: disk.make_dirs(str(home / "t-0")),
    ):
        with pytest.raises(OSError) as caught:
            refused()
        assert caught.value.errno == errno.ENOSPC
    assert disk.free_bytes(str(home)) == 0
    file.close()
    full.close()


def test_a_read_only_disk_takes_nothing(home: Path) -> None:
    give_orders(str(home), Rigging(is_read_only=True))
    disk = disk_of(home)
    meta = str(home / "meta")

    for refused in (
        lambda: disk.open(meta),
        lambda: disk.rename(meta, f"{meta}2"),
        lambda: disk.unlink(meta),
        lambda: disk.remove_tree(str(home)),
    ):
        with pytest.raises(OSError) as caught:
            refused()
        assert caught.value.errno == errno.EROFS
    assert disk.open(meta, read_only=True).pread(4, 0) == b"from"


def test_a_calendar_is_as_wrong_as_ordered_and_the_stop_watch_right(home: Path) -> None:
    give_orders(str(home), Rigging(skew_s=-3600))
    rigged, true = RiggedClock(Orders(str(home))), SystemClock()

    assert -3_601_000 < rigged.wall_ms() - true.wall_ms() < -3_599_000
    assert abs(rigged.monotonic_ms() - true.monotonic_ms()) < 1000
    give_orders(str(home), SOUND)
    assert abs(RiggedClock(Orders(str(home))).wall_ms() - true.wall_ms()) < 1000


def test_switches_are_known_or_refused() -> None:
    assert switches({}) == frozenset()
    assert switches({"TIDELOG_UNSAFE_TESTING": " rigged, "}) == {"rigged"}
    with pytest.raises(UnknownSwitch, match="has riged; there are rigged, ack-before-replication"):
        switches({"TIDELOG_UNSAFE_TESTING": "riged"})
