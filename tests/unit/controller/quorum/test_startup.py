"""Opening the metadata directory: everything is believed together, or the node does not start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tidelog.controller.metadata.records import Config, MetadataRecord
from tidelog.controller.quorum import RefusedToStart
from tidelog.controller.quorum.batches import records_to_data
from tidelog.controller.quorum.entry_log import EntryLogSettings
from tidelog.controller.quorum.snapshots import list_snapshots, snapshot_path, write_snapshot
from tidelog.controller.quorum.startup import Restored, open_store
from tidelog.controller.quorum.store import MetadataStore, StoreSettings, StoreWork
from tidelog.controller.raft.effects import (
    AppendEntries,
    InstallSnapshot,
    MoveLogStart,
    PersistState,
    WriteSnapshotChunk,
)
from tidelog.controller.raft.model import (
    Entry,
    EntryKind,
    Identity,
    PersistentState,
    ReplicaKey,
    SnapshotId,
    Term,
    Voters,
)
from tidelog.kernel.ids import DirectoryId, NodeId, Offset, TimestampMs, Uuid
from tidelog.kernel.ports import in_one_go
from tidelog.simulation import CrashAt, SimClock, SimDisk, SimRandom, SimulatedCrash
from tidelog.storage.names import META_PROPERTIES
from tidelog.storage.node_files import MetaProperties, write_meta_properties
from tidelog.wire.batch import read_header

META_DIR = "/data"
DIR = "/data/__cluster_metadata-0"
NOW = TimestampMs(1_800_000_000_000)
KEYS = [ReplicaKey(NodeId(n), DirectoryId(Uuid(bytes([n] * 16)))) for n in (1, 2, 3)]
VOTERS = Voters.of(KEYS)
IDENTITY = Identity(KEYS[0], "cluster", (NodeId(1), NodeId(2), NodeId(3)))
SETTINGS = StoreSettings(log=EntryLogSettings(segment_bytes=400, file_delete_delay_ms=10))
STATE = PersistentState(Term(2), KEYS[1])


def new_disk() -> SimDisk:
    disk = SimDisk(clock=SimClock(NOW))
    disk.make_dirs(META_DIR)
    disk.sync_dir("/")
    meta = MetaProperties("cluster", NodeId(1), KEYS[0].directory_id)
    write_meta_properties(disk, f"{META_DIR}/{META_PROPERTIES}", meta)
    return disk


def opened(
    disk: SimDisk, identity: Identity = IDENTITY, settings: StoreSettings = SETTINGS
) -> Restored:
    clock = SimClock(NOW)
    return in_one_go(open_store(disk, META_DIR, identity, settings, clock, SimRandom(1)))


def record(number: int) -> MetadataRecord:
    return Config(2, "topic", "name", str(number))


def data(base: int, term: int = 1) -> Entry:
    content = records_to_data([record(base), record(base + 1)], NOW)
    return Entry(Offset(base), Offset(base + 1), Term(term), EntryKind.DATA, content)


FIRST = [
    Entry(Offset(0), Offset(0), Term(1), EntryKind.VOTERS, voters=VOTERS),
    Entry(Offset(1), Offset(1), Term(1), EntryKind.LEADER_CHANGE, leader_id=NodeId(1)),
]
ENTRIES = [*FIRST, *[data(base) for base in range(2, 20, 2)]]
SNAPSHOT = SnapshotId(Offset(10), Term(1))
LATER = SnapshotId(Offset(16), Term(1))
RECEIVED = SnapshotId(Offset(100), Term(2))


def perform(store: MetadataStore, *work: StoreWork) -> None:
    in_one_go(store.perform(work))


def filled(disk: SimDisk) -> MetadataStore:
    store = opened(disk).store
    perform(store, PersistState(1, STATE), AppendEntries(2, None, tuple(ENTRIES)))
    return store


def take(disk: SimDisk, snapshot: SnapshotId) -> None:
    content = [record(n) for n in range(2, snapshot.end_offset)]
    in_one_go(write_snapshot(disk, DIR, snapshot, VOTERS, content, NOW))


def received_bytes() -> bytes:
    disk = SimDisk()
    disk.make_dirs(DIR)
    take(disk, RECEIVED)
    return disk.read(snapshot_path(DIR, RECEIVED))


# --- what is believed ----------------------------------------------------------------------------


def test_an_unused_directory_gives_a_node_without_memory() -> None:
    restored = opened(new_disk())
    assert (restored.state, restored.snapshot, restored.log.entries) == (None, None, ())


def test_the_vote_and_the_entries_come_back() -> None:
    disk = new_disk()
    filled(disk)
    restored = opened(disk.power_loss(SimRandom(1)))
    assert restored.state == STATE
    assert list(restored.log.entries) == ENTRIES


def test_entries_behind_the_newest_snapshot_come_back() -> None:
    disk = new_disk()
    filled(disk)
    take(disk, SNAPSHOT)
    take(disk, LATER)
    restored = opened(disk.power_loss(SimRandom(1)))
    assert restored.log.snapshot == LATER
    assert restored.log.snapshot_voters == VOTERS
    assert [entry.base_offset for entry in restored.log.entries] == [16, 18]
    assert restored.snapshot is not None
    assert restored.snapshot.records == tuple(record(n) for n in range(2, 16))


def install(store: MetadataStore) -> None:
    content = received_bytes()
    half = len(content) // 2
    perform(
        store,
        WriteSnapshotChunk(3, RECEIVED, 0, content[:half]),
        WriteSnapshotChunk(4, RECEIVED, half, content[half:]),
        InstallSnapshot(5, RECEIVED, VOTERS),
        AppendEntries(6, None, (data(100, 2),)),
    )


def test_a_received_snapshot_takes_the_place_of_the_log() -> None:
    disk = new_disk()
    install(filled(disk))
    restored = opened(disk.power_loss(SimRandom(1)))
    assert restored.log.snapshot == RECEIVED
    assert list(restored.log.entries) == [data(100, 2)]


def test_a_crash_at_any_operation_of_installing_leaves_the_old_log_or_the_snapshot() -> None:
    outcomes = set()
    for nth in range(1, 120):
        disk = new_disk()
        store = filled(disk)
        in_one_go(store.tidy_up())
        disk.on_operation(CrashAt(nth))
        try:
            install(store)
        except SimulatedCrash:
            for draw in range(3):
                restored = opened(disk.power_loss(SimRandom(draw)))
                if restored.log.snapshot is None:
                    assert list(restored.log.entries) == ENTRIES
                    outcomes.add("old")
                else:
                    assert restored.log.snapshot == RECEIVED
                    assert list(restored.log.entries) in ([], [data(100, 2)])
                    outcomes.add("new")
                    end = 100 + 2 * len(restored.log.entries)
                    perform(restored.store, AppendEntries(9, None, (data(end, 3),)))
        else:
            assert outcomes == {"old", "new"}
            return
    pytest.fail("installing has no end")


def test_a_log_of_another_history_than_the_snapshot_is_void() -> None:
    disk = new_disk()
    filled(disk)
    take(disk, SnapshotId(Offset(10), Term(2)))
    disk = disk.kill()
    restored = opened(disk)
    assert restored.log.entries == ()
    perform(restored.store, AppendEntries(9, None, (data(10, 2),)))
    assert list(opened(disk.power_loss(SimRandom(1))).log.entries) == [data(10, 2)]


def test_a_crash_at_any_operation_of_retention_leaves_a_directory_that_opens() -> None:
    settings = replace(SETTINGS, retention_bytes=1)
    for nth in range(1, 60):
        disk = new_disk()
        filled(disk)
        disk = disk.kill()
        store = opened(disk, settings=settings).store
        take(disk, SNAPSHOT)
        take(disk, LATER)
        disk.on_operation(CrashAt(nth))
        try:
            perform(store, MoveLogStart(LATER))
            in_one_go(store.tidy_up())
        except SimulatedCrash:
            for draw in range(3):
                restored = opened(disk.power_loss(SimRandom(draw)), settings=settings)
                assert restored.log.snapshot == LATER
                assert [entry.base_offset for entry in restored.log.entries] == [16, 18]
        else:
            assert [file.snapshot for file in list_snapshots(disk, DIR)] == [LATER]
            assert "00000000000000000000.log" not in disk.list_dir(DIR)
            return
    pytest.fail("retention has no end")


def test_snapshots_and_segments_stay_while_there_is_room() -> None:
    disk = new_disk()
    store = filled(disk)
    take(disk, SNAPSHOT)
    take(disk, LATER)
    perform(store, MoveLogStart(LATER))
    assert [file.snapshot for file in list_snapshots(disk, DIR)] == [SNAPSHOT, LATER]
    assert "00000000000000000000.log" in disk.list_dir(DIR)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("identity", "why"),
    [
        (replace(IDENTITY, cluster_id="other"), "cluster"),
        (replace(IDENTITY, key=KEYS[1]), "node"),
        (replace(IDENTITY, key=ReplicaKey(NodeId(1), KEYS[2].directory_id)), "directory id"),
    ],
)
def test_a_directory_of_somebody_else_is_refused(identity: Identity, why: str) -> None:
    with pytest.raises(RefusedToStart, match=why):
        opened(new_disk(), identity)


def test_a_directory_that_was_never_formatted_is_refused() -> None:
    disk = SimDisk()
    disk.make_dirs(META_DIR)
    with pytest.raises(RefusedToStart, match="formatted"):
        opened(disk)
    disk.open(f"{META_DIR}/{META_PROPERTIES}", create=True).pwrite(b"version=9\n", 0)
    with pytest.raises(RefusedToStart, match="version"):
        opened(disk)


def test_other_voters_than_those_the_quorum_was_founded_by_are_refused() -> None:
    disk = new_disk()
    founded = PersistentState(Term(1), None, Voters.of(KEYS[:2]))
    perform(opened(disk).store, PersistState(1, founded))
    with pytest.raises(RefusedToStart, match=r"founded by the voters \[1, 2\]"):
        opened(disk.kill())


def spoil(disk: SimDisk, path: str) -> None:
    disk.flip_bit(path, disk.open(path).size() // 2, 1)


def remove_log(disk: SimDisk) -> None:
    for name in disk.list_dir(DIR):
        if name.endswith(".log"):
            disk.unlink(f"{DIR}/{name}")


def raise_last_term(disk: SimDisk) -> None:
    """In the header of the last batch, outside its checksum (cluster seed 601382)."""
    path = f"{DIR}/{max(name for name in disk.list_dir(DIR) if name.endswith('.log'))}"
    file, position = disk.open(path), 0
    data = file.pread(file.size(), 0)
    while (behind := position + read_header(data[position:]).size) < len(data):
        position = behind
    disk.flip_bit(path, position + 12, 2)


def without_recovery_point(damage: Callable[[SimDisk], None]) -> Callable[[SimDisk], None]:
    def both(disk: SimDisk) -> None:
        damage(disk)
        disk.unlink(f"{DIR}/recovery-point-offset-checkpoint")

    return both


REFUSED: dict[str, tuple[Callable[[SimDisk], None], str]] = {
    "the vote is gone": (lambda disk: disk.unlink(f"{DIR}/quorum-state"), "no quorum-state"),
    "the vote is damaged": (lambda disk: spoil(disk, f"{DIR}/quorum-state"), "cannot be believed"),
    "the log is gone": (remove_log, "below 20"),
    "the last entry is of a term to come": (raise_last_term, "has seen none"),
    "the first segment is gone, and with it what the snapshots do not hold": (
        without_recovery_point(lambda disk: disk.unlink(snapshot_path(DIR, SNAPSHOT))),
        "begins at",
    ),
}


@pytest.mark.parametrize("damage", REFUSED)
def test_damage_stops_the_node(damage: str) -> None:
    disk = new_disk()
    in_one_go(filled(disk).close())
    disk = disk.kill()
    apply, why = REFUSED[damage]
    if "first segment" in damage:
        take(disk, SNAPSHOT)
        disk.unlink(f"{DIR}/00000000000000000000.log")
    apply(disk)
    for _ in range(2):
        with pytest.raises(RefusedToStart, match=why) as refused:
            opened(disk)
        assert "away and start with an empty directory" in str(refused.value)


def test_a_damaged_snapshot_does_no_harm_while_the_log_holds_all_of_it() -> None:
    disk = new_disk()
    in_one_go(filled(disk).close())
    disk = disk.kill()
    take(disk, SNAPSHOT)
    take(disk, LATER)
    spoil(disk, snapshot_path(DIR, LATER))
    restored = opened(disk)
    assert restored.log.snapshot == SNAPSHOT
    assert [entry.base_offset for entry in restored.log.entries] == [10, 12, 14, 16, 18]
    assert f"{snapshot_path(DIR, LATER)}.damaged".removeprefix(f"{DIR}/") in disk.list_dir(DIR)
    assert opened(disk.kill()).log.snapshot == SNAPSHOT


def test_with_no_sound_snapshot_the_whole_log_will_do() -> None:
    disk = new_disk()
    in_one_go(filled(disk).close())
    disk = disk.kill()
    take(disk, LATER)
    spoil(disk, snapshot_path(DIR, LATER))
    restored = opened(disk)
    assert restored.log.snapshot is None
    assert list(restored.log.entries) == ENTRIES


@pytest.mark.parametrize("what", ["the log begins behind", "the log ends before"])
def test_a_damaged_snapshot_stops_the_node_if_the_log_does_not_hold_all_of_it(what: str) -> None:
    disk = new_disk()
    store = opened(disk, settings=replace(SETTINGS, retention_bytes=1)).store
    perform(store, PersistState(1, STATE), AppendEntries(2, None, tuple(ENTRIES)))
    beyond = SnapshotId(Offset(50), Term(1))
    damaged = LATER if what == "the log begins behind" else beyond
    take(disk, damaged)
    if damaged is LATER:
        perform(store, MoveLogStart(LATER))
        in_one_go(store.tidy_up())
    in_one_go(store.close())
    disk = disk.kill()
    spoil(disk, snapshot_path(DIR, damaged))
    before = disk.list_dir(DIR)
    for _ in range(2):
        with pytest.raises(RefusedToStart, match="does not hold all that they held"):
            opened(disk)
    assert snapshot_path(DIR, damaged).removeprefix(f"{DIR}/") in before
    assert disk.list_dir(DIR) == before


def test_a_log_that_names_no_voters_is_refused() -> None:
    disk = new_disk()
    store = opened(disk).store
    perform(store, PersistState(1, STATE), AppendEntries(2, None, (data(0),)))
    with pytest.raises(RefusedToStart, match="names no voters"):
        opened(disk.kill())


def test_a_received_snapshot_with_other_voters_than_its_sender_named_is_refused() -> None:
    disk = new_disk()
    store = filled(disk)
    perform(store, WriteSnapshotChunk(3, RECEIVED, 0, received_bytes()))
    with pytest.raises(Exception, match="names other voters"):
        perform(store, InstallSnapshot(4, RECEIVED, Voters.of(KEYS[:1])))
