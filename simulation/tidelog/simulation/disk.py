"""A file system in memory that can lose power, fill up, fail and be damaged.

``disk_content`` says what happens to the bytes of a file, ``disk_names`` what happens to its
name, ``disk_faults`` what else can go wrong. This module is the ``Disk`` port over them, with
the errors that Linux gives.

One ``SimDisk`` is the disk as one run of a process sees it. ``kill`` and ``power_loss`` end
that run: they return the disk for the next one, and the old disk and its handles answer EBADF,
so that a leftover task of a dead node changes nothing. Locks end with the run.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.kernel.ids import TimestampMs
from tidelog.kernel.ports import ByteView, Clock, FileStat
from tidelog.simulation.clock import SimClock
from tidelog.simulation.disk_content import FileContent
from tidelog.simulation.disk_faults import (
    DiskFaults,
    MutationKind,
    OperationHook,
    OperationKind,
    SimulatedCrash,
)
from tidelog.simulation.disk_names import Directory, NameJournal, Node, PowerLoss
from tidelog.simulation.random import SimRandom

_UNLIMITED_BYTES: Final = 1 << 50


def _os_error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


def _parts(path: str) -> list[str]:
    if not path.startswith("/"):
        raise ValueError(f"a path on a disk is absolute, unlike {path!r}")
    parts = [part for part in path.split("/") if part]
    if "." in parts or ".." in parts:
        raise ValueError(f"a path on a simulated disk has no dots, unlike {path!r}")
    return parts


class SimFile:
    """An open file of a ``SimDisk``; ``path`` is the name it was opened by."""

    __slots__ = ("_content", "_disk", "_open", "_read_only", "path")

    def __init__(self, disk: SimDisk, content: FileContent, path: str, *, read_only: bool) -> None:
        self._disk = disk
        self._content = content
        self._read_only = read_only
        self._open = True
        self.path = path
        content.handles += 1

    def pread(self, length: int, position: int) -> bytes:
        self._check_open()
        if length < 0 or position < 0:
            raise _os_error(errno.EINVAL, self.path)
        self._disk._before_read(self.path)
        return self._content.read(length, position)

    def pwrite(self, data: ByteView, position: int) -> None:
        self._check_writable(errno.EBADF)
        if position < 0:
            raise _os_error(errno.EINVAL, self.path)
        self._disk._write(self._content, memoryview(data).cast("B"), position, self.path)

    def pwritev(self, buffers: Sequence[ByteView], position: int) -> None:
        self.pwrite(b"".join(buffers), position)

    def size(self) -> int:
        self._check_open()
        return self._content.size

    def truncate(self, size: int) -> None:
        self._check_writable(errno.EINVAL)
        if size < 0:
            raise _os_error(errno.EINVAL, self.path)
        self._disk._truncate(self._content, size, self.path)

    def reserve(self, start: int, length: int) -> None:
        self._check_writable(errno.EBADF)

    def sync(self) -> None:
        self._check_open()
        self._disk._sync(self._content, self.path)

    def is_cached(self, length: int, position: int) -> bool:
        return True

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        if self._open:
            self._open = False
            self._disk._closed(self._content)

    def _check_open(self) -> None:
        self._disk._check_running(self.path)
        if not self._open:
            raise _os_error(errno.EBADF, self.path)

    def _check_writable(self, error: int) -> None:
        self._check_open()
        if self._read_only:
            raise _os_error(error, self.path)


class SimDisk:
    """The ``Disk`` of one simulated node."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        faults: DiskFaults | None = None,
        sector_bytes: int = 512,
    ) -> None:
        self.faults = DiskFaults() if faults is None else faults
        self.used_bytes = 0
        self._clock: Clock = SimClock() if clock is None else clock
        self._sector_bytes = sector_bytes
        self._root = Directory(self._clock.wall_ms())
        self._journal = NameJournal()
        self._locked: set[FileContent] = set()
        self._hook: OperationHook | None = None
        self._crash: SimulatedCrash | None = None
        self._ended_by: str | None = None

    # What a simulation does to the disk.

    def on_operation(self, hook: OperationHook | None) -> None:
        """Have ``hook`` called before every change; it may raise ``SimulatedCrash``."""
        self._hook = hook

    def kill(self) -> SimDisk:
        """End the process, not the machine: what was written stays, synced or not."""
        successor = self._successor("its process was killed")
        successor._root, successor._journal = self._root, self._journal
        for content in self._all_contents():
            content.handles = 0
        successor._count_used_bytes()
        return successor

    def power_loss(self, random: SimRandom) -> SimDisk:
        """Cut the power: what was not synced is kept, lost or torn as ``random`` draws.

        The content of this disk does not change, so the call can be repeated for other draws.
        """
        successor = self._successor("its machine lost power")
        successor._root = PowerLoss(self._journal, random).survivor_of(self._root)
        successor._count_used_bytes()
        return successor

    def write_back(self, random: SimRandom) -> None:
        """Let the system make some of what is not synced durable, as it may at any time."""
        self._journal.write_back(random)
        for content in self._all_contents():
            content.write_back(random)

    def flip_bit(
        self, path: str, position: int, bit: int, *, cached: bool = True, durable: bool = True
    ) -> None:
        """Damage one bit of a file, in the page cache, on the medium, or in both."""
        self._file_at(path).flip_bit(position, bit, cached=cached, durable=durable)

    # The Disk port.

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SimFile:
        self._check_running(path)
        parent, name = self._parent_of(path)
        node = parent.entries.get(name) if name else parent
        if isinstance(node, Directory):
            raise _os_error(errno.EISDIR, path)
        if node is None:
            if not create:
                raise _os_error(errno.ENOENT, path)
            node = self._create_file(parent, name, path)
        elif not read_only and self.faults.read_only_error is not None:
            raise _os_error(self.faults.read_only_error, path)
        return SimFile(self, node, path, read_only=read_only)

    def read(self, path: str) -> bytes:
        self._check_running(path)
        content = self._file_at(path)
        self._before_read(path)
        return content.read(content.size, 0)

    def list_dir(self, path: str) -> list[str]:
        self._check_running(path)
        return sorted(self._directory_at(path).entries)

    def stat(self, path: str) -> FileStat | None:
        self._check_running(path)
        try:
            node = self._node_at(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if isinstance(node, Directory):
            return FileStat(size=0, mtime_ms=node.mtime_ms, is_dir=True)
        return FileStat(size=node.size, mtime_ms=node.mtime_ms, is_dir=False)

    def set_mtime(self, path: str, mtime_ms: TimestampMs) -> None:
        self._check_running(path)
        node = self._node_at(path)
        self._before("set_mtime", path)
        node.mtime_ms = mtime_ms

    def make_dirs(self, path: str) -> None:
        self._check_running(path)
        directory = self._root
        so_far = ""
        for part in _parts(path):
            so_far += "/" + part
            node = directory.entries.get(part)
            if node is None:
                self._before("mkdir", so_far)
                node = directory.entries[part] = Directory(self._clock.wall_ms())
                self._journal.bind(directory, part, node)
            if not isinstance(node, Directory):
                last = len(_parts(so_far)) == len(_parts(path))
                raise _os_error(errno.EEXIST if last else errno.ENOTDIR, path)
            directory = node

    def rename(self, old: str, new: str) -> None:
        self._check_running(old)
        source, old_name = self._parent_of(old)
        target, new_name = self._parent_of(new)
        node = source.entries.get(old_name)
        if node is None:
            raise _os_error(errno.ENOENT, old)
        replaced = target.entries.get(new_name)
        if node is replaced:
            return
        if isinstance(node, Directory) and _parts(new)[: len(_parts(old))] == _parts(old):
            raise _os_error(errno.EINVAL, new)
        self._check_replaceable(node, replaced, new)
        self._before("rename", old)
        del source.entries[old_name]
        target.entries[new_name] = node
        self._journal.move(source, old_name, target, new_name, node)
        if isinstance(replaced, FileContent):
            self._lost_name(replaced)

    def unlink(self, path: str) -> None:
        self._check_running(path)
        try:
            parent, name = self._parent_of(path)
        except FileNotFoundError:
            return
        node = parent.entries.get(name)
        if isinstance(node, Directory):
            raise _os_error(errno.EISDIR, path)
        if node is not None:
            self._remove_name(parent, name, node, path)

    def remove_tree(self, path: str) -> None:
        self._check_running(path)
        try:
            parent, name = self._parent_of(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        node = parent.entries.get(name)
        if isinstance(node, FileContent):
            raise _os_error(errno.ENOTDIR, path)
        if node is not None:
            self._remove_entries(node, path)
            self._remove_name(parent, name, node, path)

    def sync_dir(self, path: str) -> None:
        self._check_running(path)
        directory = self._directory_at(path)
        self._before("sync_dir", path)
        self._journal.sync(directory)

    def free_bytes(self, path: str) -> int:
        self._check_running(path)
        self._node_at(path)
        capacity = self.faults.capacity_bytes
        return max(0, (_UNLIMITED_BYTES if capacity is None else capacity) - self.used_bytes)

    def total_bytes(self, path: str) -> int:
        return self.free_bytes(path) + self.used_bytes

    @contextlib.contextmanager
    def lock(self, path: str) -> Iterator[None]:
        file = self.open(path, create=True)
        content = file._content
        if content in self._locked:
            file.close()
            raise _os_error(errno.EAGAIN, path)
        self._locked.add(content)
        try:
            yield
        finally:
            self._locked.discard(content)
            file.close()

    # What an open file asks of its disk.

    def _write(self, content: FileContent, data: memoryview, position: int, path: str) -> None:
        try:
            self._announce("write", path)
        except SimulatedCrash as crash:
            self._land(content, data[: crash.landed_bytes], position)
            raise
        failure = self.faults.failure_of("write", path)
        if failure is not None:
            self._land(content, data[: failure.landed_bytes], position)
            raise failure.as_os_error(path)
        room = self._room_for(content, len(data), position)
        self._land(content, data[:room], position)
        if room < len(data):
            raise _os_error(errno.ENOSPC, path)

    def _room_for(self, content: FileContent, length: int, position: int) -> int:
        """How many bytes of a write fit on the disk."""
        capacity = self.faults.capacity_bytes
        if capacity is None:
            return length
        free = max(0, capacity - self.used_bytes)
        return max(0, length - max(0, content.growth_by(length, position) - free))

    def _land(self, content: FileContent, data: memoryview, position: int) -> None:
        self.used_bytes += content.growth_by(len(data), position)
        content.write(data, position)
        content.mtime_ms = self._clock.wall_ms()

    def _truncate(self, content: FileContent, size: int, path: str) -> None:
        self._before("truncate", path)
        allocated = content.allocated_bytes
        content.truncate(size)
        content.mtime_ms = self._clock.wall_ms()
        self.used_bytes += content.allocated_bytes - allocated

    def _sync(self, content: FileContent, path: str) -> None:
        self._announce("sync", path)
        failure = self.faults.failure_of("sync", path)
        if failure is not None:
            content.forget_dirty()
            raise failure.as_os_error(path)
        content.sync()

    def _closed(self, content: FileContent) -> None:
        if self._ended_by is None:
            content.handles -= 1
            self._free_if_gone(content)

    # Before each operation.

    def _check_running(self, path: str) -> None:
        if self._ended_by is not None:
            raise OSError(errno.EBADF, f"this disk is of a run that ended: {self._ended_by}", path)
        if self._crash is not None:
            raise self._crash

    def _before_read(self, path: str) -> None:
        self._fail_as_ordered("read", path)

    def _before(self, kind: MutationKind, path: str) -> None:
        self._announce(kind, path)
        self._fail_as_ordered(kind, path)

    def _announce(self, kind: MutationKind, path: str) -> None:
        if self._hook is None:
            return
        try:
            self._hook(kind, path)
        except SimulatedCrash as crash:
            self._crash = crash
            raise

    def _fail_as_ordered(self, kind: OperationKind, path: str) -> None:
        failure = self.faults.failure_of(kind, path)
        if failure is not None:
            raise failure.as_os_error(path)

    # Names and nodes.

    def _node_at(self, path: str) -> Node:
        node: Node = self._root
        for part in _parts(path):
            if not isinstance(node, Directory):
                raise _os_error(errno.ENOTDIR, path)
            if part not in node.entries:
                raise _os_error(errno.ENOENT, path)
            node = node.entries[part]
        return node

    def _directory_at(self, path: str) -> Directory:
        node = self._node_at(path)
        if not isinstance(node, Directory):
            raise _os_error(errno.ENOTDIR, path)
        return node

    def _file_at(self, path: str) -> FileContent:
        node = self._node_at(path)
        if isinstance(node, Directory):
            raise _os_error(errno.EISDIR, path)
        return node

    def _parent_of(self, path: str) -> tuple[Directory, str]:
        """The directory a path lies in and its last name, which is empty for the root."""
        parts = _parts(path)
        parent = self._directory_at("/" + "/".join(parts[:-1]))
        return parent, parts[-1] if parts else ""

    def _create_file(self, parent: Directory, name: str, path: str) -> FileContent:
        self._before("create", path)
        content = FileContent(self._sector_bytes, self._clock.wall_ms())
        content.names = 1
        parent.entries[name] = content
        self._journal.bind(parent, name, content)
        return content

    def _check_replaceable(self, node: Node, replaced: Node | None, path: str) -> None:
        match node, replaced:
            case Directory(), FileContent():
                raise _os_error(errno.ENOTDIR, path)
            case FileContent(), Directory():
                raise _os_error(errno.EISDIR, path)
            case Directory(), Directory() if replaced.entries:
                raise _os_error(errno.ENOTEMPTY, path)
            case _:
                pass

    def _remove_entries(self, directory: Directory, path: str) -> None:
        for name in sorted(directory.entries):
            node = directory.entries[name]
            inner_path = f"{path.rstrip('/')}/{name}"
            if isinstance(node, Directory):
                self._remove_entries(node, inner_path)
            self._remove_name(directory, name, node, inner_path)

    def _remove_name(self, parent: Directory, name: str, node: Node, path: str) -> None:
        self._before("rmdir" if isinstance(node, Directory) else "unlink", path)
        del parent.entries[name]
        self._journal.remove(parent, name)
        if isinstance(node, FileContent):
            self._lost_name(node)

    def _lost_name(self, content: FileContent) -> None:
        content.names -= 1
        self._free_if_gone(content)

    def _free_if_gone(self, content: FileContent) -> None:
        if content.names == 0 and content.handles == 0:
            self.used_bytes -= content.allocated_bytes

    # From one run to the next.

    def _successor(self, ended_by: str) -> SimDisk:
        self._ended_by = ended_by
        return SimDisk(clock=self._clock, faults=self.faults, sector_bytes=self._sector_bytes)

    def _all_contents(self) -> list[FileContent]:
        """Every file that has a name, in the order of the paths."""
        found: list[FileContent] = []
        waiting: list[Directory] = [self._root]
        while waiting:
            directory = waiting.pop()
            for name in sorted(directory.entries):
                node = directory.entries[name]
                if isinstance(node, Directory):
                    waiting.append(node)
                else:
                    found.append(node)
        return found

    def _count_used_bytes(self) -> None:
        self.used_bytes = sum(content.allocated_bytes for content in self._all_contents())
