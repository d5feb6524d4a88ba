"""Files that are damaged, foreign, or in the wrong place: a clear error or a repair that is told.

Never a wrong record: what is served after each kind of damage is a beginning of what was
written, byte for byte.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from log_lab import (
    CLUSTER,
    NODE,
    NOW,
    PARTITION,
    ROOT,
    TOPIC_ID,
    TP,
    append,
    batch_of,
    create,
    in_segments,
    open_at,
    open_dir,
    open_logs,
    run,
    served,
    small_config,
    stamped,
)

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import BrokerEpoch, LeaderEpoch, NodeId, Offset, TopicId, Uuid
from tidelog.simulation import InlineOffload, SimDisk, SimRandom
from tidelog.storage.leader_bounds import LeaderBounds
from tidelog.storage.log import Appended, Log, LogFailed, OffsetsNotContiguous
from tidelog.storage.log_dir import LogDirFailed, LogDirLocked, TopicIdMismatch
from tidelog.storage.names import segment_file
from tidelog.storage.node_files import (
    CorruptNodeFile,
    DuplicateDirectoryId,
    InconsistentClusterId,
    InconsistentNodeId,
    verify_same_cluster,
)
from tidelog.storage.opening import Report, Verdict
from tidelog.storage.validation import Rejected
from tidelog.wire.batch import BatchHeader, read_header
from tidelog.wire.errors import CorruptBatch

LOG = segment_file(PARTITION, 0, ".log")
ONE_SEGMENT = small_config(internal_segment_bytes=10**6)
COUNT = 5


def written(disk: SimDisk, *, is_closed: bool = False) -> list[bytes]:
    """A log of a few batches in one segment; its batches."""
    log, _ = open_at(disk, ONE_SEGMENT)
    for number in range(COUNT):
        append(log, b"value %d" % number, b"and another", epoch=number // 2)
    batches = in_segments(log)
    if is_closed:
        log.close()
    return batches


def change(disk: SimDisk, path: str, edit: Callable[[bytearray], None]) -> None:
    data = bytearray(disk.read(path))
    edit(data)
    file = disk.open(path)
    file.truncate(0)
    file.pwrite(data, 0)
    file.close()


def reopened(disk: SimDisk, **known: Any) -> tuple[list[bytes], Report]:
    log, report = open_at(disk.kill(), ONE_SEGMENT, **known)
    found = served(log)
    assert found == in_segments(log)
    assert log.end_offset == (read_header(found[-1]).next_offset if found else 0)
    append(log, b"and on it goes", epoch=9)
    return found, report


# --- the log file ---------------------------------------------------------------------------


def test_a_log_cut_off_at_any_byte_ends_with_its_last_whole_batch() -> None:
    batches = written(SimDisk())
    sizes = [sum(map(len, batches[:count])) for count in range(COUNT + 1)]
    for size in range(sizes[-1]):
        disk = SimDisk()
        written(disk)
        disk.open(LOG).truncate(size)
        found, report = reopened(disk)
        whole = max(count for count in range(COUNT + 1) if sizes[count] <= size)
        assert found == batches[:whole]
        assert report.verdict is (Verdict.CLEAN if size in sizes else Verdict.TORN_TAIL)


@pytest.mark.parametrize("was_clean", [True, False])
def test_bytes_missing_below_the_recovery_point_make_the_log_suspect(was_clean: bool) -> None:
    batches = written(SimDisk())
    for missing in (1, len(batches[-1]), len(batches[-1]) + 9):
        disk = SimDisk()
        written(disk, is_closed=True)
        file = disk.open(LOG)
        file.truncate(file.size() - missing)
        found, report = reopened(disk, was_clean=was_clean, recovery_point=Offset(2 * COUNT))
        assert found == batches[: len(found)]
        assert len(found) in (COUNT - 1, COUNT - 2)
        assert report.verdict is Verdict.SUSPECT
        assert report.repairs != []


HEADER_ALONE = [*range(8), *range(12, 16)]
"""Base offset and leader epoch: the checksum does not cover them."""


def flipped(position: int, bit: int, **known: Any) -> tuple[list[bytes], list[bytes], Report]:
    disk = SimDisk()
    batches = written(disk)
    disk.flip_bit(LOG, position, bit, durable=False)
    return (batches, *reopened(disk, **known))


def test_a_flipped_bit_is_never_served() -> None:
    position = 0
    for number, data in enumerate(written(SimDisk())):
        for at in range(len(data)):
            bits = range(8) if at in HEADER_ALONE else (at % 8,)
            for bit in bits:
                judge_flip(number, at, *flipped(position + at, bit))
        position += len(data)


def judge_flip(
    number: int, at: int, batches: list[bytes], found: list[bytes], report: Report
) -> None:
    is_last = number == COUNT - 1
    if 12 <= at < 16 and len(found) > number:
        # A leader epoch that fits its neighbours: the record is right, the file cannot tell.
        epochs = [read_header(data).leader_epoch for data in found]
        assert epochs == sorted(epochs)
        assert [data[16:] for data in found] == [data[16:] for data in batches]
        return
    # A neighbour that contradicts it takes the batch with it, and in doubt the one before.
    assert found == batches[: len(found)]
    assert number - 1 <= len(found) <= number
    if at not in HEADER_ALONE:
        assert len(found) == number
        assert report.verdict is (Verdict.TORN_TAIL if is_last else Verdict.SUSPECT)
    elif not is_last:
        assert report.verdict is Verdict.SUSPECT
    assert report.verdict is not Verdict.CLEAN
    assert any("cut at" in repair for repair in report.repairs)


@pytest.mark.parametrize("number", range(COUNT))
def test_damage_below_the_recovery_point_or_high_watermark_is_suspect(number: int) -> None:
    data = written(SimDisk())
    position = sum(map(len, data[:number])) + 70
    for known in ({"recovery_point": Offset(10)}, {"high_watermark": Offset(10)}):
        _, found, report = flipped(position, 3, **known)
        assert len(found) == number
        assert report.verdict is Verdict.SUSPECT


def test_what_is_cut_off_a_suspect_log_is_kept_aside() -> None:
    disk = SimDisk()
    batches = written(disk)
    disk.flip_bit(LOG, len(batches[0]) + 70, 0, durable=False)
    damaged = disk.read(LOG)
    disk = disk.kill()
    _, report = open_at(disk, ONE_SEGMENT)
    (kept,) = [name for name in disk.list_dir(PARTITION) if name.endswith(".suspect")]
    assert disk.read(f"{PARTITION}/{kept}") == damaged[len(batches[0]) :]
    assert any(kept in repair for repair in report.repairs)
    assert report.bytes_cut == len(damaged) - len(batches[0])
    assert (report.end_offset, report.last_epoch) == (2, 0)


def test_damage_in_an_earlier_segment_takes_the_later_ones_with_it() -> None:
    """Ignoring them would leave a hole that looks like data."""
    disk = SimDisk()
    log, _ = open_at(disk, small_config())
    for number in range(20):
        append(log, b"%d" % number * 30)
    bases, batches = log.segments.bases, in_segments(log)
    assert len(bases) > 3
    second = segment_file(PARTITION, bases[1], ".log")
    disk.flip_bit(second, 70, 0, durable=False)
    disk = disk.kill()
    log, report = open_at(disk, small_config())
    assert in_segments(log) == [d for d in batches if read_header(d).base_offset < bases[1]]
    assert report.verdict is Verdict.SUSPECT
    assert log.segments.bases == bases[:2]
    assert len([n for n in disk.list_dir(PARTITION) if n.endswith(".suspect")]) == len(bases) - 1


@pytest.mark.parametrize("zeros", [1, 60, 61, 5000])
def test_a_tail_of_zeros_is_cut_off(zeros: int) -> None:
    disk = SimDisk()
    batches = written(disk)
    change(disk, LOG, lambda data: data.extend(bytes(zeros)))
    found, report = reopened(disk)
    assert found == batches
    assert report.verdict is Verdict.TORN_TAIL


def test_a_preallocated_file_ends_with_its_last_batch() -> None:
    disk = SimDisk()
    config = small_config(preallocate=True, internal_segment_bytes=4000)
    log, _ = open_at(disk, config)
    append(log, b"a")
    append(log, b"b")
    batches, size = in_segments(log), log.size
    assert disk.stat(LOG).size == 4000  # type: ignore[union-attr]
    disk = disk.kill()
    log, report = open_at(disk, config)
    assert (in_segments(log), report.verdict) == (batches, Verdict.TORN_TAIL)
    append(log, b"c")
    log.close()
    assert disk.stat(LOG).size > size  # type: ignore[union-attr]
    assert len(served(open_at(disk.kill(), config, was_clean=True)[0])) == 3


def renumbered(data: bytes, offset: int) -> bytes:
    return stamped(data, offset, read_header(data).leader_epoch)


@pytest.mark.parametrize("offset", [0, 1, 3])
def test_offsets_that_go_backwards_end_the_log(offset: int) -> None:
    disk = SimDisk()
    batches = written(disk)
    batches[3] = renumbered(batches[3], offset)
    change(disk, LOG, lambda data: data.__setitem__(slice(None), b"".join(batches)))
    found, report = reopened(disk)
    assert found == batches[:3]
    assert report.verdict is Verdict.SUSPECT
    assert any(f"base offset {offset} is below 6" in repair for repair in report.repairs)


def test_a_batch_longer_than_the_file_ends_the_log() -> None:
    disk = SimDisk()
    batches = written(disk)
    position = sum(map(len, batches[:-1])) + 8
    length = (10**6).to_bytes(4, "big")
    change(disk, LOG, lambda data: data.__setitem__(slice(position, position + 4), length))
    found, report = reopened(disk)
    assert found == batches[:-1]
    assert report.verdict is Verdict.TORN_TAIL
    assert any("only" in repair for repair in report.repairs)


def test_offsets_beyond_the_next_segment_end_the_log() -> None:
    disk = SimDisk()
    log, _ = open_at(disk, small_config())
    for number in range(8):
        append(log, b"%d" % number * 30)
    first, second = log.segments.bases[:2]
    kept = [d for d in in_segments(log) if read_header(d).base_offset < second]
    extra = batch_of([b"late"], base_offset=second, leader_epoch=0)
    change(disk, segment_file(PARTITION, first, ".log"), lambda data: data.extend(extra))
    log, report = open_at(disk.kill(), small_config())
    assert in_segments(log) == kept
    assert report.verdict is Verdict.SUSPECT


def test_a_missing_segment_ends_the_log_before_the_hole() -> None:
    disk = SimDisk()
    log, _ = open_at(disk, small_config())
    for number in range(16):
        append(log, b"%d" % number * 30)
    bases, batches = log.segments.bases, in_segments(log)
    for suffix in (".log", ".index", ".timeindex"):
        disk.unlink(segment_file(PARTITION, bases[1], suffix))
    log, report = open_at(disk.kill(), small_config())
    assert in_segments(log) == [d for d in batches if read_header(d).base_offset < bases[1]]
    assert report.verdict is Verdict.SUSPECT
    assert any("the next segment begins at" in repair for repair in report.repairs)


def test_a_hole_in_a_compacted_log_is_kept_and_told() -> None:
    config = small_config(cleanup_policy=("compact",))
    disk = SimDisk()
    log, _ = open_at(disk, config)
    for number in range(16):
        append(log, b"%d" % number * 30)
    bases, batches = log.segments.bases, in_segments(log)
    disk.unlink(segment_file(PARTITION, bases[1], ".log"))
    log, report = open_at(disk.kill(), config)
    assert in_segments(log) == [
        d for d in batches if not bases[1] <= read_header(d).base_offset < bases[2]
    ]
    assert report.verdict is Verdict.SUSPECT


def test_all_files_gone_after_a_clean_shutdown_is_suspect() -> None:
    disk = SimDisk()
    written(disk, is_closed=True)
    disk = disk.kill()
    disk.remove_tree(PARTITION)
    log, report = open_at(disk, ONE_SEGMENT, was_clean=True, recovery_point=Offset(10))
    assert log.end_offset == 0
    assert report.verdict is Verdict.SUSPECT


def test_damage_that_recovery_does_not_read_is_met_with_full_verification() -> None:
    """Producers are replayed over old segments; a length that cannot be stops the walk there."""
    disk = SimDisk()
    log, _ = open_at(disk, small_config())
    for number in range(16):
        append(log, b"%d" % number * 30)
    bases, batches, end = log.segments.bases, in_segments(log), log.end_offset
    log.close()
    for name in disk.list_dir(PARTITION):
        if name.endswith((".snapshot", "index")):
            disk.unlink(f"{PARTITION}/{name}")
    second = segment_file(PARTITION, bases[1], ".log")
    change(disk, second, lambda data: data.__setitem__(slice(8, 12), bytes(4)))
    log, report = open_at(disk.kill(), small_config(), was_clean=True, recovery_point=end)
    assert in_segments(log) == [d for d in batches if read_header(d).base_offset < bases[1]]
    assert report.verdict is Verdict.SUSPECT
    assert any("the whole log is verified" in repair for repair in report.repairs)


# --- indexes and other files beside it ----------------------------------------------------------


def test_an_index_larger_than_its_log_is_rebuilt_and_told() -> None:
    disk = SimDisk()
    written(disk, is_closed=True)
    entries = b"".join(
        (i + 1).to_bytes(4, "big") + (10**6 + i).to_bytes(4, "big") for i in range(99)
    )
    disk.open(segment_file(PARTITION, 0, ".index")).pwrite(entries, 0)
    log, report = open_at(disk.kill(), ONE_SEGMENT, was_clean=True, recovery_point=Offset(10))
    assert len(served(log)) == COUNT
    assert any("the log ends at" in repair for repair in report.repairs)


def test_indexes_may_have_been_larger_under_older_settings() -> None:
    disk = SimDisk()
    log, _ = open_at(disk, small_config(internal_segment_bytes=10**6, segment_index_bytes=10**4))
    for number in range(60):
        append(log, b"%d" % number * 30, timestamp=NOW + number)
    batches = in_segments(log)
    log, report = open_at(disk.kill(), small_config(segment_index_bytes=60))
    assert (in_segments(log), report.verdict) == (batches, Verdict.CLEAN)


def test_foreign_files_are_left_alone() -> None:
    disk = SimDisk()
    batches = written(disk)
    names = ["notes.txt", "1.log", "00000000000000000000.log.bak", "x" * 20 + ".log", ".hidden"]
    for name in names:
        disk.open(f"{PARTITION}/{name}", create=True).pwrite(b"not ours", 0)
    disk.make_dirs(f"{PARTITION}/lost+found")
    disk = disk.kill()
    log, report = open_at(disk, ONE_SEGMENT)
    assert (served(log), report.verdict, report.repairs) == (batches, Verdict.CLEAN, [])
    assert {disk.read(f"{PARTITION}/{name}") for name in names} == {b"not ours"}


def test_foreign_directories_are_no_partitions() -> None:
    disk = SimDisk()
    directory = open_dir(disk)
    create(directory, ONE_SEGMENT)
    for name in ("lost+found", "no-partition-", "events-00", "events-0.abc-delete"):
        disk.make_dirs(f"{ROOT}/{name}")
    assert directory.partitions() == [TP]


def test_a_producer_snapshot_that_does_not_check_costs_a_longer_replay() -> None:
    disk = SimDisk()
    log, _ = open_at(disk, small_config())
    for number in range(12):
        append(log, b"%d" % number * 30, producer_id=3, producer_epoch=0, base_sequence=number)
    end = log.end_offset
    log.close()
    for name in disk.list_dir(PARTITION):
        if name.endswith(".snapshot"):
            change(disk, f"{PARTITION}/{name}", lambda data: data.__setitem__(8, data[8] ^ 1))
    log, _ = open_at(disk.kill(), small_config(), was_clean=True, recovery_point=end)
    entry = log.producers.states.entry(3)
    assert entry is not None
    assert entry.last_sequence == 11


EPOCHS = f"{PARTITION}/leader-epoch-checkpoint"


@pytest.mark.parametrize("content", [b"0\n9\n0 0\n", b"\xff\xfe", b"0\n1\nx y\n", b"7\n0\n", None])
@pytest.mark.parametrize("was_clean", [True, False])
def test_leader_epochs_are_read_from_the_batches_if_their_file_is_no_good(
    content: bytes | None, was_clean: bool
) -> None:
    disk = SimDisk()
    written(disk, is_closed=True)
    disk.unlink(EPOCHS)
    if content is not None:
        disk.open(EPOCHS, create=True).pwrite(content, 0)
    log, report = open_at(disk.kill(), ONE_SEGMENT, was_clean=was_clean, recovery_point=Offset(10))
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (1, 4), (2, 8)]
    assert any("leader-epoch-checkpoint" in r for r in report.repairs) == (content is not None)


def test_epochs_of_batches_that_were_cut_off_are_not_believed() -> None:
    """Epoch 3 was truncated away, and its offsets were written again by epoch 2."""
    disk = SimDisk()
    log, _ = open_at(disk, ONE_SEGMENT)
    append(log, b"a", b"b", epoch=2)
    append(log, b"c", b"d", epoch=3)
    log.write_epochs()
    log.truncate_to(Offset(2), NOW)
    append(log, b"e", b"f", epoch=2)
    log, report = open_at(disk.kill(), ONE_SEGMENT)
    assert report.verdict is Verdict.CLEAN
    assert [tuple(entry) for entry in log.epochs.entries] == [(2, 0)]


def test_epochs_that_were_cut_off_behind_the_first_verified_segment_are_not_believed() -> None:
    disk = SimDisk()
    log, _ = open_at(disk, ONE_SEGMENT)
    append(log, b"a", b"b", epoch=2)
    log.roll(Offset(2), NOW)
    append(log, b"c", epoch=2)
    append(log, b"d", epoch=3)
    log.write_epochs()
    log.truncate_to(Offset(3), NOW)
    append(log, b"e", b"f", epoch=2)
    log, report = open_at(disk.kill(), ONE_SEGMENT, recovery_point=Offset(3))
    assert report.verdict is Verdict.CLEAN
    assert [tuple(entry) for entry in log.epochs.entries] == [(2, 0)]


def test_epochs_reach_back_to_a_log_start_that_was_forgotten() -> None:
    """The start was raised and the epochs cut to it; then only the epochs were written."""
    disk = SimDisk()
    log, _ = open_at(disk, small_config())
    for number in range(8):
        append(log, b"%d" % number * 60, epoch=number // 3)
    log.advance_high_watermark(log.end_offset)
    log.raise_log_start(Offset(5))
    log.write_epochs()
    end = log.end_offset
    log, _ = open_at(disk.kill(), small_config(), recovery_point=end)
    assert log.log_start == 0
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (1, 3), (2, 6)]


# --- checkpoints and identity -------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
    ],
)
def test_a_checkpoint_that_makes_no_sense_costs_work_and_is_told(name: str) -> None:
    disk = SimDisk()
    directory = open_dir(disk)
    log = create(directory, ONE_SEGMENT)
    append(log, b"a")
    assert directory.close_cleanly(BrokerEpoch(3))
    path = f"{ROOT}/{name}"
    change(disk, path, lambda data: data.extend(b"rubbish"))
    directory = open_dir(disk.kill())
    (told,) = directory.repairs
    assert name in told
    (report,) = open_logs(directory, ONE_SEGMENT)
    assert (report.verdict, report.bytes_verified > 0) == (Verdict.CLEAN, True)
    assert len(served(directory.logs[TP])) == 1


def test_a_directory_of_another_cluster_or_node_is_refused() -> None:
    disk = SimDisk()
    open_dir(disk).abandon()
    with pytest.raises(InconsistentClusterId, match="/data belongs to cluster lab, this node to x"):
        open_dir(disk, cluster_id="x")
    with pytest.raises(InconsistentNodeId, match="/data belongs to node 1, this is 2"):
        open_dir(disk, node_id=NodeId(2))
    open_dir(disk).abandon()  # the lock was given back


def test_two_directories_with_one_id_are_refused() -> None:
    disk = SimDisk()
    first, second = open_dir(disk, "/a", seed=1), open_dir(disk, "/b", seed=1)
    assert first.directory_id == second.directory_id
    with pytest.raises(DuplicateDirectoryId, match="/b and /a both have the id"):
        verify_same_cluster([(d.path, d.meta) for d in (first, second)])


META = f"{ROOT}/meta.properties"


@pytest.mark.parametrize(
    "content",
    [b"", b"version=1\n", b"version=2\nnode.id=1\ncluster.id=lab\n", b"\x00\xff", b"version=1\n"
     b"node.id=one\ncluster.id=lab\n"],
)  # fmt: skip
def test_a_meta_properties_that_makes_no_sense_is_refused_by_name(content: bytes) -> None:
    disk = SimDisk()
    open_dir(disk).abandon()
    disk.unlink(META)
    disk.open(META, create=True).pwrite(content, 0)
    with pytest.raises(CorruptNodeFile, match=r"/data/meta\.properties"):
        open_dir(disk)


def test_an_old_directory_without_an_id_gets_one() -> None:
    disk = SimDisk()
    disk.make_dirs(ROOT)
    disk.open(META, create=True).pwrite(b"version=0\nbroker.id=1\ncluster.id=lab\n", 0)
    directory = open_dir(disk)
    assert (directory.meta.cluster_id, directory.meta.node_id) == (CLUSTER, NODE)
    given = directory.directory_id
    directory.abandon()
    assert open_dir(disk).directory_id == given


def test_a_partition_of_another_topic_id_is_refused() -> None:
    disk = SimDisk()
    directory = open_dir(disk)
    create(directory, ONE_SEGMENT)
    directory.abandon()
    directory = open_dir(disk)
    other = TopicId(Uuid(b"\2" * 16))
    with pytest.raises(TopicIdMismatch, match=f"events-0 belongs to topic {TOPIC_ID}, not to"):
        run(directory.create_log(InlineOffload(), TP, other, ONE_SEGMENT, now_ms=NOW))
    assert directory.topic_id(TP) == TOPIC_ID


def test_a_partition_metadata_that_makes_no_sense_is_refused_by_name() -> None:
    disk = SimDisk()
    directory = open_dir(disk)
    create(directory, ONE_SEGMENT)
    change(disk, f"{PARTITION}/partition.metadata", lambda data: data.__setitem__(0, 0))
    with pytest.raises(CorruptNodeFile, match=r"events-0/partition\.metadata"):
        directory.topic_id(TP)


def test_a_directory_in_use_is_refused() -> None:
    disk = SimDisk()
    directory = open_dir(disk)
    with pytest.raises(LogDirLocked, match="/data is in use by another process"):
        open_dir(disk)
    directory.abandon()
    open_dir(disk)


# --- no space, no permission, no disk -------------------------------------------------------------


def produce(log: Log, number: int) -> Appended | Rejected:
    """Every batch of another kind, so that all files of a log are written."""
    data = batch_of(
        [b"%d" % number * 30],
        timestamp=NOW + number,
        producer_id=4,
        producer_epoch=0,
        base_sequence=number,
    )
    return log.append_as_leader(data, leader_epoch=LeaderEpoch(0), now_ms=NOW)


@pytest.mark.parametrize("kind", ["write", "create", "truncate", "rename"])
@pytest.mark.parametrize("landed_bytes", [0, 50])
def test_a_full_disk_at_any_write_costs_that_batch_alone(kind: str, landed_bytes: int) -> None:
    total, changes = 14, changes_of(kind)
    assert len(changes) >= 2
    for skip in range(len(changes)):
        disk = SimDisk()
        log, _ = open_at(disk, small_config())
        disk.faults.fail(kind, "events-0", error=errno.ENOSPC, skip=skip, landed_bytes=landed_bytes)  # type: ignore[arg-type]
        for number in range(total):
            answer = produce(log, number)
            if isinstance(answer, Rejected):
                assert answer.code is ErrorCode.KAFKA_STORAGE_ERROR
                assert "No space left" in answer.message
                active = log.segments.active  # what landed of the batch was cut off again
                assert active.file.size() == active.size
                assert [h.base_offset for h in headers_of(served(log))] == list(range(number))
                answer = produce(log, number)
            assert isinstance(answer, Appended)
            assert (answer.base_offset, answer.is_duplicate) == (number, False)
        batches = in_segments(log)
        assert len(batches) == total
        disk.faults.heal()
        reopen_both_ways(disk, log, batches)


def changes_of(kind: str) -> list[str]:
    """The paths of the changes of this kind that the appends make."""
    paths: list[str] = []
    disk = SimDisk()
    log, _ = open_at(disk, small_config())
    disk.on_operation(lambda found, path: paths.append(path) if found == kind else None)
    for number in range(14):
        produce(log, number)
    return paths


def headers_of(batches: list[bytes]) -> list[BatchHeader]:
    return [read_header(data) for data in batches]


def reopen_both_ways(disk: SimDisk, log: Log, batches: list[bytes]) -> None:
    disk = disk.kill()
    found, report = open_at(disk, small_config())
    assert (in_segments(found), report.verdict) == (batches, Verdict.CLEAN)
    found.close()
    again, report = open_at(
        disk.kill(), small_config(), was_clean=True, recovery_point=log.end_offset
    )
    assert (served(again), report.repairs) == (batches, [])


def test_a_smaller_batch_after_a_failed_roll_is_not_hidden_by_the_new_segment() -> None:
    """The roll made the files of a new segment, then found no room to close the old one."""
    disk = SimDisk()
    log, _ = open_at(disk, small_config())
    number = 0
    while log.size + 110 < 600:
        produce(log, number)
        number += 1
    disk.faults.fail("write", "index", error=errno.ENOSPC)
    refused = produce_values(log, b"x" * 300)
    assert isinstance(refused, Rejected)
    append(log, b"s")
    assert len(log.segments) == 1
    batches = in_segments(log)
    log.close()
    log, report = open_at(
        disk.kill(), small_config(), was_clean=True, recovery_point=log.end_offset
    )
    assert (served(log), report.repairs) == (batches, [])


def produce_values(log: Log, *values: bytes) -> Appended | Rejected:
    return log.append_as_leader(batch_of(values), leader_epoch=LeaderEpoch(0), now_ms=NOW)


def test_reads_retention_and_deletion_go_on_when_the_disk_is_full() -> None:
    disk = SimDisk()
    log, _ = open_at(disk, small_config(file_delete_delay_ms=0))
    for number in range(12):
        produce(log, number)
    log.advance_high_watermark(log.end_offset)
    disk.faults.capacity_bytes = disk.used_bytes
    assert isinstance(produce(log, 12), Rejected)
    assert len(served(log)) == 12
    log.update_config(small_config(retention_bytes=400, file_delete_delay_ms=0))
    assert log.apply_retention(NOW) != []
    assert log.removal.unlink_due(NOW) > 0
    disk = disk.kill()  # the files that were unlinked are no longer held open
    log, _ = open_at(disk, small_config())
    assert isinstance(produce(log, 12), Appended)


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES])
def test_a_directory_that_may_not_be_written_is_a_clear_error(error: int) -> None:
    disk = SimDisk()
    open_dir(disk).abandon()
    disk.faults.read_only_error = error
    with pytest.raises(OSError, match=r"\.lock") as caught:
        open_dir(disk)
    assert caught.value.errno == error


def test_a_new_directory_that_may_not_be_made_is_a_clear_error() -> None:
    disk = SimDisk()
    disk.faults.read_only_error = errno.EACCES
    with pytest.raises(PermissionError, match="/data"):
        open_dir(disk)


def test_a_disk_that_cannot_be_read_takes_its_directory_offline() -> None:
    disk = SimDisk()
    directory = open_dir(disk)
    append(create(directory, ONE_SEGMENT), b"a")
    directory.abandon()
    disk = disk.kill()
    disk.faults.fail("read", ".log", times=None)
    directory = open_dir(disk)
    with pytest.raises(LogDirFailed, match=r"/data: opening its logs failed: .*00\.log"):
        open_logs(directory, ONE_SEGMENT)
    assert directory.failure is not None
    assert not directory.close_cleanly(BrokerEpoch(1))


# --- from a leader --------------------------------------------------------------------------------


def test_a_follower_refuses_what_does_not_follow() -> None:
    log, _ = open_at(SimDisk(), ONE_SEGMENT)
    good = batch_of([b"a", b"b"], base_offset=0, leader_epoch=0)
    log.append_as_follower(good, NOW)
    with pytest.raises(OffsetsNotContiguous, match="offset 1 does not follow the log end 2"):
        log.append_as_follower(batch_of([b"c"], base_offset=1, leader_epoch=0), NOW)
    broken = bytearray(batch_of([b"c"], base_offset=2, leader_epoch=0))
    broken[-3] ^= 1
    with pytest.raises(CorruptBatch, match="stored CRC"):
        log.append_as_follower(broken, NOW)
    backwards = batch_of([b"c"], base_offset=2, leader_epoch=0, last_offset_delta=-1)
    with pytest.raises(CorruptBatch, match="last offset delta -1"):
        log.append_as_follower(backwards, NOW)
    bounds = LeaderBounds(Offset(3), LeaderEpoch(3))
    far = batch_of([b"c"], base_offset=2 + 2**52, leader_epoch=0)
    with pytest.raises(CorruptBatch, match="lies beyond its leader's log, which ends at 3"):
        log.append_as_follower(far, NOW, bounds)
    late = batch_of([b"c"], base_offset=2, leader_epoch=4096)
    with pytest.raises(CorruptBatch, match="of epoch 4096 lies beyond"):
        log.append_as_follower(late, NOW, bounds)
    assert served(log) == [good]
    last = batch_of([b"c"], base_offset=2, leader_epoch=3)
    assert log.append_as_follower(last, NOW, bounds) is None
    assert served(log) == [good, last]


def test_an_empty_follower_that_asked_within_a_batch_takes_the_whole_of_it() -> None:
    log, _ = open_at(SimDisk(), ONE_SEGMENT)
    log.truncate_fully_and_start_at(Offset(7), NOW)
    data = batch_of([b"a"] * 4, base_offset=5, leader_epoch=0)
    assert log.append_as_follower(data, NOW) is None
    assert (log.log_start, log.end_offset, served(log)) == (5, 9, [data])


def test_a_batch_without_a_leader_epoch_is_taken_as_it_is() -> None:
    disk = SimDisk()
    log, _ = open_at(disk, ONE_SEGMENT)
    data = batch_of([b"a"], base_offset=0, leader_epoch=-1)
    assert log.append_as_follower(data, NOW) is None
    assert log.epochs.entries == ()
    log, report = open_at(disk.kill(), ONE_SEGMENT)
    assert (served(log), report.verdict) == ([data], Verdict.CLEAN)


def test_offsets_too_far_apart_for_one_segment_begin_another() -> None:
    disk = SimDisk()
    config = small_config(cleanup_policy=("compact",))
    log, _ = open_at(disk, config)
    near = batch_of([b"a"], base_offset=0, leader_epoch=0)
    far = batch_of([b"b"], base_offset=2**31 + 5, leader_epoch=0)
    log.append_as_follower(near + far, NOW)
    assert log.segments.bases == [0, 2**31 + 5]
    log, report = open_at(disk.kill(), config)
    assert (served(log), report.verdict) == ([near, far], Verdict.CLEAN)


def test_a_failed_log_says_so_and_not_more() -> None:
    log, _ = open_at(SimDisk(), ONE_SEGMENT)
    log.fail("first reason")
    log.fail("second reason")
    with pytest.raises(LogFailed, match="events-0: first reason"):
        append(log, b"a")


def test_random_bytes_are_never_a_log() -> None:
    for seed in range(40):
        disk = SimDisk()
        disk.make_dirs(PARTITION)
        disk.open(LOG, create=True).pwrite(SimRandom(seed).randbytes(50 + 37 * seed), 0)
        found, report = reopened(disk)
        assert (found, report.verdict) == ([], Verdict.TORN_TAIL)
