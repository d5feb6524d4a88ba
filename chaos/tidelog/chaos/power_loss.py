"""Taking from a killed node's disk what a loss of power could have taken.

The node must have run with a rigged disk, whose journal says what was synced. Lost is everything
that was not: bytes behind the synced length of a file, and makings, renames and removals in
directories that were not synced since. That is the worst that a file system may do, and it is the
same every time. Afterwards all that is there counts as synced, and the journal begins anew.

``replay`` decides from the journal alone; ``lose_unsynced`` acts.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tidelog.kernel.real.rigged_disk import JOURNAL, KEPT
from tidelog.kernel.real.rigging import rigging_dir

_NOT_THERE: Final = -1
_BLOCK_BYTES: Final = 512
"""The unit of ``st_blocks``, whatever the file system's is: holes count for nothing."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something in a directory that was not synced since."""

    kind: str
    """``made``, ``renamed`` or ``removed``."""
    inode: int
    directory: int
    path: str
    """Where it is now, or would be."""
    old_path: str | None = None
    """Where it was before a rename."""
    kept: str | None = None
    """What stood at ``path`` before."""


@dataclass(slots=True)
class Unsynced:
    """What is at risk."""

    synced_bytes: dict[int, int] = field(default_factory=dict)
    """By inode; of files that are not in here, nothing is at risk."""
    changes: list[Change] = field(default_factory=list)
    """In the order in which they were made."""


@dataclass(frozen=True, slots=True)
class Loss:
    files_cut: int = 0
    bytes_lost: int = 0
    changes_undone: int = 0

    def __str__(self) -> str:
        return (
            f"{self.bytes_lost} bytes of {self.files_cut} files and "
            f"{self.changes_undone} changes of directories were not synced"
        )


def replay(events: Iterable[list[Any]]) -> Unsynced:
    at_risk = Unsynced()
    synced = at_risk.synced_bytes
    for event in events:
        match event:
            case ["found", int(inode), int(size)]:
                synced.setdefault(inode, size)
            case ["synced", int(inode), int(size)]:
                synced[inode] = size
            case ["cut", int(inode), int(size)]:
                synced[inode] = min(synced.get(inode, size), size)
            case ["dir", int(directory)]:
                at_risk.changes = [c for c in at_risk.changes if c.directory != directory]
            case ["made", int(inode), int(directory), str(path)]:
                synced[inode] = 0
                at_risk.changes.append(Change("made", inode, directory, path))
            case ["renamed", int(inode), int(directory), str(old), str(new), kept]:
                at_risk.changes.append(Change("renamed", inode, directory, new, old, kept))
            case ["removed", int(inode), int(directory), str(path), str(kept)]:
                at_risk.changes.append(Change("removed", inode, directory, path, kept=kept))
            case _:
                raise ValueError(f"a journal of a rigged disk has no line {event}")
    return at_risk


def lose_unsynced(log_dir: Path) -> Loss:
    """For a node that does not run; its first log directory names it."""
    rigged = Path(rigging_dir(str(log_dir)))
    journal = rigged / JOURNAL
    if not journal.exists():
        raise FileNotFoundError(f"{log_dir} was not written by a node with a rigged disk")
    at_risk = replay(_lines(journal))
    undone = sum(_undo(change) for change in reversed(at_risk.changes))
    files_cut = bytes_lost = 0
    for path in _files(log_dir):
        found = path.stat()
        synced = at_risk.synced_bytes.get(found.st_ino, found.st_size)
        if found.st_size > synced:
            lost = max(0, min(found.st_size, found.st_blocks * _BLOCK_BYTES) - synced)
            files_cut += lost > 0
            bytes_lost += lost
            os.truncate(path, synced)
    journal.write_bytes(b"")
    shutil.rmtree(rigged / KEPT)
    (rigged / KEPT).mkdir()
    return Loss(files_cut, bytes_lost, undone)


def _lines(journal: Path) -> Iterator[list[Any]]:
    for line in journal.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):  # the last may be half written
            yield json.loads(line)


def _files(log_dir: Path) -> list[Path]:
    return [path for path in log_dir.rglob("*") if path.is_file() and not path.is_symlink()]


def _undo(change: Change) -> bool:
    """False where later changes, synced ones, have overtaken it or it was never made."""
    path = Path(change.path)
    there = path.stat().st_ino if path.exists() else _NOT_THERE
    if change.kind == "removed":
        is_undone = there == _NOT_THERE and path.parent.is_dir() and _put_back(change)
    elif there != change.inode:
        is_undone = False
    elif change.kind == "made":
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        is_undone = True
    else:
        assert change.old_path is not None
        is_undone = Path(change.old_path).parent.is_dir()
        if is_undone:
            path.rename(change.old_path)
            _put_back(change)
    return is_undone


def _put_back(change: Change) -> bool:
    if change.kept is None or not os.path.lexists(change.kept):
        return False
    os.rename(change.kept, change.path)
    return True
