"""Index files as hints: what they say is used if it makes sense, and done without otherwise.

An entry of an ``.index`` is the last offset of some batch and where that batch begins. An entry of
a ``.timeindex`` says that no record up to an offset is younger than a time.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidelog.kernel.ports import Disk
from tidelog.storage.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from tidelog.wire.varint_columns import Int64s

_OFFSET_ENTRY: Final = np.dtype([("offset", ">i4"), ("value", ">i4")])
_TIME_ENTRY: Final = np.dtype([("value", ">i8"), ("offset", ">i4")])
_NONE: Final = np.zeros(0, np.int64)


def offset_entries(disk: Disk, directory: str, base_offset: int) -> tuple[Int64s, Int64s]:
    """Offsets and positions, both rising."""
    path = segment_file(directory, base_offset, INDEX_SUFFIX)
    return _entries(disk, path, base_offset, _OFFSET_ENTRY)


def time_entries(disk: Disk, directory: str, base_offset: int) -> tuple[Int64s, Int64s]:
    """Offsets and timestamps."""
    path = segment_file(directory, base_offset, TIME_INDEX_SUFFIX)
    return _entries(disk, path, base_offset, _TIME_ENTRY)


def _entries(
    disk: Disk, path: str, base_offset: int, entry: np.dtype[Any]
) -> tuple[Int64s, Int64s]:
    if disk.stat(path) is None:
        return _NONE, _NONE
    data = disk.read(path)
    if len(data) % entry.itemsize:
        return _NONE, _NONE
    table: npt.NDArray[Any] = np.frombuffer(data, entry)
    used = np.flatnonzero((table["offset"] != 0) | (table["value"] != 0))
    table = table[: int(used[-1]) + 1 if used.size else 0]  # behind it, preallocated room
    offsets = table["offset"].astype(np.int64) + base_offset
    values = table["value"].astype(np.int64)
    if bool((np.diff(offsets) < 0).any()) or bool((np.diff(values) < 0).any()):
        return _NONE, _NONE
    return offsets, values
