"""Snapshots beside the daily work of the quorum: when to take one, and sending pieces of one.

A snapshot is written in steps of the ``Offload`` while the loop goes on, which works because the
state machine hands out records of an immutable image. Pieces for a replica that lags are read the
same way, one after the other: there is at most one under way per replica.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from tidelog.controller.metadata.records import MetadataRecord
from tidelog.controller.quorum.applier import Applier
from tidelog.controller.quorum.interface import StateMachine
from tidelog.controller.quorum.settings import QuorumSettings
from tidelog.controller.quorum.snapshots import read_chunk, write_snapshot
from tidelog.controller.raft.effects import SendSnapshotChunk
from tidelog.controller.raft.messages import Envelope
from tidelog.controller.raft.model import ReplicaKey, SnapshotId, Voters
from tidelog.kernel.ids import Offset
from tidelog.kernel.ports import Clock, Disk, Offload

_log = logging.getLogger(__name__)

_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_RETRY_AFTER_MS: Final = 10_000.0


class SnapshotTaker:
    """Decides when a snapshot is due, and takes it."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        clock: Clock,
        offload: Offload,
        settings: QuorumSettings,
        last_end: Offset,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._clock = clock
        self._offload = offload
        self._settings = settings
        self._last_end = last_end
        self._last_ms = clock.monotonic_ms()
        self._retry_ms: float | None = None
        self._is_busy = False

    def is_due(self, applier: Applier) -> bool:
        if self._is_busy or applier.applied_end <= self._last_end:
            return False
        now_ms = self._clock.monotonic_ms()
        if self._retry_ms is not None:
            is_time = now_ms >= self._retry_ms
            self._retry_ms = None if is_time else self._retry_ms
            return is_time
        if applier.bytes_since_snapshot >= self._settings.bytes_between_snapshots:
            return True
        interval_ms = self._settings.snapshot_interval_ms
        return 0 < interval_ms <= now_ms - self._last_ms

    def begin(
        self, applier: Applier, machine: StateMachine
    ) -> Coroutine[Any, Any, SnapshotId | None]:
        """Settle what the snapshot holds now; the coroutine writes it."""
        snapshot, voters = applier.position, applier.voters
        assert voters is not None, "a log that is not empty names its voters"
        records = machine.snapshot_records()
        applier.bytes_since_snapshot = 0
        self._is_busy = True
        return self._write(snapshot, voters, records)

    async def _write(
        self, snapshot: SnapshotId, voters: Voters, records: Iterable[MetadataRecord]
    ) -> SnapshotId | None:
        """What was taken; None if the disk is full, in which case it is tried again later."""
        now_ms = self._clock.wall_ms()
        try:
            size = await self._offload.run(
                write_snapshot(self._disk, self._directory, snapshot, voters, records, now_ms)
            )
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise
            _log.error("no room for a snapshot of the metadata: %s", error)
            self._retry_ms = self._clock.monotonic_ms() + _RETRY_AFTER_MS
            return None
        finally:
            self._is_busy = False
        self._last_end = max(self._last_end, snapshot.end_offset)
        self._last_ms = self._clock.monotonic_ms()
        _log.info("took a snapshot of the metadata up to %s, %s bytes", snapshot.end_offset, size)
        return snapshot

    def installed(self, end: Offset) -> None:
        """A snapshot came from the leader; the next one of our own is not due for a while."""
        self._last_end, self._last_ms = end, self._clock.monotonic_ms()


class ChunkSender:
    """Reads pieces of snapshots and posts them."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        offload: Offload,
        post: Callable[[Envelope], None],
        on_failed: Callable[[ReplicaKey, SnapshotId], None],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._offload = offload
        self._post = post
        self._on_failed = on_failed
        self._queue: deque[SendSnapshotChunk] = deque()
        self._filled = asyncio.Event()

    def add(self, effect: SendSnapshotChunk) -> None:
        self._queue.append(effect)
        self._filled.set()

    async def run(self) -> None:
        while True:
            while not self._queue:
                self._filled.clear()
                await self._filled.wait()
            await self._send(self._queue.popleft())

    async def _send(self, effect: SendSnapshotChunk) -> None:
        chunk, envelope = effect.chunk, effect.envelope
        where = (self._directory, chunk.snapshot, chunk.position, effect.max_bytes)
        try:
            data, total_bytes = await self._offload.run(read_chunk(self._disk, *where))
        except OSError as error:
            _log.warning("a snapshot that a replica needs cannot be read: %s", error)
            data, total_bytes = b"", 0
        if data:
            self._post(effect.filled(data, total_bytes))
        elif envelope.target_directory is not None:
            target = ReplicaKey(envelope.target_id, envelope.target_directory)
            self._on_failed(target, chunk.snapshot)
