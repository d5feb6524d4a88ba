"""Snapshot files: whole or refused, received piece by piece, kept as long as they may be needed."""

from __future__ import annotations

import pytest

from tidelog.controller.metadata.records import Config, MetadataRecord
from tidelog.controller.quorum.batches import control_batch, records_to_batch
from tidelog.controller.quorum.control_records import snapshot_footer_value
from tidelog.controller.quorum.snapshots import (
    DamagedSnapshot,
    LoadedSnapshot,
    SnapshotFile,
    install_received,
    list_snapshots,
    parse_name,
    plan_snapshot_retention,
    read_chunk,
    read_snapshot,
    remove_leftovers,
    snapshot_path,
    write_received,
    write_snapshot,
)
from tidelog.controller.raft.model import ReplicaKey, SnapshotId, Term, Voters
from tidelog.kernel.ids import DirectoryId, NodeId, Offset, TimestampMs, Uuid
from tidelog.kernel.ports import in_one_go
from tidelog.simulation import CrashAt, SimDisk, SimRandom, SimulatedCrash
from tidelog.wire.batch import headers
from tidelog.wire.control import ControlType

DIR = "/d"
NOW = TimestampMs(1_800_000_000_000)
ID = SnapshotId(Offset(1234), Term(7))
PATH = f"{DIR}/00000000000000001234-0000000007.checkpoint"
VOTERS = Voters.of(ReplicaKey(NodeId(n), DirectoryId(Uuid(bytes([n] * 16)))) for n in (1, 2, 3))
RECORDS: list[MetadataRecord] = [Config(2, "t", f"name.{n}", "v") for n in range(1200)]


def new_disk() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs(DIR)
    disk.sync_dir("/")
    return disk


def take(disk: SimDisk, snapshot: SnapshotId = ID) -> int:
    return in_one_go(write_snapshot(disk, DIR, snapshot, VOTERS, iter(RECORDS), NOW))


def load(disk: SimDisk, snapshot: SnapshotId = ID) -> LoadedSnapshot:
    return in_one_go(read_snapshot(disk, snapshot_path(DIR, snapshot), snapshot))


def test_a_snapshot_comes_back_as_it_was_taken() -> None:
    disk = new_disk()
    size = take(disk)
    survivor = disk.power_loss(SimRandom(1))
    assert survivor.list_dir(DIR) == [PATH.removeprefix(f"{DIR}/")]
    assert load(survivor) == LoadedSnapshot(ID, VOTERS, tuple(RECORDS))
    assert [file.size_bytes for file in list_snapshots(survivor, DIR)] == [size]


def test_an_empty_state_is_a_snapshot_too() -> None:
    disk = new_disk()
    in_one_go(write_snapshot(disk, DIR, ID, VOTERS, [], NOW))
    assert load(disk).records == ()


def test_a_crash_at_any_operation_leaves_all_of_it_or_none() -> None:
    for nth in range(1, 40):
        disk = new_disk()
        disk.on_operation(CrashAt(nth))
        try:
            take(disk)
        except SimulatedCrash:
            for draw in range(3):
                survivor = disk.power_loss(SimRandom(draw))
                remove_leftovers(survivor, DIR)
                files = list_snapshots(survivor, DIR)
                assert survivor.list_dir(DIR) == [PATH[3:]] * len(files)
                if files:
                    assert load(survivor).records == tuple(RECORDS)
        else:
            assert nth > 7
            return
    pytest.fail("taking a snapshot has no end")


def test_a_full_disk_leaves_no_rest_behind() -> None:
    disk = new_disk()
    disk.faults.capacity_bytes = 10_000
    with pytest.raises(OSError):
        take(disk)
    assert disk.list_dir(DIR) == []


# --- damage --------------------------------------------------------------------------------------


def test_no_bit_of_a_snapshot_can_change_unnoticed() -> None:
    disk = new_disk()
    in_one_go(write_snapshot(disk, DIR, ID, VOTERS, RECORDS[:3], NOW))
    whole = load(disk)
    for position in range(len(disk.read(PATH))):
        disk.flip_bit(PATH, position, position % 8)
        with pytest.raises(DamagedSnapshot):
            load(disk)
        disk.flip_bit(PATH, position, position % 8)
    assert load(disk) == whole


def batches(disk: SimDisk) -> list[bytes]:
    data = disk.read(PATH)
    return [data[at : at + header.size] for at, header in headers(data)]


def write_batches(disk: SimDisk, content: list[bytes]) -> None:
    file = disk.open(PATH)
    file.truncate(0)
    file.pwrite(b"".join(content), 0)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda found: [], "end is missing"),
        (lambda found: found[:-1], "end is missing"),
        (lambda found: found[:1], "end is missing"),
        (lambda found: [*found[:-1], found[-1][:-1]], "bytes of a batch"),
        (lambda found: [*found, b"\0" * 61], "bytes of a batch"),
        (lambda found: [*found, found[-1]], "stands where"),
        (lambda found: [*found[:3], *found[4:]], "stands where"),
        (lambda found: [found[1], found[0], *found[2:]], "stands where"),
        (lambda found: [*found[:-1], footer_at(500), found[-1]], "stands where"),
        (lambda found: [*found, footer_at(1204)], "behind its footer"),
        (lambda found: [footer_at(0)], "control record"),
        (lambda found: [found[0], records_at(1), footer_at(2)], "before the voters"),
    ],
)
def test_a_file_that_is_no_whole_snapshot_is_refused(spoil: object, why: str) -> None:
    disk = new_disk()
    take(disk)
    assert callable(spoil)
    write_batches(disk, spoil(batches(disk)))
    with pytest.raises(DamagedSnapshot, match=why) as damaged:
        load(disk)
    assert PATH in str(damaged.value)


def footer_at(offset: int) -> bytes:
    values = [(ControlType.SNAPSHOT_FOOTER, snapshot_footer_value())]
    return control_batch(values, base_offset=offset, term=ID.term, now_ms=NOW)


def records_at(offset: int) -> bytes:
    return records_to_batch(RECORDS[:1], base_offset=offset, term=ID.term, now_ms=NOW)


def test_a_snapshot_under_another_name_is_refused() -> None:
    disk = new_disk()
    take(disk)
    other = SnapshotId(Offset(1234), Term(8))
    disk.rename(PATH, snapshot_path(DIR, other))
    with pytest.raises(DamagedSnapshot):
        load(disk, other)


# --- pieces --------------------------------------------------------------------------------------


def send(source: SimDisk, target: SimDisk, chunk_bytes: int) -> None:
    position, total = 0, 1
    while position < total:
        data, total = in_one_go(read_chunk(source, DIR, ID, position, chunk_bytes))
        write_received(target, DIR, ID, position, data)
        position += len(data)


def test_a_snapshot_that_came_in_pieces_is_installed_when_it_is_whole() -> None:
    source, target = new_disk(), new_disk()
    take(source)
    send(source, target, 1000)
    assert list_snapshots(target, DIR) == []
    loaded = in_one_go(install_received(target, DIR, ID))
    assert loaded.records == tuple(RECORDS)
    assert load(target.power_loss(SimRandom(1))) == loaded


def test_a_transfer_that_begins_anew_forgets_what_came_before() -> None:
    source, target = new_disk(), new_disk()
    take(source)
    write_received(target, DIR, ID, 0, b"x" * 200_000)
    send(source, target, 4096)
    assert in_one_go(install_received(target, DIR, ID)).voters == VOTERS


def test_a_snapshot_that_was_spoiled_on_the_way_is_not_installed() -> None:
    source, target = new_disk(), new_disk()
    take(source)
    send(source, target, 1000)
    write_received(target, DIR, ID, 5000, b"spoiled")
    with pytest.raises(DamagedSnapshot):
        in_one_go(install_received(target, DIR, ID))
    assert list_snapshots(target, DIR) == []


def test_a_piece_of_a_snapshot_that_is_gone_is_an_error_of_the_system() -> None:
    with pytest.raises(FileNotFoundError):
        in_one_go(read_chunk(new_disk(), DIR, ID, 0, 10))


def test_taking_and_receiving_the_same_snapshot_do_not_meet() -> None:
    disk = new_disk()
    taking = write_snapshot(disk, DIR, ID, VOTERS, RECORDS, NOW)
    next(taking)
    write_received(disk, DIR, ID, 0, b"x")
    in_one_go(taking)
    assert load(disk).records == tuple(RECORDS)


# --- names and retention -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("00000000000000001234-0000000007.checkpoint", (ID, ".checkpoint")),
        ("00000000000000001234-0000000007.checkpoint.part", (ID, ".checkpoint.part")),
        ("00000000000000001234-0000000007.checkpoint.deleted", (ID, ".checkpoint.deleted")),
        ("bootstrap.checkpoint", None),
        ("00000000000000000000.log", None),
        ("00000000000000000000-0000000000.checkpoint", None),
        ("00000000000000001234-9999999999.checkpoint", None),
        ("99999999999999999999-0000000001.checkpoint", None),
        ("1234-7.checkpoint", None),
    ],
)
def test_names(name: str, found: object) -> None:
    assert parse_name(name) == found


def test_leftovers_go_and_damaged_files_stay() -> None:
    disk = new_disk()
    take(disk)
    suffixes = (".part", ".received.part", ".deleted", ".damaged")
    for suffix in suffixes:
        disk.open(PATH + suffix, create=True)
    remove_leftovers(disk, DIR)
    assert disk.list_dir(DIR) == [PATH[3:], f"{PATH[3:]}.damaged"]


def file(end: int, size: int, age_ms: int) -> SnapshotFile:
    return SnapshotFile(SnapshotId(Offset(end), Term(1)), size, TimestampMs(NOW - age_ms))


@pytest.mark.parametrize(
    ("files", "log_bytes", "limits", "going"),
    [
        ([], 999, (0, 0), []),
        ([(1, 10, 99)], 999, (0, 0), []),  # the newest always stays
        ([(1, 10, 5), (2, 10, 1)], 0, (100, 1000), []),
        ([(1, 10, 5), (2, 10, 1)], 81, (100, 1000), [1]),
        ([(1, 10, 5), (2, 10, 4), (3, 10, 1)], 81, (100, 1000), [1, 2]),
        ([(1, 10, 5), (2, 10, 4), (3, 10, 1)], 0, (100, 3), [1, 2]),
        ([(1, 10, 5), (2, 10, 2), (3, 10, 1)], 0, (100, 3), [1]),
        ([(1, 10, 5), (2, 10, 4)], 10**9, (-1, -1), []),
    ],
)
def test_retention(
    files: list[tuple[int, int, int]], log_bytes: int, limits: tuple[int, int], going: list[int]
) -> None:
    found = plan_snapshot_retention(
        [file(*each) for each in files],
        log_bytes,
        NOW,
        retention_bytes=limits[0],
        retention_ms=limits[1],
    )
    assert [each.snapshot.end_offset for each in found] == going
