"""What a node's replicas need done from time to time: one task, a table of jobs and intervals.

Jobs that look at every partition let other events pass now and then, since nothing may hold the
loop for long. A job that meets a broken disk takes that directory offline and goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tidelog.kernel.ports import Steps
from tidelog.replication.partition import Partition
from tidelog.replication.replicas import ReplicaSet
from tidelog.replication.settings import ISR_CHECK_INTERVAL_MS
from tidelog.storage.atomic import DISK_FULL
from tidelog.storage.checkpoints import write_epoch_checkpoint
from tidelog.storage.epoch_cache import EpochEntry
from tidelog.storage.log import Log, LogFailed
from tidelog.storage.log_dir import LogDirectory
from tidelog.storage.names import LEADER_EPOCH_CHECKPOINT

_log = logging.getLogger(__name__)

_FLUSH_CHECK_INTERVAL_MS: Final = 1_000
_FREE_SPACE_INTERVAL_MS: Final = 10_000
_UNLINK_INTERVAL_MS: Final = 5_000
_PRODUCER_EXPIRY_INTERVAL_MS: Final = 600_000
_PARTITIONS_PER_TURN: Final = 64


@dataclass(slots=True)
class _Job:
    interval_ms: float
    run: Callable[[float], Awaitable[None]]
    """Called with the moment at which it was due."""
    due_ms: float


class Housekeeping:
    """`run` until cancelled; every job can also be called by itself."""

    def __init__(self, replicas: ReplicaSet) -> None:
        self._replicas = replicas
        self._keeper = replicas.keeper
        self._clock = replicas.clock
        self._disk = replicas.ports.disk
        self._offload = replicas.ports.offload

    async def run(self) -> None:
        jobs = self._jobs(self._clock.monotonic_ms())
        while True:
            job = min(jobs, key=lambda job: job.due_ms)
            pause_ms = job.due_ms - self._clock.monotonic_ms()
            if pause_ms > 0:
                await asyncio.sleep(pause_ms / 1000)
            await job.run(job.due_ms)
            # Intervals count from the end: a job that takes long does not pile up.
            job.due_ms = max(job.due_ms, self._clock.monotonic_ms()) + job.interval_ms

    def _jobs(self, now_ms: float) -> list[_Job]:
        settings = self._replicas.settings
        table: list[tuple[float, Callable[[float], Awaitable[None]]]] = [
            (ISR_CHECK_INTERVAL_MS, self._check_isr),
            (_FLUSH_CHECK_INTERVAL_MS, self._flush_due),
            (settings.high_watermark_checkpoint_interval_ms, self._high_watermarks),
            (settings.recovery_point_checkpoint_interval_ms, self._recovery_points),
            (settings.log_start_checkpoint_interval_ms, self._log_starts),
            (settings.retention_check_interval_ms, self._retention),
            (_UNLINK_INTERVAL_MS, self._unlink),
            (_FREE_SPACE_INTERVAL_MS, self._free_space),
            (_PRODUCER_EXPIRY_INTERVAL_MS, self._expire),
        ]
        return [_Job(interval_ms, job, now_ms + interval_ms) for interval_ms, job in table]

    # --- replication -------------------------------------------------------------------

    async def _check_isr(self, due_ms: float) -> None:
        self._replicas.check_isr(due_ms)

    async def _flush_due(self, due_ms: float) -> None:
        for partition in self._replicas.partitions.values():
            if partition.log.config.flush_policy != "fsync":
                partition.flush_if_due()

    # --- checkpoints -------------------------------------------------------------------

    async def _high_watermarks(self, due_ms: float) -> None:
        self.write_high_watermarks()

    async def _recovery_points(self, due_ms: float) -> None:
        await self.write_recovery_points()

    async def _log_starts(self, due_ms: float) -> None:
        self.write_log_starts()

    def write_high_watermarks(self) -> None:
        for directory in self._sound_directories():
            self._guarded(directory, directory.write_high_watermarks)

    def write_log_starts(self) -> None:
        for directory in self._sound_directories():
            self._guarded(directory, directory.write_log_starts)

    async def write_recovery_points(self) -> None:
        """Epochs first, beside the loop: after a failover nearly every log has a new one."""
        for directory in self._sound_directories():
            for log in list(directory.logs.values()):
                if log.epochs_are_dirty and log.failure is None:
                    await self._write_epochs(directory, log)
            self._guarded(directory, directory.write_recovery_points)

    async def _write_epochs(self, directory: LogDirectory, log: Log) -> None:
        entries = log.epochs.entries
        path = f"{log.directory}/{LEADER_EPOCH_CHECKPOINT}"
        try:
            await self._offload.run(self._writing(path, entries))
        except OSError as error:
            if directory.logs.get(log.tp) is log:  # else it was deleted meanwhile
                self._not_written(directory, path, error)
            return
        if log.epochs.entries == entries:
            log.epochs_are_dirty = False

    def _writing(self, path: str, entries: tuple[EpochEntry, ...]) -> Steps[None]:
        yield
        write_epoch_checkpoint(self._disk, path, entries)

    def _sound_directories(self) -> Iterator[LogDirectory]:
        for directory in self._keeper.directories.values():
            if directory.failure is None:
                yield directory

    def _guarded(self, directory: LogDirectory, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            self._not_written(directory, "a checkpoint", error)

    def _not_written(self, directory: LogDirectory, what: str, error: OSError) -> None:
        """A full disk keeps the old checkpoint, which only costs time in the next recovery."""
        if error.errno in DISK_FULL:
            _log.warning("%s: %s could not be written: %s", directory.path, what, error)
        else:
            self._keeper.fail(directory.directory_id, f"writing {what} failed: {error}")

    # --- logs --------------------------------------------------------------------------

    async def _retention(self, due_ms: float) -> None:
        await self.apply_retention()

    async def apply_retention(self) -> None:
        """Let go of old segments, on leaders and followers alike."""
        for count, partition in enumerate(list(self._replicas.partitions.values())):
            if partition.failure is None:
                self.retain(partition)
            if count % _PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)

    def retain(self, partition: Partition) -> None:
        log = partition.log
        before = log.log_start
        try:
            for plan in log.apply_retention(self._clock.wall_ms()):
                _log.info("%s: %d segments went by %s", partition, plan.count, plan.reason)
        except (LogFailed, OSError) as error:
            self._replicas.log_failed(log, str(error))
            return
        if log.log_start > before:
            partition.log_start_moved()

    async def _unlink(self, due_ms: float) -> None:
        await self.unlink_due()

    async def unlink_due(self) -> None:
        """Remove files and whole logs whose delay is over."""
        now_ms = self._clock.wall_ms()
        for partition in list(self._replicas.partitions.values()):
            if partition.failure is not None:
                continue
            if paths := partition.log.removal.take_due(now_ms):
                try:
                    await self._offload.run(self._unlinking(paths))
                except OSError as error:
                    self._replicas.log_failed(partition.log, str(error))
        due = [item for item in self._keeper.doomed if item[0] <= now_ms]
        self._keeper.doomed = [item for item in self._keeper.doomed if item[0] > now_ms]
        for _, path in due:
            try:
                await self._offload.run(self._removing(path))
            except OSError as error:
                # Tried again at the next start, which removes such leftovers.
                _log.warning("%s could not be removed: %s", path, error)

    def _unlinking(self, paths: Sequence[str]) -> Steps[None]:
        """Beside the loop: a gigabyte whose pages are cached takes a fifth of a second."""
        for path in paths:
            yield
            self._disk.unlink(path)

    def _removing(self, path: str) -> Steps[None]:
        yield
        self._disk.remove_tree(path)

    async def _free_space(self, due_ms: float) -> None:
        for directory in self._sound_directories():
            self._guarded(directory, partial(self._limit, directory))

    def _limit(self, directory: LogDirectory) -> None:
        was_low = any(log.is_short_of_space for log in directory.logs.values())
        is_low = directory.limit_writes(self._replicas.settings.min_free_bytes)
        if is_low and not was_low:
            _log.error("%s is nearly full: produce is refused until there is room", directory.path)

    async def _expire(self, due_ms: float) -> None:
        expiration_ms = self._replicas.settings.producer_expiration_ms
        for count, partition in enumerate(list(self._replicas.partitions.values())):
            partition.log.expire_producers(self._clock.wall_ms(), expiration_ms)
            if count % _PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
