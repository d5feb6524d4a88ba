"""Group commit on a virtual loop: few fsyncs for many requests, one report of a failure."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass, field
from typing import Any

import pytest
from log_lab import NOW, append, open_at, small_config

from tidelog.kernel.ids import Offset, PartitionIndex, TimestampMs, TopicPartition
from tidelog.kernel.ports import in_one_go
from tidelog.kernel.settings import TopicConfig
from tidelog.simulation import SimClock, SimDisk, SimOffload, SimRandom, World, run_simulation
from tidelog.storage.flush_policy import flush_is_due
from tidelog.storage.flusher import Flusher
from tidelog.storage.log import Log, LogFailed
from tidelog.storage.opening import Opening
from tidelog.storage.recovery import open_log

STALL_MS = 1_000


@dataclass
class Bench:
    """A flusher with what it reported and the fsyncs it made."""

    world: World
    disk: SimDisk = field(default_factory=SimDisk)
    flushed: list[tuple[TopicPartition, int]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    stalled: list[TopicPartition] = field(default_factory=list)
    syncs: int = 0

    def __post_init__(self) -> None:
        self.clock = SimClock(elapsed_ms=self.world.loop.elapsed_ms)
        self.flusher = Flusher(
            self.disk,
            SimOffload(self.world.random, self.disk.faults, max_delay_ms=10),
            on_flushed=lambda log, end: self.flushed.append((log.tp, end)),
            on_failed=lambda log, reason: self.failed.append(reason),
            on_stalled=lambda log: self.stalled.append(log.tp),
            stall_timeout_ms=STALL_MS,
            clock=self.clock,
        )
        self.disk.on_operation(self._count)

    def _count(self, kind: str, path: str) -> None:
        self.syncs += kind == "sync"

    def log(self, partition: int = 0, **changes: Any) -> Log:
        tp = TopicPartition("events", PartitionIndex(partition))
        log, _ = in_one_go(
            open_log(
                Opening(
                    self.disk, f"/data/{tp}", tp, small_config(**changes), SimRandom(1),
                    self.clock.wall_ms(),
                    was_clean=False,
                )
            )
        )  # fmt: skip
        log.flush_now()
        self.syncs = 0
        return log


def simulate(main: Any, seed: int = 1) -> None:
    run_simulation(main, seed, time_limit_s=100)


def test_many_requests_share_few_fsyncs() -> None:
    async def main(world: World) -> None:
        bench = Bench(world)
        log = bench.log(internal_segment_bytes=10**6)
        for number in range(200):
            append(log, b"%d" % number)
            bench.flusher.request(log)
            if number % 50 == 0:
                await asyncio.sleep(0.001)
        await bench.flusher.drain()
        assert log.flushed_end == 200
        assert bench.syncs < 40
        ends = [end for _, end in bench.flushed]
        assert ends == sorted(ends)
        assert ends[-1] == 200

    for seed in range(5):
        simulate(main, seed)


def test_what_is_appended_during_a_flush_waits_for_the_next_one() -> None:
    async def main(world: World) -> None:
        bench = Bench(world)
        log = bench.log()
        append(log, b"a")
        bench.flusher.request(log)
        append(log, b"b")
        bench.flusher.request(log)
        await bench.flusher.drain()
        assert [end for _, end in bench.flushed] == [1, 2]

    simulate(main)


def test_logs_flush_side_by_side_a_few_at_a_time() -> None:
    async def main(world: World) -> None:
        bench = Bench(world)
        logs = [bench.log(partition) for partition in range(12)]
        for log in logs:
            append(log, b"a")
            bench.flusher.request(log)
        await bench.flusher.drain()
        assert sorted(tp.partition for tp, _ in bench.flushed) == list(range(12))
        assert bench.syncs == 12
        # Each takes 5 ms on average; one after the other they would take 60.
        assert world.loop.time() < 0.055

    simulate(main)


def test_a_request_for_nothing_is_answered_at_once() -> None:
    async def main(world: World) -> None:
        bench = Bench(world)
        log = bench.log()
        bench.flusher.request(log)
        assert bench.flushed == [(log.tp, 0)]
        await bench.flusher.drain()
        assert bench.syncs == 0

    simulate(main)


def test_a_failed_fsync_is_reported_once_and_nothing_is_flushed_again() -> None:
    async def main(world: World) -> None:
        bench = Bench(world)
        logs = [bench.log(partition) for partition in range(8)]
        bench.disk.faults.fail("sync", "/data/events-2/")
        for log in logs:
            append(log, b"a")
            bench.flusher.request(log)
        await bench.flusher.drain()
        assert len(bench.failed) == 1
        assert "flush of events-2 failed: " in bench.failed[0]
        assert logs[2].failure is not None
        before, syncs = list(bench.flushed), bench.syncs
        assert logs[2].flushed_end == 0
        for log in logs:
            bench.flusher.request(log)
        await bench.flusher.drain()
        assert (bench.flushed, bench.syncs, len(bench.failed)) == (before, syncs, 1)
        with pytest.raises(LogFailed):
            append(logs[2], b"b")

    for seed in range(5):
        simulate(main, seed)


def test_flushes_that_were_under_way_when_another_failed_do_not_count() -> None:
    async def main(world: World) -> None:
        bench = Bench(world)
        slow, broken = bench.log(0), bench.log(1)
        append(slow, b"a" * 200)
        for _ in range(4):  # many files to sync
            slow.roll(slow.end_offset, NOW)
            append(slow, b"a" * 200)
        append(broken, b"a")
        bench.disk.faults.fail("sync", "/data/events-1/")
        bench.flusher.request(slow)
        bench.flusher.request(broken)
        await bench.flusher.drain()
        assert len(bench.failed) == 1
        assert (slow.flushed_end, bench.flushed) == (0, [])

    simulate(main)


def test_a_failure_while_closing_is_reported_too() -> None:
    async def main(world: World) -> None:
        bench = Bench(world)
        log = bench.log()
        append(log, b"a")
        bench.disk.faults.fail("sync", error=errno.ENOSPC)
        bench.flusher.request(log)
        await bench.flusher.close()
        assert "No space left" in bench.failed[0]

    simulate(main)


def test_a_flush_that_cannot_begin_is_a_failure() -> None:
    async def main(world: World) -> None:
        bench = Bench(world)
        log = bench.log()
        append(log, b"a")
        log.roll(log.end_offset, NOW)
        append(log, b"b")
        log.segments[0].unload()
        bench.disk.faults.fail("read", "index")
        bench.flusher.request(log)
        await bench.flusher.drain()
        assert len(bench.failed) == 1

    simulate(main)


def test_a_stalled_flush_is_told_and_still_counts_when_it_ends() -> None:
    async def main(world: World) -> None:
        bench = Bench(world)
        log = bench.log()
        append(log, b"a")
        bench.disk.faults.stalled = True
        bench.flusher.request(log)
        await asyncio.sleep(STALL_MS / 1000 - 0.001)
        assert bench.stalled == []
        await asyncio.sleep(0.002)
        assert bench.stalled == [log.tp]
        bench.disk.faults.stalled = False
        await bench.flusher.drain()
        assert (bench.flushed, bench.stalled) == ([(log.tp, 1)], [log.tp])

    simulate(main)


def test_a_disk_that_is_slow_with_each_of_many_files_does_not_hang() -> None:
    """Cluster seed 600406: a replica that caught up gave up a sound disk."""

    async def main(world: World) -> None:
        bench = Bench(world)
        log = bench.log()
        for number in range(5):
            append(log, b"%d" % number)
            log.roll(log.end_offset, bench.clock.wall_ms())
        bench.disk.faults.step_delay_ms = 0.6 * STALL_MS
        bench.flusher.request(log)
        await bench.flusher.drain()
        assert (bench.flushed, bench.stalled) == ([(log.tp, 5)], [])

    simulate(main)


def test_closing_waits_for_what_runs_and_starts_nothing_more() -> None:
    async def main(world: World) -> None:
        bench = Bench(world)
        log = bench.log()
        append(log, b"a")
        bench.flusher.request(log)
        append(log, b"b")
        bench.flusher.request(log)
        await bench.flusher.close()
        bench.flusher.request(log)
        assert bench.flushed == [(log.tp, 1)]
        log.close()

    simulate(main)


def test_a_log_that_is_forgotten_is_not_flushed() -> None:
    async def main(world: World) -> None:
        bench = Bench(world)
        log = bench.log()
        append(log, b"a")
        bench.flusher.request(log)
        append(log, b"b")
        bench.flusher.request(log)
        bench.flusher.forget(log)
        await bench.flusher.drain()
        assert bench.flushed == [(log.tp, 1)]

    simulate(main)


def test_with_the_page_cache_policy_all_that_is_written_counts() -> None:
    async def main(world: World) -> None:
        bench = Bench(world)
        log = bench.log(flush_policy="page-cache")
        append(log, b"a")
        bench.flusher.request(log)
        append(log, b"b")
        await bench.flusher.drain()
        assert bench.flushed == [(log.tp, 2)]
        assert log.recovery_point == 1

    simulate(main)


# --- when a flush is due ------------------------------------------------------------------------


@dataclass
class Facts:
    config: TopicConfig
    unflushed_records: int = 0
    has_unflushed_segments: bool = False
    last_flush_ms: TimestampMs = NOW


PAGE_CACHE = {"flush_policy": "page-cache"}


@pytest.mark.parametrize(
    ("changes", "unflushed", "rolled", "waited_ms", "expected"),
    [
        ({}, 0, False, 10**9, False),
        ({}, 1, False, 0, True),
        (PAGE_CACHE, 10**6, False, 10**9, False),
        (PAGE_CACHE, 0, True, 0, True),
        ({**PAGE_CACHE, "flush_messages": 10}, 9, False, 10**9, False),
        ({**PAGE_CACHE, "flush_messages": 10}, 10, False, 0, True),
        ({**PAGE_CACHE, "flush_ms": 500}, 1, False, 499, False),
        ({**PAGE_CACHE, "flush_ms": 500}, 1, False, 500, True),
        ({**PAGE_CACHE, "flush_ms": 500}, 0, False, 500, False),
    ],
)
def test_when_a_flush_is_due(
    changes: dict[str, Any], unflushed: int, rolled: bool, waited_ms: int, expected: bool
) -> None:
    facts = Facts(small_config(**changes), unflushed, rolled)
    assert flush_is_due(facts, TimestampMs(NOW + waited_ms)) is expected


def test_a_log_tells_what_its_flush_policy_asks() -> None:
    async def main(world: World) -> None:
        bench = Bench(world)
        log = bench.log(flush_policy="page-cache", flush_messages=3, flush_ms=400)
        opened = log.last_flush_ms
        append(log, b"a", b"b")
        assert not flush_is_due(log, TimestampMs(opened + 399))
        assert flush_is_due(log, TimestampMs(opened + 400))
        append(log, b"c")
        assert flush_is_due(log, opened)
        await asyncio.sleep(1)
        bench.flusher.request(log)
        await bench.flusher.drain()
        assert log.last_flush_ms == opened + 1000
        assert not flush_is_due(log, bench.clock.wall_ms())
        log.roll(Offset(3), NOW)
        assert flush_is_due(log, bench.clock.wall_ms())

    simulate(main)


def test_opening_counts_as_the_last_flush() -> None:
    log, _ = open_at(SimDisk(), small_config(flush_policy="page-cache", flush_ms=10))
    append(log, b"a")
    log.flush_now()
    append(log, b"b")
    assert log.last_flush_ms == NOW
