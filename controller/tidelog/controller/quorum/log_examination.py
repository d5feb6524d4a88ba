"""A look at the metadata log before anything in it is changed.

An ordinary log is cut where it is damaged and fetched again from its leader. A voter must not do
that below what it has acknowledged: whoever counted on it would be betrayed, and a quorum might
elect committed metadata away. So the files are read first, without touching them:

- damage at or above the recovery point is the end of a write that was never confirmed: it may be
  cut, also when later sectors of the same write have reached the disk;
- damage below it, or a log that ends before it, stops the node.

The recovery point is written a little after each flush (at the latest a second later, and when the
quorum is idle or closed), so damage of the very last entries can pass for a torn write; the bytes
are then kept beside the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelog.kernel.ids import LeaderEpoch, Offset
from tidelog.kernel.ports import Disk, Steps
from tidelog.storage.names import LOG_SUFFIX, parse_segment_file, segment_file
from tidelog.storage.scan import Flaw, VerifyProgress, verify_batches

_NO_LIMIT: Final = Offset(2**63 - 1)

_LIVE: Final = (LOG_SUFFIX, "")


@dataclass(frozen=True, slots=True)
class Examined:
    start: Offset
    """From here on the log is sound and whole."""
    end: Offset
    """Where the sound batches end."""
    flaw: str | None
    """What follows them, if anything does."""
    strays: tuple[Offset, ...]
    """Segments before ``start``: all that they hold is in a snapshot."""


def examine(disk: Disk, directory: str, snapshot_end: Offset) -> Steps[Examined]:
    """Walk over all segments.

    What lies below the end of a sound snapshot is not needed. Old segments are removed without
    waiting for the disk, so after a power loss some of them may be back and others not.
    """
    names = [name for name in map(parse_segment_file, disk.list_dir(directory)) if name]
    bases = sorted(name.base_offset for name in names if (name.suffix, name.extra) == _LIVE)
    first, flaw = 0, None
    progress = VerifyProgress(bases[0] if bases else Offset(0), _NO_LIMIT, LeaderEpoch(-1))
    for index, base in enumerate(bases):
        path = segment_file(directory, base, LOG_SUFFIX)
        if flaw is not None or base != progress.next_offset:
            if base > snapshot_end:
                end = progress.next_offset
                flaw = flaw or f"{path} does not begin where the log before it ends, at {end}"
                break
            first, flaw = index, None
            progress = VerifyProgress(base, _NO_LIMIT, LeaderEpoch(-1))
        found = yield from _examine_segment(disk, path, progress)
        flaw = None if found is None else f"{path}: {found}"
    start = bases[first] if bases else Offset(0)
    return Examined(start, progress.next_offset, flaw, tuple(bases[:first]))


def _examine_segment(disk: Disk, path: str, progress: VerifyProgress) -> Steps[str | None]:
    """What is wrong with a segment, or None; offsets in the metadata log have no gaps."""
    file = disk.open(path, read_only=True)
    try:
        expected = progress.next_offset
        for found in verify_batches(file, file.size(), progress):
            if isinstance(found, Flaw):
                return found.reason
            for position, header in found:
                if header.base_offset != expected:
                    progress.next_offset = expected
                    return f"batch at {position} has offset {header.base_offset}, not {expected}"
                expected = header.next_offset
            yield
    finally:
        file.close()
    return None
