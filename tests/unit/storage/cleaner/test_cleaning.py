"""One pass over one log, and all that can come in its way. Nothing is lost in any of it."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from cleaner_world import CONFIG, CleanerWorld, begin, filled, leftovers
from log_lab import NOW, TP

from tidelog.kernel.ids import Offset, TimestampMs
from tidelog.kernel.ports import in_one_go
from tidelog.kernel.settings import Settings
from tidelog.storage.cleaner.cleaning import Cleaning
from tidelog.storage.cleaner.offset_map import MapTooSmall
from tidelog.storage.cleaner.plan import Hold
from tidelog.storage.cleaner.report import CleaningReport, Outcome
from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.log import LogFailed
from tidelog.storage.names import LOG_SUFFIX
from tidelog.storage.swapping import SwapFailed
from tidelog.wire.batch import Codec
from tidelog.wire.records import Record, build_batch, decode_records


def keys_of(world: CleanerWorld) -> list[bytes | None]:
    found = []
    for header, data in world.batches():
        if not header.is_control:
            found += [record.key for record in decode_records(data, header)]
    return found


def test_what_a_pass_tells() -> None:
    world = filled()
    report = begin(world).run_here()
    assert report.outcome is Outcome.CLEANED
    assert (report.first_dirty, report.clean_point) == (0, 16)
    assert (report.records_read, report.records_kept, report.records_dropped) == (16, 7, 9)
    assert (report.segments_before, report.segments_after) == (4, 2)
    assert (report.keys, report.map_is_full) == (7, False)
    assert report.bytes_read == report.bytes_mapped > report.bytes_written > 0
    assert report.bytes_moved == 2 * report.bytes_read + report.bytes_written
    world.check()
    assert leftovers(world) == []


def test_readers_that_hold_an_old_segment_read_on() -> None:
    world = filled()
    segment = world.log.segments[0]
    file, size = segment.file, segment.size
    before = file.pread(size, 0)
    begin(world).run_here()
    assert world.log.segments[0] is not segment
    assert file.pread(size, 0) == before
    world.now += 2_000
    assert world.log.removal.unlink_due(TimestampMs(world.now)) > 0
    assert file.pread(size, 0) == before


def test_a_map_too_small_for_one_segment_takes_several_passes() -> None:
    world = CleanerWorld(CONFIG, map_bytes=24 * 5)  # room for four keys
    for turn in range(3):
        world.write([(b"%d" % i, b"%d" % turn) for i in range(12)])
        world.roll()
    world.commit()
    passes = 0
    while (report := world.clean()) is not None:
        passes += 1
        assert report.keys <= 4
        assert report.map_is_full is (report.clean_point != 36)
    assert passes > 3
    assert sorted(filter(None, keys_of(world))) == sorted(b"%d" % i for i in range(12))


def test_memory_for_no_key_at_all_is_refused_and_nothing_happens() -> None:
    world = filled()
    before = world.batches()
    report = begin(world, settings=CleanerSettings(map_bytes=30)).run_here()
    assert report.outcome is Outcome.UNCLEANABLE
    assert "log.cleaner.dedupe.buffer.size" in report.reason
    assert world.batches() == before
    assert issubclass(MapTooSmall, ValueError)


def test_records_without_a_key_are_dropped_and_counted() -> None:
    """They come from a time when the topic was not compacted, or from a leader."""
    world = filled(1)
    end = world.log.end_offset
    batch = build_batch(
        [Record(end, NOW, None, b"v"), Record(end + 1, NOW, b"z", b"v")], base_offset=end
    )
    assert world.log.append_as_follower(batch, NOW) is None
    world.roll()
    world.commit()
    report = begin(world).run_here()
    assert report.keyless_dropped == 1
    assert None not in keys_of(world)
    assert b"z" in keys_of(world)


def append_keyless(world: CleanerWorld) -> int:
    """One record without a key, as a leader may have taken it before the topic was compacted."""
    end = world.log.end_offset
    batch = build_batch([Record(end, NOW, None, b"v")], base_offset=end)
    assert world.log.append_as_follower(batch, NOW) is None
    return end


def test_what_lies_behind_the_map_is_not_judged() -> None:
    world = CleanerWorld(CONFIG, map_bytes=24 * 5)  # room for four keys
    world.write([(b"%d" % i, b"v") for i in range(5)])
    append_keyless(world)
    world.roll()
    world.commit()
    reports = [begin(world).run_here()]
    assert reports[0].map_is_full
    assert None in keys_of(world)
    assert reports[0].clean_point is not None
    world.directory.clean_points.set(TP, reports[0].clean_point)
    assert begin(world).run_here().keyless_dropped == 1
    assert None not in keys_of(world)


def test_the_last_batch_of_the_cleaned_part_stays_as_a_header() -> None:
    """KAFKA-17076: without it a restart could not tell where the log ended."""
    world = filled(1)
    end = append_keyless(world)
    world.roll()
    world.commit()
    begin(world).run_here()
    last, _ = world.batches()[-1]
    assert (last.base_offset, last.records_count, last.size) == (end, 0, 61)


def test_a_user_key_that_equals_a_markers_key_is_a_key_like_others() -> None:
    """KAFKA-14055: the marker is not replaced by the record, nor the record by the marker."""
    world = CleanerWorld(CONFIG)
    marker_key = b"\0\0\0\1"
    world.write_as(1, [(b"k", b"v")], is_transactional=True)
    world.end_txn(1, commit=True)
    world.write([(marker_key, b"mine")])
    world.roll()
    world.write_as(1, [(b"j", b"v")], is_transactional=True)
    world.end_txn(1, commit=True)
    world.roll()
    world.commit()
    world.clean()
    assert sum(header.is_control for header, _ in world.batches()) == 2
    assert marker_key in keys_of(world)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_stays_what_it_was(codec: Codec) -> None:
    world = CleanerWorld(CONFIG)
    for turn in range(3):
        world.write([(b"a", b"%d" % turn), (b"only-%d" % turn, b"text " * 10)], codec)
        world.roll()
    world.commit()
    world.clean()
    assert {header.codec_id for header, _ in world.batches()} == {codec}
    assert [header.records_count for header, _ in world.batches()] == [1, 1, 2]


def test_a_batch_may_grow_beyond_the_largest_message() -> None:
    """A delete horizon far from the records' times makes every timestamp longer."""
    world = CleanerWorld(replace(CONFIG, internal_segment_bytes=4_000))
    world.write([(b"%d" % i, None) for i in range(30)])
    world.roll()
    world.commit()
    (size,) = {header.size for header, _ in world.batches()}
    world.config = replace(world.config, max_message_bytes=size, internal_segment_bytes=size)
    world.log.update_config(world.config)
    report = world.clean()
    assert report is not None
    assert report.horizons_set == 1
    assert max(header.size for header, _ in world.batches()) > size
    world.restart(by_power=True)
    world.check()


# --- bad luck --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (100, "CRC"),  # inside a record
        (11, "length"),
        (8, "bytes"),  # the length, which now leads out of the file
        (16, "magic"),
        (125, "are not within"),  # the base offset, which the checksum does not cover
    ],
)
def test_a_corrupt_batch_makes_the_log_uncleanable_and_loses_nothing(
    damaged: int, reason: str
) -> None:
    world = filled()
    before = world.log.segments[1]
    path = before.path(LOG_SUFFIX)
    data = bytearray(world.disk.read(path))
    data[damaged] ^= 0x41
    file = world.disk.open(path)
    file.pwrite(bytes(data), 0)
    report = begin(world).run_here()
    assert report.outcome is Outcome.UNCLEANABLE
    assert "batch at" in report.reason
    assert reason in report.reason
    assert report.clean_point is None
    assert world.disk.read(path) == data
    assert world.log.segments[1] is before
    assert leftovers(world) == []


def test_corruption_in_the_clean_part_stops_the_pass_before_its_segment() -> None:
    world = filled()
    world.clean()
    for turn in range(3):
        world.write([(b"a", b"new %d" % turn)])
        world.roll()
    world.commit()
    path = world.log.segments[0].path(LOG_SUFFIX)
    file = world.disk.open(path)
    file.pwrite(b"\xff", 70)
    report = begin(world).run_here()
    assert report.outcome is Outcome.UNCLEANABLE
    assert len(world.log.segments) == 6
    assert leftovers(world) == []


@pytest.mark.parametrize("nth", range(1, 40, 3))
def test_a_full_disk_is_no_loss_and_the_pass_can_be_made_again(nth: int) -> None:
    world = filled()
    before = world.read_committed()
    count = 0

    def fill_up(kind: str, path: str) -> None:
        nonlocal count
        if kind in ("write", "create") and path.endswith(".cleaned"):
            count += 1
            if count == nth:
                raise OSError(errno.ENOSPC, "No space left on device", path)

    world.disk.on_operation(fill_up)
    report = begin(world).run_here()
    world.disk.on_operation(None)
    if count < nth:
        assert report.outcome is Outcome.CLEANED
        return
    assert report.outcome is Outcome.DISK_FULL
    assert leftovers(world) == []
    world.check()
    assert {r.key: r.value for r in world.read_committed()} == {r.key: r.value for r in before}
    assert begin(world).run_here().outcome is Outcome.CLEANED
    world.check()


def test_a_disk_that_fails_in_the_swap_closes_the_log_until_it_is_opened_again() -> None:
    world = filled()
    cleaning = begin(world)
    assert in_one_go(cleaning.work())
    world.disk.faults.fail("rename", ".log.cleaned", error=errno.EIO)
    with pytest.raises(SwapFailed):
        cleaning.swap()
    with pytest.raises(LogFailed):
        world.write([(b"a", b"refused")])
    world.restart(by_power=False)
    world.check()


def test_a_broken_disk_is_the_owners_business() -> None:
    world = filled()
    cleaning = begin(world)
    world.disk.faults.fail("sync", ".cleaned", error=errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        cleaning.run_here()
    assert leftovers(world) == []


# --- others who want the log -----------------------------------------------------------


def aborted(world: CleanerWorld, cleaning: Cleaning) -> CleaningReport:
    report = cleaning.run_here()
    assert report.outcome is Outcome.ABORTED
    assert report.clean_point is None
    assert leftovers(world) == []
    return report


def test_an_abort_leaves_nothing_behind() -> None:
    world = filled()
    before = world.batches()
    cleaning = begin(world)
    steps = cleaning.work()
    for _ in range(9):
        next(steps)
    cleaning.abort("the leader changes")
    assert in_one_go(steps) is False
    assert cleaning.conclude().reason == "the leader changes"
    assert world.batches() == before
    assert leftovers(world) == []


def test_an_abort_between_two_swaps_keeps_what_is_swapped() -> None:
    world = filled()
    cleaning = begin(world)
    assert in_one_go(cleaning.work())
    cleaning.swap()
    cleaning.abort("enough")
    aborted(world, cleaning)
    world.check()


def test_a_truncation_costs_the_pass_and_nothing_else() -> None:
    world = filled()
    cleaning = begin(world)
    assert in_one_go(cleaning.work())
    kept = world.log.segments[1].base_offset
    world.log.truncate_to(kept, TimestampMs(world.now))
    world.model.records = {o: r for o, r in world.model.records.items() if o < kept}
    cleaning.swap()
    assert "truncated" in aborted(world, cleaning).reason
    world.check()


def test_what_was_read_while_the_log_was_cut_does_not_make_it_uncleanable() -> None:
    world = filled()
    cleaning = begin(world)
    kept = Offset(world.log.segments[2].base_offset + 2)
    world.log.truncate_to(kept, TimestampMs(world.now))
    aborted(world, cleaning)


@pytest.mark.parametrize("moment", ["before the work", "before the swap"])
def test_a_deleted_topic_is_noticed(moment: str) -> None:
    world = filled()
    cleaning = begin(world)
    if moment == "before the swap":
        assert in_one_go(cleaning.work())
    world.directory.delete_log(TP)
    if moment == "before the swap":
        cleaning.swap()
    assert cleaning.run_here().outcome is Outcome.ABORTED
    assert world.log.failure is None


def test_deleted_segments_are_noticed() -> None:
    world = filled()
    cleaning = begin(world)
    world.log.raise_log_start(world.log.segments[2].base_offset)
    world.log.apply_retention(TimestampMs(world.now))
    aborted(world, cleaning)


def test_a_topic_that_is_not_compacted_any_more_is_left_alone() -> None:
    world = filled()
    cleaning = begin(world)
    assert in_one_go(cleaning.work())
    world.log.update_config(replace(CONFIG, cleanup_policy=("delete",)))
    cleaning.swap()
    assert "not compacted" in aborted(world, cleaning).reason


def test_a_torn_off_pass_cleans_up() -> None:
    """As when the task that waits for it is cancelled."""
    world = filled()
    steps = begin(world).work()
    while not leftovers(world):
        next(steps)
    steps.close()
    assert leftovers(world) == []


def test_appends_go_on_while_a_pass_is_made() -> None:
    world = filled()
    cleaning = begin(world)
    more = True
    while more:
        steps = cleaning.work()
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                more = stop.value
                break
            world.write([(b"a", b"meanwhile")])
        if more:
            cleaning.swap()
    assert cleaning.conclude().outcome is Outcome.CLEANED
    world.commit()
    world.check()


# --- tombstones, floors, policies ------------------------------------------------------


def test_a_tombstone_takes_two_passes_and_its_time() -> None:
    world = CleanerWorld(CONFIG)
    world.write([(b"k", b"v")])
    world.roll()
    world.write([(b"k", None), (b"other", b"v")])
    world.roll()
    world.commit()
    first = world.clean()
    assert first is not None
    assert (first.horizons_set, first.tombstones_dropped) == (1, 0)
    assert first.next_horizon_ms == world.now + 1_000
    for wait_ms, gone in ((999, 0), (1, 1)):
        world.now += wait_ms
        world.write([(b"other", b"w")])
        world.roll()
        world.commit()
        report = world.clean()
        assert report is not None
        assert report.tombstones_dropped == gone
    assert b"k" not in keys_of(world)


def test_above_the_floor_neither_tombstone_nor_marker_goes() -> None:
    """DESIGN §2.4, hazard 23: another replica may still hold what they cancel."""
    world = CleanerWorld(CONFIG)
    world.write_as(1, [(b"x", b"v")], is_transactional=True)
    world.end_txn(1, commit=False)
    world.write([(b"k", None)])
    world.write_as(1, [(b"x", b"v")])
    for _ in range(2):  # the marker is noticed one pass after its data went
        world.write([(b"other", b"v")])
        world.roll()
        world.commit()
        world.clean(floor=0)
    world.now += 5_000
    expected = [(2, 1), (1, 2), (0, None)]
    for (held, first), floor in zip(expected, (1, 2, 3), strict=True):
        world.write([(b"other", b"v")])
        world.roll()
        world.commit()
        report = world.clean(floor=floor)
        assert report is not None
        assert (report.held_back, report.first_held_back) == (held, first)
        reason = report.held_back_reason
        assert (None if reason is None else reason.hold) == (Hold.REPLICA_BEHIND if held else None)


def test_with_both_policies_old_segments_go_and_the_rest_is_compacted() -> None:
    world = filled(cleanup_policy=("compact", "delete"), retention_bytes=300)
    report = begin(world).run_here()
    assert report.outcome is Outcome.CLEANED
    assert world.log.apply_retention(TimestampMs(world.now)) != []
    assert world.log.log_start > 0


def test_with_compact_alone_only_what_lies_below_the_log_start_is_deleted() -> None:
    world = filled(retention_bytes=1, retention_ms=1)
    assert world.log.apply_retention(TimestampMs(world.now + 10**9)) == []
    world.log.raise_log_start(world.log.segments[1].base_offset)
    assert len(world.log.apply_retention(TimestampMs(world.now))) == 1


def test_an_open_transaction_holds_the_pass_back() -> None:
    world = filled(1)
    world.write_as(1, [(b"a", b"open")], is_transactional=True)
    world.roll()
    world.write([(b"a", b"behind")])
    world.roll()
    world.commit()
    report = begin(world).run_here()
    assert report.clean_point == 4
    world.check()
    world.end_txn(1, commit=False)
    world.roll()
    world.commit()
    report2 = world.clean()
    assert report2 is not None
    assert report2.aborted_dropped == 1
    assert [r.value for r in world.read_committed() if r.key == b"a"] == [b"behind"]


def test_settings_of_a_node_are_shared_by_its_threads() -> None:
    given = Settings.of(
        {"log.cleaner.threads": "4", "log.cleaner.dedupe.buffer.size": str(64 << 20)}
    )
    settings = CleanerSettings.of(given)
    assert settings.map_bytes == 16 << 20
    assert settings.load_factor == 0.9
    assert CleanerSettings.of(Settings()).map_bytes == 128 << 20
