"""A program whose output shows every order that could differ between two processes.

Run as ``python determinism_scenario.py SEED``; the tests compare what it prints.
"""

from __future__ import annotations

import asyncio
import sys

from tidelog.kernel.ports import Steps
from tidelog.simulation import SimDisk, SimOffload, World, run_simulation


class Stop(Exception):
    """Ends a task group, which then cancels its members."""


async def member(world: World, trace: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        trace.append(f"{world.loop.time():.6f} {name} cancelled")


async def cancelled_group(world: World, trace: list[str]) -> None:
    """TaskGroup cancels by iterating a set of tasks."""

    async def fail() -> None:
        await asyncio.sleep(world.random.random())
        raise Stop

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(member(world, trace, f"member-{number}"))
            group.create_task(fail())
    except* Stop:
        trace.append("group ended")


async def waited_set(world: World, trace: list[str]) -> None:
    """``asyncio.wait`` returns sets of futures and tasks."""
    tasks = [asyncio.create_task(asyncio.sleep(number % 3)) for number in range(12)]
    futures = [world.loop.create_future() for _ in range(12)]
    for future in futures:
        future.set_result(None)
    done, pending = await asyncio.wait([*tasks, *futures], timeout=1.5)
    places = {id(waited): place for place, waited in enumerate([*tasks, *futures])}
    trace.append(f"done {[places[id(one)] for one in done]}")
    trace.append(f"pending {[places[id(one)] for one in pending]}")
    for task in pending:
        task.cancel()
    trace.append(f"names {sorted(task.get_name() for task in tasks)}")


async def disk_and_offload(world: World, trace: list[str]) -> None:
    disk = SimDisk(clock=world.clock)
    disk.on_operation(lambda kind, path: trace.append(f"{world.loop.time():.6f} {kind} {path}"))
    offload = SimOffload(world.random.fork("offload"), disk.faults)

    def write(name: str) -> Steps[None]:
        file = disk.open(f"/{name}", create=True)
        yield
        file.pwrite(name.encode() * 1000, 0)
        yield
        if name < "c":
            file.sync()

    await asyncio.gather(*(offload.run(write(name)) for name in ("a", "b", "c", "d")))
    disk.sync_dir("/")
    after = disk.power_loss(world.random.fork("power loss"))
    trace.extend(f"left {name} {len(after.read('/' + name))}" for name in after.list_dir("/"))


async def main(world: World) -> list[str]:
    trace: list[str] = []
    await cancelled_group(world, trace)
    await waited_set(world, trace)
    await disk_and_offload(world, trace)
    for task in sorted(asyncio.all_tasks(), key=hash):
        trace.append(task.get_name())
    return trace


if __name__ == "__main__":
    print("\n".join(run_simulation(main, int(sys.argv[1]))))
