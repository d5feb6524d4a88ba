"""The metadata log on disk: what was flushed is there again, and damage below that is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tidelog.controller.metadata.records import Config, NoOp
from tidelog.controller.quorum import RefusedToStart
from tidelog.controller.quorum.batches import records_to_data
from tidelog.controller.quorum.entry_log import (
    EntryLog,
    EntryLogSettings,
    inspect_entry_log,
    open_entry_log,
)
from tidelog.controller.raft.model import Entry, EntryKind, ReplicaKey, SnapshotId, Term, Voters
from tidelog.kernel.ids import DirectoryId, NodeId, Offset, TimestampMs, Uuid
from tidelog.kernel.ports import in_one_go
from tidelog.simulation import CrashAt, SimDisk, SimRandom, SimulatedCrash
from tidelog.storage.log import LogFailed
from tidelog.wire.batch import headers

DIR = "/data/__cluster_metadata-0"
LOG = f"{DIR}/00000000000000000000.log"
NOW = TimestampMs(1_800_000_000_000)
SETTINGS = EntryLogSettings(segment_bytes=1 << 20, file_delete_delay_ms=10)
ONE_SEGMENT_PER_ENTRY = EntryLogSettings(segment_bytes=150, file_delete_delay_ms=10)
KEY = ReplicaKey(NodeId(1), DirectoryId(Uuid(b"\x01" * 16)))


def new_disk() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs(DIR)
    disk.sync_dir("/")
    disk.sync_dir("/data")
    return disk


def opened(disk: SimDisk, settings: EntryLogSettings = SETTINGS, snapshot_end: int = 0) -> EntryLog:
    inspected = in_one_go(inspect_entry_log(disk, DIR, Offset(snapshot_end)))
    return in_one_go(open_entry_log(disk, DIR, inspected, settings, SimRandom(1), NOW))


def data(base: int, term: int, count: int = 2, name: str = "x") -> Entry:
    content = [Config(2, "topic", name, str(base + index)) for index in range(count)]
    last = Offset(base + count - 1)
    return Entry(Offset(base), last, Term(term), EntryKind.DATA, records_to_data(content, NOW))


ENTRIES = [
    Entry(Offset(0), Offset(0), Term(1), EntryKind.VOTERS, voters=Voters.of([KEY])),
    Entry(Offset(1), Offset(1), Term(1), EntryKind.LEADER_CHANGE, leader_id=NodeId(1)),
    data(2, 1, 3),
    data(5, 1, 1),
    Entry(Offset(6), Offset(6), Term(4), EntryKind.LEADER_CHANGE, leader_id=NodeId(2)),
    data(7, 4, 2),
]


def filled(disk: SimDisk, settings: EntryLogSettings = SETTINGS) -> EntryLog:
    log = opened(disk, settings)
    log.append(None, ENTRIES, NOW)
    in_one_go(log.flush())
    return log


def content(log: EntryLog, start: int = 0) -> list[Entry]:
    return in_one_go(log.read_from(Offset(start)))


def position_of(disk: SimDisk, offset: int) -> int:
    return next(at for at, header in headers(disk.read(LOG)) if header.base_offset == offset)


# --- what was written is there -------------------------------------------------------------------


@pytest.mark.parametrize("settings", [SETTINGS, ONE_SEGMENT_PER_ENTRY])
def test_entries_come_back_after_a_restart(settings: EntryLogSettings) -> None:
    disk = new_disk()
    filled(disk, settings)
    again = opened(disk.power_loss(SimRandom(1)), settings)
    assert content(again) == ENTRIES
    assert content(again, 5) == ENTRIES[3:]
    assert (again.start, again.end) == (0, 9)


def test_what_was_not_flushed_is_cut_off_and_only_that() -> None:
    for draw in range(40):
        disk = new_disk()
        log = filled(disk)
        tail = [data(9 + 2 * index, 4, name="y" * 600) for index in range(4)]
        log.append(None, tail, NOW)
        again = opened(disk.power_loss(SimRandom(draw)))
        kept = content(again)
        assert kept[: len(ENTRIES)] == ENTRIES
        assert kept == [*ENTRIES, *tail][: len(kept)]
        again.append(None, [data(again.end, 5)], NOW)  # and the log goes on
        in_one_go(again.flush())


def test_what_recovery_found_is_on_stable_storage_when_it_reports() -> None:
    disk = new_disk()
    filled(disk).append(None, [data(9, 4)], NOW)
    killed = disk.kill()  # the page cache survives a kill
    assert opened(killed).end == 11
    for draw in range(5):
        assert opened(killed.power_loss(SimRandom(draw))).end == 11


def test_pages_that_a_failed_sync_left_in_the_cache_are_written_again() -> None:
    disk = new_disk()
    log = filled(disk)
    log.write_recovery_point()
    log.append(None, [data(9, 4)], NOW)
    disk.faults.fail("sync", ".log")
    with pytest.raises(OSError):
        in_one_go(log.flush())
    restarted = disk.kill()
    assert opened(restarted).end == 11
    assert opened(restarted.power_loss(SimRandom(1))).end == 11


# --- cutting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [SETTINGS, ONE_SEGMENT_PER_ENTRY])
@pytest.mark.parametrize("cut", [0, 1, 2, 5, 6, 7])
def test_a_cut_and_what_follows_survive(settings: EntryLogSettings, cut: int) -> None:
    disk = new_disk()
    log = filled(disk, settings)
    log.write_recovery_point()
    fresh = data(cut, 9)
    log.append(Offset(cut), [fresh], NOW)
    in_one_go(log.flush())
    again = opened(disk.power_loss(SimRandom(2)), settings)
    assert content(again) == [*[e for e in ENTRIES if e.base_offset < cut], fresh]


def test_a_crash_at_any_operation_of_a_cut_leaves_a_log_that_can_be_one() -> None:
    for nth in range(1, 60):
        disk = new_disk()
        log = filled(disk, ONE_SEGMENT_PER_ENTRY)
        log.write_recovery_point()
        disk.on_operation(CrashAt(nth))
        fresh = data(5, 9)
        try:
            log.append(Offset(5), [fresh], NOW)
            in_one_go(log.flush())
        except SimulatedCrash:
            for draw in range(3):
                again = opened(disk.power_loss(SimRandom(draw)), ONE_SEGMENT_PER_ENTRY)
                kept = content(again)
                whole = (*ENTRIES[:3], fresh)
                assert kept == ENTRIES[: len(kept)] or tuple(kept) == whole
                assert len(kept) >= 3
        else:
            assert nth > 10
            return
    pytest.fail("the cut has no end")


def test_a_cut_inside_an_entry_is_no_cut() -> None:
    log = filled(new_disk())
    with pytest.raises(LogFailed, match="cut to 2, not to 3"):
        log.append(Offset(3), [], NOW)


def test_an_entry_that_does_not_follow_is_refused() -> None:
    log = filled(new_disk())
    with pytest.raises(LogFailed, match="does not fit at 9"):
        log.append(None, [data(10, 4)], NOW)


def test_a_full_disk_fails_the_log() -> None:
    disk = new_disk()
    log = filled(disk)
    disk.faults.capacity_bytes = disk.used_bytes + 10
    with pytest.raises(LogFailed, match="cannot be written"):
        log.append(None, [data(9, 4)], NOW)


# --- making way for a snapshot -------------------------------------------------------------------


def test_the_log_begins_anew_where_a_snapshot_ends() -> None:
    disk = new_disk()
    log = filled(disk)
    log.write_recovery_point()
    log.restart_at(Offset(50), NOW)
    log.append(None, [data(50, 6)], NOW)
    in_one_go(log.flush())
    again = opened(disk.power_loss(SimRandom(3)))
    assert (again.start, again.end) == (50, 52)
    assert content(again, 50) == [data(50, 6)]


def test_whole_segments_below_a_snapshot_go_after_the_delay() -> None:
    disk = new_disk()
    log = filled(disk, ONE_SEGMENT_PER_ENTRY)
    log.forget_below(Offset(6), NOW)
    log.unlink_due(TimestampMs(NOW + 1000))
    assert log.start == 6
    names = [name for name in disk.list_dir(DIR) if name.endswith(".log")]
    assert names == ["00000000000000000006.log", "00000000000000000007.log"]
    assert content(opened(disk.kill(), ONE_SEGMENT_PER_ENTRY), 6) == ENTRIES[4:]


@pytest.mark.parametrize(
    ("end", "term", "goes_on"),
    [(5, 1, True), (6, 1, True), (7, 4, True), (9, 4, True), (7, 3, False), (6, 2, False),
     (4, 1, False), (10, 4, False), (50, 9, False)],
)  # fmt: skip
def test_a_log_continues_a_snapshot_whose_last_entry_it_holds(
    end: int, term: int, goes_on: bool
) -> None:
    log = filled(new_disk())
    assert log.continues(SnapshotId(Offset(end), Term(term))) is goes_on


# --- damage --------------------------------------------------------------------------------------


def flip(disk: SimDisk, offset: int, behind: int) -> None:
    disk.flip_bit(LOG, position_of(disk, offset) + behind, 3)


def cut_file(disk: SimDisk, size: int) -> None:
    file = disk.open(LOG)
    file.truncate(size)
    file.sync()


DAMAGE: dict[str, Callable[[SimDisk], None]] = {
    "a flipped bit in a record": lambda disk: flip(disk, 2, 70),
    "a flipped bit in the last entry": lambda disk: flip(disk, 7, 70),
    "a flipped bit in a base offset": lambda disk: flip(disk, 5, 7),
    "a flipped bit in a length": lambda disk: flip(disk, 5, 11),
    "a term that falls": lambda disk: disk.flip_bit(LOG, position_of(disk, 7) + 15, 2),
    "an end that is missing": lambda disk: cut_file(disk, position_of(disk, 7)),
    "half of the last entry": lambda disk: cut_file(disk, len(disk.read(LOG)) - 5),
    "nothing left": lambda disk: cut_file(disk, 0),
    "no file": lambda disk: disk.unlink(LOG),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_below_what_was_flushed_stops_the_node_every_time(damage: str) -> None:
    disk = new_disk()
    filled(disk).close()
    disk = disk.kill()
    DAMAGE[damage](disk)
    before = {name: disk.read(f"{DIR}/{name}") for name in disk.list_dir(DIR)}
    for _ in range(2):
        with pytest.raises(RefusedToStart, match="below 9, up to which it had been synced"):
            opened(disk)
    assert {name: disk.read(f"{DIR}/{name}") for name in disk.list_dir(DIR)} == before


def test_a_missing_segment_in_the_middle_stops_the_node() -> None:
    disk = new_disk()
    filled(disk, ONE_SEGMENT_PER_ENTRY).close()
    disk = disk.kill()
    disk.unlink(f"{DIR}/00000000000000000005.log")
    with pytest.raises(RefusedToStart, match="does not begin where the log before it ends"):
        opened(disk, ONE_SEGMENT_PER_ENTRY)


@pytest.mark.parametrize(("snapshot_end", "start"), [(5, 5), (6, 6), (9, 7)])
def test_what_is_wrong_below_a_snapshot_does_no_harm(snapshot_end: int, start: int) -> None:
    disk = new_disk()
    filled(disk, ONE_SEGMENT_PER_ENTRY).close()
    disk = disk.kill()
    disk.unlink(f"{DIR}/00000000000000000001.log")
    disk.flip_bit(f"{DIR}/00000000000000000002.log", 70, 0)
    if snapshot_end > 5:
        disk.flip_bit(f"{DIR}/00000000000000000005.log", 70, 0)
    if snapshot_end > 6:
        disk.unlink(f"{DIR}/00000000000000000006.log")
    log = opened(disk, ONE_SEGMENT_PER_ENTRY, snapshot_end)
    assert (log.start, log.end) == (start, 9)
    assert content(log, start) == [entry for entry in ENTRIES if entry.base_offset >= start]


def test_a_recovery_point_that_cannot_be_read_stops_the_node() -> None:
    disk = new_disk()
    filled(disk).close()
    disk = disk.kill()
    disk.open(f"{DIR}/recovery-point-offset-checkpoint").pwrite(b"x", 0)
    with pytest.raises(RefusedToStart, match="not known how much was synced"):
        opened(disk)


def test_a_torn_tail_above_the_recovery_point_is_cut_and_kept_beside_the_log() -> None:
    disk = new_disk()
    log = filled(disk)
    log.write_recovery_point()
    log.append(None, [data(9, 4), data(11, 4)], NOW)
    flip(disk, 9, 70)
    again = opened(disk.kill())
    assert again.end == 9
    assert again.repairs


def test_the_settings_of_the_log_keep_everything_until_a_snapshot_says_otherwise() -> None:
    config = replace(SETTINGS, segment_bytes=123).topic_config()
    assert config.flush_policy == "fsync"
    assert config.effective_segment_bytes == 123
    assert (config.retention_bytes, config.retention_ms) == (-1, -1)


def test_an_unused_directory_is_an_empty_log() -> None:
    log = opened(new_disk())
    assert (log.start, log.end) == (0, 0)
    assert content(log) == []
    log.append(None, [Entry(Offset(0), Offset(0), Term(1), leader_id=None,
                            data=records_to_data([NoOp()], NOW))], NOW)  # fmt: skip
    assert log.end == 1
