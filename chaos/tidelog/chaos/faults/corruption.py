"""Flipping bytes in a file of a stopped node, as a bad disk would.

Only files of topics' partitions and the directory's own checkpoints: the metadata log is what a
voter has promised to others, and no quorum survives a voter that forgets it unnoticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

_METADATA_PARTITION: Final = "__cluster_metadata-0"
_TAIL_BYTES: Final = 512
_PATTERNS: Final = {
    "index": "*/*.index",
    "timeindex": "*/*.timeindex",
    "snapshot": "*/*.snapshot",
    "log-tail": "*/*.log",
    "checkpoint": "**/*checkpoint",
}


def candidates(log_dirs: Sequence[Path], kind: str) -> list[Path]:
    """The files of a kind that have anything to harm, the same order every time."""
    return sorted(
        path
        for log_dir in log_dirs
        for path in log_dir.glob(_PATTERNS[kind])
        if path.parent == log_dir or _holds_records(path.parent)
        if path.is_file() and path.stat().st_size > 0
    )


def _holds_records(partition: Path) -> bool:
    if partition.name == _METADATA_PARTITION or partition.name.endswith("-delete"):
        return False
    return any(log.stat().st_size for log in partition.glob("*.log"))


def corrupt_file(log_dirs: Sequence[Path], kind: str, draw: int, count: int) -> str | None:
    """Change ``count`` bytes of one such file; says which, or None where there is none."""
    found = candidates(log_dirs, kind)
    if not found:
        return None
    random = Random(draw)
    path = random.choice(found)
    data = path.read_bytes()
    used = len(data.rstrip(b"\0")) or len(data)  # indexes are made larger than they are filled
    first = max(0, used - _TAIL_BYTES) if kind == "log-tail" else 0
    places = sorted(random.sample(range(first, used), min(count, used - first)))
    with path.open("r+b") as file:
        for place in places:
            file.seek(place)
            file.write(bytes([data[place] ^ random.randint(1, 255)]))
    return f"{len(places)} bytes of {path.parent.name}/{path.name} from {places[0]} on"
