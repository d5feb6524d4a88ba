"""Walking batches in a file, and the edges of reading by offset and by time."""

from __future__ import annotations

import pytest
from log_lab import NOW, append, batch_of, in_segments, open_at, served, small_config
from log_world import LogWorld

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import LeaderEpoch, Offset, TimestampMs
from tidelog.simulation import SimDisk, SimFile
from tidelog.storage import scan
from tidelog.storage.log import Log
from tidelog.storage.read import LogRead
from tidelog.storage.scan import (
    Flaw,
    VerifyProgress,
    find_sound_batch,
    scan_headers,
    verify_batches,
)
from tidelog.wire.errors import CorruptBatch

# --- scanning -----------------------------------------------------------------------------------


def file_of(*parts: bytes | bytearray) -> SimFile:
    file = SimDisk().open("/file", create=True)
    file.pwrite(b"".join(parts), 0)
    return file


def numbered(count: int, *, size: int = 10) -> list[bytes]:
    return [batch_of([b"%d" % n * size], base_offset=n, leader_epoch=n // 3) for n in range(count)]


def walk(file: SimFile, size: int | None = None, *, start: int = 0) -> tuple[list[int], str | None]:
    """Base offsets of the sound batches, and what is wrong behind them."""
    progress = VerifyProgress(Offset(start), Offset(10**9))
    offsets: list[int] = []
    for found in verify_batches(file, file.size() if size is None else size, progress):
        if isinstance(found, Flaw):
            return offsets, found.reason
        offsets += [header.base_offset for _, header in found]
    return offsets, None


@pytest.mark.parametrize("chunk_bytes", [61, 100, 200, 10**6])
def test_headers_are_found_whatever_the_chunk(chunk_bytes: int) -> None:
    batches = numbered(9)
    file = file_of(*batches)
    found = list(scan_headers(file, 0, file.size(), chunk_bytes=chunk_bytes))
    assert [header.base_offset for _, header in found] == list(range(9))
    assert [position for position, _ in found] == [sum(map(len, batches[:n])) for n in range(9)]


def test_scanning_ends_before_a_batch_that_is_not_all_there() -> None:
    batches = numbered(3)
    file = file_of(*batches)
    for end in range(len(batches[0]), file.size()):
        whole = sum(1 for n in (1, 2, 3) if sum(map(len, batches[:n])) <= end)
        assert len(list(scan_headers(file, 0, end))) == whole


def test_scanning_does_not_go_round_in_circles() -> None:
    file = file_of(numbered(1)[0], bytes(100))
    with pytest.raises(CorruptBatch, match="its length field is 0, the least is 49"):
        list(scan_headers(file, 0, file.size()))


@pytest.mark.parametrize("verify_bytes", [61, 100, 150, 400, 10**6])
def test_verifying_finds_all_whatever_the_chunk(
    verify_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "_VERIFY_BYTES", verify_bytes)
    batches = [
        *numbered(9, size=3),
        batch_of([b"x" * 300], base_offset=9, leader_epoch=3),
        batch_of([b"y"], base_offset=10, leader_epoch=3),
    ]
    assert walk(file_of(*batches)) == (list(range(11)), None)
    damaged = bytearray(b"".join(batches))
    position = sum(map(len, batches[:9])) + 100
    damaged[position] ^= 1
    offsets, reason = walk(file_of(damaged))
    assert offsets == list(range(9))
    assert reason is not None
    assert f"batch at {sum(map(len, batches[:9]))}" in reason


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (batch_of([b"a"], base_offset=2, leader_epoch=1), "base offset 2 is below 3"),
        (batch_of([b"a"], base_offset=3, leader_epoch=0), "leader epoch falls from 1 to 0"),
        (
            batch_of([b"a"], base_offset=3, leader_epoch=1, last_offset_delta=-1),
            "last offset delta -1 is negative",
        ),
        (batch_of([b"a"], base_offset=10**9 + 1, leader_epoch=1), "is beyond 1000000000"),
        (bytes(61), "its length field is 0"),
        (b"\0" * 30, "its length field is 0"),
        (b"short", "5 bytes left"),
    ],
)
def test_what_cannot_follow_is_a_flaw(batch: bytes, reason: str) -> None:
    before = [
        batch_of([b"a", b"b"], base_offset=0, leader_epoch=0),
        batch_of([b"c"], base_offset=2, leader_epoch=1),
    ]
    offsets, found = walk(file_of(*before, batch))
    assert offsets == [0, 2]
    assert found is not None
    assert reason in found


def test_a_sound_batch_behind_damage_is_found() -> None:
    first, second, third = numbered(3)
    broken = bytearray(second)
    broken[70] ^= 1
    file = file_of(first, broken, third)
    size, start = file.size(), len(first)
    assert find_sound_batch(file, start, size, Offset(0)) == start + len(second)
    assert find_sound_batch(file, start, size, Offset(2)) is None  # an older use of the blocks
    assert find_sound_batch(file, start, size - 1, Offset(0)) is None
    assert find_sound_batch(file, size, size, Offset(0)) is None
    assert find_sound_batch(file_of(b"\2" * 500), 0, 500, Offset(0)) is None


def test_a_sound_batch_is_found_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_VERIFY_BYTES", 80)
    for lead in range(0, 200, 7):
        file = file_of(b"\xff" * lead, numbered(2)[1])
        assert find_sound_batch(file, 0, file.size(), Offset(0)) == lead


# --- reading by offset ----------------------------------------------------------------------------


def filled(count: int = 12) -> Log:
    log, _ = open_at(SimDisk(), small_config())
    for number in range(count):
        append(log, b"%d" % number * 20, b"second", timestamp=NOW + 10 * number)
    return log


def bytes_at(log: Log, offset: int, limit: int, max_bytes: int, *, whole: bool = True) -> bytes:
    read = log.read(Offset(offset), Offset(limit), max_bytes, whole_first=whole)
    assert isinstance(read, LogRead), read
    return b"" if read.records is None else read.records.read()


def test_reads_outside_the_log_are_refused() -> None:
    log = filled()
    log.advance_high_watermark(log.end_offset)
    log.raise_log_start(Offset(5))
    for offset, is_in_range in [(4, False), (5, True), (24, True), (25, False), (-1, False)]:
        answer = log.read(Offset(offset), log.end_offset, 100)
        assert (answer is not ErrorCode.OFFSET_OUT_OF_RANGE) is is_in_range


def test_a_read_begins_with_the_batch_that_holds_the_offset() -> None:
    log = filled()
    batches = in_segments(log)
    for number, data in enumerate(batches):
        for offset in (2 * number, 2 * number + 1):
            assert bytes_at(log, offset, log.end_offset, 1) == data


def test_the_first_batch_is_whole_or_cut_as_asked() -> None:
    log = filled()
    first, second = in_segments(log)[:2]
    end = log.end_offset
    assert bytes_at(log, 0, end, 10) == first
    assert bytes_at(log, 0, end, 10, whole=False) == first[:10]
    assert bytes_at(log, 0, end, 0, whole=False) == b""
    assert bytes_at(log, 0, end, len(first) + 5) == first + second[:5]


def test_a_read_never_shows_what_lies_at_or_above_its_limit() -> None:
    log = filled()
    batches = in_segments(log)
    for limit in range(log.end_offset + 1):
        expected = b"".join(batches[: limit // 2])
        got, offset = b"", 0
        while offset < limit and (part := bytes_at(log, offset, limit, 10**6)):
            got += part
            offset = 2 * sum(
                1 for n in range(len(batches)) if len(b"".join(batches[:n])) < len(got)
            )
        assert got == expected
    assert bytes_at(log, 24, 24, 100) == b""
    assert bytes_at(log, 5, 3, 100) == b""


def test_a_read_stays_good_when_its_segment_is_deleted() -> None:
    log = filled()
    log.advance_high_watermark(log.end_offset)
    read = log.read(Offset(0), log.end_offset, 10**6)
    assert isinstance(read, LogRead)
    assert read.records is not None
    expected = read.records.read()
    log.update_config(small_config(retention_bytes=0, file_delete_delay_ms=0))
    log.apply_retention(TimestampMs(NOW + 10**6))
    log.removal.unlink_due(TimestampMs(NOW + 10**7))
    assert log.log_start == 24
    assert read.records.read() == expected


def test_offsets_in_a_gap_are_answered_with_what_comes_behind() -> None:
    world = LogWorld(small_config(cleanup_policy=("compact",)))
    world.append_as_follower([(0, [b"a"]), (5, [b"b"]), (3, [b"c" * 550]), (9, [b"d"])])
    world.check_all_reads()
    for offset in range(world.end):
        assert bytes_at(world.log, offset, world.end, 1) != b""
        world.check_read(offset, world.end, 700, whole_first=True)
    assert len(served(world.log)) == 4


# --- reading by time ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead_ms", "expected"), [(-100, 0), (0, 0), (1, 2), (10, 2), (110, 22), (111, None)]
)
def test_the_first_record_that_is_not_older(ahead_ms: int, expected: int | None) -> None:
    log = filled()
    found = log.find_by_time(TimestampMs(NOW + ahead_ms))
    assert (None if found is None else found.offset) == expected
    if found is not None:
        assert found.leader_epoch == 0


def test_time_knows_the_log_start_and_the_epoch() -> None:
    log = filled(3)
    append(log, b"x", timestamp=NOW, epoch=4)
    log.advance_high_watermark(log.end_offset)
    log.raise_log_start(Offset(6))
    found = log.find_by_time(TimestampMs(NOW))
    assert found is not None
    assert (found.offset, found.timestamp, found.leader_epoch) == (6, NOW, 4)
    assert log.find_by_time(TimestampMs(NOW + 1)) is None


def test_the_largest_timestamp_is_found_where_it_first_is() -> None:
    log, _ = open_at(SimDisk(), small_config())
    assert log.find_max_timestamp() is None
    for lag in (0, 50, 20, 50, 10):
        append(log, b"x" * 100, timestamp=NOW + lag)
    found = log.find_max_timestamp()
    assert found is not None
    assert (found.offset, found.timestamp) == (1, NOW + 50)


def test_records_without_a_time_are_never_found() -> None:
    log, _ = open_at(SimDisk(), small_config())
    append(log, b"x", timestamp=-1)
    assert log.find_by_time(TimestampMs(0)) is None
    assert log.find_max_timestamp() is None


# --- cutting --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "end"), [(24, 24), (23, 22), (22, 22), (5, 4), (4, 4), (1, 0), (0, 0)]
)
def test_a_truncation_ends_with_a_whole_batch(offset: int, end: int) -> None:
    log = filled()
    batches = in_segments(log)
    assert log.truncate_to(Offset(offset), NOW) is (offset < 24)
    assert (log.end_offset, in_segments(log)) == (end, batches[: end // 2])
    append(log, b"next", epoch=2)
    assert served(log)[:-1] == batches[: end // 2]


def test_a_truncation_below_the_log_start_leaves_an_empty_log() -> None:
    log = filled()
    log.advance_high_watermark(log.end_offset)
    log.raise_log_start(Offset(3))
    for offset in (3, 2):
        log.truncate_to(Offset(offset), NOW)
        assert (log.log_start, log.end_offset, log.high_watermark) == (offset, offset, offset)


def test_epochs_follow_both_ends() -> None:
    log, _ = open_at(SimDisk(), small_config())
    for epoch in range(4):
        log.begin_epoch(LeaderEpoch(epoch))
        append(log, b"a", b"b", epoch=epoch)
    log.begin_epoch(LeaderEpoch(9))
    assert [tuple(e) for e in log.epochs.entries] == [(0, 0), (1, 2), (2, 4), (3, 6), (9, 8)]
    log.truncate_to(Offset(6), NOW)
    assert [tuple(e) for e in log.epochs.entries] == [(0, 0), (1, 2), (2, 4)]
    log.advance_high_watermark(Offset(6))
    log.raise_log_start(Offset(3))
    assert [tuple(e) for e in log.epochs.entries] == [(1, 3), (2, 4)]
