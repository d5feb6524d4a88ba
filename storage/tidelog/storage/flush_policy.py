"""When a log is due for a flush that nobody waits for. Pure.

With ``flush.policy=fsync`` whatever is appended is due at once: acknowledgements wait for it.
With ``page-cache`` the system writes back when it likes; ``flush.messages`` and ``flush.ms``
bound how much and how long, and a closed segment is flushed in any case, so that the recovery
point follows the log and a restart does not verify all of it.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.kernel.ids import TimestampMs
from tidelog.kernel.settings import TopicConfig


class FlushFacts(Protocol):
    """A log, as far as flushing cares."""

    config: TopicConfig
    last_flush_ms: TimestampMs
    """When the last flush was begun, or the log opened."""

    @property
    def unflushed_records(self) -> int: ...

    @property
    def has_unflushed_segments(self) -> bool: ...


def flush_is_due(log: FlushFacts, now_ms: TimestampMs) -> bool:
    """Asked after appending, and on a tick (``log.flush.scheduler.interval.ms``)."""
    if log.has_unflushed_segments:
        return True
    unflushed = log.unflushed_records
    if unflushed <= 0:
        return False
    if log.config.flush_policy == "fsync":
        return True
    waited_ms = now_ms - log.last_flush_ms
    return unflushed >= log.config.flush_messages or waited_ms >= log.config.flush_ms
