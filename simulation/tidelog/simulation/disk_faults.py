"""What can go wrong with a simulated disk short of losing power.

The faults belong to the hardware: they stay when the node on it restarts. Set them through
the fields, or with ``fail`` for the next calls of one kind.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

MutationKind: TypeAlias = Literal[
    "create",
    "write",
    "truncate",
    "sync",
    "set_mtime",
    "mkdir",
    "rename",
    "unlink",
    "rmdir",
    "sync_dir",
]
OperationKind: TypeAlias = Literal["read"] | MutationKind

OperationHook: TypeAlias = Callable[[MutationKind, str], None]
"""Called before every operation that changes the disk, with its kind and its path."""


class SimulatedCrash(BaseException):
    """The machine stops here: raised out of a disk operation that does not take place.

    Not an ``Exception``, because nothing in a node may catch it: a real crash runs no handler.
    ``finally`` blocks do run on its way out, which is why a crashed disk refuses everything
    they may try. Of a write, the first ``landed_bytes`` still reach the page cache.
    """

    def __init__(self, message: str = "simulated crash", *, landed_bytes: int = 0) -> None:
        super().__init__(message)
        self.landed_bytes = landed_bytes


class CrashAt:
    """An operation hook that crashes before the ``nth`` operation (from 1) of the given kinds.

    A test that raises ``nth`` until no crash happens has crashed at every operation.
    """

    def __init__(
        self, nth: int, kinds: Collection[MutationKind] | None = None, *, landed_bytes: int = 0
    ) -> None:
        self.nth = nth
        self.seen = 0
        self._kinds = kinds
        self._landed_bytes = landed_bytes

    def __call__(self, kind: MutationKind, path: str) -> None:
        if self._kinds is not None and kind not in self._kinds:
            return
        self.seen += 1
        if self.seen == self.nth:
            message = f"crash before operation {self.nth}: {kind} {path}"
            raise SimulatedCrash(message, landed_bytes=self._landed_bytes)


@dataclass(frozen=True, slots=True)
class Failure:
    """How one operation fails."""

    error: int
    landed_bytes: int = 0
    """Of a write, how much of it is there in spite of the error."""

    def as_os_error(self, path: str) -> OSError:
        return OSError(self.error, os.strerror(self.error), path)


@dataclass(slots=True)
class _OrderedFailure:
    kind: OperationKind
    path_part: str
    skip: int
    times: int | None
    failure: Failure

    def strikes(self, kind: OperationKind, path: str) -> bool:
        """Whether this operation fails; counts it."""
        if kind != self.kind or self.path_part not in path or self.times == 0:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class DiskFaults:
    """The state of the hardware; all sound at first."""

    def __init__(self) -> None:
        self.capacity_bytes: int | None = None
        """A write beyond it lands as far as there is room, then fails with ENOSPC."""
        self.read_only_error: int | None = None
        """EROFS or EACCES: every change but a sync fails with it."""
        self.step_delay_ms: float = 0.0
        """A slow device: ``SimOffload`` waits so much longer before each step."""
        self.stalled: bool = False
        """A hanging device: ``SimOffload`` takes no step until this is False again."""
        self._ordered: list[_OrderedFailure] = []

    def fail(
        self,
        kind: OperationKind,
        path_part: str = "",
        *,
        error: int = errno.EIO,
        skip: int = 0,
        times: int | None = 1,
        landed_bytes: int = 0,
    ) -> None:
        """Let operations of one kind fail whose path contains ``path_part``.

        The first ``skip`` of them succeed, the next ``times`` (None: all) fail. Of a failing
        write, ``landed_bytes`` are written all the same.
        """
        failure = Failure(error, landed_bytes)
        self._ordered.append(_OrderedFailure(kind, path_part, skip, times, failure))

    def forget_failures(self) -> None:
        """Forget what ``fail`` ordered and what has not happened yet; nothing else."""
        self._ordered.clear()

    def heal(self) -> None:
        """Forget what ``fail`` ordered, and all other faults."""
        self.capacity_bytes = None
        self.read_only_error = None
        self.step_delay_ms = 0.0
        self.stalled = False
        self.forget_failures()

    def failure_of(self, kind: OperationKind, path: str) -> Failure | None:
        """How this operation is to fail, if at all. The disk asks once per operation."""
        if self.read_only_error is not None and kind not in ("read", "sync", "sync_dir"):
            return Failure(self.read_only_error)
        for ordered in self._ordered:
            if ordered.strikes(kind, path):
                return ordered.failure
        return None
