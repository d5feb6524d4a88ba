"""The logs of a node on its disks: opened, made, flushed, deleted, set aside.

It knows nothing of roles. Its owner, ``ReplicaSet``, says what metadata wants, and is told when a
log was flushed and when a directory failed.

A log is moved away only when no flush and no cleaning of it is under way: either would find its
directory gone and take that for a broken disk. A partition that is deleted and created again under
its old name waits for that.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.ids import DirectoryId, TimestampMs, TopicId, TopicPartition
from tidelog.kernel.meters import Spread
from tidelog.kernel.ports import Clock, Disk, Offload
from tidelog.kernel.settings import TopicConfig
from tidelog.replication.placement import DirectoryLoad, place
from tidelog.storage.flusher import Flusher
from tidelog.storage.log import Log
from tidelog.storage.log_dir import LogDirectory, LogDirFailed, OpenProgress, TopicIdMismatch
from tidelog.storage.node_files import CorruptNodeFile
from tidelog.storage.opening import Report

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """What opening a log found, for the registration of this broker."""

    directory: DirectoryId
    topic_id: TopicId | None
    report: Report


@dataclass(frozen=True, slots=True)
class KeptLog:
    """A log and where it is."""

    directory: LogDirectory
    log: Log


@dataclass(frozen=True, slots=True)
class FoundLog:
    """A log that lies on disk and that no metadata has claimed yet."""

    directory: LogDirectory
    topic_id: TopicId | None


class _LogFlusher(Flusher):
    async def finish(self, log: Log) -> None:
        """Flush this log no more, and wait for the flush of it that is under way."""
        self.forget(log)
        task = self._running.get(log)
        if task is not None:
            await asyncio.wait([task])

    def is_flushing(self, log: Log) -> bool:
        return log in self._running


class LogKeeper:
    """See the module."""

    def __init__(
        self,
        disk: Disk,
        offload: Offload,
        clock: Clock,
        directories: Sequence[LogDirectory],
        *,
        stall_timeout_ms: int,
        on_flushed: Callable[[Log], None],
        on_failed: Callable[[DirectoryId, str], None],
    ) -> None:
        self.directories = {directory.directory_id: directory for directory in directories}
        self.found: dict[TopicPartition, FoundLog] = {}
        self.doomed: list[tuple[TimestampMs, str]] = []
        """Paths of deleted logs, and when they go."""
        self.passes: dict[Log, asyncio.Task[None]] = {}
        """Logs that are being cleaned; who deletes one has aborted its pass, which ends soon."""
        self._disk = disk
        self._offload = offload
        self._clock = clock
        self._stall_timeout_ms = stall_timeout_ms
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self.flush_durations_ms = Spread()
        self._flushers = {key: self._flusher(key) for key in self.directories}
        self._leaving: dict[TopicPartition, asyncio.Task[None]] = {}
        self._coming: Counter[DirectoryId] = Counter()
        self._making: WeakValueDictionary[TopicPartition, asyncio.Lock] = WeakValueDictionary()

    def _flusher(self, key: DirectoryId) -> _LogFlusher:
        return _LogFlusher(
            self._disk,
            self._offload,
            on_flushed=lambda log, end: self._on_flushed(log),
            on_failed=lambda log, reason: self.fail(key, reason),
            on_stalled=lambda log: self.fail(key, f"a flush of {log.tp} hangs", is_hung=True),
            stall_timeout_ms=self._stall_timeout_ms,
            clock=self._clock,
            durations_ms=self.flush_durations_ms,
        )

    def request_flush(self, kept: KeptLog) -> None:
        self._flushers[kept.directory.directory_id].request(kept.log)

    def fail(self, key: DirectoryId, reason: str, *, is_hung: bool = False) -> None:
        """Take a directory offline for the life of this process; said once (hazard 44)."""
        directory = self.directories[key]
        if directory.failure is None:
            _log.error("log directory %s failed: %s", directory.path, reason)
            directory.fail(reason, is_hung=is_hung)
            self._on_failed(key, reason)

    async def close(self) -> None:
        """Let what is under way finish; the logs stay open."""
        for task in list(self._leaving.values()):
            await asyncio.wait([task])
        for flusher in self._flushers.values():
            await flusher.close()

    # --- coming ------------------------------------------------------------------------

    async def open_logs(
        self,
        config_of: Callable[[str], TopicConfig],
        *,
        concurrency: int,
        on_progress: Callable[[OpenProgress], None],
    ) -> list[RecoveredLog]:
        """Recover everything that lies in the directories."""
        recovered: list[RecoveredLog] = []
        for key, directory in self.directories.items():
            try:
                directory.remove_leftovers()
                reports = await directory.open_logs(
                    self._offload,
                    lambda tp: config_of(tp.topic),
                    now_ms=self._clock.wall_ms(),
                    concurrency=concurrency,
                    on_progress=on_progress,
                )
                for report in reports:
                    topic_id = directory.topic_id(report.tp)
                    self.found[report.tp] = FoundLog(directory, topic_id)
                    recovered.append(RecoveredLog(key, topic_id, report))
                    await self._refill(directory.logs[report.tp])
            except (LogDirFailed, CorruptNodeFile, OSError) as error:
                self.fail(key, str(error))
        return recovered

    async def _refill(self, log: Log) -> None:
        """Whoever leads this log next must know the last batches of each producer."""
        if len(log.producers.states) > 0:
            await self._offload.run(log.refill_producer_windows())

    def claim(self, tp: TopicPartition, topic_id: TopicId) -> KeptLog | None:
        """The log of this partition that was found on disk; one of another topic is set aside."""
        found = self.found.get(tp)
        if found is None:
            return None
        if found.topic_id != topic_id:
            self.set_aside(tp)
            return None
        del self.found[tp]
        return KeptLog(found.directory, found.directory.logs[tp])

    async def create(
        self, ref: PartitionRef, tp: TopicPartition, assigned: DirectoryId, config: TopicConfig
    ) -> KeptLog | None:
        """A new log; None if no directory works."""
        # A topic that was deleted and made again while its first log was still being made.
        async with self._making.setdefault(tp, asyncio.Lock()):
            leaving = self._leaving.get(tp)
            if leaving is not None:
                await asyncio.wait([leaving])
            key = place(assigned, self._loads())
            if key is None:
                return None
            directory = self.directories[key]
            self._coming[key] += 1
            try:
                return KeptLog(directory, await self._make(directory, ref, tp, config))
            except (CorruptNodeFile, OSError) as error:
                self.fail(key, f"creating {tp} failed: {error}")
                return None
            finally:
                self._coming[key] -= 1

    async def _make(
        self, directory: LogDirectory, ref: PartitionRef, tp: TopicPartition, config: TopicConfig
    ) -> Log:
        now_ms = self._clock.wall_ms()
        try:
            return await directory.create_log(
                self._offload, tp, ref.topic_id, config, now_ms=now_ms
            )
        except TopicIdMismatch as error:
            _log.warning("%s; kept as %s", error, directory.set_stray(tp))
        return await directory.create_log(self._offload, tp, ref.topic_id, config, now_ms=now_ms)

    def _loads(self) -> list[DirectoryLoad]:
        return [
            DirectoryLoad(key, len(directory.logs) + self._coming[key])
            for key, directory in self.directories.items()
            if directory.failure is None
        ]

    # --- going -------------------------------------------------------------------------

    def delete(self, kept: KeptLog, delay_ms: int) -> None:
        """A committed record says that this log is not wanted any more."""
        tp = kept.log.tp
        flusher = self._flushers[kept.directory.directory_id]
        flusher.forget(kept.log)
        if not flusher.is_flushing(kept.log) and kept.log not in self.passes:
            self._move_away(kept.directory, tp, delay_ms)
            return
        task = asyncio.get_running_loop().create_task(
            self._delete_later(flusher, kept, delay_ms), name=f"delete {tp}"
        )
        self._leaving[tp] = task

    async def _delete_later(self, flusher: _LogFlusher, kept: KeptLog, delay_ms: int) -> None:
        try:
            await flusher.finish(kept.log)
            cleaning = self.passes.get(kept.log)
            if cleaning is not None:
                await asyncio.wait([cleaning])
            self._move_away(kept.directory, kept.log.tp, delay_ms)
        finally:
            del self._leaving[kept.log.tp]

    def _move_away(self, directory: LogDirectory, tp: TopicPartition, delay_ms: int) -> None:
        if directory.failure is not None:
            return
        try:
            path = directory.delete_log(tp)
        except OSError as error:
            self.fail(directory.directory_id, f"deleting {tp} failed: {error}")
            return
        self.doomed.append((TimestampMs(self._clock.wall_ms() + delay_ms), path))
        _log.info("%s was deleted; its files go in %d ms", tp, delay_ms)

    def delete_found(self, tp: TopicPartition, delay_ms: int) -> None:
        """A committed assignment gives this partition, which lies here, to others."""
        found = self.found.pop(tp)
        self._move_away(found.directory, tp, delay_ms)

    def set_aside(self, tp: TopicPartition) -> None:
        """Keep a log that metadata does not explain, out of the way (hazard 15)."""
        found = self.found.pop(tp)
        if found.directory.failure is not None:
            return
        try:
            path = found.directory.set_stray(tp)
        except OSError as error:
            self.fail(found.directory.directory_id, f"moving {tp} failed: {error}")
            return
        _log.warning("%s of topic id %s is unknown; kept as %s", tp, found.topic_id, path)
