"""One walk over a ``.log`` file for all commands: each sound batch is handed on, a flaw ends it."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.cli.progress import Advance
from tidelog.kernel.ports import File
from tidelog.storage.scan import Flaw, VerifyProgress, verify_batches
from tidelog.wire.batch import BatchHeader


def walk_batches(
    file: File,
    size: int,
    progress: VerifyProgress,
    take: Callable[[int, BatchHeader], None],
    advance: Advance,
) -> Flaw | None:
    """Call ``take`` with the position and header of each batch whose every byte was checked."""
    for found in verify_batches(file, size, progress):
        if isinstance(found, Flaw):
            advance(size - found.position)
            return found
        for position, header in found:
            take(position, header)
            advance(header.size)
    return None
