"""Small changes to a file system that a crash leaves undone or done, never half."""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import Final

from tidelog.kernel.ports import ByteView, Disk

TMP_SUFFIX: Final = ".tmp"
DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def make_dirs_durably(disk: Disk, path: str) -> None:
    """Make a directory with its entry in the one above, without which all in it could vanish."""
    missing = []
    while disk.stat(path or "/") is None:
        missing.append(path)
        path = path.rpartition("/")[0]
    for made in reversed(missing):
        disk.make_dirs(made)
        disk.sync_dir(made.rpartition("/")[0] or "/")


def write_atomically(disk: Disk, path: str, data: ByteView) -> None:
    """Durable on return: written aside, synced, renamed, and the directory synced."""
    aside = path + TMP_SUFFIX
    try:
        file = disk.open(aside, create=True)
        try:
            file.truncate(0)
            file.pwrite(data, 0)
            file.sync()
        finally:
            file.close()
        disk.rename(aside, path)
    except OSError:
        # On a full disk every byte counts; what went wrong matters more than the leftover.
        with suppress(OSError):
            disk.unlink(aside)
        raise
    disk.sync_dir(path.rpartition("/")[0])
