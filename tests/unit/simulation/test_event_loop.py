"""The virtual event loop: time that jumps, order that repeats."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tidelog.simulation import (
    Deadlock,
    SimClock,
    SimRandom,
    TimeLimitExceeded,
    World,
    run_simulation,
)

SCENARIO = Path(__file__).with_name("determinism_scenario.py")


def test_hours_pass_at_once_and_the_clock_follows() -> None:
    async def main(world: World) -> tuple[float, float, int]:
        await asyncio.sleep(36_000.25)
        loop = asyncio.get_running_loop()
        return loop.time(), world.clock.monotonic_ms(), world.clock.wall_ms()

    loop_s, monotonic_ms, wall_ms = run_simulation(main, seed=1)
    assert (loop_s, monotonic_ms) == (36_000.25, 36_000_250.0)
    assert wall_ms == SimClock().wall_ms() + 36_000_250


def test_timers_fire_in_order_at_their_exact_time() -> None:
    async def main(world: World) -> list[float]:
        fired: list[float] = []
        for delay in (0.3, 0.1, 1e6, 0.2, 0.1):
            world.loop.call_later(delay, lambda: fired.append(world.loop.time()))
        await asyncio.sleep(2e6)
        return fired

    assert run_simulation(main, seed=1) == [0.1, 0.1, 0.2, 0.3, 1e6]


def test_time_outs_work() -> None:
    async def main(world: World) -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        return world.loop.time()

    assert run_simulation(main, seed=1) == 5.0


def test_a_deadlock_names_the_waiting_tasks() -> None:
    async def main(world: World) -> None:
        await asyncio.sleep(1.5)
        waiting = asyncio.create_task(asyncio.Event().wait(), name="reader")
        await waiting

    with pytest.raises(Deadlock, match=r"at 1\.500 s these tasks wait: task-1, reader"):
        run_simulation(main, seed=1)


def test_a_simulation_that_never_ends_is_stopped() -> None:
    async def main(world: World) -> None:
        for second in itertools.count():
            await asyncio.sleep(second)

    with pytest.raises(TimeLimitExceeded, match="100 s of virtual time"):
        run_simulation(main, seed=1, time_limit_s=100)


def test_threads_are_refused() -> None:
    async def main(world: World) -> None:
        await asyncio.to_thread(time.monotonic)

    with pytest.raises(RuntimeError, match="use the Offload port"):
        run_simulation(main, seed=1)


def test_an_error_in_a_forgotten_task_fails_the_run() -> None:
    async def dies() -> None:
        raise OSError("nobody looks")

    async def main(world: World) -> None:
        task = asyncio.create_task(dies())
        await asyncio.sleep(1)
        assert task.done()

    with pytest.raises(OSError, match="nobody looks"):
        run_simulation(main, seed=1)


def test_a_task_that_nobody_holds_is_not_collected() -> None:
    async def main(world: World) -> list[str]:
        ended: list[str] = []

        async def wait_for_ever() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("ended")

        asyncio.create_task(wait_for_ever())  # noqa: RUF006
        for _ in range(1000):
            asyncio.create_task(asyncio.sleep(0))  # noqa: RUF006
        await asyncio.sleep(1)
        gc.collect()
        return list(ended)

    assert run_simulation(main, seed=1) == []


def order_of_tasks(seed: int, *, shuffle: bool) -> list[int]:
    async def main(world: World) -> list[int]:
        order: list[int] = []

        async def note(number: int) -> None:
            await asyncio.sleep(0)
            order.append(number)

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(note(number))
        return order

    return run_simulation(main, seed, shuffle=shuffle)


def test_ready_tasks_are_shuffled_by_the_seed() -> None:
    assert order_of_tasks(1, shuffle=False) == list(range(8))
    orders = [order_of_tasks(seed, shuffle=True) for seed in range(10)]
    assert orders == [order_of_tasks(seed, shuffle=True) for seed in range(10)]
    assert len({tuple(order) for order in orders}) == 10
    assert all(sorted(order) == list(range(8)) for order in orders)


def test_plain_callbacks_keep_their_order() -> None:
    async def main(world: World) -> list[int]:
        order: list[int] = []
        for number in range(8):
            world.loop.call_soon(order.append, number)
            asyncio.create_task(asyncio.sleep(0))  # noqa: RUF006
        await asyncio.sleep(1)
        return order

    for seed in range(10):
        assert run_simulation(main, seed) == list(range(8))


def trace_in_another_process(hash_seed: str, seed: int) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, str(SCENARIO), str(seed)]
    finished = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return finished.stdout


def test_a_trace_is_the_same_in_every_process() -> None:
    traces = [trace_in_another_process(hash_seed, 7) for hash_seed in ("0", "1", "4242")]
    assert len(traces[0].splitlines()) > 35
    assert traces[0] == traces[1] == traces[2]
    assert trace_in_another_process("0", 8) != traces[0]


def test_chance_is_forked_by_name_alone() -> None:
    one, two = SimRandom(7), SimRandom(7)
    two.random()
    assert one.fork("disk").random() == two.fork("disk").random()
    assert one.fork("disk").random() != one.fork("peers").random()
    assert one.fork("disk").random() != SimRandom(8).fork("disk").random()
    assert one.fork("disk").fork("a").random() != one.fork("a").random()
    assert SimRandom(7).fork("disk").randrange(0, 1 << 30) == 645_993_686


def test_a_clock_moves_by_hand_and_its_calendar_may_jump() -> None:
    clock = SimClock(1_000_000, skew_ms=-50)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (999_950, 0.0)
    clock.advance(1500.5)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1_001_450, 1500.5)
    clock.skew_ms = -5000
    assert (clock.wall_ms(), clock.monotonic_ms()) == (996_500, 1500.5)
    with pytest.raises(ValueError, match="never goes back"):
        clock.advance(-1)
