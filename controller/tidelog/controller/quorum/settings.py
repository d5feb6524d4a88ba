"""What a member of the quorum runs with, from the node's settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tidelog.controller.quorum.entry_log import EntryLogSettings
from tidelog.controller.quorum.store import StoreSettings
from tidelog.controller.raft.model import Settings as RaftSettings
from tidelog.kernel.settings import Settings

_HEARTBEATS_PER_TIMEOUT: Final = 4
"""One that is late, or lost with its stream, must not cost the leader its followers; but each one
wakes two nodes up, and an idle node should sleep."""


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    raft: RaftSettings = field(default_factory=RaftSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    bytes_between_snapshots: int = 20 << 20
    snapshot_interval_ms: int = 3600 * 1000
    """0: only after so many bytes."""
    inbox_messages: int = 1024
    inbox_bytes: int = 32 << 20
    outbox_messages: int = 512
    outbox_bytes: int = 32 << 20
    records_per_slice: int = 500
    """How many records are applied before the event loop is let go on."""

    @classmethod
    def of(cls, settings: Settings) -> QuorumSettings:
        election_timeout_ms = float(settings.get_int("controller.quorum.election.timeout.ms"))
        log = EntryLogSettings(
            segment_bytes=settings.get_int("metadata.log.segment.bytes"),
            segment_ms=settings.get_int("metadata.log.segment.ms"),
        )
        return cls(
            raft=RaftSettings(
                # A leader has nothing else to do in between, and others wait for it.
                tick_interval_ms=election_timeout_ms / _HEARTBEATS_PER_TIMEOUT,
                heartbeat_interval_ms=election_timeout_ms / _HEARTBEATS_PER_TIMEOUT,
                election_timeout_ms=election_timeout_ms,
                check_quorum_ms=1.5 * election_timeout_ms,
            ),
            store=StoreSettings(
                log=log,
                retention_bytes=settings.get_int("metadata.max.retention.bytes"),
                retention_ms=settings.get_int("metadata.max.retention.ms"),
            ),
            bytes_between_snapshots=settings.get_int(
                "metadata.log.max.record.bytes.between.snapshots"
            ),
            snapshot_interval_ms=settings.get_int("metadata.log.max.snapshot.interval.ms"),
        )
