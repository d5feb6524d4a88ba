"""Three nodes with simulated disks replicate a partition: the shells, end to end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from replica_lab import Lab

from tidelog.kernel.errors import ErrorCode
from tidelog.simulation.event_loop import World, run_simulation


def in_lab(script: Callable[[Lab], Awaitable[None]], *, seed: int = 1, **settings: str) -> None:
    async def main(world: World) -> None:
        lab = Lab(world, **settings)
        await lab.start()
        await script(lab)
        await lab.close()

    run_simulation(main, seed, time_limit_s=600)


def test_an_acknowledged_batch_is_flushed_on_every_replica() -> None:
    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        produced = await lab.produce(ref, "a", "b")
        assert (produced.code, produced.base_offset) == (ErrorCode.NONE, 0)
        for node in lab.nodes.values():
            log = node.partition(ref).log
            assert log.flushed_end >= 2
        await lab.equal(ref)
        assert all(node.values(ref) == ["a", "b"] for node in lab.nodes.values())

    in_lab(script)
