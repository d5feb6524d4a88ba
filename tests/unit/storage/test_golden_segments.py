"""The same batches appended here leave the same files as Apache Kafka 4.3.1 left."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import SEGMENTS, Case, Replay, cases, open_clean, open_with

from tidelog.kernel.ids import LeaderEpoch, Offset, TimestampMs
from tidelog.storage.log import Appended, Log
from tidelog.storage.recovery import Verdict
from tidelog.storage.validation import Rejected
from tidelog.wire.batch import headers
from tidelog.wire.records import decode_records

RECOMPRESSED = {case.name for case in cases() if "recompress" in case.name}
FIRST_RUN = {"files", "run-1", "before-1"}
ALL_DIRECTORIES = [(case, name) for case in cases() for name in case.directories]
CLEAN_DIRECTORIES = [
    (case, name) for case, name in ALL_DIRECTORIES if (case.name, name) != ("killed", "killed")
]


def ids(pair: tuple[Case, str]) -> str:
    return f"{pair[0].name}/{pair[1]}"


def files_of(directory: Path) -> dict[str, bytes]:
    ignored = {"dump.txt", "partition.metadata"}
    return {p.name: p.read_bytes() for p in directory.iterdir() if p.name not in ignored}


def assert_same_files(made: Path, golden: Path, *, without: frozenset[str] = frozenset()) -> None:
    ours, theirs = files_of(made), files_of(golden)
    assert sorted(ours.keys() - without) == sorted(theirs.keys() - without)
    ours = {name: data for name, data in ours.items() if name not in without}
    assert [name for name in ours if ours[name] != theirs[name]] == []


def stray_snapshots(golden: Path) -> frozenset[str]:
    """Snapshots that the next opening of the directory removes, in Kafka as well."""
    bases = sorted(path.stem for path in golden.glob("*.log"))
    snapshots = sorted(golden.glob("*.snapshot"))
    below_start = [path.name for path in snapshots if path.stem <= bases[0]]
    return frozenset(
        [*below_start, *(path.name for path in snapshots[:-1] if path.stem not in bases)]
    )


def produce_all(case: Case, directory: str, log: Log, run: int) -> None:
    replay = Replay(case, log, case.batches(directory))
    for step, answer in replay.run(case.runs()[run - 1], run):
        expected = step["response"]
        match answer:
            case Appended():
                # After a restart Kafka remembers one batch per producer, here it is five, so
                # a resend that Kafka refuses may be recognised as a duplicate.
                assert expected["errorCode"] == 0 or answer.is_duplicate, (step, answer)
                if expected["errorCode"] == 0:
                    assert answer.base_offset == expected["baseOffset"]
                    assert answer.log_append_time_ms == expected["logAppendTimeMs"]
            case Rejected():
                assert answer.code == expected["errorCode"], (step, answer)


def first_directory(case: Case) -> str:
    return next(name for name in case.directories if name in FIRST_RUN)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_the_first_run_leaves_the_same_files(case: Case, tmp_path: Path) -> None:
    golden = first_directory(case)
    made = tmp_path / str(case.tp)
    log = open_clean(made, case.tp, case.config(), now_ms=0)
    produce_all(case, golden, log, 1)
    log.close()
    if case.name in RECOMPRESSED:
        # Other compressors choose other bytes for the same records.
        ours = [decode_records(data) for data in batches_in(made)]
        assert ours == [decode_records(data) for _, data in case.batches(golden)]
    else:
        assert_same_files(made, case.path / golden)


def batches_in(directory: Path) -> list[bytes]:
    return [
        data[position : position + header.size]
        for path in sorted(directory.glob("*.log"))
        for data in [path.read_bytes()]
        for position, header in headers(data)
    ]


LATER_RUNS = [
    # case, files to start from, run, files to end with
    ("epochs", "run-1", 2, "run-2"),
    ("epochs", "run-2", 3, "run-3"),
    ("epochs-idempotent", "run-1", 2, "run-2"),
    ("killed", "run-1", 2, "run-2"),
    ("delete-records-all", "run-2", 3, "run-3"),
    ("retention-all", "run-2", 3, "run-3"),
    *(
        (case.name, f"after-{n}", 2 * n + 1, f"before-{n + 1}")
        for case in cases()
        for n in (1, 2)
        if {f"after-{n}", f"before-{n + 1}"} <= set(case.directories)
    ),
]


@pytest.mark.parametrize(("name", "start", "run", "end"), LATER_RUNS)
def test_a_reopened_log_goes_on_with_the_same_files(
    name: str, start: str, run: int, end: str, tmp_path: Path
) -> None:
    case = Case(name)
    made = case.copy(start, tmp_path / str(case.tp))
    log = open_clean(
        made, case.tp, case.config(), now_ms=0, log_start=log_start_after(case, run - 1)
    )
    log.advance_high_watermark(log.end_offset)
    produce_all(case, end, log, run)
    log.close()
    assert_same_files(made, case.path / end)


def log_start_after(case: Case, run: int) -> int:
    path = SEGMENTS / "_logdir" / f"run-{run}" / "log-start-offset-checkpoint"
    for line in path.read_text().splitlines()[2:]:
        topic, partition, offset = line.split()
        if (topic, int(partition)) == (case.tp.topic, case.tp.partition):
            return int(offset)
    return 0


@pytest.mark.parametrize("pair", CLEAN_DIRECTORIES, ids=ids)
def test_opening_and_closing_changes_nothing(pair: tuple[Case, str], tmp_path: Path) -> None:
    case, directory = pair
    made = case.copy(directory, tmp_path / str(case.tp))
    log = open_clean(made, case.tp, case.config(), now_ms=0)
    assert log.end_offset == end_offset(case, directory)
    restore_epoch(case, directory, log)
    log.close()
    golden = case.path / directory
    assert_same_files(made, golden, without=stray_snapshots(golden))


def restore_epoch(case: Case, directory: str, log: Log) -> None:
    """An epoch without a batch is dropped on opening, and begun again by its leader."""
    lines = (case.path / directory / "leader-epoch-checkpoint").read_text().splitlines()
    log.begin_epoch(LeaderEpoch(int(lines[-1].split()[0])))


def end_offset(case: Case, directory: str) -> Offset:
    snapshots = sorted((case.path / directory).glob("*.snapshot"))
    return Offset(int(snapshots[-1].stem)) if snapshots else Offset(0)


def written_by_the_cleaner(directory: str) -> bool:
    """Its lists of aborted transactions cannot be made from a log that has lost their data."""
    return directory.startswith("after")


# Where a segment was reopened and went on, its index shows it: the byte counter began anew.
NEVER_REOPENED = [
    (case, name)
    for case, name in CLEAN_DIRECTORIES
    if name in FIRST_RUN or written_by_the_cleaner(name)
]


@pytest.mark.parametrize("pair", NEVER_REOPENED, ids=ids)
def test_indexes_deleted_and_rebuilt_are_the_same(pair: tuple[Case, str], tmp_path: Path) -> None:
    case, directory = pair
    made = case.copy(directory, tmp_path / str(case.tp))
    for path in made.glob("*index"):
        if not (written_by_the_cleaner(directory) and path.suffix == ".txnindex"):
            path.unlink()
    log = open_clean(made, case.tp, case.config(), now_ms=0)
    restore_epoch(case, directory, log)
    log.close()
    golden = case.path / directory
    assert_same_files(made, golden, without=stray_snapshots(golden))


def test_a_killed_log_recovers_as_kafka_recovered_it(tmp_path: Path) -> None:
    case = Case("killed")
    made = case.copy("killed", tmp_path / str(case.tp))
    log, report = open_with(made, case.tp, case.config(), recovery_point=143)
    assert report.verdict is Verdict.CLEAN
    log.begin_epoch(LeaderEpoch(14))
    log.close()
    assert_same_files(made, case.path / "recovered")


def test_retention_by_size_and_time_and_delete_records(tmp_path: Path) -> None:
    for name in ("retention-size", "retention-time", "retention-all"):
        case = Case(name)
        made = case.copy("run-1", tmp_path / name)
        alter = next(s for s in case.input["steps"] if s.get("api") == "IncrementalAlterConfigs")
        change = alter["request"]["resources"][0]["configs"]
        config = case.config(**{c["name"].replace(".", "_"): c["value"] for c in change})
        log = open_clean(made, case.tp, config, now_ms=alter["at"])
        log.advance_high_watermark(log.end_offset)
        log.begin_epoch(LeaderEpoch(2))
        log.apply_retention(TimestampMs(alter["at"]))
        log.removal.unlink_due(TimestampMs(2**62))
        log.close()
        assert_same_files(made, case.path / "run-2")


@pytest.mark.parametrize("name", ["delete-records", "delete-records-mid-segment"])
def test_delete_records_moves_the_start_and_frees_whole_segments(name: str, tmp_path: Path) -> None:
    case = Case(name)
    made = case.copy("run-1", tmp_path / name)
    call = next(s for s in case.input["steps"] if s.get("api") == "DeleteRecords")
    log = open_clean(made, case.tp, case.config(), now_ms=call["at"])
    log.advance_high_watermark(log.end_offset)
    log.begin_epoch(LeaderEpoch(2))
    wanted = call["request"]["topics"][0]["partitions"][0]["offset"]
    log.raise_log_start(Offset(wanted))
    log.apply_retention(TimestampMs(call["at"]))
    log.removal.unlink_due(TimestampMs(2**62))
    assert log.log_start == log_start_after(case, 2)
    log.close()
    assert_same_files(made, case.path / "run-2")
