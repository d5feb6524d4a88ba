"""What the cleaner of one log may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelog.kernel.settings import Settings

_MOST_MAP_BYTES: Final = 2**31 - 1
_LEAST_CHUNK_BYTES: Final = 4 << 20
"""Columns are made of many batches at once: a smaller chunk costs much time and saves little."""


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    map_bytes: int = 128 << 20
    """Memory of the offset map."""
    load_factor: float = 0.9
    """How much of it may be in use."""
    chunk_bytes: int = _LEAST_CHUNK_BYTES
    """How much of a log is read, decompressed and held at a time."""
    max_bytes_per_second: float = float("inf")
    """Read and written together."""

    @classmethod
    def of(cls, settings: Settings) -> CleanerSettings:
        """The share of one thread of what the node's settings give to all."""
        threads = max(1, settings.get_int("log.cleaner.threads"))
        buffer = settings.get_int("log.cleaner.dedupe.buffer.size") // threads
        chunk = settings.get_int("log.cleaner.io.buffer.size") // threads
        return cls(
            map_bytes=min(buffer, _MOST_MAP_BYTES),
            load_factor=settings.get_double("log.cleaner.io.buffer.load.factor"),
            chunk_bytes=max(chunk, _LEAST_CHUNK_BYTES),
            max_bytes_per_second=settings.get_double("log.cleaner.io.max.bytes.per.second"),
        )
