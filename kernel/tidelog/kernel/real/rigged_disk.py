"""A disk for tests: it fails as ordered, and notes what power loss could take.

Notes go to a journal beside the data, a line of JSON for each event, written before the event
can count for anybody: a sync is noted before its caller hears of it, a rename before it is done.
Files and directories are named by inode, since names change under open files. The journal itself
is never synced; it must survive a kill, not a loss of power. What is replaced or removed is kept
aside until its directory is synced, because until then it could come back.

``tidelog.chaos.power_loss`` reads the journal. Bytes that were overwritten in place and not synced
stay as they are: what was there before is not kept.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from tidelog.kernel.ids import TimestampMs
from tidelog.kernel.ports import ByteView
from tidelog.kernel.real.disk import OsDisk, OsFile, SyncTimes
from tidelog.kernel.real.rigging import Orders, rigging_dir

JOURNAL: Final = "synced.journal"
KEPT: Final = "kept"


class Journal:
    """Written to by any thread."""

    def __init__(self, log_dir: str) -> None:
        directory = rigging_dir(log_dir)
        self._kept = f"{directory}/{KEPT}"
        os.makedirs(self._kept, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(f"{directory}/{JOURNAL}", flags, 0o644)
        self._lock = threading.Lock()
        self._next_kept = 1 + max(map(int, os.listdir(self._kept)), default=0)
        self._until_synced: dict[int, list[str]] = defaultdict(list)
        """What is kept aside, by the inode of the directory it was in."""

    def note(self, *event: Any) -> None:
        os.write(self._descriptor, json.dumps(event).encode() + b"\n")

    def keep(self, path: str) -> str:
        """A place for what is at ``path`` until its directory is synced."""
        with self._lock:
            place = f"{self._kept}/{self._next_kept}"
            self._next_kept += 1
            self._until_synced[inode_of(os.path.dirname(path))].append(place)
        return place

    def synced_dir(self, directory: int) -> None:
        self.note("dir", directory)
        with self._lock:
            places = self._until_synced.pop(directory, [])
        for place in places:
            if os.path.isdir(place):
                shutil.rmtree(place)
            elif os.path.lexists(place):
                os.unlink(place)


def inode_of(path: str) -> int:
    return os.stat(path).st_ino


class RiggedFile(OsFile):
    __slots__ = ("_journal", "_orders", "inode")

    def __init__(
        self, descriptor: int, path: str, sync_times: SyncTimes, journal: Journal, orders: Orders
    ) -> None:
        super().__init__(descriptor, path, sync_times)
        self.inode = os.fstat(descriptor).st_ino
        self._journal = journal
        self._orders = orders

    def pwrite(self, data: ByteView, position: int) -> None:
        self._refuse(position + memoryview(data).nbytes)
        super().pwrite(data, position)

    def pwritev(self, buffers: Sequence[ByteView], position: int) -> None:
        self._refuse(position + sum(memoryview(buffer).nbytes for buffer in buffers))
        super().pwritev(buffers, position)

    def truncate(self, size: int) -> None:
        self._refuse(size)
        super().truncate(size)
        self._journal.note("cut", self.inode, size)

    def sync(self) -> None:
        size = self.size()
        _sleep(self._orders)
        super().sync()
        self._journal.note("synced", self.inode, size)

    def _refuse(self, end: int) -> None:
        standing = self._orders.standing
        if standing.is_read_only:
            raise _refusal(errno.EROFS, self.path)
        if standing.is_disk_full and end > self.size():
            raise _refusal(errno.ENOSPC, self.path)


class RiggedDisk(OsDisk):
    """All paths are below the node's own directories."""

    __slots__ = ("_journal", "_orders")

    def __init__(self, journal: Journal, orders: Orders) -> None:
        super().__init__()
        self._journal = journal
        self._orders = orders

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> OsFile:
        if read_only and not create:
            return super().open(path, read_only=True)
        is_new = create and not os.path.lexists(path)
        self._refuse(path, needs_room=is_new)
        plain = super().open(path, create=create, read_only=read_only)
        descriptor = os.dup(plain.fileno())
        plain.close()
        file = RiggedFile(descriptor, path, self.sync_times, self._journal, self._orders)
        if is_new:
            self._note_made(path)
        else:
            self._journal.note("found", file.inode, file.size())
        return file

    def set_mtime(self, path: str, mtime_ms: TimestampMs) -> None:
        self._refuse(path)
        super().set_mtime(path, mtime_ms)

    def make_dirs(self, path: str) -> None:
        missing: list[str] = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for directory in reversed(missing):
            self._refuse(directory, needs_room=True)
            super().make_dirs(directory)
            self._note_made(directory)

    def rename(self, old: str, new: str) -> None:
        self._refuse(new)
        place = None
        if os.path.isfile(new):
            place = self._journal.keep(new)
            os.link(new, place)
        parent = inode_of(os.path.dirname(new))
        self._journal.note("renamed", inode_of(old), parent, old, new, place)
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self._refuse(path)
        with suppress(FileNotFoundError):
            place = self._journal.keep(path)
            os.link(path, place)
            self._note_removed(path, place)
            super().unlink(path)

    def remove_tree(self, path: str) -> None:
        self._refuse(path)
        with suppress(FileNotFoundError):
            place = self._journal.keep(path)
            self._note_removed(path, place)
            os.rename(path, place)

    def sync_dir(self, path: str) -> None:
        _sleep(self._orders)
        super().sync_dir(path)
        self._journal.synced_dir(inode_of(path))

    def free_bytes(self, path: str) -> int:
        return 0 if self._orders.standing.is_disk_full else super().free_bytes(path)

    def _refuse(self, path: str, *, needs_room: bool = False) -> None:
        standing = self._orders.standing
        if standing.is_read_only:
            raise _refusal(errno.EROFS, path)
        if standing.is_disk_full and needs_room:
            raise _refusal(errno.ENOSPC, path)

    def _note_made(self, path: str) -> None:
        self._journal.note("made", inode_of(path), inode_of(os.path.dirname(path)), path)

    def _note_removed(self, path: str, place: str) -> None:
        parent = inode_of(os.path.dirname(path))
        self._journal.note("removed", inode_of(path), parent, path, place)


def _sleep(orders: Orders) -> None:
    if orders.standing.sync_ms > 0.0:
        time.sleep(orders.standing.sync_ms / 1000.0)


def _refusal(number: int, path: str) -> OSError:
    return OSError(number, f"{os.strerror(number)} (ordered by a test)", path)
