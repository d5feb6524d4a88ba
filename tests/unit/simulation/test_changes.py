"""A checker looks at a node again only when the node has done something."""

from __future__ import annotations

import asyncio

from tidelog.simulation import World, run_simulation
from tidelog.simulation.changes import Changes
from tidelog.simulation.cluster import BOTH_ROLES, ClusterPlan, SimCluster


def test_a_node_is_told_of_after_each_of_its_steps_and_in_each_of_its_lives() -> None:
    async def main(world: World) -> None:
        cluster = SimCluster(world, ClusterPlan({n: BOTH_ROLES for n in range(1, 4)}))
        await cluster.start()
        changes = Changes(cluster)

        def changed() -> list[int]:
            return [number for number, _ in changes.among(cluster.nodes)]

        assert changed() == [1, 2, 3]
        assert changed() == []
        cluster.pause(2)
        await asyncio.sleep(5)
        assert changed() == [1, 3]
        cluster.resume(2)
        await asyncio.sleep(5)
        assert changed() == [1, 2, 3]
        await cluster.kill(3)
        assert 3 not in changed()
        await cluster.restart(3)
        assert 3 in changed()

    run_simulation(main, seed=1, time_limit_s=100)
