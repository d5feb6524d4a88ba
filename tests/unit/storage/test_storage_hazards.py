"""Scenarios in which others lost data, one by one; the numbers are those of the hazard list.

13 and 38: only what is flushed counts. 16: no append after an I/O error. 18: a crash among the
renames of a swap. 19: an index never changes an answer. 25 to 27: producers outlive segments,
followers take what leaders accepted, markers are signs of life. 43: names are flushed too.
44: a flush after a failed one does not count.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from log_lab import (
    NOW,
    PARTITION,
    TP,
    append,
    batch_of,
    create,
    in_segments,
    open_at,
    open_dir,
    open_logs,
    served,
    small_config,
    stamped,
)

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    BrokerEpoch,
    CoordinatorEpoch,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from tidelog.kernel.ports import in_one_go
from tidelog.simulation import CrashAt, SimDisk, SimRandom, SimulatedCrash
from tidelog.storage.log import Appended, Log, LogFailed
from tidelog.storage.names import segment_file
from tidelog.storage.opening import Verdict
from tidelog.storage.read import LogRead
from tidelog.storage.validation import Rejected
from tidelog.wire.batch import headers, read_header
from tidelog.wire.control import ControlType, EndTxnMarker

SEEDS = range(12)


def new_log(disk: SimDisk, **changes: object) -> Log:
    log, _ = open_at(disk, small_config(**changes))
    return log


# --- 13, 38: what counts as flushed ---------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_13_what_was_flushed_survives_power_loss(seed: int) -> None:
    disk = SimDisk(sector_bytes=64)
    log = new_log(disk)
    for number in range(12):
        append(log, b"flushed %d" % number * 5)
    log.flush_now()
    promised = in_segments(log)
    for number in range(5):
        append(log, b"not flushed %d" % number * 5)
    log, _ = open_at(disk.power_loss(SimRandom(seed)), small_config())
    assert in_segments(log)[: len(promised)] == promised


def test_38_the_flushed_end_is_the_end_before_the_fsync() -> None:
    disk = SimDisk()
    log = new_log(disk)
    append(log, b"a", b"b")
    flush = log.begin_flush()
    assert flush is not None
    steps = flush.steps(disk)
    append(log, b"c")
    assert log.flushed_end == 0
    for _ in steps:
        append(log, b"d")
    assert log.complete_flush(flush) == 2
    assert log.flushed_end == 2 < log.end_offset


def test_the_page_cache_policy_counts_what_is_written() -> None:
    log = new_log(SimDisk(), flush_policy="page-cache")
    append(log, b"a", b"b")
    assert (log.flushed_end, log.recovery_point) == (2, 0)


def log_with_a_wrong_length() -> Log:
    """Three segments; in the first the first of three batches claims to be 16 KB longer."""
    disk = SimDisk()
    log = new_log(disk)
    for number in range(9):
        if number in (3, 6):
            log.roll(Offset(number), NOW)
        append(log, b"%d" % number)
    log.flush_now()
    disk.flip_bit(segment_file(PARTITION, Offset(0), ".log"), 10, 6)
    log, _ = open_at(disk, small_config(), was_clean=True)
    return log


def test_14_a_wrong_length_does_not_hide_what_is_behind_it() -> None:
    """No checksum covers it. A follower that asks for 1 would be given 3, and go on from there."""
    log = log_with_a_wrong_length()
    assert log.read(Offset(1), log.end_offset, 1_000) is ErrorCode.CORRUPT_MESSAGE
    behind = log.read(Offset(3), log.end_offset, 1_000)
    assert isinstance(behind, LogRead) and behind.records is not None


def test_14_a_log_that_cannot_be_cut_where_it_must_be_fails() -> None:
    log = log_with_a_wrong_length()
    with pytest.raises(LogFailed, match="goes on behind its end"):
        log.truncate_to(Offset(1), NOW)


def test_a_truncation_lowers_a_flush_that_is_under_way() -> None:
    """Else the offsets that are written again would count as flushed without an fsync."""
    disk = SimDisk()
    log = new_log(disk)
    for value in (b"a", b"b", b"c", b"d"):
        append(log, value)
    flush = log.begin_flush()
    assert flush is not None
    log.truncate_to(Offset(2), NOW)
    append(log, b"other", epoch=1)
    append(log, b"other", epoch=1)
    in_one_go(flush.steps(disk))
    assert log.complete_flush(flush) == 2
    assert log.flushed_end == 2


def test_a_restart_at_another_offset_lowers_a_flush_that_is_under_way() -> None:
    disk = SimDisk()
    log = new_log(disk)
    append(log, b"a", b"b", b"c")
    flush = log.begin_flush()
    assert flush is not None
    log.truncate_fully_and_start_at(Offset(1), NOW)
    append(log, b"other", epoch=1)
    in_one_go(flush.steps(disk))
    assert log.complete_flush(flush) == 1


def test_one_flush_at_a_time_and_none_for_nothing() -> None:
    disk = SimDisk()
    log = new_log(disk)
    log.flush_now()
    assert log.begin_flush() is None
    append(log, b"a")
    flush = log.begin_flush()
    assert flush is not None
    assert log.begin_flush() is None
    with pytest.raises(RuntimeError, match="flush is under way"):
        log.close()
    in_one_go(flush.steps(disk))
    log.complete_flush(flush)
    with pytest.raises(ValueError, match="not the one under way"):
        log.complete_flush(flush)


# --- 16: I/O errors -------------------------------------------------------------------------


def test_16_nothing_is_appended_after_an_error_until_the_log_is_opened_again() -> None:
    disk = SimDisk()
    log = new_log(disk)
    append(log, b"a")
    disk.faults.fail("write", ".log", landed_bytes=40)
    with pytest.raises(LogFailed, match="Input/output error"):
        append(log, b"lost")
    disk.faults.heal()
    for refused in (
        lambda: append(log, b"b"),
        lambda: log.append_as_follower(batch_of([b"b"], base_offset=1), NOW),
        lambda: log.append_marker(
            ProducerId(1),
            ProducerEpoch(0),
            EndTxnMarker(ControlType.COMMIT, CoordinatorEpoch(0)),
            leader_epoch=LeaderEpoch(0),
            now_ms=NOW,
        ),
        log.begin_flush,
        lambda: log.truncate_to(Offset(0), NOW),
        lambda: log.apply_retention(NOW),
        log.close,
    ):
        with pytest.raises(LogFailed, match="write failed"):
            refused()
    log, report = open_at(disk.kill(), small_config())
    assert report.verdict is Verdict.TORN_TAIL
    append(log, b"b")
    assert [read_header(data).base_offset for data in served(log)] == [0, 1]


@pytest.mark.parametrize("segment_bytes", [256, 10**6])
@pytest.mark.parametrize("cut", [1, 3])
def test_a_truncation_does_not_come_undone_in_part(segment_bytes: int, cut: int) -> None:
    """Old batches under newer ones of the same size would look like one history."""
    disk = SimDisk(sector_bytes=64)
    config = small_config(internal_segment_bytes=segment_bytes)
    log, _ = open_at(disk, config)
    for number in range(8):
        append(log, b"%d" % number * 58)
    log.flush_now()
    old = in_segments(log)
    assert {len(data) for data in old} == {128}
    log.truncate_to(Offset(cut), NOW)
    for number in range(cut, 8):
        append(log, b"%c" % (97 + number) * 58, epoch=1)
    new = in_segments(log)
    for seed in range(60):
        found, _ = open_at(disk.power_loss(SimRandom(seed)), config)
        batches = in_segments(found)
        assert batches in (old[: len(batches)], new[: len(batches)])
        assert batches[:cut] == old[:cut]


@pytest.mark.parametrize("kind", ["unlink", "sync_dir", "truncate", "sync"])
def test_a_truncation_that_fails_half_way_closes_the_log(kind: str) -> None:
    disk = SimDisk()
    log = new_log(disk)
    for number in range(12):
        append(log, b"%d" % number * 30)
    disk.faults.fail(kind)  # type: ignore[arg-type]
    with pytest.raises(LogFailed, match="truncation failed"):
        log.truncate_to(Offset(1), NOW)
    with pytest.raises(LogFailed):
        append(log, b"x")


def test_a_failed_restart_of_a_log_leaves_nothing_to_read() -> None:
    disk = SimDisk()
    log = new_log(disk)
    append(log, b"a")
    disk.faults.fail("create")
    with pytest.raises(LogFailed):
        log.truncate_fully_and_start_at(Offset(9), NOW)
    assert log.read(Offset(0), Offset(1), 100) is ErrorCode.KAFKA_STORAGE_ERROR


# --- 43, 44: fsync --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_43_a_flush_covers_the_names_of_new_segments(seed: int) -> None:
    disk = SimDisk(sector_bytes=64)
    directory = open_dir(disk)
    log = create(directory, small_config())
    for number in range(3):
        append(log, b"segment %d" % number)
        log.roll(log.end_offset, NOW)
    append(log, b"the end")
    log.flush_now()
    promised = in_segments(log)
    directory = open_dir(disk.power_loss(SimRandom(seed)))
    (report,) = open_logs(directory, small_config())
    assert report.verdict is Verdict.CLEAN
    assert in_segments(directory.logs[TP]) == promised


@pytest.mark.parametrize("kind", ["sync", "sync_dir"])
def test_44_a_flush_that_succeeds_after_a_failed_one_does_not_count(kind: str) -> None:
    disk = SimDisk(sector_bytes=64)
    directory = open_dir(disk)
    log = create(directory, small_config())
    append(log, b"safe")
    log.flush_now()
    directory.write_recovery_points()
    append(log, b"doubtful" * 20)
    log.roll(log.end_offset, NOW)
    append(log, b"too")
    disk.faults.fail(kind, "events-0")  # type: ignore[arg-type]
    flush = log.begin_flush()
    assert flush is not None
    with pytest.raises(OSError, match="Input/output error"):
        in_one_go(flush.steps(disk))
    directory.fail("flush failed")
    in_one_go(flush.steps(disk))  # the pages are clean now: this one "succeeds"
    with pytest.raises(LogFailed):
        log.complete_flush(flush)
    with pytest.raises(LogFailed):
        log.begin_flush()
    assert log.flushed_end == 1
    directory.write_recovery_points()
    directory = open_dir(disk.kill())
    assert directory.is_distrusted
    (report,) = open_logs(directory, small_config())
    assert report.verdict is Verdict.SUSPECT
    assert directory.logs[TP].end_offset == 1


# --- 18: the renames of a swap ----------------------------------------------------------------


def compacted_world() -> tuple[SimDisk, list[bytes], list[bytes]]:
    """A log with a cleaned copy of its first segments, and the contents before and after."""
    disk = SimDisk(sector_bytes=64)
    directory = open_dir(disk)
    config = small_config(cleanup_policy=("compact",))
    log = create(directory, config)
    for number in range(16):
        append(log, b"%d" % number * 30, key=b"k%d" % (number % 3))
    before, third = in_segments(log), log.segments[2].base_offset
    directory.close_cleanly(BrokerEpoch(1))
    # Of the first two segments every other batch goes; the others stay as they are.
    offsets = [(read_header(data).base_offset, data) for data in before]
    return disk, before, [data for offset, data in offsets if offset % 2 == 0 or offset >= third]


def live_bases(disk: SimDisk) -> list[int]:
    return sorted(int(n[:20]) for n in disk.list_dir(PARTITION) if n.endswith(".log"))


def swap_steps(disk: SimDisk, after: list[bytes]) -> Iterator[None]:
    """What a cleaner does, change by change: write aside, swap in, take the old ones out."""
    bases = live_bases(disk)
    first, second = bases[0], bases[1]
    data = b"".join(d for d in after if read_header(d).base_offset < bases[2])
    for suffix, content in ((".log", data), (".index", b""), (".timeindex", b"")):
        file = disk.open(segment_file(PARTITION, first, suffix, ".cleaned"), create=True)
        file.pwrite(content, 0)
        file.sync()
        file.close()
    disk.sync_dir(PARTITION)
    yield
    for suffix in (".index", ".timeindex", ".log"):
        path = segment_file(PARTITION, first, suffix)
        disk.rename(path + ".cleaned", path + ".swap")
    disk.sync_dir(PARTITION)
    yield
    for base in (second, first):
        for suffix in (".log", ".index", ".timeindex"):
            path = segment_file(PARTITION, base, suffix)
            disk.rename(path, path + ".deleted")
    # The old ones must be gone for good, else one could come back beside the new one.
    disk.sync_dir(PARTITION)
    for suffix in (".log", ".index", ".timeindex"):
        path = segment_file(PARTITION, first, suffix)
        disk.rename(path + ".swap", path)
    disk.sync_dir(PARTITION)
    for base in (second, first):
        for suffix in (".log", ".index", ".timeindex"):
            disk.unlink(segment_file(PARTITION, base, suffix, ".deleted"))


def swap_until(nth: int) -> tuple[SimDisk, int, list[bytes], list[bytes]]:
    """The disk after a crash before the ``nth`` change, and how many phases were complete."""
    disk, before, after = compacted_world()
    disk = disk.kill()
    disk.on_operation(CrashAt(nth))
    phase = 0
    try:
        for _ in swap_steps(disk, after):
            phase += 1
        phase += 1
    except SimulatedCrash:
        pass
    disk.on_operation(None)
    return disk, phase, before, after


@pytest.mark.parametrize("nth", range(1, 40))
def test_18_a_crash_among_the_renames_of_a_swap_changes_nothing(nth: int) -> None:
    disk, phase, before, after = swap_until(nth)
    survivors = [disk.power_loss(SimRandom(seed)) for seed in range(6)]
    for survivor in [*survivors, disk.kill()]:
        directory = open_dir(survivor)
        (report,) = open_logs(directory, small_config(cleanup_policy=("compact",)))
        log = directory.logs[TP]
        assert report.verdict is Verdict.CLEAN
        # Until all of the new segment is in place under ".swap" the old one holds, then the new.
        allowed = [before] if phase == 0 else [after] if phase >= 2 else [before, after]
        assert in_segments(log) in allowed
        assert served(log) == in_segments(log)
        assert log.end_offset == read_header(before[-1]).next_offset
        names = survivor.list_dir(PARTITION)
        assert [n for n in names if n.endswith((".cleaned", ".swap", ".deleted"))] == []


# --- 19: indexes ------------------------------------------------------------------------------


def garbage(data: bytes, how: str, other: bytes) -> bytes | None:
    """None: the file is gone."""
    match how:
        case "gone":
            return None
        case "empty":
            return b""
        case "zeros":
            return bytes(len(data))
        case "odd length":
            return data[: len(data) // 2] + b"\1"
        case "random":
            return SimRandom(3).randbytes(max(len(data), 24))
        case "of another segment":
            return other
        case "much too long":
            return data + b"".join(
                (1000 + i).to_bytes(4, "big") + (10**6 + i).to_bytes(4, "big") for i in range(30)
            )
        case "rising nonsense":
            return b"".join(
                (i + 1).to_bytes(4, "big") + (7 * i + 3).to_bytes(4, "big") for i in range(24)
            )
        case _:
            raise ValueError(how)


def answers(log: Log) -> list[object]:
    """What readers are told, by offset and by time, with the aborted transactions."""
    found: list[object] = []
    for offset in range(log.log_start, log.end_offset):
        for max_bytes in (1, 250, 10**6):
            read = log.read(Offset(offset), log.end_offset, max_bytes)
            assert isinstance(read, LogRead)
            assert read.records is not None
            data = read.records.read()
            found.append(data)
            end = [header.next_offset for _, header in headers(data)][-1]
            # What lies behind the batches that were read depends on the index, and is ignored.
            aborted = log.aborted_transactions(Offset(offset), read)
            found.append([txn for txn in aborted if txn.first_offset < end])
    for timestamp in range(NOW - 5, NOW + 60, 3):
        found.append(log.find_by_time(TimestampMs(timestamp)))
    found.append(log.find_max_timestamp())
    return found


HOW = ["gone", "empty", "zeros", "odd length", "random", "of another segment", "much too long",
       "rising nonsense"]  # fmt: skip


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("was_clean", [True, False])
def test_19_no_index_changes_an_answer(how: str, was_clean: bool) -> None:
    disk = SimDisk()
    log = new_log(disk)
    now = int(NOW)
    for number in range(20):
        now += 3
        append(
            log, b"%d" % number * 20, timestamp=now - number % 4, producer_id=number % 2,
            producer_epoch=0, base_sequence=number // 2, is_transactional=True,
        )  # fmt: skip
        if number % 6 == 5:
            abort(log, number % 2, now)
    expected = answers(log)
    end = log.end_offset
    log.close()
    disk = disk.kill()
    kinds = (".index", ".timeindex", ".txnindex") if how == "gone" else (".index", ".timeindex")
    for kind in kinds:
        names = [name for name in disk.list_dir(PARTITION) if name.endswith(kind)]
        contents = [disk.read(f"{PARTITION}/{name}") for name in names]
        for at, name in enumerate(names):
            path = f"{PARTITION}/{name}"
            new = garbage(contents[at], how, contents[at - 1])
            disk.unlink(path)
            if new is not None:
                disk.open(path, create=True).pwrite(new, 0)
    point = end if was_clean else Offset(3)
    log, report = open_at(disk, small_config(), was_clean=was_clean, recovery_point=point)
    assert report.verdict is Verdict.CLEAN
    assert answers(log) == expected


@pytest.mark.parametrize("how", ["rising nonsense", "of another segment"])
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_19_an_index_is_held_against_the_log_when_it_is_used(how: str, kind: str) -> None:
    disk = SimDisk()
    log = new_log(disk)
    for number in range(30):
        append(log, b"%d" % number * (10 + 3 * (number % 5)), timestamp=NOW + 2 * number)
    expected, end = answers(log), log.end_offset
    log.close()
    disk = disk.kill()
    log, _ = open_at(disk, small_config(), was_clean=True, recovery_point=end)
    paths = [segment.path(kind) for segment in list(log.segments)[:-1]]
    contents = [disk.read(path) for path in paths]
    for at, path in enumerate(paths):
        new = wrong_times(at) if kind == ".timeindex" and how == "rising nonsense" else None
        new = new or garbage(contents[at], how, contents[at - 1])
        assert new is not None
        disk.open(path).truncate(0)
        disk.open(path).pwrite(new, 0)
    assert answers(log) == expected


def wrong_times(at: int) -> bytes:
    """Entries in order that point too far ahead."""
    return b"".join(
        (NOW + 3 * i).to_bytes(8, "big") + (4 + i // 8).to_bytes(4, "big") for i in range(20 + at)
    )


def test_19_a_damaged_transaction_index_is_rebuilt() -> None:
    """Unlike the others it is no hint: a missing entry would show aborted records."""
    disk = SimDisk()
    log = new_log(disk)
    for number in range(12):
        append(
            log, b"%d" % number * 30, producer_id=1, producer_epoch=0, base_sequence=number,
            is_transactional=True,
        )  # fmt: skip
        if number % 3 == 2:
            abort(log, 1, NOW)
    expected, end = answers(log), log.end_offset
    log.close()
    disk = disk.kill()
    for name in disk.list_dir(PARTITION):
        if name.endswith(".txnindex"):
            file = disk.open(f"{PARTITION}/{name}")
            file.truncate(file.size() - 3)
    log, report = open_at(disk, small_config(), was_clean=True, recovery_point=end)
    assert answers(log) == expected
    assert sum("not a multiple of 34" in repair for repair in report.repairs) >= 2


def test_19_an_index_that_was_never_synced_is_not_believed() -> None:
    """The recovery point is the end of a segment whose data was flushed while it was active;
    since then it was closed, and its indexes were written but not synced."""
    disk = SimDisk(sector_bytes=64)
    directory = open_dir(disk)
    log = create(directory, small_config())
    append(log, b"a", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    abort(log, 1, NOW)
    log.flush_now()
    log.roll(log.end_offset, NOW)
    log.begin_epoch(LeaderEpoch(1))
    directory.write_recovery_points()  # syncs the names, for the epochs' sake
    for seed in SEEDS:
        found = open_dir(disk.power_loss(SimRandom(seed)))
        (report,) = open_logs(found, small_config())
        assert report.verdict is Verdict.CLEAN
        log = found.logs[TP]
        read = log.read(Offset(0), log.end_offset, 10**6)
        assert isinstance(read, LogRead)
        (aborted,) = log.aborted_transactions(Offset(0), read)
        assert (aborted.first_offset, aborted.last_offset) == (0, 1)


def abort(log: Log, producer_id: int, now: int) -> None:
    answer = log.append_marker(
        ProducerId(producer_id),
        ProducerEpoch(0),
        EndTxnMarker(ControlType.ABORT, CoordinatorEpoch(0)),
        leader_epoch=LeaderEpoch(0),
        now_ms=TimestampMs(now),
    )
    assert isinstance(answer, Appended)


def test_a_snapshot_of_batches_that_were_cut_off_is_not_believed() -> None:
    """Its removal was not synced, the batches that took the place of the old ones were."""
    disk = SimDisk(sector_bytes=64)
    directory = open_dir(disk)
    config = small_config(internal_segment_bytes=10**6)
    log = create(directory, config)
    append(log, b"a")
    for number in range(3):
        append(log, b"b", producer_id=7, producer_epoch=0, base_sequence=number)
    log.roll(log.end_offset, NOW)
    append(log, b"c")
    log.truncate_to(Offset(1), NOW)
    assert log.producers.states.entry(7) is None
    for _ in range(6):
        append(log, b"d", epoch=1)
    log.segments.active.file.sync()
    came_back = 0
    for seed in range(40):
        stopped = disk.power_loss(SimRandom(seed))
        came_back += "00000000000000000004.snapshot" in stopped.list_dir(PARTITION)
        found = open_dir(stopped)
        open_logs(found, config)
        assert found.logs[TP].end_offset == 7
        assert found.logs[TP].producers.states.entry(7) is None
    assert came_back > 0


# --- 24 to 27: producers ------------------------------------------------------------------------


def idempotent(number: int) -> bytes:
    return batch_of([b"%d" % number * 30], producer_id=7, producer_epoch=0, base_sequence=number)


def resend(log: Log, number: int) -> Appended | Rejected:
    return log.append_as_leader(idempotent(number), leader_epoch=LeaderEpoch(1), now_ms=NOW)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("segment_bytes", [110, 600, 10**6])
def test_24_any_of_the_last_five_batches_is_found_again_after_a_restart(
    is_clean: bool, segment_bytes: int
) -> None:
    disk = SimDisk()
    config = small_config(internal_segment_bytes=segment_bytes)
    log, _ = open_at(disk, config)
    for number in range(9):
        resend(log, number)
        append(log, b"of somebody else", epoch=1)
    end = log.end_offset
    if is_clean:
        log.close()
    log, _ = open_at(disk.kill(), config, was_clean=is_clean, recovery_point=end)
    in_one_go(log.refill_producer_windows())
    for number in range(4, 9):
        answer = resend(log, number)
        assert isinstance(answer, Appended), answer
        assert (answer.base_offset, answer.is_duplicate) == (2 * number, True)
    assert isinstance(resend(log, 3), Rejected)
    assert resend(log, 9) == Appended(end, end, TimestampMs(-1))


def test_24_a_batch_does_not_overtake_those_that_a_leader_to_be_refused() -> None:
    log = new_log(SimDisk())
    early = resend(log, 1)
    assert isinstance(early, Rejected) and early.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [isinstance(resend(log, number), Appended) for number in (0, 1)] == [True, True]


def test_25_retention_changes_no_answer_about_duplicates() -> None:
    disk = SimDisk()
    log = new_log(disk)
    resend(log, 0)
    for _ in range(10):
        append(log, b"x" * 100)
    log.advance_high_watermark(log.end_offset)
    before = resend(log, 0), resend(log, 5)
    log.update_config(small_config(retention_bytes=200))
    assert log.apply_retention(NOW) != []
    assert log.log_start > 0
    assert (resend(log, 0), resend(log, 5)) == before


def test_26_a_follower_takes_what_its_leader_accepted_without_asking() -> None:
    """Its own state may lack what came before: another epoch, a gap in the sequence."""
    log = new_log(SimDisk())
    for offset, number in enumerate((5, 3, 3)):
        data = stamped(idempotent(number), offset, 0)
        assert log.append_as_follower(data, NOW) is None
    assert log.end_offset == 3
    entry = log.producers.states.entry(7)
    assert entry is not None
    assert entry.last_sequence == 3


def test_27_a_marker_keeps_a_producer_alive() -> None:
    log = new_log(SimDisk())
    append(log, b"a", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    append(log, b"a", producer_id=2, producer_epoch=0, base_sequence=0)
    assert log.expire_producers(TimestampMs(NOW + 10**6), 10**5) == [2]
    abort(log, 1, NOW + 10**6)
    assert log.expire_producers(TimestampMs(NOW + 10**6 + 99_999), 10**5) == []
    assert log.expire_producers(TimestampMs(NOW + 10**6 + 10**5), 10**5) == [1]


def test_the_last_stable_offset_does_not_fall_below_the_log_start() -> None:
    log = new_log(SimDisk())
    append(log, b"a", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    append(log, b"b", b"c")
    log.advance_high_watermark(log.end_offset)
    assert log.last_stable_offset == 0
    log.raise_log_start(Offset(2))
    assert log.last_stable_offset == 2


def test_an_error_says_what_and_where() -> None:
    disk = SimDisk()
    log = new_log(disk)
    disk.faults.fail("write", ".log", error=errno.EROFS)
    with pytest.raises(LogFailed, match=r"events-0.*Read-only file system"):
        append(log, b"a")
