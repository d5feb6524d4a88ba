"""One seed of trouble for a quorum: kills, power cuts, cut links, stops, hand-overs, under load.

``run_seed`` draws which faults happen, proposes all the while, then heals everything and requires
that the members agree and that nothing that was acknowledged is lost. At most one member at a time
is taken away for long; the power may fail everywhere at once, which a quorum must survive too.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from quorum_cluster import QuorumCluster, Violation

from tidelog.controller.quorum import NotController, RequestRefused
from tidelog.kernel.ids import NodeId
from tidelog.simulation import (
    LinkQuality,
    NetworkSettings,
    SimRandom,
    World,
    run_simulation,
)

KINDS = ("kill", "power", "blackout", "stop", "cut", "one-way", "reset", "pause", "stall", "hand")
_DURATION_S = 12.0


class _Storm:
    def __init__(self, world: World) -> None:
        self._chance: SimRandom = world.random.fork("storm")
        network = NetworkSettings(
            LinkQuality(
                max_delay_ms=self._chance.choice([1.0, 20.0]),
                loss=self._chance.choice([0.0, 0.01]),
                reset=self._chance.choice([0.0, 0.002]),
            )
        )
        delay_ms = self._chance.choice([2.0, 30.0])
        self.cluster = QuorumCluster(world, network=network, max_disk_delay_ms=delay_ms)
        self._kinds = [kind for kind in KINDS if self._chance.random() < 0.5] or list(KINDS)
        self._is_over = False

    async def run(self) -> QuorumCluster:
        cluster = self.cluster
        await cluster.start()
        load = asyncio.create_task(self._propose_on())
        end_s = cluster.world.loop.time() + _DURATION_S
        while cluster.world.loop.time() < end_s:
            await asyncio.sleep(self._chance.uniform(0.05, 1.0))
            await self._strike(self._chance.choice(self._kinds))
            self._check_alive()
        self._is_over = True
        cluster.network.heal()
        await cluster.start()
        await load
        await cluster.converge()
        self._check_alive()
        return cluster

    async def _propose_on(self) -> None:
        while not self._is_over:
            await asyncio.sleep(self._chance.uniform(0.0, 0.040))
            with suppress(TimeoutError):
                await self.cluster.propose(self._chance.randrange(1, 8), timeout_s=60.0)

    def _check_alive(self) -> None:
        for member in self.cluster.members.values():
            if member.fatal:
                raise Violation(f"node {member.node_id} halted") from member.fatal[0]

    async def _strike(self, kind: str) -> None:
        cluster, chance = self.cluster, self._chance
        node = chance.choice(sorted(cluster.members))
        other = chance.choice([n for n in sorted(cluster.members) if n != node])
        pause_s = chance.choice([0.0, 0.2, 3.0])
        match kind:
            case "kill":
                await cluster.kill(node)
                await self._restart(node, pause_s)
            case "power":
                await cluster.lose_power(node)
                await self._restart(node, pause_s)
            case "blackout":
                for each in sorted(cluster.members):
                    await cluster.lose_power(each)
                await cluster.start()
            case "stop":
                await cluster.stop(node)
                await self._restart(node, pause_s)
            case "cut" | "one-way":
                cluster.network.cut(node, other)
                if kind == "cut":
                    cluster.network.cut(other, node)
                await asyncio.sleep(pause_s)
                cluster.network.heal()
            case "reset":
                cluster.network.reset(node, other)
            case "pause":
                cluster.network.pause(node)
                await asyncio.sleep(pause_s)
                cluster.network.resume(node)
            case "stall":
                cluster.member(node).disk.faults.stalled = True
                await asyncio.sleep(pause_s)
                cluster.member(node).disk.faults.stalled = False
            case _:
                await self._hand_over()

    async def _restart(self, node: NodeId, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        await self.cluster.start(node)

    async def _hand_over(self) -> None:
        member = self.cluster.active
        if member is not None and member.quorum is not None:
            with suppress(NotController, RequestRefused):
                work = member.quorum.transfer_leadership(None)
                await self.cluster.run_in(member.node_id, work)


def run_seed(seed: int) -> QuorumCluster:
    async def main(world: World) -> QuorumCluster:
        return await _Storm(world).run()

    return run_simulation(main, seed, time_limit_s=600.0)
