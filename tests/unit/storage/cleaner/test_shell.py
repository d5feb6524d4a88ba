"""A pass on the event loop: in steps, within a limit of bytes, and given up when told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from cleaner_world import CleanerWorld, begin, filled, leftovers

from tidelog.kernel.real import SystemClock
from tidelog.kernel.real.offload import ThreadOffload
from tidelog.simulation import SimClock, SimOffload, World, run_simulation
from tidelog.storage.cleaner.report import CleaningReport, Outcome
from tidelog.storage.cleaner.shell import clean
from tidelog.storage.cleaner.throttle import Throttle

UNLIMITED = Throttle(float("inf"))


def simulated(work: Any) -> Any:
    """Run ``work(world, clock, offload)`` on a virtual loop."""

    async def main(world: World) -> Any:
        clock = SimClock(elapsed_ms=world.loop.elapsed_ms)
        return await work(world, clock, SimOffload(world.random, max_delay_ms=10))

    return run_simulation(main, seed=4)


def test_other_work_goes_on_between_the_steps() -> None:
    log = filled()

    async def main(world: World, clock: SimClock, offload: SimOffload) -> CleaningReport:
        task = asyncio.create_task(clean(begin(log), offload, clock, UNLIMITED))
        written = 0
        while not task.done():
            log.write([(b"a", b"meanwhile")])
            written += 1
            await asyncio.sleep(0.003)
        assert written > 10
        return task.result()

    report = simulated(main)
    assert report.outcome is Outcome.CLEANED
    log.commit()
    log.check()


def test_the_same_seed_gives_the_same_files() -> None:
    def lived(log: CleanerWorld) -> Any:
        async def main(world: World, clock: SimClock, offload: SimOffload) -> Any:
            report = await clean(begin(log), offload, clock, UNLIMITED)
            return report, log.batches(), clock.monotonic_ms()

        return simulated(main)

    assert lived(filled()) == lived(filled())


def test_a_limit_of_bytes_per_second_is_kept() -> None:
    log = filled(8)

    async def main(world: World, clock: SimClock, offload: SimOffload) -> tuple[int, float]:
        started = clock.monotonic_ms()
        report = await clean(begin(log), offload, clock, Throttle(1_000))
        return report.bytes_moved, clock.monotonic_ms() - started

    moved, took_ms = simulated(main)
    assert moved > 3_000
    assert moved / took_ms <= 1.0
    assert moved / took_ms > 0.8


@pytest.mark.parametrize("limit", [float("inf"), 1_000.0])
def test_a_cancelled_wait_leaves_nothing_behind(limit: float) -> None:
    log = filled()

    async def main(world: World, clock: SimClock, offload: SimOffload) -> None:
        task = asyncio.create_task(clean(begin(log), offload, clock, Throttle(limit)))
        while not leftovers(log):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    simulated(main)
    assert leftovers(log) == []
    log.check()


def test_an_abort_ends_a_pass_soon() -> None:
    log = filled()

    async def main(world: World, clock: SimClock, offload: SimOffload) -> CleaningReport:
        cleaning = begin(log)
        task = asyncio.create_task(clean(cleaning, offload, clock, UNLIMITED))
        await asyncio.sleep(0.02)
        cleaning.abort("the partition moves")
        return await task

    report = simulated(main)
    assert (report.outcome, report.reason) == (Outcome.ABORTED, "the partition moves")
    assert leftovers(log) == []
    log.check()


@pytest.mark.parametrize("limit", [float("inf"), 1e9])
def test_it_runs_in_a_real_thread(limit: float) -> None:
    log: CleanerWorld = filled()

    async def main() -> CleaningReport:
        offload = ThreadOffload(1)
        try:
            return await clean(begin(log), offload, SystemClock(), Throttle(limit))
        finally:
            offload.close()

    assert asyncio.run(main()).outcome is Outcome.CLEANED
    log.check()


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"log\.cleaner\.io\.max\.bytes\.per\.second"):
        Throttle(0)


@pytest.mark.parametrize(
    ("moved", "took_ms", "rest_ms"), [(300, 100.0, 200.0), (300, 300.0, 0.0), (100, 900.0, 0.0)]
)
def test_the_rest_makes_up_for_what_went_too_fast(
    moved: int, took_ms: float, rest_ms: float
) -> None:
    assert Throttle(1_000).rest_ms(moved, took_ms) == pytest.approx(rest_ms)
    assert Throttle(1_000).window_bytes == 300
