"""Log directories read from their files, among them those that Apache Kafka 4.3.1 wrote."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from tidelog.kernel.ids import Offset, PartitionIndex, TopicPartition
from tidelog.kernel.real import OsDisk
from tidelog.pipeline.errors import CorruptData, WrongOptions
from tidelog.pipeline.segments_options import parse_segments_options
from tidelog.pipeline.segments_plan import SegmentRange, plan
from tidelog.pipeline.segments_read import read_segment
from tidelog.storage.checkpoints import write_offset_checkpoint
from tidelog.wire.batch import headers
from tidelog.wire.control import ControlType, build_marker_batch, read_marker
from tidelog.wire.records import Record, build_batch, decode_records

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "segments"
CASES = sorted(path.parent.name for path in GOLDEN.glob("*/files") if any(path.glob("*.log")))
Row = tuple[int, int, bytes | None, bytes | None, tuple[Any, ...]]


def tasks_of(path: Path, **given: object) -> tuple[Any, list[SegmentRange]]:
    said = {name: str(value) for name, value in given.items()}
    options = parse_segments_options({"path": str(path), "includeHeaders": "true", **said})
    return options, plan(OsDisk(), options)


def read(path: Path, **given: object) -> list[Row]:
    options, tasks = tasks_of(path, **given)
    rows: list[Row] = []
    for task in tasks:
        for batch in read_segment(OsDisk(), options, task):
            batch.validate(full=True)
            moments = batch.column("timestamp").cast("int64").to_pylist()
            rows += [
                (row["offset"], micros // 1000, row["key"], row["value"],
                 tuple((one["key"], one["value"]) for one in row["headers"] or ()))
                for row, micros in zip(
                    batch.drop_columns(["timestamp"]).to_pylist(), moments, strict=True
                )
            ]  # fmt: skip
    return rows


def offsets(path: Path, **given: object) -> list[int]:
    return [row[0] for row in read(path, **given)]


def slowly(directory: Path, *, committed: bool = False) -> list[Row]:
    """The same by a dumb walk: a record is shown if the next marker of its producer says so."""
    found: list[tuple[int | None, Row]] = []
    markers: list[tuple[int, int, bool]] = []
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for position, header in headers(data):
            batch = data[position : position + header.size]
            if header.is_control:
                marker = read_marker(batch, header)
                if marker is not None:
                    markers.append((header.producer_id, header.base_offset, marker.is_commit))
                continue
            producer = header.producer_id if header.is_transactional else None
            found += [(producer, tuple(record)) for record in decode_records(batch, header)]  # type: ignore[misc]
    if not committed:
        return [row for _, row in found]
    shown: list[Row] = []
    for transactional, row in found:
        ends = [ok for pid, at, ok in markers if pid == transactional and at > row[0]]
        if transactional is not None and not ends:
            return shown  # an open transaction: nothing behind its start is stable
        if transactional is None or ends[0]:
            shown.append(row)
    return shown


@pytest.fixture
def golden(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    target = tmp_path / "t-0"
    shutil.copytree(GOLDEN / request.param / "files", target)
    return target


@pytest.mark.parametrize("golden", CASES, indirect=True)
def test_what_kafka_wrote_is_read(golden: Path) -> None:
    expected = slowly(golden)
    assert read(golden) == expected
    assert read(golden.parent, maxBytesPerPartition=1) == expected, "in as many tasks as can be"


@pytest.mark.parametrize("golden", [name for name in CASES if "txn" in name], indirect=True)
def test_only_what_was_committed_is_read(golden: Path) -> None:
    expected = slowly(golden, committed=True)
    assert read(golden, isolationLevel="read_committed") == expected
    assert read(golden, isolationLevel="read_committed", maxBytesPerPartition=1) == expected


# --- made by hand ---


def write(directory: Path, base: int, *batches: bytes) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base:020d}.log"
    path.write_bytes(b"".join(batches))
    return path


def batch(first: int, count: int = 10, **more: Any) -> bytes:
    """Offset n at time 1000 n."""
    records = [Record(n, 1000 * n, None, b"x" * 50, ()) for n in range(first, first + count)]
    return build_batch(records, base_offset=first, **more)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Three segments of 100 offsets each, with indexes as a broker writes them."""
    for base in (0, 100, 200):
        batches = [batch(base + n) for n in range(0, 100, 10)]
        write(tmp_path / "t-0", base, *batches)
        index, times, position = b"", b"", 0
        for number, one in enumerate(batches):
            last = number * 10 + 9
            if number % 2:
                index += last.to_bytes(4, "big") + position.to_bytes(4, "big")
                times += (1000 * (base + last)).to_bytes(8, "big") + last.to_bytes(4, "big")
            position += len(one)
        stem = tmp_path / "t-0" / f"{base:020d}"
        stem.with_suffix(".index").write_bytes(index + bytes(80))
        stem.with_suffix(".timeindex").write_bytes(times)
    write(tmp_path / "__consumer_offsets-0", 0, batch(0))
    write(tmp_path / "gone-0.0123456789abcdef0123456789abcdef-delete", 0, batch(0))
    write(tmp_path / "u-3", 0, batch(0))
    return tmp_path


def test_internal_and_deleted_topics_are_left_out(log_dir: Path) -> None:
    _, tasks = tasks_of(log_dir)
    assert sorted({(task.topic, task.partition) for task in tasks}) == [("t", 0), ("u", 3)]
    _, tasks = tasks_of(log_dir, topics="__consumer_offsets")
    assert [task.topic for task in tasks] == ["__consumer_offsets"]
    _, tasks = tasks_of(log_dir, topicsPattern="u|v")
    assert [task.topic for task in tasks] == ["u"]


def bases(tasks: list[SegmentRange]) -> list[int]:
    return [int(Path(task.path).stem) for task in tasks]


@pytest.mark.parametrize(
    ("given", "segments", "first", "last"),
    [
        ({}, [0, 100, 200], 0, 299),
        ({"startingOffsets": '{"t":{"0":150}}'}, [100, 200], 150, 299),
        ({"endingOffsets": '{"t":{"0":150}}'}, [0, 100], 0, 149),
        ({"startingOffsets": '{"t":{"0":155}}', "endingOffsets": '{"t":{"0":156}}'},
         [100], 155, 155),
        ({"startingTimestamp": 150_500}, [100, 200], 151, 299),
        ({"endingTimestamp": 150_000}, [0, 100, 200], 0, 149),
        ({"startingTimestamp": 199_001}, [200], 200, 299),
    ],
)  # fmt: skip
def test_what_cannot_matter_is_not_opened(
    log_dir: Path, given: dict[str, object], segments: list[int], first: int, last: int
) -> None:
    _, tasks = tasks_of(log_dir, topics="t", **given)
    assert bases(tasks) == segments
    found = offsets(log_dir, topics="t", **given)
    assert found == list(range(first, last + 1))


def test_an_index_lets_a_task_start_in_the_middle(log_dir: Path) -> None:
    _, [task, *_] = tasks_of(log_dir, topics="t", startingOffsets='{"t":{"0":55}}')
    assert task.position > 0
    _, [later, *_] = tasks_of(log_dir, topics="t", startingTimestamp=55_000)
    assert later.position > 0
    _, pieces = tasks_of(log_dir, topics="t", maxBytesPerPartition=1)
    assert len(pieces) == 18
    assert offsets(log_dir, topics="t", maxBytesPerPartition=1) == list(range(300))


BETWEEN_BATCHES = b"".join(number.to_bytes(4, "big") for number in (15, 100, 45, 300))


@pytest.mark.parametrize("content", [b"\1" * 16, b"abc", bytes(80), BETWEEN_BATCHES])
def test_an_index_that_makes_no_sense_is_done_without(log_dir: Path, content: bytes) -> None:
    for path in (log_dir / "t-0").glob("*index"):
        path.write_bytes(content)
    assert offsets(log_dir, topics="t", maxBytesPerPartition=1, startingTimestamp=50_000) == [
        *range(50, 300)
    ]


def test_deleted_records_stay_deleted(log_dir: Path) -> None:
    place = TopicPartition("t", PartitionIndex(0))
    checkpoint = str(log_dir / "log-start-offset-checkpoint")
    write_offset_checkpoint(OsDisk(), checkpoint, {place: Offset(123)})
    assert offsets(log_dir, topics="t")[0] == 123
    assert offsets(log_dir / "t-0")[0] == 123


def test_replicas_of_one_partition_are_not_read_twice(log_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(log_dir / "t-0", tmp_path / "other" / "t-0")
    with pytest.raises(WrongOptions, match=r"t-0 is both in .* and in"):
        tasks_of(Path(f"{log_dir},{tmp_path / 'other'}"))
    with pytest.raises(WrongOptions, match="is not a directory"):
        tasks_of(tmp_path / "nowhere")


def test_an_open_transaction_hides_what_follows(tmp_path: Path) -> None:
    said = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    marker = {"coordinator_epoch": 0, "producer_epoch": 0, "timestamp": 5}
    write(
        tmp_path / "t-0",
        0,
        batch(0, producer_id=1, **said),
        batch(10),
        build_marker_batch(ControlType.ABORT, producer_id=1, base_offset=20, **marker),
    )
    write(tmp_path / "t-0", 21, batch(21, 9, producer_id=1, **said), batch(30))
    assert offsets(tmp_path, isolationLevel="read_committed") == [*range(10, 20)]
    assert len(offsets(tmp_path)) == 39


def damaged(log_dir: Path, position: int) -> None:
    path = log_dir / "t-0" / f"{100:020d}.log"
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("byte", [70, 9, 16, 30])
def test_damage_is_an_error_or_left_out_and_counted(
    log_dir: Path, byte: int, caplog: pytest.LogCaptureFixture
) -> None:
    """In the records, in the length, in the magic, in the header: of the third batch."""
    damaged(log_dir, 2 * len(batch(100)) + byte)
    with pytest.raises(CorruptData, match="set failOnCorrupt to false"):
        read(log_dir, topics="t")
    with caplog.at_level(logging.WARNING, "tidelog.pipeline"):
        found = offsets(log_dir, topics="t", failOnCorrupt="false")
    assert found == [*range(120), *range(130, 300)]
    assert f"1 damaged places, {len(batch(100))} bytes" in caplog.text


def test_only_the_end_of_a_log_may_be_torn(log_dir: Path) -> None:
    for base, is_last in ((100, False), (200, True)):
        path = log_dir / "t-0" / f"{base:020d}.log"
        whole = path.read_bytes()
        path.write_bytes(whole[:-20])
        if is_last:
            assert offsets(log_dir, topics="t") == [*range(290)]
        else:
            with pytest.raises(CorruptData, match=r"only .* are there"):
                read(log_dir, topics="t")
        path.write_bytes(whole)


def test_room_that_was_preallocated_is_no_damage(log_dir: Path) -> None:
    path = log_dir / "t-0" / f"{200:020d}.log"
    path.write_bytes(path.read_bytes() + bytes(5000))
    assert offsets(log_dir, topics="t") == [*range(300)]
