"""One of a node's ``log.dirs``: its lock and identity, its checkpoints and its logs.

A directory is opened once per process. If an fsync in it fails it is *offline* for the life of
the process, because the kernel may since have marked the lost pages clean; the node's other
directories go on serving. A marker file, if it can still be written, or the caller, who may
have been told by the controller, makes the next opening *distrust* the directory: its logs are
cut to their recovery points, and the marker goes when that is durable.

Checkpoint files are written whole, by rename. The leader epochs of a log are made durable
before a recovery point that covers them is written, because recovery rebuilds epochs only from
the recovery point on. A truncation lowers what is on disk before it cuts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from tidelog.kernel.ids import (
    BrokerEpoch,
    DirectoryId,
    NodeId,
    Offset,
    TimestampMs,
    TopicId,
    TopicPartition,
    Uuid,
)
from tidelog.kernel.ports import Disk, Offload, Random, Steps
from tidelog.kernel.settings import TopicConfig
from tidelog.storage.atomic import make_dirs_durably, write_atomically
from tidelog.storage.checkpoints import CorruptCheckpoint
from tidelog.storage.cleaner.clean_points import CleanPoints
from tidelog.storage.log import Log, LogFailed
from tidelog.storage.names import (
    CLEAN_SHUTDOWN,
    FAILED_MARKER,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    METADATA_TOPIC,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    SUSPECTS_CHECKPOINT,
    DirKind,
    delete_dir_name,
    parse_partition_dir,
    partition_dir_name,
    stray_dir_name,
)
from tidelog.storage.node_files import (
    FIRST_FREE_DIRECTORY_ID,
    NO_DIRECTORY_ID,
    CleanShutdown,
    InconsistentClusterId,
    InconsistentNodeId,
    MetaProperties,
    PartitionMetadata,
    read_clean_shutdown,
    read_meta_properties,
    read_partition_metadata,
    write_clean_shutdown,
    write_meta_properties,
    write_partition_metadata,
)
from tidelog.storage.offset_table import OffsetTable
from tidelog.storage.opening import Opening, Report, Verdict
from tidelog.storage.recovery import open_log
from tidelog.storage.retention import RetentionPlan


class LogDirLocked(Exception):
    """Another process uses the directory."""


class LogDirFailed(Exception):
    """The directory is offline: its disk failed."""


class TopicIdMismatch(Exception):
    """The directory on disk belongs to another topic of the same name."""


@dataclass(frozen=True, slots=True)
class OpenProgress:
    """How far start-up has come, for the node's log."""

    done: int
    total: int
    last: Report


class LogDirectory:
    """See the module. Made by ``open_directory``."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        random: Random,
        lock: AbstractContextManager[None],
        meta: MetaProperties,
        clean_shutdown: CleanShutdown | None,
        *,
        is_distrusted: bool = False,
    ) -> None:
        self._disk = disk
        self._random = random
        self._lock = lock
        self.path = path
        self.meta = meta
        self.clean_shutdown = clean_shutdown
        self.is_distrusted = is_distrusted
        self.failure: str | None = None
        self.logs: dict[TopicPartition, Log] = {}
        self.repairs: list[str] = []
        self._moved_away: set[TopicPartition] = set()
        self._recovery_points = self._table(RECOVERY_POINT_CHECKPOINT)
        self._log_starts = self._table(LOG_START_CHECKPOINT)
        self._high_watermarks = self._table(HIGH_WATERMARK_CHECKPOINT)
        self._suspects = OffsetTable(disk, f"{path}/{SUSPECTS_CHECKPOINT}")
        self._is_all_suspect = not self._load_suspects()
        self.clean_points = CleanPoints(disk, path)
        if self.clean_points.flaw is not None:
            self.repairs.append(self.clean_points.flaw)
        self._tables = (
            self._recovery_points,
            self._log_starts,
            self._high_watermarks,
            self.clean_points.table,
        )

    @property
    def directory_id(self) -> DirectoryId:
        return DirectoryId(self.meta.directory_id)

    def _table(self, name: str) -> OffsetTable:
        """A checkpoint that cannot be read costs work, not data: everything is verified."""
        table = OffsetTable(self._disk, f"{self.path}/{name}")
        try:
            table.load()
        except CorruptCheckpoint as error:
            self.repairs.append(f"{error}; starting from the logs themselves")
            self.clean_shutdown = None
        return table

    def _load_suspects(self) -> bool:
        """False if it is no longer known which logs are suspect: any may be."""
        try:
            self._suspects.load()
        except CorruptCheckpoint as error:
            self.repairs.append(f"{error}; every log here is suspect")
            return False
        return True

    # --- partitions on disk ------------------------------------------------------------

    def partitions(self) -> list[TopicPartition]:
        """What lies here, is live and is a broker's, sorted."""
        found = map(parse_partition_dir, self._disk.list_dir(self.path))
        live = (entry.tp for entry in found if entry and entry.kind is DirKind.LIVE)
        return sorted(tp for tp in live if tp.topic != METADATA_TOPIC)

    def partition_path(self, tp: TopicPartition) -> str:
        return f"{self.path}/{partition_dir_name(tp)}"

    def topic_id(self, tp: TopicPartition) -> TopicId | None:
        """The topic a partition directory was made for; None if it does not say."""
        path = f"{self.partition_path(tp)}/{PARTITION_METADATA}"
        if self._disk.stat(path) is None:
            return None
        return read_partition_metadata(self._disk, path).topic_id

    def remove_leftovers(self) -> list[str]:
        """Finish the removal of partitions whose topics are gone; what was removed."""
        removed = []
        for name in self._disk.list_dir(self.path):
            entry = parse_partition_dir(name)
            if entry is not None and entry.kind is DirKind.DELETE:
                self._disk.remove_tree(f"{self.path}/{name}")
                removed.append(name)
        return removed

    # --- opening logs ------------------------------------------------------------------

    def opening(self, tp: TopicPartition, config: TopicConfig, now_ms: TimestampMs) -> Opening:
        return Opening(
            self._disk,
            self.partition_path(tp),
            tp,
            config,
            self._random,
            now_ms,
            was_clean=self.clean_shutdown is not None,
            recovery_point=self._recovery_points.get(tp),
            log_start=self._log_starts.get(tp),
            high_watermark=self._high_watermarks.get(tp),
            is_distrusted=self.is_distrusted,
        )

    async def open_logs(
        self,
        offload: Offload,
        configs: Callable[[TopicPartition], TopicConfig],
        *,
        now_ms: TimestampMs,
        concurrency: int,
        on_progress: Callable[[OpenProgress], None] = lambda progress: None,
    ) -> list[Report]:
        """Open everything that lies here, several logs at a time.

        ``LogDirFailed`` if the disk does not let itself be read or written.
        """
        partitions = self.partitions()
        reports: list[Report] = []
        gate = asyncio.Semaphore(concurrency)

        async def open_one(tp: TopicPartition) -> None:
            async with gate:
                report = await self._open(offload, tp, configs(tp), now_ms)
            reports.append(report)
            on_progress(OpenProgress(len(reports), len(partitions), report))

        try:
            async with asyncio.TaskGroup() as group:
                for tp in partitions:
                    group.create_task(open_one(tp))
            if self.is_distrusted:
                await self._regain_trust(offload)
        except* (OSError, LogFailed) as errors:
            self.fail(f"opening its logs failed: {_first_error(errors)}")
        if self.failure is not None:
            raise LogDirFailed(f"{self.path}: {self.failure}")
        return sorted(reports, key=lambda report: report.tp)

    async def _open(
        self, offload: Offload, tp: TopicPartition, config: TopicConfig, now_ms: TimestampMs
    ) -> Report:
        log, report = await offload.run(open_log(self.opening(tp, config, now_ms)))
        self._keep_suspicion(report)
        log.on_truncating = self._lower_checkpoints
        log.on_removing = lambda tp, start: self._log_starts.raise_to({tp: start})
        log.on_swapping = self._raise_recovery_point
        self.logs[tp] = log
        self._moved_away.discard(tp)
        return report

    def _keep_suspicion(self, report: Report) -> None:
        """What was cut does not show any more. Until the cluster has heard of it, the next start
        has to know, however this one ends."""
        is_remembered = self._is_all_suspect or report.tp in self._suspects.offsets
        if is_remembered and report.verdict is not Verdict.SUSPECT:
            report.suspect("found suspect by an earlier start, of which the cluster may not know")
        if report.verdict is Verdict.SUSPECT:
            self._suspects.write({**self._suspects.offsets, report.tp: report.end_offset})

    def forget_suspects(self) -> Steps[None]:
        """The cluster knows which logs were found suspect."""
        if self._suspects.offsets or self._is_all_suspect:
            self._suspects.withdraw({})
            self._is_all_suspect = False
        yield

    def _lower_checkpoints(self, tp: TopicPartition, end: Offset) -> None:
        self.clean_points.lower(tp, end)
        for table in (self._recovery_points, self._log_starts, self._high_watermarks):
            table.lower(tp, end)

    def _raise_recovery_point(self, tp: TopicPartition, end: Offset) -> None:
        # At a segment's base, recovery would begin with the segment before it.
        if self._recovery_points.get(tp) <= end:
            self.write_recovery_points()

    async def _regain_trust(self, offload: Offload) -> None:
        """Every log was cut to its recovery point; once that is durable the past is over."""
        for log in self.logs.values():
            flush = log.begin_flush()
            if flush is not None:
                await offload.run(flush.steps(self._disk))
                log.complete_flush(flush)
        self.write_recovery_points()
        self.write_high_watermarks()
        self._disk.unlink(f"{self.path}/{FAILED_MARKER}")
        self._disk.sync_dir(self.path)
        self.is_distrusted = False

    async def create_log(
        self,
        offload: Offload,
        tp: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        *,
        now_ms: TimestampMs,
    ) -> Log:
        """A new, empty log, or the one that is here if it is of the same topic."""
        existing = self.topic_id(tp)
        if existing is not None and existing != topic_id:
            raise TopicIdMismatch(
                f"{self.partition_path(tp)} belongs to topic {existing}, not to {topic_id}"
            )
        if self._disk.stat(self.partition_path(tp)) is None:
            # Checkpoints may still speak of an older partition of this name.
            for table in self._tables:
                table.forget(tp)
        await self._open(offload, tp, config, now_ms)
        if existing is None:
            path = f"{self.partition_path(tp)}/{PARTITION_METADATA}"
            write_partition_metadata(self._disk, path, PartitionMetadata(topic_id))
            self._disk.sync_dir(self.path)
        return self.logs[tp]

    # --- leaving -----------------------------------------------------------------------

    def delete_log(self, tp: TopicPartition) -> str:
        """Take a partition out; its new path, to be removed after the delay."""
        unique = self._random.randbytes(16).hex()
        return self._move_away(tp, delete_dir_name(tp, unique))

    def set_stray(self, tp: TopicPartition) -> str:
        """Keep a partition that the cluster does not place here, out of the way."""
        unique = self._random.randbytes(16).hex()
        return self._move_away(tp, stray_dir_name(tp, unique))

    def _move_away(self, tp: TopicPartition, name: str) -> str:
        log = self.logs.pop(tp, None)
        if log is not None:
            log.close_files()
        target = f"{self.path}/{name}"
        self._disk.rename(self.partition_path(tp), target)
        self._disk.sync_dir(self.path)
        self._moved_away.add(tp)
        return target

    # --- checkpoints -------------------------------------------------------------------

    def write_recovery_points(self) -> None:
        for log in self._sound_logs():
            log.write_epochs()
        self._write(self._recovery_points, lambda log: log.recovery_point)

    def write_log_starts(self) -> None:
        """Only starts that the first segment's name does not say already, for good."""

        def start(log: Log) -> Offset | None:
            is_named = log.log_start <= log.segments[0].base_offset
            return None if is_named and not log.has_unsynced_names else log.log_start

        self._write(self._log_starts, start)

    def write_high_watermarks(self) -> None:
        self._write(self._high_watermarks, lambda log: log.high_watermark)

    def _write(self, table: OffsetTable, value: Callable[[Log], Offset | None]) -> None:
        """What a failed log last said stays; what a failed directory says has no meaning."""
        if self.failure is not None:
            return
        offsets = {tp: offset for tp, offset in table.offsets.items() if tp not in self._moved_away}
        for log in self._sound_logs():
            offset = value(log)
            if offset is None:
                offsets.pop(log.tp, None)
            else:
                offsets[log.tp] = offset
        table.write(offsets)

    def _sound_logs(self) -> Iterable[Log]:
        return [log for log in self.logs.values() if log.failure is None]

    # --- retention ---------------------------------------------------------------------

    def apply_retention(self, now_ms: TimestampMs) -> dict[TopicPartition, list[RetentionPlan]]:
        """Take out of every log what its policy lets go; what was done, for the node's log.

        The new starts are written down together, before the first segment goes.
        """
        starts = {
            log.tp: start
            for log in self._sound_logs()
            if (start := log.start_after_retention(now_ms)) is not None
        }
        self._log_starts.raise_to(starts)
        return {tp: self.logs[tp].apply_retention(now_ms) for tp in starts}

    # --- failing and closing -----------------------------------------------------------

    def fail(self, reason: str, *, is_hung: bool = False) -> None:
        """Go offline for the life of the process, with every log in here.

        A disk that hangs is not touched again: whoever does would hang too.
        """
        if self.failure is not None:
            return
        self.failure = reason
        for log in self.logs.values():
            log.fail(reason)
        if not is_hung:
            self._mark_failed(reason)
            self._save_flushed_ends()

    def _mark_failed(self, reason: str) -> None:
        """The disk is broken: this is worth a try, not more.

        Where syncing fails, the marker is left unsynced. Whoever starts before the system does
        sees it, and only then can pages that were lost pass for what is on disk.
        """
        marker = f"{self.path}/{FAILED_MARKER}"
        with suppress(OSError):
            try:
                write_atomically(self._disk, marker, reason.encode())
            except OSError:
                self._disk.open(marker, create=True).close()

    def _save_flushed_ends(self) -> None:
        """Vouch for what was flushed before the failure, as far as the disk lets us.

        Others may have been told that it is durable, and the next start cuts what no recovery
        point covers.
        """
        flushed = {}
        for log in self.logs.values():
            with suppress(OSError):
                log.write_epochs()
                flushed[log.tp] = log.recovery_point
        self._recovery_points.raise_to(flushed)

    def limit_writes(self, min_free_bytes: int) -> bool:
        """Refuse produce while the file system is nearly full; True if it is.

        Retention and reads go on, and what they free lets produce go on by itself.
        """
        is_low = self._disk.free_bytes(self.path) < min_free_bytes
        for log in self.logs.values():
            log.is_short_of_space = is_low
        return is_low

    def close_cleanly(self, broker_epoch: BrokerEpoch) -> bool:
        """Close every log, then say so; False if one could not be, or had failed.

        No flush may be under way: the flusher is closed first.
        """
        try:
            is_clean = self.failure is None and self._close_logs()
            if is_clean:
                path = f"{self.path}/{CLEAN_SHUTDOWN}"
                write_clean_shutdown(self._disk, path, CleanShutdown(broker_epoch))
            return is_clean
        except OSError:  # a full disk, say: nothing is lost, but nothing is promised either
            return False
        finally:
            self.abandon()

    def _close_logs(self) -> bool:
        for log in self._sound_logs():
            try:
                log.close()
            except OSError as error:
                log.fail(f"closing failed: {error}")
        self.write_log_starts()
        self.write_high_watermarks()
        self.write_recovery_points()
        return all(log.failure is None for log in self.logs.values())

    def abandon(self) -> None:
        """Let go of the lock and the descriptors without promising anything."""
        for log in self.logs.values():
            log.close_files()
        self.logs.clear()
        self._lock.__exit__(None, None, None)


def _first_error(errors: BaseExceptionGroup[OSError | LogFailed]) -> BaseException:
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def open_directory(
    disk: Disk,
    path: str,
    random: Random,
    *,
    cluster_id: str,
    node_id: NodeId,
    was_failed: bool = False,
) -> LogDirectory:
    """Take the lock, check (or give) the identity, and read the checkpoints.

    The clean-shutdown marker is removed at once: from here on only another clean shutdown
    vouches for the logs. ``was_failed`` says that the cluster knows the directory as failed.
    """
    make_dirs_durably(disk, path)
    lock = disk.lock(f"{path}/{LOCK}")
    try:
        lock.__enter__()
    except BlockingIOError as error:
        raise LogDirLocked(f"{path} is in use by another process") from error
    try:
        meta = _identity(disk, path, random, cluster_id, node_id)
        is_distrusted = _is_distrusted(disk, path, was_failed)
        marker = f"{path}/{CLEAN_SHUTDOWN}"
        clean = read_clean_shutdown(disk, marker)
        if clean is not None:
            disk.unlink(marker)
            disk.sync_dir(path)
        return LogDirectory(disk, path, random, lock, meta, clean, is_distrusted=is_distrusted)
    except BaseException:
        lock.__exit__(None, None, None)
        raise


def _is_distrusted(disk: Disk, path: str, was_failed: bool) -> bool:
    marker = f"{path}/{FAILED_MARKER}"
    if disk.stat(marker) is not None:
        return True
    if was_failed:
        # Not to be forgotten if this start does not come to its end either.
        write_atomically(disk, marker, b"reported as failed")
    return was_failed


def _identity(
    disk: Disk, path: str, random: Random, cluster_id: str, node_id: NodeId
) -> MetaProperties:
    file = f"{path}/{META_PROPERTIES}"
    meta = MetaProperties(cluster_id, node_id)
    if disk.stat(file) is not None:
        meta = read_meta_properties(disk, file)
    if meta.cluster_id != cluster_id:
        raise InconsistentClusterId(
            f"{path} belongs to cluster {meta.cluster_id}, this node to {cluster_id}"
        )
    if meta.node_id != node_id:
        raise InconsistentNodeId(f"{path} belongs to node {meta.node_id}, this is {node_id}")
    if meta.directory_id == NO_DIRECTORY_ID:
        meta = MetaProperties(cluster_id, node_id, _new_directory_id(random))
        write_meta_properties(disk, file, meta)
    return meta


def _new_directory_id(random: Random) -> DirectoryId:
    while True:
        raw = random.randbytes(16)
        if int.from_bytes(raw, "big") >= FIRST_FREE_DIRECTORY_ID:
            return DirectoryId(Uuid(raw))
