"""A log directory: opening many logs, making and leaving them, checkpoints, failing, closing."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
from log_lab import (
    NOW,
    ROOT,
    TOPIC_ID,
    TP,
    append,
    create,
    in_segments,
    open_dir,
    open_logs,
    run,
    served,
    small_config,
)

from tidelog.kernel.ids import (
    BrokerEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    TimestampMs,
    TopicId,
    TopicPartition,
    Uuid,
)
from tidelog.kernel.real import OsDisk, SystemRandom
from tidelog.simulation import InlineOffload, SimDisk, SimOffload, SimRandom, World, run_simulation
from tidelog.storage.atomic import write_atomically
from tidelog.storage.checkpoints import read_offset_checkpoint
from tidelog.storage.log import LogFailed
from tidelog.storage.log_dir import (
    LogDirectory,
    LogDirFailed,
    LogDirLocked,
    OpenProgress,
    open_directory,
)
from tidelog.storage.opening import Report, Verdict

CONFIG = small_config()
TPS = [TopicPartition("events", PartitionIndex(n)) for n in range(6)]
MARKER = f"{ROOT}/.tidelog_failed"
CLEAN = f"{ROOT}/.kafka_cleanshutdown"


def filled(disk: SimDisk, tps: list[TopicPartition] = TPS) -> LogDirectory:
    directory = open_dir(disk)
    for tp in tps:
        append(create(directory, CONFIG, tp), b"of %d" % tp.partition)
    return directory


def checkpoint(disk: SimDisk, name: str) -> dict[TopicPartition, Offset]:
    return read_offset_checkpoint(disk, f"{ROOT}/{name}")


# --- opening ----------------------------------------------------------------------------------


def test_logs_are_opened_side_by_side_and_progress_is_told() -> None:
    disk = SimDisk()
    filled(disk).abandon()
    disk = disk.kill()

    async def main(world: World) -> tuple[list[OpenProgress], list[Report], float, float]:
        progress: list[OpenProgress] = []
        directory = open_dir(disk)
        began = world.loop.time()
        reports = await directory.open_logs(
            SimOffload(world.random, max_delay_ms=10),
            lambda tp: CONFIG,
            now_ms=NOW,
            concurrency=3,
            on_progress=progress.append,
        )
        together = world.loop.time() - began
        directory.abandon()
        directory = open_dir(disk)
        began = world.loop.time()
        await directory.open_logs(
            SimOffload(world.random, max_delay_ms=10), lambda tp: CONFIG, now_ms=NOW, concurrency=1
        )
        return progress, reports, together, world.loop.time() - began

    progress, reports, together, one_by_one = run_simulation(main, 3)
    assert [p.done for p in progress] == [1, 2, 3, 4, 5, 6]
    assert {p.total for p in progress} == {6}
    assert sorted(p.last.tp for p in progress) == TPS
    assert [report.tp for report in reports] == TPS
    assert together < one_by_one / 2


def test_each_log_gets_the_settings_of_its_topic_and_its_own_checkpoints() -> None:
    disk = SimDisk()
    directory = filled(disk)
    directory.logs[TPS[1]].flush_now()
    directory.logs[TPS[2]].advance_high_watermark(Offset(1))
    directory.write_recovery_points()
    directory.write_high_watermarks()
    directory.abandon()
    directory = open_dir(disk.kill())
    configs = {tp: small_config(max_message_bytes=1000 + tp.partition) for tp in TPS}
    run(directory.open_logs(InlineOffload(), lambda tp: configs[tp], now_ms=NOW, concurrency=2))
    assert [directory.logs[tp].config for tp in TPS] == [configs[tp] for tp in TPS]
    assert [directory.logs[tp].recovery_point for tp in TPS] == [0, 1, 0, 0, 0, 0]
    assert [directory.logs[tp].high_watermark for tp in TPS] == [0, 0, 1, 0, 0, 0]


def test_a_new_log_is_durable_with_its_topic_id() -> None:
    disk = SimDisk(sector_bytes=64)
    directory = open_dir(disk)
    log = create(directory, CONFIG)
    append(log, b"a")
    log.flush_now()
    batches = in_segments(log)
    for seed in range(12):
        found = open_dir(disk.power_loss(SimRandom(seed)))
        assert found.topic_id(TP) == TOPIC_ID
        open_logs(found, CONFIG)
        assert in_segments(found.logs[TP]) == batches


def test_a_log_that_is_here_already_is_opened_and_not_made_anew() -> None:
    disk = SimDisk()
    directory = filled(disk, [TP])
    directory.abandon()
    log = create(open_dir(disk.kill()), CONFIG)
    assert len(served(log)) == 1


# --- leaving ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("leave", "ending"), [("delete_log", "delete"), ("set_stray", "stray")])
def test_a_partition_leaves_by_a_rename(leave: str, ending: str) -> None:
    disk = SimDisk()
    directory = filled(disk)
    path = getattr(directory, leave)(TPS[2])
    assert path.startswith(f"{ROOT}/events-2.")
    assert path.endswith(f"-{ending}")
    assert TPS[2] not in directory.logs
    assert directory.partitions() == [tp for tp in TPS if tp != TPS[2]]
    directory.write_recovery_points()
    assert TPS[2] not in checkpoint(disk, "recovery-point-offset-checkpoint")


def test_leftovers_of_deleted_topics_are_removed_and_strays_are_not() -> None:
    disk = SimDisk()
    directory = filled(disk)
    deleted, stray = directory.delete_log(TPS[0]), directory.set_stray(TPS[1])
    directory.abandon()
    directory = open_dir(disk.kill())
    assert directory.remove_leftovers() == [deleted.rpartition("/")[2]]
    names = directory.partitions()
    assert names == TPS[2:]
    assert stray.rpartition("/")[2] in disk.kill().list_dir(ROOT)


def test_a_topic_made_again_does_not_inherit_the_checkpoints_of_the_old_one() -> None:
    """A stale log start would empty the new log at the next start, flushed or not."""
    disk = SimDisk(sector_bytes=64)
    directory = filled(disk, [TP])
    log = directory.logs[TP]
    for _ in range(9):
        append(log, b"old")
    log.flush_now()
    log.advance_high_watermark(log.end_offset)
    log.raise_log_start(Offset(8))
    directory.write_recovery_points()
    directory.write_log_starts()
    directory.write_high_watermarks()
    directory.delete_log(TP)
    other = TopicId(Uuid(b"\2" * 16))
    log = run(directory.create_log(InlineOffload(), TP, other, CONFIG, now_ms=NOW))
    assert (log.log_start, log.end_offset) == (0, 0)
    append(log, b"new")
    log.flush_now()
    batches = in_segments(log)
    for seed in range(8):
        found = open_dir(disk.power_loss(SimRandom(seed)))
        (report,) = open_logs(found, CONFIG)
        assert (report.verdict, in_segments(found.logs[TP])) == (Verdict.CLEAN, batches)


# --- checkpoints --------------------------------------------------------------------------------


def test_epochs_are_durable_before_a_recovery_point_passes_them() -> None:
    """Recovery rebuilds epochs only from the recovery point on."""
    disk = SimDisk(sector_bytes=64)
    directory = filled(disk, [TP])
    log = directory.logs[TP]
    log.write_epochs()  # a first, short list
    for epoch in range(1, 4):
        log.roll(log.end_offset, NOW)
        append(log, b"x" * 50, epoch=epoch)
    append(log, b"x" * 400, epoch=3)
    log.flush_now()
    directory.write_recovery_points()
    expected = log.epochs.entries
    assert len(expected) == 4
    for seed in range(8):
        found = open_dir(disk.power_loss(SimRandom(seed)))
        open_logs(found, CONFIG)
        assert found.logs[TP].epochs.entries == expected


def test_only_starts_that_no_file_name_says_are_written() -> None:
    disk = SimDisk()
    directory = filled(disk, TPS[:2])
    for tp in TPS[:2]:
        for _ in range(5):
            append(directory.logs[tp], b"x")
        directory.logs[tp].flush_now()
        directory.logs[tp].advance_high_watermark(Offset(6))
    directory.logs[TPS[0]].raise_log_start(Offset(4))
    directory.write_log_starts()
    assert checkpoint(disk, "log-start-offset-checkpoint") == {TPS[0]: 4}


def test_a_truncation_lowers_the_checkpoints_before_it_cuts() -> None:
    disk = SimDisk()
    directory = filled(disk, [TP])
    log = directory.logs[TP]
    for _ in range(9):
        append(log, b"x")
    log.flush_now()
    log.advance_high_watermark(log.end_offset)
    directory.write_recovery_points()
    directory.write_high_watermarks()
    seen: list[tuple[int, int]] = []

    def look(kind: str, path: str) -> None:
        if kind == "truncate" and path.endswith(".log"):
            disk.on_operation(None)
            points = checkpoint(disk, "recovery-point-offset-checkpoint")
            marks = checkpoint(disk, "replication-offset-checkpoint")
            seen.append((points[TP], marks[TP]))

    disk.on_operation(look)
    log.truncate_to(Offset(4), NOW)
    assert seen == [(4, 4)]


def test_a_truncation_on_a_full_disk_leaves_no_clean_point_behind_the_cut() -> None:
    disk = SimDisk()
    directory = filled(disk, [TP])
    log = directory.logs[TP]
    for _ in range(9):
        append(log, b"x")
    directory.clean_points.set(TP, Offset(9))
    disk.faults.capacity_bytes = disk.used_bytes
    assert log.truncate_to(Offset(4), NOW)
    disk.faults.capacity_bytes = None
    assert directory.clean_points.get(TP) == 4
    for _ in range(9):
        append(log, b"dirty")
    log.flush_now()
    again = open_dir(disk.kill())
    assert again.clean_points.get(TP) is None


def test_a_truncation_that_cannot_take_its_clean_point_back_fails_the_log() -> None:
    disk = SimDisk()
    directory = filled(disk, [TP])
    log = directory.logs[TP]
    for _ in range(9):
        append(log, b"x")
    directory.clean_points.set(TP, Offset(9))
    for kind in ("create", "unlink"):
        disk.faults.fail(kind, "cleaner-offset-checkpoint")
    with pytest.raises(LogFailed, match="truncation failed"):
        log.truncate_to(Offset(4), NOW)


@pytest.mark.parametrize("checkpoints", [False, True])
def test_a_retention_that_comes_undone_in_part_costs_no_record(checkpoints: bool) -> None:
    """The oldest segment is back, the next are gone: a hole, of which the front must go."""
    disk = SimDisk(sector_bytes=64)
    directory = filled(disk, [TP])
    directory.write_recovery_points()
    log = directory.logs[TP]
    for number in range(30):
        append(log, b"%d" % number * 30)
    log.flush_now()
    log.advance_high_watermark(log.end_offset)
    log.update_config(small_config(retention_bytes=800))
    log.apply_retention(NOW)
    if checkpoints:
        directory.write_log_starts()
    promised = served(log)
    assert log.log_start > 10
    for seed in range(40):
        found = open_dir(disk.power_loss(SimRandom(seed)))
        (report,) = open_logs(found, CONFIG)
        assert report.verdict is Verdict.CLEAN
        assert served(found.logs[TP]) == promised


def test_retention_of_a_directory_writes_all_starts_at_once() -> None:
    disk = SimDisk()
    config = small_config(retention_ms=1000)
    directory = open_dir(disk)
    for tp in TPS[:3]:
        log = create(directory, config, tp)
        for _ in range(15):
            append(log, b"x" * 60)
        log.flush_now()
        log.advance_high_watermark(log.end_offset)
    paths: list[str] = []
    disk.on_operation(lambda kind, path: paths.append(path) if kind == "rename" else None)
    done = directory.apply_retention(TimestampMs(NOW + 5000))
    assert sorted(done) == TPS[:3]
    assert [p for p in paths if "log-start" in p] == [f"{ROOT}/log-start-offset-checkpoint.tmp"]
    assert "log-start" in paths[0]
    assert {log.log_start for log in directory.logs.values()} == {15}
    assert directory.apply_retention(TimestampMs(NOW + 5000)) == {}


# --- nearly full ----------------------------------------------------------------------------------


def test_produce_is_refused_while_the_disk_is_nearly_full_and_goes_on_by_itself() -> None:
    disk = SimDisk()
    directory = filled(disk)
    log = directory.logs[TP]
    disk.faults.capacity_bytes = disk.used_bytes + 1000
    assert not directory.limit_writes(min_free_bytes=900)
    append(log, b"fits")
    assert directory.limit_writes(min_free_bytes=999)
    with pytest.raises(AssertionError, match=r"KAFKA_STORAGE_ERROR.*nearly full"):
        append(log, b"refused")
    assert len(served(log)) == 2
    disk.faults.capacity_bytes += 1000
    assert not directory.limit_writes(min_free_bytes=999)
    append(log, b"fits again")


# --- failing --------------------------------------------------------------------------------------


def two_directories() -> tuple[SimDisk, list[LogDirectory]]:
    disk = SimDisk(sector_bytes=64)
    directories = [open_dir(disk, f"/{name}", seed=at) for at, name in enumerate("ab")]
    for directory, tp in zip(directories, TPS[:2], strict=True):
        log = create(directory, CONFIG, tp)
        append(log, b"flushed")
        log.flush_now()
        directory.write_recovery_points()
        append(log, b"in the cache only" * 9)
    return disk, directories


def test_one_directory_fails_and_the_others_serve() -> None:
    disk, (first, second) = two_directories()
    first.fail("fsync failed")
    first.fail("and again")
    assert first.failure == "fsync failed"
    with pytest.raises(LogFailed, match="fsync failed"):
        append(first.logs[TPS[0]], b"x")
    append(second.logs[TPS[1]], b"x")
    second.logs[TPS[1]].flush_now()
    assert not first.close_cleanly(BrokerEpoch(1))
    assert second.close_cleanly(BrokerEpoch(1))
    assert disk.stat("/a/.kafka_cleanshutdown") is None
    assert disk.stat("/b/.kafka_cleanshutdown") is not None
    assert disk.read("/a/.tidelog_failed") == b"fsync failed"


@pytest.mark.parametrize("how", ["marker", "told"])
def test_a_failed_directory_comes_back_cut_to_its_recovery_points(how: str) -> None:
    disk, (first, _) = two_directories()
    log = first.logs[TPS[0]]
    promised = in_segments(log)[:1]
    disk.faults.fail("sync", "/a/events-0")
    with pytest.raises(OSError, match="Input/output"):
        log.flush_now()
    if how == "told":
        disk.faults.fail("create", "/a/", times=None)  # the marker cannot be written
    first.fail("fsync failed")
    first.write_recovery_points()
    disk.faults.heal()
    for stopped in (disk.power_loss(SimRandom(4)), disk.kill()):
        found = open_dir(stopped, "/a", was_failed=how == "told")
        assert found.is_distrusted
        (report,) = open_logs(found, CONFIG)
        assert report.verdict is Verdict.SUSPECT
        log = found.logs[TPS[0]]
        assert (log.end_offset, log.recovery_point, in_segments(log)) == (1, 1, promised)
        assert not found.is_distrusted
        assert stopped.stat("/a/.tidelog_failed") is None
        append(log, b"refetched", epoch=3)


def test_what_was_flushed_before_a_failure_is_vouched_for() -> None:
    """Others count on it: the high watermark follows flushed ends, not recovery points."""
    disk, (first, _) = two_directories()
    log = first.logs[TPS[0]]
    append(log, b"flushed", epoch=3)
    log.flush_now()
    promised = in_segments(log)
    append(log, b"doubtful", epoch=3)
    disk.faults.fail("sync", "/a/events-0/00")
    with pytest.raises(OSError, match="Input/output"):
        log.flush_now()
    first.fail("fsync failed")
    found = open_dir(disk.power_loss(SimRandom(4)), "/a")
    (report,) = open_logs(found, CONFIG)
    assert report.verdict is Verdict.SUSPECT
    assert in_segments(found.logs[TPS[0]]) == promised
    assert found.logs[TPS[0]].epochs.latest_epoch == 3


@pytest.mark.parametrize("cut", [0, 1], ids=["damaged", "torn"])
def test_a_last_batch_that_was_damaged_is_not_taken_for_torn(cut: int) -> None:
    """It may have been flushed and told of, though no recovery point says so yet."""
    disk, (first, _) = two_directories()
    log = first.logs[TPS[0]]
    append(log, b"flushed", epoch=3)
    log.flush_now()
    path = f"{log.directory}/{0:020}.log"
    stopped = disk.kill()
    size = len(stopped.read(path))
    if cut:
        file = stopped.open(path)
        file.truncate(size - cut)
        file.close()
    else:
        stopped.flip_bit(path, size - 1, 3)
    (report,) = open_logs(open_dir(stopped, "/a"), CONFIG)
    assert report.verdict is (Verdict.TORN_TAIL if cut else Verdict.SUSPECT)


@pytest.mark.parametrize("kind", ["sync", "sync_dir"])
def test_a_failure_is_remembered_though_nothing_can_be_synced(kind: str) -> None:
    """Hazard 44: the next process would take pages that were lost for what is on disk."""
    disk, (first, _) = two_directories()
    append(first.logs[TPS[0]], b"doubtful", epoch=3)
    disk.faults.fail(kind, "/a", times=None)  # type: ignore[arg-type]
    first.fail("fsync failed")
    stopped = disk.kill()
    stopped.faults.heal()
    assert open_dir(stopped, "/a").is_distrusted


def test_a_disk_that_hangs_is_not_touched_again() -> None:
    disk, (first, _) = two_directories()
    append(first.logs[TPS[0]], b"flushed", epoch=3)
    first.logs[TPS[0]].flush_now()

    def hang(kind: str, path: str) -> None:
        raise AssertionError(f"{kind} of {path} would wait for ever")

    disk.on_operation(hang)
    first.fail("a flush hangs", is_hung=True)
    assert first.failure == first.logs[TPS[0]].failure == "a flush hangs"


def test_a_disk_that_fails_again_while_trust_is_regained() -> None:
    disk, (first, _) = two_directories()
    log = first.logs[TPS[0]]
    disk.faults.fail("sync", "/a/events-0")
    with pytest.raises(OSError, match="Input/output"):
        log.flush_now()
    first.fail("fsync failed")
    stopped = disk.kill()
    stopped.faults.fail("sync", "/a/events-0")
    found = open_dir(stopped, "/a")
    with pytest.raises(LogDirFailed, match="events-0: truncation failed"):
        open_logs(found, CONFIG)
    assert open_dir(stopped.kill(), "/a").is_distrusted


def test_the_marker_of_a_failure_stays_until_every_log_is_cut_and_flushed() -> None:
    """Whatever stops the start that was to regain trust, the next one distrusts again."""
    disk = SimDisk(sector_bytes=64)
    directory = filled(disk)
    for log in directory.logs.values():
        log.flush_now()
    directory.write_recovery_points()
    for log in directory.logs.values():
        append(log, b"doubtful")
    directory.fail("fsync failed")
    changes = 0
    while True:
        stopped = disk.power_loss(SimRandom(changes))
        left = changes

        def fail_later(kind: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(5, "Input/output error", path)

        stopped.on_operation(fail_later)
        try:
            found = open_dir(stopped)
            open_logs(found, CONFIG)
        except (OSError, LogDirFailed):
            stopped.on_operation(None)
            again = open_dir(stopped.power_loss(SimRandom(changes)))
            # Either it had come to its end, or it is still distrusted.
            reports = open_logs(again, CONFIG)
            assert {log.end_offset for log in again.logs.values()} == {1}
            assert [report.verdict for report in reports] == [Verdict.SUSPECT] * len(TPS)
            changes += 1
        else:
            break
    assert changes > 20


def verdicts(directory: LogDirectory) -> list[Verdict]:
    return [report.verdict for report in open_logs(directory, CONFIG)]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_suspicion_is_kept_until_the_cluster_knows(is_damaged: bool) -> None:
    """A start that cut logs may end before it has told anybody, and be closed cleanly even."""
    disk = SimDisk()
    directory = filled(disk)
    for log in directory.logs.values():
        log.flush_now()
    directory.write_recovery_points()
    directory.fail("fsync failed")
    all_suspect = [Verdict.SUSPECT] * len(TPS)
    disk = disk.power_loss(SimRandom(1))
    cutting = open_dir(disk)
    assert verdicts(cutting) == all_suspect
    assert cutting.close_cleanly(BrokerEpoch(7))
    if is_damaged:
        write_atomically(disk, f"{cutting.path}/suspect-replicas-checkpoint", b"0\n9\n")
    disk = disk.power_loss(SimRandom(2))
    telling = open_dir(disk)
    assert verdicts(telling) == all_suspect
    for _ in telling.forget_suspects():
        pass
    disk = disk.power_loss(SimRandom(3))
    assert verdicts(open_dir(disk)) == [Verdict.CLEAN] * len(TPS)


def test_a_directory_is_not_distrusted_for_nothing() -> None:
    disk = SimDisk()
    filled(disk).abandon()
    directory = open_dir(disk.kill())
    assert not directory.is_distrusted
    (report, *_) = open_logs(directory, CONFIG)
    assert report.verdict is Verdict.CLEAN


# --- closing --------------------------------------------------------------------------------------


def test_a_clean_close_vouches_for_the_logs_once() -> None:
    disk = SimDisk()
    assert filled(disk).close_cleanly(BrokerEpoch(42))
    assert disk.read(CLEAN) == b'{"version":0,"brokerEpoch":42}'
    disk = disk.kill()
    directory = open_dir(disk)
    assert directory.clean_shutdown is not None
    assert directory.clean_shutdown.broker_epoch == 42
    assert disk.stat(CLEAN) is None
    reports = open_logs(directory, CONFIG)
    assert {(r.verdict, r.bytes_verified, r.end_offset) for r in reports} == {(Verdict.CLEAN, 0, 1)}
    directory.abandon()
    assert open_dir(disk.kill()).clean_shutdown is None


def test_abandoning_promises_nothing() -> None:
    disk = SimDisk()
    filled(disk).abandon()
    directory = open_dir(disk)
    assert directory.clean_shutdown is None
    assert {report.bytes_verified > 0 for report in open_logs(directory, CONFIG)} == {True}


def test_one_failed_log_makes_the_close_unclean_for_all() -> None:
    disk = SimDisk()
    directory = filled(disk)
    directory.logs[TPS[3]].fail("write failed")
    assert not directory.close_cleanly(BrokerEpoch(1))
    assert disk.stat(CLEAN) is None
    directory = open_dir(disk.kill())
    assert {r.verdict for r in open_logs(directory, CONFIG)} == {Verdict.CLEAN}


def test_a_log_that_cannot_be_closed_makes_the_close_unclean() -> None:
    disk = SimDisk()
    directory = filled(disk)
    disk.faults.fail("sync", "events-2")
    assert not directory.close_cleanly(BrokerEpoch(1))
    assert disk.stat(CLEAN) is None
    open_dir(disk)  # the lock was given back


# --- the lock between processes -------------------------------------------------------------------


def _hold(path: str, ready: object, done: object) -> None:
    directory = open_directory(OsDisk(), path, SystemRandom(1), cluster_id="lab", node_id=NodeId(1))
    ready.set()  # type: ignore[attr-defined]
    done.wait(30)  # type: ignore[attr-defined]
    directory.abandon()


def test_a_directory_held_by_another_process_is_refused(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    path = str(tmp_path / "data")
    holder = context.Process(target=_hold, args=(path, ready, done))
    holder.start()
    try:
        assert ready.wait(30)
        with pytest.raises(LogDirLocked, match="in use by another process"):
            open_dir(OsDisk(), path)
    finally:
        done.set()
        holder.join(30)
    open_dir(OsDisk(), path).abandon()
