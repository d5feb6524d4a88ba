"""Offset and time index: byte for byte what Kafka wrote, and a dumb list as the model."""

from __future__ import annotations

import json
import struct
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.kernel.ids import Offset
from tidelog.kernel.real.disk import OsDisk
from tidelog.storage.index import CorruptIndex, OffsetIndex, OffsetPosition, TimeIndex
from tidelog.wire.batch import headers

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
DISK = OsDisk()
BASE = Offset(1000)


def offset_index(path: Path, *, max_bytes: int = 80, active: bool = True) -> OffsetIndex:
    return OffsetIndex.open(DISK, str(path), BASE, max_bytes, active=active)


def time_index(path: Path, *, max_bytes: int = 120, active: bool = True) -> TimeIndex:
    return TimeIndex.open(DISK, str(path), BASE, max_bytes, active=active)


# --- Golden files -----------------------------------------------------------------------------


@dataclass(frozen=True)
class GoldenSegment:
    log: Path
    interval: int
    reopened_at: frozenset[int]
    """Log ends at which the segment was closed and opened again."""

    def __str__(self) -> str:
        return str(self.log.relative_to(GOLDEN))


def log_end(directory: Path) -> int:
    last_log = max(directory.glob("*.log"))
    ends = [header.next_offset for _, header in headers(last_log.read_bytes())]
    return ends[-1] if ends else int(last_log.stem)


def in_time_order(directory: Path) -> tuple[str, str]:
    """run-1, run-2 … and before-1, after-1, before-2 …"""
    word, _, number = directory.name.partition("-")
    return number, {"before": "a", "after": "b"}.get(word, word)


def cleaned_bases(stages: list[Path]) -> set[str]:
    """Names of logs that a cleaner pass among ``stages`` wrote anew."""
    cleaned = set()
    for before, after in pairwise(stages):
        if after.name.startswith("after"):
            for log in after.glob("*.log"):
                old = before / log.name
                if not old.exists() or not log.read_bytes().startswith(old.read_bytes()):
                    cleaned.add(log.name)
    return cleaned


def segments_of_case(case: Path) -> list[GoldenSegment]:
    interval = int(
        json.loads((case / "input.json").read_text())["configs"].get("index.interval.bytes", 4096)
    )
    stages = sorted((d for d in case.iterdir() if d.is_dir()), key=in_time_order)
    found = []
    for number, stage in enumerate(stages):
        ends = frozenset(log_end(earlier) for earlier in stages[:number])
        cleaned = cleaned_bases(stages[: number + 1])
        for log in sorted(stage.glob("*.log")):
            reopened_at = frozenset[int]() if log.name in cleaned else ends
            found.append(GoldenSegment(log, interval, reopened_at))
    return found


def golden_segments() -> list[GoldenSegment]:
    found: list[GoldenSegment] = []
    for case in sorted((GOLDEN / "segments").iterdir()):
        if (case / "input.json").exists() and case.name != "killed":
            found += segments_of_case(case)
    for log in sorted((GOLDEN / "replication").glob("*/1-clean/*/*.log")):
        found.append(GoldenSegment(log, 300, frozenset()))
    return found


def index_batches(segment: GoldenSegment, offsets: OffsetIndex, times: TimeIndex) -> None:
    """The rule of a segment, driven by the batches of its log."""
    bytes_since_entry, largest, largest_offset = 0, -1, offsets.base_offset
    for position, header in headers(segment.log.read_bytes()):
        if header.base_offset in segment.reopened_at and position:
            times.maybe_append(largest, largest_offset, skip_full_check=True)
            bytes_since_entry = 0
        if header.max_timestamp > largest:
            largest, largest_offset = header.max_timestamp, header.last_offset
        if bytes_since_entry > segment.interval:
            offsets.append(header.last_offset, position)
            times.maybe_append(largest, largest_offset)
            bytes_since_entry = 0
        bytes_since_entry += header.size
    times.maybe_append(largest, largest_offset, skip_full_check=True)


def test_indexes_of_all_golden_segments_are_reproduced(tmp_path: Path) -> None:
    segments = golden_segments()
    assert len(segments) == 729 + 30
    wrong = []
    for number, segment in enumerate(segments):
        base = Offset(int(segment.log.stem))
        paths = tmp_path / f"{number}.index", tmp_path / f"{number}.timeindex"
        offsets = OffsetIndex.open(DISK, str(paths[0]), base, 10_000, active=True)
        times = TimeIndex.open(DISK, str(paths[1]), base, 10_000, active=True)
        index_batches(segment, offsets, times)
        offsets.close()
        times.close()
        for path in paths:
            if path.read_bytes() != segment.log.with_suffix(path.suffix).read_bytes():
                wrong.append(f"{segment} {path.suffix}")
    assert wrong == []


@pytest.mark.parametrize(("suffix", "kind"), [("index", OffsetIndex), ("timeindex", TimeIndex)])
def test_every_golden_index_reads_back(
    tmp_path: Path, suffix: str, kind: type[OffsetIndex] | type[TimeIndex]
) -> None:
    files = [file for file in GOLDEN.rglob(f"*.{suffix}") if file.with_suffix(".log").exists()]
    assert len(files) > 800
    for number, file in enumerate(files):
        data = file.read_bytes()
        base = Offset(int(file.stem))
        index = kind.open(DISK, str(file), base, 10_485_760, active=False)
        copy = kind.open(DISK, str(tmp_path / str(number)), base, 4096, active=True)
        for entry in index:
            if isinstance(copy, OffsetIndex):
                copy.append(*entry)
            else:
                copy.maybe_append(*entry)
        copy.write_back()
        preallocated = (tmp_path / str(number)).read_bytes()
        assert len(preallocated) == 4096 // kind.ENTRY_SIZE * kind.ENTRY_SIZE
        assert preallocated.rstrip(b"\0") == data.rstrip(b"\0"), file
        copy.close()
        used = index.entries * kind.ENTRY_SIZE
        assert (tmp_path / str(number)).read_bytes() == data[:used], file
        assert data[used:] == bytes(len(data) - used)


def test_a_killed_active_index_ends_before_its_preallocated_zeros(tmp_path: Path) -> None:
    directory = GOLDEN / "replication/rep/2-divergent-killed/broker-1"
    path = directory / "00000000000000000690.index"
    index = OffsetIndex.open(DISK, str(path), Offset(690), 4096, active=False)
    log = (directory / "00000000000000000690.log").read_bytes()
    batches = {position: header.last_offset for position, header in headers(log)}
    assert index.entries > 5
    assert index.entries * 8 < path.stat().st_size
    for offset, position in index:
        assert batches[position] == offset


# --- Behaviour --------------------------------------------------------------------------------


def test_an_active_index_is_a_hole_of_full_size_until_it_is_trimmed(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    index = offset_index(path, max_bytes=4097)
    assert path.stat().st_size == 4096
    index.append(1003, 70)
    assert path.read_bytes() == bytes(4096)
    index.write_back()
    assert path.read_bytes() == struct.pack(">ii", 3, 70) + bytes(4088)
    index.trim()
    assert path.read_bytes() == struct.pack(">ii", 3, 70)
    index.sync()
    index.grow()
    assert path.stat().st_size == 4096
    index.append(1004, 140)
    index.close()
    assert path.read_bytes() == struct.pack(">iiii", 3, 70, 4, 140)


def test_the_file_to_sync_has_every_entry(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    index = offset_index(path)
    index.append(1003, 70)
    file = index.file_to_sync()
    assert file.pread(8, 0) == struct.pack(">ii", 3, 70)
    file.sync()
    index.trim()
    assert index.file_to_sync() is file
    index.close()


def test_an_untouched_index_is_not_read_or_changed_by_close(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    path.write_bytes(b"junk")
    index = offset_index(path)
    index.close()
    assert path.read_bytes() == b"junk"


def test_lookup_is_the_floor(tmp_path: Path) -> None:
    index = offset_index(tmp_path / "x.index")
    assert index.lookup(1000) == (1000, 0)
    assert index.last_entry == (1000, 0)
    index.append(1005, 100)
    index.append(1010, 200)
    for offset, expected in [
        (0, (1000, 0)), (1004, (1000, 0)), (1005, (1005, 100)), (1009, (1005, 100)),
        (1010, (1010, 200)), (2**62, (1010, 200)),
    ]:  # fmt: skip
        assert index.lookup(offset) == expected
    assert index.last_entry == OffsetPosition(Offset(1010), 200)
    assert index.last_offset == 1010


@pytest.mark.parametrize(
    ("positions", "position", "expected"),
    [
        ([], 0, None),
        ([100], 99, 1001),
        ([100], 100, None),
        ([100], 101, None),
        ([100, 200], 100, 1002),
        ([100, 200], 101, 1002),
        ([100, 200], 200, 1002),
        ([100, 200, 300], 200, 1002),
        ([100, 200, 300], 301, None),
    ],
)
def test_first_entry_behind_a_position(
    tmp_path: Path, positions: list[int], position: int, expected: int | None
) -> None:
    index = offset_index(tmp_path / "x.index")
    for number, at in enumerate(positions, start=1):
        index.append(BASE + number, at)
    assert index.first_at_or_after_position(position) == expected


def test_what_an_offset_index_refuses(tmp_path: Path) -> None:
    index = offset_index(tmp_path / "x.index", max_bytes=31)
    assert index.max_entries == 3
    index.append(1005, 100)
    for offset, position in [
        (1005, 200), (1004, 200), (1006, 100), (999, 200), (1000 + 2**31, 200), (1006, 2**31),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=r"x\.index"):
            index.append(offset, position)
    index.append(1006, 200)
    assert not index.is_full
    index.append(1000 + 2**31 - 1, 2**31 - 1)
    assert index.is_full
    with pytest.raises(ValueError, match="all 3 entries"):
        index.append(1000 + 2**31 - 1, 2**31 - 1)
    index.close()
    assert list(offset_index(tmp_path / "x.index"))[-1] == (1000 + 2**31 - 1, 2**31 - 1)


def test_a_time_index_grows_only_with_time(tmp_path: Path) -> None:
    index = time_index(tmp_path / "x.timeindex", max_bytes=36)
    assert index.last_entry == (-1, 1000)
    assert not index.maybe_append(-1, 1000)
    assert index.maybe_append(0, 1000)
    assert not index.maybe_append(0, 1004)
    assert not index.is_full
    assert index.maybe_append(7, 1004)
    assert index.is_full
    with pytest.raises(ValueError, match="all but one of 3"):
        index.maybe_append(9, 1005)
    with pytest.raises(ValueError, match="does not come after"):
        index.maybe_append(9, 1003, skip_full_check=True)
    assert index.maybe_append(9, 1005, skip_full_check=True)
    assert [index.lookup(ts) for ts in (-1, 0, 6, 7, 8, 100)] == [
        (-1, 1000), (0, 1000), (0, 1000), (7, 1004), (7, 1004), (9, 1005),
    ]  # fmt: skip
    index.close()
    again = time_index(tmp_path / "x.timeindex", active=False)
    assert list(again) == [(0, 1000), (7, 1004), (9, 1005)]


def test_timestamp_zero_at_the_base_offset_is_an_entry(tmp_path: Path) -> None:
    index = time_index(tmp_path / "x.timeindex")
    index.maybe_append(0, 1000)
    index.close()
    assert (tmp_path / "x.timeindex").read_bytes() == bytes(12)
    assert list(time_index(tmp_path / "x.timeindex", active=False)) == [(0, 1000)]


def test_truncation_leaves_no_stale_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    index = offset_index(path)
    for number in range(1, 6):
        index.append(1000 + number, number * 100)
    index.write_back()
    index.truncate_to(1003)
    assert list(index) == [(1001, 100), (1002, 200)]
    assert path.read_bytes() == struct.pack(">iiii", 1, 100, 2, 200) + bytes(64)
    index.append(1007, 250)
    index.close()
    assert path.read_bytes() == struct.pack(">iiiiii", 1, 100, 2, 200, 7, 250)


def test_truncating_a_closed_index_changes_its_file(tmp_path: Path) -> None:
    path = tmp_path / "x.timeindex"
    index = time_index(path)
    index.maybe_append(5, 1001)
    index.maybe_append(6, 1002)
    index.close()
    closed = time_index(path, active=False)
    closed.truncate_to(1002)
    assert path.read_bytes() == struct.pack(">qi", 5, 1)


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 7,
        struct.pack(">iiii", 5, 100, 5, 200),
        struct.pack(">iiii", 5, 100, 4, 200),
        struct.pack(">iiii", 5, 100, 6, 100),
        struct.pack(">iiiiii", 5, 100, 0, 0, 6, 200),
        struct.pack(">ii", -5, 100),
        struct.pack(">ii", 5, -100),
        b"\0" * 8 + b"\1",
    ],
)
def test_damaged_offset_indexes_are_refused_and_can_be_started_over(
    tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "x.index"
    path.write_bytes(data)
    index = offset_index(path, active=False)
    with pytest.raises(CorruptIndex, match=r"x\.index"):
        index.sanity_check()
    with pytest.raises(CorruptIndex):
        index.lookup(1000)
    index.reset()
    assert path.read_bytes() == b""
    index.append(1002, 90)
    index.trim()
    assert path.read_bytes() == struct.pack(">ii", 2, 90)


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 8,
        struct.pack(">qiqi", 5, 1, 5, 2),
        struct.pack(">qiqi", 5, 1, 4, 2),
        struct.pack(">qiqi", 5, 2, 6, 1),
        struct.pack(">qi", -1, 1),
        struct.pack(">qi", 5, -1),
    ],
)
def test_damaged_time_indexes_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.timeindex"
    path.write_bytes(data)
    with pytest.raises(CorruptIndex, match=r"x\.timeindex"):
        time_index(path).sanity_check()


def test_a_missing_file_is_missed_by_an_inactive_index_only(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        offset_index(tmp_path / "x.index", active=False).lookup(1000)
    index = offset_index(tmp_path / "x.index", active=False)
    index.reset()
    assert index.entries == 0
    assert (tmp_path / "x.index").read_bytes() == b""


def test_rename_unload_and_delete(tmp_path: Path) -> None:
    index = offset_index(tmp_path / "a.index")
    index.append(1002, 90)
    index.trim()
    index.rename(str(tmp_path / "b.index"))
    assert not (tmp_path / "a.index").exists()
    index.unload()
    assert index.lookup(1002) == (1002, 90)
    index.delete()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        index.lookup(1000)
    index.delete()


def test_unload_keeps_an_active_index(tmp_path: Path) -> None:
    index = time_index(tmp_path / "a.timeindex")
    index.maybe_append(0, 1000)
    index.unload()
    assert list(index) == [(0, 1000)]


# --- Against a list ---------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 9), st.integers(1, 300)),
        st.tuples(st.just("truncate"), st.integers(0, 60), st.just(0)),
        st.tuples(
            st.sampled_from(["write", "trim", "grow", "reopen", "reset"]), st.just(0), st.just(0)
        ),
    ),
    max_size=25,
)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(steps=STEPS)
def test_offset_index_is_a_sorted_list(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("index") / "x.index"
    index = offset_index(path, max_bytes=800)
    model: list[tuple[int, int]] = []
    for action, number, size in steps:
        last = model[-1] if model else (1000, 0)
        match action:
            case "append":
                entry = (last[0] + number, last[1] + size)
                index.append(*entry)
                model.append(entry)
            case "truncate":
                index.truncate_to(1000 + number)
                model = [entry for entry in model if entry[0] < 1000 + number]
            case "write":
                index.write_back()
            case "trim":
                index.trim()
            case "grow":
                index.grow()
            case "reopen":
                index.close()
                index = offset_index(path, max_bytes=800)
            case "reset":
                index.reset()
                model = []
        assert list(index) == model
        assert index.entries == len(model)
        for offset in range(998, 1064, 7):
            floor = [entry for entry in model if entry[0] <= offset]
            assert index.lookup(offset) == (floor[-1] if floor else (1000, 0))
    index.write_back()
    raw = path.read_bytes()
    packed = b"".join(struct.pack(">ii", offset - 1000, position) for offset, position in model)
    assert raw == packed + bytes(len(raw) - len(packed))


@settings(derandomize=True, max_examples=100, deadline=None)
@given(
    entries=st.lists(st.tuples(st.integers(1, 2**40), st.integers(0, 1000)), max_size=40),
    cut=st.integers(0, 20_000),
)
def test_time_index_is_a_sorted_list(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[int, int]], cut: int
) -> None:
    path = tmp_path_factory.mktemp("index") / "x.timeindex"
    index = time_index(path, max_bytes=1200)
    model: list[tuple[int, int]] = []
    timestamp, offset = -1, 1000
    for more_time, more_offset in entries:
        timestamp, offset = timestamp + more_time, offset + more_offset
        assert index.maybe_append(timestamp, offset)
        model.append((timestamp, offset))
    index.close()
    index = time_index(path, max_bytes=1200)
    index.truncate_to(1000 + cut)
    kept = model[: bisect_left([offset for _, offset in model], 1000 + cut)]
    assert list(index) == kept
    for probe, _ in model:
        for target in (probe - 1, probe, probe + 1):
            floor = [entry for entry in kept if entry[0] <= target]
            assert index.lookup(target) == (floor[-1] if floor else (-1, 1000))
