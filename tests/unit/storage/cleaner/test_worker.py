"""The heavy half of a pass in another process: the same files, whatever becomes of the process."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cleaner_world import CleanerWorld, begin, filled, leftovers
from log_lab import small_config
from near_workers import NearWorkers

from tidelog.kernel.ids import (
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from tidelog.kernel.ports import Worker, WorkerLost, in_one_go
from tidelog.kernel.real import OsDisk, SystemClock, SystemRandom, ThreadOffload
from tidelog.kernel.real.process_offload import WorkerProcesses
from tidelog.simulation import SimClock, SimOffload, World, run_simulation
from tidelog.storage.cleaner.cleaning import NO_FLOOR, Cleaning, LogCleaner
from tidelog.storage.cleaner.engine import LastOfProducer
from tidelog.storage.cleaner.pass_messages import (
    Begin,
    End,
    Failed,
    Question,
    Work,
    Worked,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
)
from tidelog.storage.cleaner.report import CleaningReport, Outcome
from tidelog.storage.cleaner.settings import CleanerSettings
from tidelog.storage.cleaner.shell import clean
from tidelog.storage.cleaner.throttle import Throttle
from tidelog.storage.cleaner.worker import CleanerWorker
from tidelog.storage.log import Appended, Log
from tidelog.storage.recovery import Opening, open_log
from tidelog.storage.txn_index import AbortedTxn
from tidelog.wire.records import Record, build_batch

UNLIMITED = Throttle(float("inf"))
NOW = TimestampMs(1_700_000_000_000)


def simulated(world: CleanerWorld, cleaning: Cleaning, near: NearWorkers, limit: float) -> Any:
    async def main(sim: World) -> CleaningReport:
        clock = SimClock(elapsed_ms=sim.loop.elapsed_ms)
        offload = SimOffload(sim.random, max_delay_ms=10)
        return await clean(cleaning, offload, clock, Throttle(limit), near)

    return run_simulation(main, seed=4)


# --- messages ----------------------------------------------------------------------------


def test_questions_and_answers_survive_the_way() -> None:
    inputs = begin(filled()).inputs
    inputs = replace(
        inputs,
        aborted=[AbortedTxn(ProducerId(7), Offset(1), Offset(5), Offset(5))],
        producers={
            ProducerId(7): LastOfProducer(ProducerEpoch(2), Offset(9)),
            ProducerId(8): LastOfProducer(ProducerEpoch(0), None),
        },
    )
    back = decode_question(encode_question(Begin(inputs)))
    assert isinstance(back, Begin)
    told = back.inputs
    assert replace(told, sources=[]) == replace(inputs, sources=[])
    for there, here in zip(told.sources, inputs.sources, strict=True):
        assert (there.path, there.dirty_position) == (here.path, here.dirty_position)
        asked_for_plans_only = replace(
            there.facts,
            largest_timestamp=here.facts.largest_timestamp,
            first_timestamp=here.facts.first_timestamp,
        )
        assert asked_for_plans_only == here.facts
    for question in (Work(10.0), Work(float("inf")), End()):
        assert decode_question(encode_question(question)) == question
    for answer in (Worked(True, 0, {"keys": 3, "reason": ""}), Failed(errno.EIO, "no disk")):
        assert decode_answer(encode_answer(answer)) == answer


@pytest.mark.parametrize("decode", [decode_question, decode_answer])
def test_what_makes_no_sense_is_refused(decode: Callable[[bytes], object]) -> None:
    with pytest.raises(ValueError, match="cleaner"):
        decode(b"\x91\x09")


def test_a_worker_without_a_pass_refuses_to_work() -> None:
    with pytest.raises(ValueError, match="no pass has begun"):
        CleanerWorker(filled().disk).answer(encode_question(Work(1.0)))


# --- a pass, the worker near ---------------------------------------------------------------


@pytest.mark.parametrize("limit", [float("inf"), 1_000.0])
def test_a_worker_leaves_the_files_that_steps_leave(limit: float) -> None:
    here, there = filled(8), filled(8)
    expected = begin(here).run_here()
    near = NearWorkers(there.disk)
    report = simulated(there, begin(there), near, limit)
    assert report == expected
    assert there.batches() == here.batches()
    assert leftovers(there) == []
    there.check()
    assert isinstance(near.questions[0], Begin)
    assert isinstance(near.questions[-1], End)
    if limit == 1_000.0:
        assert sum(isinstance(question, Work) for question in near.questions) > 5


def test_an_abort_is_told_to_the_worker() -> None:
    world = filled()
    cleaning = begin(world)

    def before(question: Question) -> None:
        if leftovers(world):
            cleaning.abort("the partition moves")

    report = simulated(world, cleaning, NearWorkers(world.disk, before), 300.0)
    assert (report.outcome, report.reason) == (Outcome.ABORTED, "the partition moves")
    assert leftovers(world) == []
    world.check()


def test_a_log_that_changed_before_the_swap_ends_the_pass() -> None:
    world = filled()
    kept = world.log.segments[1].base_offset

    def before(question: Question) -> None:
        if leftovers(world) and world.log.end_offset > kept:
            world.log.truncate_to(kept, TimestampMs(world.now))
            world.model.records = {o: r for o, r in world.model.records.items() if o < kept}

    report = simulated(world, begin(world), NearWorkers(world.disk, before), 300.0)
    assert report.outcome is Outcome.ABORTED
    assert leftovers(world) == []
    world.check()


def test_a_lost_worker_costs_the_pass_and_nothing_else() -> None:
    world = filled()
    before = world.batches()

    def die(question: Question) -> None:
        if leftovers(world):
            raise WorkerLost("it was killed")

    report = simulated(world, begin(world), NearWorkers(world.disk, die), 300.0)
    assert (report.outcome, report.reason) == (Outcome.WORKER_LOST, "it was killed")
    assert report.clean_point is None
    assert leftovers(world) == []
    assert world.batches() == before
    assert begin(world).run_here().outcome is Outcome.CLEANED
    world.check()


def test_without_a_process_the_log_is_cleaned_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, expected = filled(), begin(filled()).run_here()

    def refuse(question: Question) -> None:
        raise WorkerLost("no process can be started here")

    report = simulated(world, begin(world), NearWorkers(world.disk, refuse), float("inf"))
    assert report == expected
    assert "beside the event loop: no process can be started here" in caplog.text
    world.check()


def test_a_broken_disk_comes_through() -> None:
    world = filled()
    world.disk.faults.fail("sync", ".cleaned", error=errno.EIO)
    with pytest.raises(OSError, match="Input/output") as failed:
        simulated(world, begin(world), NearWorkers(world.disk), float("inf"))
    assert failed.value.errno == errno.EIO
    assert leftovers(world) == []


def test_a_full_disk_ends_the_pass_only() -> None:
    world = filled()
    world.disk.faults.fail("sync", ".cleaned", error=errno.ENOSPC)
    report = simulated(world, begin(world), NearWorkers(world.disk), float("inf"))
    assert report.outcome is Outcome.DISK_FULL
    assert leftovers(world) == []
    world.check()


# --- a pass, the worker a real process -----------------------------------------------------

TP = TopicPartition("real", PartitionIndex(0))
CONFIG = small_config(
    cleanup_policy=("compact",), internal_segment_bytes=60_000, min_cleanable_dirty_ratio=0.0
)


def real_log(directory: Path) -> Log:
    opening = Opening(OsDisk(), str(directory), TP, CONFIG, SystemRandom(1), NOW, was_clean=True)
    log = in_one_go(open_log(opening))[0]
    for turn in range(60):
        records = [Record(i, NOW + i, b"key-%d" % i, b"%d" % turn * 40) for i in range(90)]
        answer = log.append_as_leader(build_batch(records), leader_epoch=LeaderEpoch(0), now_ms=NOW)
        assert isinstance(answer, Appended)
    log.roll(log.end_offset, NOW)
    log.advance_high_watermark(log.end_offset)
    log.flush_now()
    assert len(log.segments) > 4
    return log


def real_pass(log: Log) -> Cleaning:
    settings = CleanerSettings(map_bytes=1 << 16, chunk_bytes=8_000)
    cleaner = LogCleaner(OsDisk(), log, settings, SystemRandom(1))
    return cleaner.begin(cleaner.plan(NOW, None), NOW, clean_floor=NO_FLOOR)


def in_small_pieces() -> Throttle:
    throttle = Throttle(1e9)
    throttle.window_bytes = 10_000
    return throttle


def contents(directory: Path) -> dict[str, bytes]:
    live = (path for path in directory.iterdir() if path.suffix in (".log", ".index", ".timeindex"))
    return {path.name: path.read_bytes() for path in live}


def is_unfinished(directory: Path) -> bool:
    return any(path.suffix in (".cleaned", ".swap") for path in directory.iterdir())


class Killing:
    """Real workers, of which the one at work is killed when it has begun to write."""

    def __init__(self, workers: WorkerProcesses, directory: Path) -> None:
        self._workers = workers
        self._directory = directory
        self.kills = 0

    @asynccontextmanager
    async def hire(self) -> AsyncIterator[Worker]:
        async with self._workers.hire() as worker:
            self._worker = worker
            yield self

    async def ask(self, question: bytes) -> bytes:
        if is_unfinished(self._directory) and not self.kills:
            self.kills += 1
            os.kill(self._worker.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        return await self._worker.ask(question)


def test_a_real_process_cleans_and_may_be_killed(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    here, there = real_log(tmp_path / "here"), real_log(tmp_path / "there")
    expected = real_pass(here).run_here()
    before = contents(tmp_path / "there")

    async def main() -> None:
        offload, workers = ThreadOffload(1), WorkerProcesses("tidelog.storage.cleaner.worker")
        killing = Killing(workers, tmp_path / "there")
        try:
            clock, slow = SystemClock(), in_small_pieces()
            lost = await clean(real_pass(there), offload, clock, slow, killing)
            assert lost.outcome is Outcome.WORKER_LOST
            assert killing.kills == 1
            assert contents(tmp_path / "there") == before
            assert not is_unfinished(tmp_path / "there")
            report = await clean(real_pass(there), offload, clock, UNLIMITED, workers)
            assert report == expected
        finally:
            await workers.close()
            offload.close()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert not is_unfinished(tmp_path / "there")


def test_a_cancelled_pass_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    log = real_log(tmp_path)

    async def main() -> None:
        offload, workers = ThreadOffload(1), WorkerProcesses("tidelog.storage.cleaner.worker")
        try:
            passing = clean(real_pass(log), offload, SystemClock(), in_small_pieces(), workers)
            task = asyncio.create_task(passing)
            while not is_unfinished(tmp_path):  # noqa: ASYNC110
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not is_unfinished(tmp_path)
            assert workers.idle_pids == []
        finally:
            await workers.close()
            offload.close()

    asyncio.run(asyncio.wait_for(main(), 60))
