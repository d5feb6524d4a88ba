"""In which of a node's log directories a replica goes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.kernel.ids import DirectoryId


class DirectoryLoad(NamedTuple):
    """A directory that works, and how many logs it has or is about to get."""

    directory: DirectoryId
    logs: int


def place(assigned: DirectoryId, directories: Iterable[DirectoryLoad]) -> DirectoryId | None:
    """Where metadata says, if that is here and works; else where there are fewest logs.

    A directory that metadata names but this node does not have was replaced: whatever the
    replica held is gone, and it starts anew elsewhere. None if no directory works.
    """
    loads = list(directories)
    if any(load.directory == assigned for load in loads):
        return assigned
    fewest = min(loads, key=lambda load: load.logs, default=None)
    return None if fewest is None else fewest.directory
