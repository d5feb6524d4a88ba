"""The directory of the metadata log: the entries, the vote, the snapshots, as one thing.

The machine's disk writes are carried out here in the order of their numbers. ``perform`` takes all
that are waiting and syncs once, so a commit costs about one fsync however many entries it covers.

Owner: the quorum's writer, one call at a time, in steps of its ``Offload``. Invariants: a log that
is not empty has a ``quorum-state`` beside it; a snapshot has its name before the log gives way to
it; nothing that could be taken for an older or emptier state is ever opened silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from tidelog.controller.quorum import snapshots
from tidelog.controller.quorum.entry_log import (
    METADATA_PARTITION,
    EntryLog,
    EntryLogSettings,
)
from tidelog.controller.quorum.quorum_state import write_quorum_state
from tidelog.controller.quorum.snapshots import LoadedSnapshot, SnapshotFile, snapshot_path
from tidelog.controller.raft.effects import (
    AppendEntries,
    DiskWrite,
    InstallSnapshot,
    MoveLogStart,
    PersistState,
    WriteSnapshotChunk,
)
from tidelog.kernel.ids import TimestampMs
from tidelog.kernel.ports import Clock, Disk, Steps
from tidelog.storage.names import partition_dir_name

StoreWork: TypeAlias = DiskWrite | MoveLogStart


@dataclass(frozen=True, slots=True)
class StoreSettings:
    log: EntryLogSettings = field(default_factory=EntryLogSettings)
    retention_bytes: int = 100 << 20
    retention_ms: int = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Performed:
    """Everything up to and including this write is on stable storage; None if none was made."""

    write: int | None
    installed: LoadedSnapshot | None
    """The newest snapshot that took the place of the log."""


def log_directory(metadata_dir: str) -> str:
    return f"{metadata_dir}/{partition_dir_name(METADATA_PARTITION)}"


class MetadataStore:
    """See the module. Made by ``tidelog.controller.quorum.startup.open_store``."""

    def __init__(
        self, disk: Disk, directory: str, settings: StoreSettings, clock: Clock, log: EntryLog
    ) -> None:
        self._disk = disk
        self._settings = settings
        self._clock = clock
        self._log = log
        self._doomed: list[tuple[TimestampMs, str]] = []
        self.removal_due_ms: TimestampMs | None = None
        """When to tidy up again, because files wait for their removal."""
        self.directory = directory

    # --- the machine's writes ----------------------------------------------------------

    def perform(self, work: Sequence[StoreWork]) -> Steps[Performed]:
        """Do all of it in order, then sync; raises ``OSError``, ``LogFailed``, ``DamagedSnapshot``.

        After an exception nothing is known of what is on disk: the node must halt.
        """
        write: int | None = None
        installed: LoadedSnapshot | None = None
        for item in work:
            match item:
                case PersistState(state=state):
                    write_quorum_state(self._disk, self.directory, state)
                case AppendEntries(truncate_to=truncate_to, entries=entries):
                    self._log.append(truncate_to, entries, self._clock.wall_ms())
                case WriteSnapshotChunk(snapshot=snapshot, position=position, data=data):
                    where = (self.directory, snapshot, position)
                    snapshots.write_received(self._disk, *where, data)
                case InstallSnapshot():
                    installed = yield from self._install(item)
                case MoveLogStart():
                    self._retire()
                case _:
                    assert_never(item)
            if not isinstance(item, MoveLogStart):
                write = item.write
        yield
        yield from self._log.flush()
        return Performed(write, installed)

    def _install(self, install: InstallSnapshot) -> Steps[LoadedSnapshot]:
        loaded = yield from snapshots.install_received(self._disk, self.directory, install.snapshot)
        if loaded.voters != install.voters:
            path = snapshot_path(self.directory, install.snapshot)
            raise snapshots.DamagedSnapshot(f"{path} names other voters than its sender")
        self._log.restart_at(install.snapshot.end_offset, self._clock.wall_ms())
        return loaded

    # --- retention ---------------------------------------------------------------------

    def _retire(self) -> None:
        """Let old snapshots go, and the log below the oldest that stays."""
        now_ms, settings = self._clock.wall_ms(), self._settings
        files = snapshots.list_snapshots(self._disk, self.directory)
        if not files:
            return
        going = snapshots.plan_snapshot_retention(
            files,
            self._log.size_bytes,
            now_ms,
            retention_bytes=settings.retention_bytes,
            retention_ms=settings.retention_ms,
        )
        staying = files[len(going) :]
        if going or self._log_is_too_large(staying, now_ms):
            # The log must reach back to the oldest snapshot that may yet be needed.
            end = min(staying[0].snapshot.end_offset, self._log.end)
            self._log.forget_below(max(end, self._log.start), now_ms)
        for file in going:
            self._doom(file, now_ms)
        self.removal_due_ms = TimestampMs(now_ms + settings.log.file_delete_delay_ms + 1)

    def _log_is_too_large(self, staying: Sequence[SnapshotFile], now_ms: TimestampMs) -> bool:
        total = self._log.size_bytes + sum(file.size_bytes for file in staying)
        age_ms = now_ms - staying[0].mtime_ms
        return (
            0 <= self._settings.retention_bytes < total or 0 <= self._settings.retention_ms < age_ms
        )

    def _doom(self, file: SnapshotFile, now_ms: TimestampMs) -> None:
        """Out of sight at once, gone after the delay: somebody may be reading it."""
        old = snapshot_path(self.directory, file.snapshot)
        new = snapshot_path(self.directory, file.snapshot, snapshots.DELETED_SUFFIX)
        self._disk.rename(old, new)
        due_ms = TimestampMs(now_ms + self._settings.log.file_delete_delay_ms)
        self._doomed.append((due_ms, new))

    # --- upkeep ------------------------------------------------------------------------

    def tidy_up(self) -> Steps[None]:
        """What may wait until nothing else is to be written: the recovery point, removals."""
        now_ms = self._clock.wall_ms()
        self._log.write_recovery_point()
        yield
        self._log.unlink_due(now_ms)
        for due_ms, path in self._doomed:
            if due_ms <= now_ms:
                self._disk.unlink(path)
        self._doomed = [doomed for doomed in self._doomed if doomed[0] > now_ms]
        if self.removal_due_ms is not None and self.removal_due_ms <= now_ms:
            self.removal_due_ms = None

    def close(self) -> Steps[None]:
        yield from self._log.flush()
        self._log.close()

    def abandon(self) -> None:
        """Let go of the files as they are, after a failure."""
        self._log.abandon()
