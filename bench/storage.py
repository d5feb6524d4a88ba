"""`make bench-storage`: the log against the plain system calls that move the same bytes.

Each pair is measured in turns within one run, so that whatever else the machine does hits both
sides alike; of the rounds the best of each side counts. Ratios are the log's speed divided by
the plain one's.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from crc32c import crc32c

from bench.scratch import scratch
from bench.table import Row, report
from tidelog.kernel.ids import LeaderEpoch, Offset, PartitionIndex, TimestampMs, TopicPartition
from tidelog.kernel.ports import in_one_go
from tidelog.kernel.real import OsDisk, SystemRandom
from tidelog.kernel.settings import Settings, TopicConfig
from tidelog.storage.log import Appended, Log
from tidelog.storage.read import LogRead
from tidelog.storage.recovery import Opening, open_log
from tidelog.wire.records import Record, build_batch

NOW = TimestampMs(1_700_000_000_000)
TP = TopicPartition("bench", PartitionIndex(0))
MIB = 1 << 20
ROUNDS = 7


def open_at(directory: Path, *, was_clean: bool = True, recovery_point: int = 0) -> Log:
    config = TopicConfig.resolve({"max.message.bytes": str(4 * MIB)}, Settings())
    opening = Opening(
        OsDisk(),
        str(directory),
        TP,
        config,
        SystemRandom(1),
        NOW,
        was_clean=was_clean,
        recovery_point=Offset(recovery_point),
    )
    return in_one_go(open_log(opening))[0]


def batch_of(size: int) -> bytes:
    value = random.Random(size).randbytes(1000)
    count = max(1, size // 1010)
    records = [Record(i, NOW, b"%08d" % i, value) for i in range(count)]
    return build_batch(records)


def timed(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def side_by_side(
    ours: Callable[[], None],
    plain: Callable[[], None],
    between: Callable[[], None] = lambda: None,
) -> tuple[float, float]:
    """The best time of each, measured in turns; ``between`` tidies up and does not count."""
    times: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        mine = timed(ours)
        between()
        times.append((mine, timed(plain)))
        between()
    return min(t[0] for t in times), min(t[1] for t in times)


def empty(directory: Path) -> None:
    for path in directory.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def bench_append(work: Path, size: int, total: int, goal: float) -> list[Row]:
    batch = batch_of(size)
    count = total // len(batch)
    name = f"append {size // 1024} KiB batches"
    turn = 0

    def ours() -> None:
        nonlocal turn
        turn += 1
        log = open_at(work / f"log-{size}-{turn}")
        for _ in range(count):
            answer = log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=NOW)
            assert type(answer) is Appended
        log.close_files()

    def plain() -> None:
        file = os.open(work / f"plain-{size}-{turn}", os.O_CREAT | os.O_RDWR)
        for _ in range(count):
            os.write(file, batch)
        os.close(file)

    # Emptied each time, or the kernel writes old rounds out while new ones are measured.
    mine, theirs = side_by_side(ours, plain, lambda: empty(work))
    written = count * len(batch) / MIB
    return [
        Row(f"{name}, of plain os.write", theirs / mine, "×", goal),
        Row(f"{name}", written / mine, "MiB/s"),
        Row(f"{name}, each", mine / count * 1e6, "µs"),
    ]


def filled(directory: Path, size: int, total: int) -> Log:
    batch = batch_of(size)
    log = open_at(directory)
    for _ in range(total // len(batch)):
        log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=NOW)
    log.advance_high_watermark(log.end_offset)
    return log


def bench_read(work: Path) -> list[Row]:
    log = filled(work / "read", 16 * 1024, 256 * MIB)

    offsets = offsets_of_reads(log)

    def ours() -> None:
        for offset in offsets:
            read = log.read(offset, log.high_watermark, MIB)
            assert type(read) is LogRead and read.records is not None
            read.records.read()

    def plain() -> None:
        path = next((work / "read").glob("*.log"))
        file = os.open(path, os.O_RDONLY)
        position = 0
        while data := os.pread(file, MIB, position):
            position += len(data)
        os.close(file)

    mine, theirs = side_by_side(ours, plain)
    log.close_files()
    shutil.rmtree(work / "read")
    return [
        Row("sequential read of 1 MiB, of plain os.pread", theirs / mine, "×", 0.8),
        Row("sequential read of 1 MiB", 256 / mine, "MiB/s"),
    ]


def offsets_of_reads(log: Log) -> list[Offset]:
    """Where a consumer that reads 1 MiB at a time asks; finding it out is the consumer's work."""
    offsets = [Offset(0)]
    while True:
        read = log.read(offsets[-1], log.high_watermark, MIB)
        assert type(read) is LogRead and read.records is not None
        following = next_offset(read.records.read())
        if following >= log.end_offset:
            return offsets
        offsets.append(following)


def next_offset(data: bytes) -> Offset:
    """What a consumer does: find the end of the last whole batch it got."""
    position, offset = 0, 0
    while position + 61 <= len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if position + size > len(data):
            break
        last_delta = int.from_bytes(data[position + 23 : position + 27], "big")
        offset = int.from_bytes(data[position : position + 8], "big") + last_delta + 1
        position += size
    return Offset(offset)


def bench_lookup(work: Path) -> list[Row]:
    """Random offsets in one full segment, reopened so that nothing recent is remembered."""
    filled(work / "lookup", 16 * 1024, 1020 * MIB).close()
    log = open_at(work / "lookup")
    log.advance_high_watermark(log.end_offset)
    chance = random.Random(3)
    offsets = [Offset(chance.randrange(log.end_offset)) for _ in range(20_000)]
    for offset in offsets[:100]:
        log.segments.active.locate(offset)

    def ours() -> None:
        for offset in offsets:
            log.segments.active.locate(offset)

    best = min(timed(ours) for _ in range(3))
    log.close_files()
    return [Row("random offset look-up in 1 GiB", best / len(offsets) * 1e6, "µs", 40, "lower")]


def bench_recovery(work: Path) -> list[Row]:
    """The segment that the look-ups left, as if the node had been killed."""
    directory = work / "lookup"
    size = sum(path.stat().st_size for path in directory.glob("*.log"))

    def ours() -> None:
        open_at(directory, was_clean=False).close_files()

    def plain() -> None:
        for path in directory.glob("*.log"):
            file = os.open(path, os.O_RDONLY)
            position = 0
            while data := os.pread(file, 4 * MIB, position):
                crc32c(data)
                position += len(data)
            os.close(file)

    mine, theirs = side_by_side(ours, plain)
    shutil.rmtree(directory)
    return [
        Row("recovery, of plain read + crc32c", theirs / mine, "×", 0.5),
        Row("recovery", size / MIB / mine, "MiB/s"),
    ]


def bench_open(work: Path) -> list[Row]:
    count = 2000
    batch = batch_of(16 * 1024)
    for number in range(count):
        log = open_at(work / f"p-{number}")
        log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=NOW)
        log.close()
    logs: list[Log] = []

    def ours() -> None:
        for number in range(count):
            logs.append(open_at(work / f"p-{number}"))

    took = timed(ours)
    for log in logs:
        log.close_files()
    return [Row("open 2,000 cleanly closed partitions", took, "s", 3, "lower")]


def main() -> int:
    with scratch() as work:
        rows = [
            *bench_append(work, MIB, 512 * MIB, 0.8),
            *bench_append(work, 16 * 1024, 256 * MIB, 0.35),
            *bench_read(work),
            *bench_lookup(work),
            *bench_recovery(work),
            *bench_open(work),
        ]
    report("storage", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
