"""Opening the metadata directory: all of it is believed, or the node does not start.

The order matters. The identity is checked before anything is touched, the vote and the snapshots
are read before the log is opened, and the log is examined before it is mended. What cannot be made
whole from what is there stops the node with words that say what to do (hazard 15).

A snapshot that is damaged does no harm while an older one, or none, and the log together hold
everything it held; the damaged file is then put aside.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tidelog.controller.quorum import snapshots
from tidelog.controller.quorum.entry_log import EntryLog, inspect_entry_log, open_entry_log
from tidelog.controller.quorum.errors import RefusedToStart
from tidelog.controller.quorum.log_examination import Examined
from tidelog.controller.quorum.quorum_state import read_quorum_state, write_quorum_state
from tidelog.controller.quorum.snapshots import (
    DAMAGED_SUFFIX,
    DamagedSnapshot,
    LoadedSnapshot,
    SnapshotFile,
    snapshot_path,
)
from tidelog.controller.quorum.store import MetadataStore, StoreSettings, log_directory
from tidelog.controller.raft.errors import BrokenInvariant
from tidelog.controller.raft.log_view import LogView
from tidelog.controller.raft.model import Entry, Identity, PersistentState, RestoredLog
from tidelog.kernel.ids import Offset
from tidelog.kernel.ports import Clock, Disk, Random, Steps
from tidelog.storage.names import META_PROPERTIES
from tidelog.storage.node_files import CorruptNodeFile, read_meta_properties
from tidelog.wire.errors import MalformedBatch

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Restored:
    """What a node starts from."""

    store: MetadataStore
    state: PersistentState | None
    log: RestoredLog
    snapshot: LoadedSnapshot | None


def open_store(
    disk: Disk,
    metadata_dir: str,
    identity: Identity,
    settings: StoreSettings,
    clock: Clock,
    random: Random,
) -> Steps[Restored]:
    """Everything a quorum member needs from its disk; raises ``RefusedToStart``."""
    directory = log_directory(metadata_dir)
    check_identity(disk, metadata_dir, identity)
    disk.make_dirs(directory)
    disk.sync_dir(metadata_dir)
    state = read_quorum_state(disk, directory)
    _check_founders(state, identity, directory)
    found = yield from _read_newest(disk, directory)
    inspected = yield from inspect_entry_log(disk, directory, found.end)
    _check_cover(found, inspected.log, directory)
    # From here on things are changed.
    snapshots.remove_leftovers(disk, directory)
    where = (disk, directory, inspected, settings.log, random)
    log = yield from open_entry_log(*where, clock.wall_ms())
    for repair in log.repairs:
        _log.warning("metadata log: %s", repair)
    snapshot = found.loaded
    if snapshot is not None and not log.continues(snapshot.snapshot):
        # The node stopped between giving a received snapshot its name and cutting the log.
        log.restart_at(snapshot.snapshot.end_offset, clock.wall_ms())
        log.write_recovery_point()
    entries = yield from _read_entries(log, snapshot, directory)
    restored = _restored(snapshot, entries, directory)
    _check_state(state, restored, directory)
    if state is not None:
        write_quorum_state(disk, directory, state)  # its last sync may have failed
    for file in found.damaged:
        _put_aside(disk, directory, file)
    store = MetadataStore(disk, directory, settings, clock, log)
    return Restored(store, state, restored, snapshot)


def check_identity(disk: Disk, metadata_dir: str, identity: Identity) -> None:
    """The directory must be this cluster's, this node's, and the one whose id it votes with."""
    path = f"{metadata_dir}/{META_PROPERTIES}"
    try:
        meta = read_meta_properties(disk, path)
    except FileNotFoundError:
        raise RefusedToStart(
            f"{path} is missing; a directory is formatted before its first use", metadata_dir
        ) from None
    except CorruptNodeFile as error:
        raise RefusedToStart(str(error), metadata_dir) from error
    ours = (identity.cluster_id, identity.key.node_id, identity.key.directory_id)
    theirs = (meta.cluster_id, meta.node_id, meta.directory_id)
    for what, mine, found in zip(("cluster", "node", "directory id"), ours, theirs, strict=True):
        if mine != found:
            raise RefusedToStart(f"{path} says {what} {found}, this node is {mine}", metadata_dir)


def _check_founders(state: PersistentState | None, identity: Identity, directory: str) -> None:
    if state is None or state.founding is None:
        return
    founders = tuple(key.node_id for key in state.founding)
    if founders != identity.configured_voters:
        raise RefusedToStart(
            f"the quorum was founded by the voters {list(founders)}, but this node is configured"
            f" with {list(identity.configured_voters)}; the voters of a quorum that exists are"
            " changed by adding and removing them",
            directory,
        )


# --- snapshots -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    loaded: LoadedSnapshot | None
    damaged: tuple[SnapshotFile, ...]
    """Newer than the one that could be read."""

    @property
    def end(self) -> Offset:
        """Everything below is in a sound snapshot."""
        return self.loaded.snapshot.end_offset if self.loaded else Offset(0)


def _read_newest(disk: Disk, directory: str) -> Steps[_Found]:
    damaged: list[SnapshotFile] = []
    for file in reversed(snapshots.list_snapshots(disk, directory)):
        path = snapshot_path(directory, file.snapshot)
        try:
            loaded = yield from snapshots.read_snapshot(disk, path, file.snapshot)
        except DamagedSnapshot as error:
            _log.error("a snapshot of the metadata is damaged: %s", error)
            damaged.append(file)
        else:
            return _Found(loaded, tuple(damaged))
    return _Found(None, tuple(damaged))


def _check_cover(found: _Found, log: Examined, directory: str) -> None:
    """The log must reach from the snapshot's end, and over all that damaged ones held."""
    needed = max((file.snapshot.end_offset for file in found.damaged), default=Offset(0))
    names = ", ".join(snapshot_path(directory, file.snapshot) for file in found.damaged)
    if found.damaged and (log.start > found.end or log.end < needed):
        raise RefusedToStart(
            f"the newest snapshots are damaged ({names}), and the log, which holds the offsets"
            f" {log.start} to {log.end}, does not hold all that they held",
            directory,
        )
    if log.start > found.end:
        raise RefusedToStart(
            f"the metadata log begins at {log.start}, but the snapshots end at {found.end}",
            directory,
        )


def _put_aside(disk: Disk, directory: str, file: SnapshotFile) -> None:
    old = snapshot_path(directory, file.snapshot)
    disk.rename(old, snapshot_path(directory, file.snapshot, DAMAGED_SUFFIX))
    disk.sync_dir(directory)
    _log.warning("%s was put aside; the log holds all that it held", old)


# --- entries -------------------------------------------------------------------------------------


def _read_entries(
    log: EntryLog, snapshot: LoadedSnapshot | None, directory: str
) -> Steps[list[Entry]]:
    start = snapshot.snapshot.end_offset if snapshot else Offset(0)
    try:
        return (yield from log.read_from(start))
    except MalformedBatch as error:
        raise RefusedToStart(
            f"an entry of the metadata log is unreadable: {error}", directory
        ) from (error)


def _restored(snapshot: LoadedSnapshot | None, entries: list[Entry], directory: str) -> RestoredLog:
    restored = RestoredLog(
        snapshot.snapshot if snapshot else None,
        snapshot.voters if snapshot else None,
        tuple(entries),
    )
    try:
        LogView.restore(restored)
    except BrokenInvariant as error:
        raise RefusedToStart(f"the metadata log makes no sense: {error}", directory) from error
    return restored


def _check_state(state: PersistentState | None, restored: RestoredLog, directory: str) -> None:
    """The vote is written before the first entry, so it cannot be missing beside a log; and a term
    before the first entry of it.

    No checksum covers the term in an entry's header. With one that is too high this node would win
    every election, whatever its log lacks.
    """
    last = restored.entries[-1] if restored.entries else restored.snapshot
    if last is None:
        return
    if state is not None and last.term > state.term:
        raise RefusedToStart(
            f"the metadata log in {directory} ends in term {last.term}, but this node has seen none"
            f" above {state.term}: the log is damaged",
            directory,
        )
    if state is None:
        raise RefusedToStart(
            f"{directory} has a metadata log but no quorum-state: this node does not know for"
            " whom it voted",
            directory,
        )
