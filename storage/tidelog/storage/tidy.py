"""Finishing what a crash interrupted: files on their way out, and swaps of cleaned segments.

The order of the cleaner's renames makes each state of a directory readable in one way only:
``.cleaned`` files are worthless, because the originals are still there; ``.swap`` files are
complete, and whatever they replace may or may not be gone already. A ``.cleaned`` file beside
``.swap`` files of the same pass means that not all of them were complete, so those at or above
it go too (KAFKA-6264).
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.kernel.ids import Offset
from tidelog.kernel.ports import Disk
from tidelog.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    SegmentFile,
    parse_segment_file,
    segment_file,
)
from tidelog.storage.scan import scan_headers


def finish_interrupted_work(disk: Disk, directory: str, note: Callable[[str], None]) -> None:
    """Bring a log directory to a state with live files only."""
    names = [name for name in map(parse_segment_file, disk.list_dir(directory)) if name]
    cleaned = [name for name in names if name.extra == CLEANED_SUFFIX]
    oldest_cleaned = min((name.base_offset for name in cleaned), default=None)
    changed = False
    for name in names:
        if _is_worthless(name, oldest_cleaned):
            disk.unlink(_path(directory, name))
            note(f"removed {_path(directory, name)}, left over by an interrupted run")
            changed = True
    swaps = [
        name
        for name in names
        if name.extra == SWAP_SUFFIX and not _is_worthless(name, oldest_cleaned)
    ]
    if swaps:
        _complete_swaps(disk, directory, names, swaps, note)
        changed = True
    if changed:
        disk.sync_dir(directory)


def _is_worthless(name: SegmentFile, oldest_cleaned: Offset | None) -> bool:
    if name.extra in (DELETED_SUFFIX, CLEANED_SUFFIX):
        return True
    return (
        name.extra == SWAP_SUFFIX
        and oldest_cleaned is not None
        and name.base_offset >= oldest_cleaned
    )


def _complete_swaps(
    disk: Disk,
    directory: str,
    names: list[SegmentFile],
    swaps: list[SegmentFile],
    note: Callable[[str], None],
) -> None:
    """Remove what the swapped segments replace, then give them their final names."""
    live = [name for name in names if not name.extra and name.suffix != SNAPSHOT_SUFFIX]
    for swap in [name for name in swaps if name.suffix == LOG_SUFFIX]:
        start, end = swap.base_offset, _next_offset(disk, _path(directory, swap))
        # Without the old log, which leaves before the new one comes, the other files of its name
        # are either new, or have a twin that takes their place (see ``swapping``).
        old_is_there = SegmentFile(start, LOG_SUFFIX, "") in live
        for name in live:
            if start < name.base_offset < end or (name.base_offset == start and old_is_there):
                disk.unlink(_path(directory, name))
    # What the new files replace must be gone for good before they take its place.
    disk.sync_dir(directory)
    for swap in swaps:
        path = _path(directory, swap)
        disk.rename(path, path.removesuffix(SWAP_SUFFIX))
        note(f"completed the swap of {path}")


def _next_offset(disk: Disk, path: str) -> Offset:
    file = disk.open(path, read_only=True)
    try:
        end = Offset(0)
        for _, header in scan_headers(file, 0, file.size()):
            end = header.next_offset
        return end
    finally:
        file.close()


def _path(directory: str, name: SegmentFile) -> str:
    return segment_file(directory, name.base_offset, name.suffix, name.extra)
