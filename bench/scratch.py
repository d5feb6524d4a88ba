"""Where a benchmark writes: a directory that goes when the benchmark ends, however it ends.

Loads of benchmarks are tens of gigabytes, and nobody finds them in the temporary directory. So
the directory is removed by a process of its own, which waits for the end of a pipe that only the
benchmark holds: that comes with its last line, with Ctrl-C and SIGTERM, and with SIGKILL.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

# What still writes there (nodes of a cluster that are being ended) can make a removal fail.
_REMOVE = """
cat >/dev/null
tries=0
until rm -rf -- "$1" 2>/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -lt 120 ] || exit 1
    sleep 0.5
done
"""
_REMOVAL_S = 90.0


class NoRoom(Exception):
    """The disk is too small for what is to be written."""


class Scratch:
    """A new directory below ``parent``, or below the system's temporary one, until ``remove``."""

    def __init__(self, parent: str | None = None, prefix: str = "tidelog-bench-") -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent)).resolve()
        self._remover = subprocess.Popen(
            ["/bin/sh", "-c", _REMOVE, "sh", str(self.path)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # signals from a terminal are for the benchmark
        )

    def remove(self) -> None:
        assert self._remover.stdin is not None
        self._remover.stdin.close()
        self._remover.wait(_REMOVAL_S)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """As by Ctrl-C: whatever was begun is ended in order."""
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def scratch(parent: str | None = None) -> Iterator[Path]:
    """A directory for as long as the block lasts, however it is left."""
    with ended_by_sigterm():
        made = Scratch(parent)
        try:
            yield made.path
        finally:
            made.remove()


def _end(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def need_room(path: Path, needed: int) -> None:
    """``NoRoom`` if so many bytes, and a tenth more, would fill the disk that ``path`` is on."""
    free = shutil.disk_usage(path).free
    if needed * 1.1 > free:
        raise NoRoom(
            f"{needed / 1e9:.1f} GB are to be written to {path}, and {free / 1e9:.1f} GB are free "
            "there; --dir takes another place"
        )
