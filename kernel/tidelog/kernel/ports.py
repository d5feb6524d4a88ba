"""The doors to the outside world: time, chance, disk and work off the event loop.

Everything above the kernel reaches these through the protocols below and never through
``time``, ``random``, ``os`` or threads. ``tidelog.kernel.real`` has the versions for a real
machine, ``tidelog.simulation`` those that are driven by a seed.

A port reports failure the way the operating system does, with ``OSError`` and its ``errno``,
so that the same code meets a full disk in a test and in the field.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from tidelog.kernel.ids import TimestampMs

T = TypeVar("T")

ByteView: TypeAlias = bytes | bytearray | memoryview
"""Anything contiguous that can be written or parsed without a copy."""

Steps: TypeAlias = Generator[None, None, T]
"""Blocking or heavy work, cut at each ``yield`` where it may be interleaved with other work.

A step must not run for more than about 50 ms, must not touch state that the event loop owns,
and hands its result over by ``return``.
"""


class Clock(Protocol):
    """Two clocks: the calendar, which may jump, and the stop watch, which never goes back."""

    def wall_ms(self) -> TimestampMs:
        """Milliseconds since 1970, for timestamps that are stored or compared with records."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds since some fixed moment, for time-outs and durations."""
        ...


class Random(Protocol):
    """The part of ``random.Random`` that is needed; one instance per node, from one seed."""

    def random(self) -> float: ...

    def randrange(self, start: int, stop: int) -> int: ...

    def randbytes(self, n: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class FileStat:
    size: int
    mtime_ms: TimestampMs
    is_dir: bool


class File(Protocol):
    """An open file, addressed by position; it has no cursor of its own.

    The descriptor stays good when the file is renamed or unlinked, so a reader that holds it
    is never surprised by retention or compaction. It is closed by ``close``, or when nobody
    holds the file any more.
    """

    def pread(self, length: int, position: int) -> bytes:
        """Up to ``length`` bytes at ``position``; fewer only at the end of the file."""
        ...

    def pwrite(self, data: ByteView, position: int) -> None:
        """Write all of ``data`` or raise; after an error any prefix of it may be there."""
        ...

    def pwritev(self, buffers: Sequence[ByteView], position: int) -> None:
        """Write the buffers one after the other, as if joined; all or raise, as ``pwrite``."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with a hole."""
        ...

    def reserve(self, start: int, length: int) -> None:
        """Set blocks aside for what will be written there; neither size nor content changes.

        A favour, not a promise: where the system cannot, nothing happens. ``truncate`` to the
        file's own size gives back what was not used.
        """
        ...

    def sync(self) -> None:
        """Return when data and size are on stable storage (``fdatasync``)."""
        ...

    def fileno(self) -> int:
        """The descriptor for ``sendfile``; −1 where there is none (a simulated file)."""
        ...

    def is_cached(self, length: int, position: int) -> bool:
        """Whether these bytes can be read without waiting for a disk, as far as can be told."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A file system. Paths are absolute strings; parents are not made by themselves.

    A create, rename or unlink is durable only after ``sync_dir`` of the directory it happened
    in; the data of a file only after its ``sync``.
    """

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open for reading and writing. ``create`` makes the file if it is not there."""
        ...

    def read(self, path: str) -> bytes:
        """The whole file."""
        ...

    def list_dir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def stat(self, path: str) -> FileStat | None:
        """None if there is no such file."""
        ...

    def set_mtime(self, path: str, mtime_ms: TimestampMs) -> None: ...

    def make_dirs(self, path: str) -> None:
        """Make a directory and its parents; fine if it is there."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Atomic within a file system; replaces ``new``. Also moves a directory."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file; fine if it is not there."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it; fine if it is not there."""
        ...

    def sync_dir(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int:
        """What an unprivileged process may still write on the file system that holds ``path``."""
        ...

    def total_bytes(self, path: str) -> int:
        """The size of that file system."""
        ...

    def lock(self, path: str) -> AbstractContextManager[None]:
        """Take the exclusive lock file ``path``; ``BlockingIOError`` if another process has it."""
        ...


class Offload(Protocol):
    """Work that must not hold up the event loop.

    On a real machine the steps run in a thread; in the simulation each step runs inline after
    a drawn delay, so that other events fall between them.
    """

    async def run(self, work: Steps[T]) -> T: ...


class WorkerLost(Exception):
    """The process ended, or could not be started, before it had answered."""


class Worker(Protocol):
    """One process that computes for this one; it keeps what it was told until it is let go."""

    async def ask(self, question: bytes) -> bytes:
        """Its answer, one question at a time; ``WorkerLost`` if there will be none.

        If the wait is cancelled the process is ended before anybody else may use its files.
        """
        ...


class Workers(Protocol):
    """Computations that would take the interpreter's lock for long, in processes of their own.

    They run at low priority and end with this process. There are none in the simulation: what a
    worker does can be done by an ``Offload`` as well.
    """

    def hire(self) -> AbstractAsyncContextManager[Worker]:
        """A worker for the duration of a context: one that is idle, or a new one."""
        ...


def in_one_go(work: Steps[T]) -> T:
    """Run work to its end on the spot, for tools and tests that have no event loop."""
    while True:
        try:
            next(work)
        except StopIteration as stop:
            result: T = stop.value
            return result
