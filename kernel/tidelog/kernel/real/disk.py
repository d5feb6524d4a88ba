"""The ``Disk`` port on a POSIX file system.

Reads and writes go by position through plain descriptors: no cursor, no buffering in the
process, and therefore nothing to flush but the page cache. Interrupted calls are retried by
Python itself (PEP 475); short reads and writes are continued here, because one call moves at
most about 2 GiB on Linux and may stop earlier on a nearly full disk.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, cast

from tidelog.kernel.ids import TimestampMs
from tidelog.kernel.meters import Spread
from tidelog.kernel.ports import ByteView, FileStat

_FILE_MODE: Final = 0o644
_IOV_MAX: Final = max(16, os.sysconf("SC_IOV_MAX")) if "SC_IOV_MAX" in os.sysconf_names else 16
_MAX_BYTES_PER_CALL: Final = 1 << 30
"""Below every system's limit for one call: Linux stops at 2 GiB − 4 KiB, macOS refuses 2 GiB."""

_WITHOUT_WAITING: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
_CANNOT_TELL: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_LOOK_EVERY_BYTES: Final = 256 * 1024
_KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE


def _sync_descriptor(descriptor: int, *, metadata_too: bool) -> None:
    """Wait until data and size are on stable storage; with ``metadata_too`` all the rest."""
    if sys.platform == "darwin":
        # fsync(2) on macOS stops at the drive's cache; only F_FULLFSYNC reaches the medium.
        # File systems that lack it (network mounts) refuse it and get the plain call.
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.ENOTTY, errno.EINVAL):
                raise
            os.fsync(descriptor)
    elif metadata_too:
        os.fsync(descriptor)
    else:
        os.fdatasync(descriptor)


@functools.cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """Linux's call; Python's own ``posix_fallocate`` would change the file's size."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        call = ctypes.CDLL(None).fallocate64
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    call.restype = ctypes.c_int
    return cast("Callable[[int, int, int, int], int]", call)


class SyncTimes:
    """How long calls to ``sync`` took, from whichever thread they came."""

    def __init__(self) -> None:
        self.durations_ms = Spread()
        self._lock = threading.Lock()

    def note(self, begun_s: float) -> None:
        took_ms = (time.monotonic() - begun_s) * 1000
        with self._lock:
            self.durations_ms.observe(took_ms)


def _byte_count(data: ByteView) -> int:
    return data.nbytes if isinstance(data, memoryview) else len(data)


class OsFile:
    """An open descriptor. After ``close`` every call fails with EBADF; closing again is fine."""

    __slots__ = ("_descriptor", "_sync_times", "path")

    def __init__(self, descriptor: int, path: str, sync_times: SyncTimes | None = None) -> None:
        self._descriptor = descriptor
        self._sync_times = sync_times
        self.path = path

    def pread(self, length: int, position: int) -> bytes:
        data = os.pread(self._descriptor, length, position)
        if len(data) == length or not data:
            return data
        return self._read_on(data, length, position)

    def _read_on(self, head: bytes, length: int, position: int) -> bytes:
        parts = [head]
        done = len(head)
        while done < length:
            part = os.pread(self._descriptor, length - done, position + done)
            if not part:
                break
            parts.append(part)
            done += len(part)
        return b"".join(parts)

    def pwrite(self, data: ByteView, position: int) -> None:
        total = _byte_count(data)
        if total <= _MAX_BYTES_PER_CALL:
            written = os.pwrite(self._descriptor, data, position)
            if written == total:
                return
        else:
            written = 0
        self._write_on(data, written, position)

    def _write_on(self, data: ByteView, written: int, position: int) -> None:
        """Write what is left of ``data`` behind its first ``written`` bytes."""
        view = memoryview(data).cast("B")
        while written < len(view):
            part = view[written : written + _MAX_BYTES_PER_CALL]
            count = os.pwrite(self._descriptor, part, position + written)
            if count == 0:
                raise OSError(errno.EIO, "the system wrote no bytes and gave no reason", self.path)
            written += count

    def pwritev(self, buffers: Sequence[ByteView], position: int) -> None:
        sizes = [_byte_count(buffer) for buffer in buffers]
        total = sum(sizes)
        if len(buffers) <= _IOV_MAX and total <= _MAX_BYTES_PER_CALL:
            written = os.pwritev(self._descriptor, buffers, position) if buffers else 0
            if written == total:
                return
            self._gather_on(buffers, sizes, written, position)
            return
        for start in range(0, len(buffers), _IOV_MAX):
            group = buffers[start : start + _IOV_MAX]
            group_sizes = sizes[start : start + _IOV_MAX]
            group_total = sum(group_sizes)
            written = 0
            if group_total <= _MAX_BYTES_PER_CALL:
                written = os.pwritev(self._descriptor, group, position)
            self._gather_on(group, group_sizes, written, position)
            position += group_total

    def _gather_on(
        self, buffers: Sequence[ByteView], sizes: Sequence[int], written: int, position: int
    ) -> None:
        """Write what is left of the joined buffers behind their first ``written`` bytes."""
        start = 0
        for buffer, size in zip(buffers, sizes, strict=True):
            if start + size > written:
                self._write_on(buffer, max(0, written - start), position + start)
            start += size

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def reserve(self, start: int, length: int) -> None:
        fallocate = _fallocate()
        if fallocate is not None:
            fallocate(self._descriptor, _KEEP_SIZE, start, length)

    def sync(self) -> None:
        if self._descriptor < 0:  # os.fdatasync would make a ValueError of it
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        begun_s = time.monotonic()
        _sync_descriptor(self._descriptor, metadata_too=False)
        if self._sync_times is not None:
            self._sync_times.note(begun_s)

    def fileno(self) -> int:
        return self._descriptor

    def is_cached(self, length: int, position: int) -> bool:
        """Looks at a byte here and there: a cold stretch is seldom shorter than what the system
        reads ahead. True where the system cannot tell."""
        if _WITHOUT_WAITING is None:
            return True
        last = position + length - 1
        for place in (*range(position, last, _LOOK_EVERY_BYTES), last):
            try:
                os.preadv(self._descriptor, [bytearray(1)], place, _WITHOUT_WAITING)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno in _CANNOT_TELL:
                    return True
                raise
        return True

    def __del__(self) -> None:
        # A reader may be the last to hold a segment's file: the descriptor lives as long.
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            # First forget the number: the system may hand it to another file at once.
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class OsDisk:
    """The operating system's file systems, by absolute path."""

    __slots__ = ("sync_times",)

    def __init__(self) -> None:
        self.sync_times = SyncTimes()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> OsFile:
        flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR)
        if create:
            flags |= os.O_CREAT
        descriptor = os.open(path, flags, _FILE_MODE)
        if read_only and stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return OsFile(descriptor, path, self.sync_times)

    def read(self, path: str) -> bytes:
        with open(path, "rb", buffering=0) as file:
            return file.readall()

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def stat(self, path: str) -> FileStat | None:
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileStat(
            size=found.st_size,
            mtime_ms=TimestampMs(found.st_mtime_ns // 1_000_000),
            is_dir=stat.S_ISDIR(found.st_mode),
        )

    def set_mtime(self, path: str, mtime_ms: TimestampMs) -> None:
        mtime_ns = mtime_ms * 1_000_000
        os.utime(path, ns=(mtime_ns, mtime_ns))

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        while os.path.lexists(path):
            # A delayed unlink may take a file from under the walk; then look again.
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _sync_descriptor(descriptor, metadata_too=True)
        finally:
            os.close(descriptor)

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def total_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize

    @contextlib.contextmanager
    def lock(self, path: str) -> Iterator[None]:
        """The lock goes with the descriptor, so the system frees it when the process dies.

        The file stays behind, empty: unlinking it would let two processes lock two files of
        the same name.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(descriptor)
