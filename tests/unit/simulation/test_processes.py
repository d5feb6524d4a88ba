"""Processes of a simulation: stopped, continued, killed."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tidelog.simulation import SimDisk, SimNetwork, SimProcess, World, run_simulation
from tidelog.simulation.processes import SurvivedItsKill


async def tick_every_second(world: World, ticks: list[float]) -> None:
    while True:
        await asyncio.sleep(1)
        ticks.append(round(world.loop.time(), 6))


def test_a_stopped_process_runs_nothing_and_then_everything_late() -> None:
    async def main(world: World) -> None:
        process = SimProcess(world.loop, "node-1", 1)
        ticks: list[float] = []
        other_ticks: list[float] = []
        process.start(tick_every_second(world, ticks))
        fired: list[float] = []

        async def set_timers() -> None:
            world.loop.call_later(3.0, lambda: fired.append(world.loop.time()))
            world.loop.call_later(2.9, lambda: fired.append(world.loop.time()))
            world.loop.call_later(99, lambda: fired.append(world.loop.time()))

        process.start(set_timers())
        other = asyncio.create_task(tick_every_second(world, other_ticks))
        await asyncio.sleep(2.5)
        process.pause()
        assert process.is_paused and process.is_alive
        await asyncio.sleep(10)
        assert ticks == [1, 2] and fired == []
        process.resume()
        await asyncio.sleep(2)
        assert ticks == [1, 2, 12.5, 13.5, 14.5][: len(ticks)] and len(ticks) >= 4
        assert fired == [12.5, 12.5]
        assert other_ticks[:14] == [*range(1, 15)]
        other.cancel()

    run_simulation(main, 1)


def test_what_a_stopped_process_waits_for_wakes_it_later() -> None:
    async def main(world: World) -> None:
        process = SimProcess(world.loop, "node-1", 1)
        event, woken = asyncio.Event(), []

        async def wait() -> None:
            await event.wait()
            woken.append(world.loop.time())

        process.start(wait())
        await asyncio.sleep(1)
        process.pause()
        event.set()
        await asyncio.sleep(1)
        assert woken == []
        process.resume()
        await asyncio.sleep(1)
        assert woken == [2.0]

    run_simulation(main, 1)


def test_tasks_started_inside_belong_to_the_process() -> None:
    async def main(world: World) -> None:
        process = SimProcess(world.loop, "node-1", 1)
        ended: list[str] = []

        async def child(name: str) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(name)

        async def parent() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(child("first"))
                group.create_task(child("second"))

        process.start(parent())
        outsider = asyncio.create_task(child("outsider"))
        await asyncio.sleep(1)
        assert len(process.tasks()) == 3
        await process.kill()
        assert sorted(ended) == ["first", "second"]
        assert not process.is_alive and process.tasks() == []
        assert not outsider.done()

    run_simulation(main, 1)


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_killed_process_does_nothing_more(is_paused: bool) -> None:
    async def main(world: World) -> None:
        process = SimProcess(world.loop, "node-1", 1)
        disk = SimDisk(clock=world.clock)
        done: list[str] = []

        async def work() -> None:
            world.loop.call_later(0.9, done.append, "timer")
            file = disk.open("/data", create=True)
            try:
                await asyncio.sleep(1)
                done.append("slept")
            finally:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(1)  # the way out may not take its time
                file.pwrite(b"last words", 0)

        process.start(work())
        await asyncio.sleep(0.5)
        if is_paused:
            process.pause()
            await asyncio.sleep(1)
        after = disk.kill()
        killed_s = world.loop.time()
        await process.kill()
        assert world.loop.time() == killed_s
        await asyncio.sleep(10)
        assert done == []
        assert after.read("/data") == b""

    run_simulation(main, 1)


def test_a_task_that_cannot_be_killed_is_a_defect() -> None:
    async def main(world: World) -> None:
        process = SimProcess(world.loop, "node-1", 1)
        is_enough = False

        async def stubborn() -> None:
            while not is_enough:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()

        process.start(stubborn(), "mule")
        await asyncio.sleep(1)
        try:
            with pytest.raises(SurvivedItsKill, match=r"node-1#1 is dead, but .* go on: mule"):
                await process.kill()
        finally:
            is_enough = True

    run_simulation(main, 1)


def test_a_run_that_ends_while_a_process_is_stopped() -> None:
    async def main(world: World) -> str:
        process = SimProcess(world.loop, "node-1", 1)
        process.start(tick_every_second(world, []))
        await asyncio.sleep(1.5)
        process.pause()
        await asyncio.sleep(5)
        return "fine"

    assert run_simulation(main, 1) == "fine"


def test_a_host_runs_one_process_at_a_time() -> None:
    async def main(world: World) -> None:
        network = SimNetwork(world)
        first = network.boot(1)
        with pytest.raises(RuntimeError, match="node-1#1 still runs"):
            network.boot("node-1")
        await network.kill(1)
        assert not network.is_alive(1)
        second = network.boot(1)
        assert (first.name, second.name) == ("node-1#1", "node-1#2")
        assert network.process(1) is second and network.is_alive("node-1")
        await network.kill(1)
        await network.kill(1)

    run_simulation(main, 1)


def test_processes_that_lose_power_together_do_so_at_one_moment() -> None:
    async def main(world: World) -> None:
        network = SimNetwork(world)
        ran: list[int] = []

        async def spin(node: int) -> None:
            while True:
                ran.append(node)
                await asyncio.sleep(0)

        for node in (1, 2, 3):
            network.boot(node).start(spin(node))
        for _ in range(10):
            await asyncio.sleep(0)
        before = len(ran)
        await network.power_off(1, 2, 3)
        assert len(ran) == before > 20

    for seed in range(5):
        run_simulation(main, seed)
