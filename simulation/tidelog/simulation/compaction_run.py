"""Seeds of compaction: keys come and go, and a replica is away for longer than tombstones last."""

from __future__ import annotations

import asyncio
from typing import Final

from tidelog.simulation.cluster import BOTH_ROLES, ClusterPlan
from tidelog.simulation.compaction_workload import CLEANER_SETTINGS, CompactionWorkload
from tidelog.simulation.event_loop import World
from tidelog.simulation.fault_schedule import Budget, FaultSchedule, draw_schedule
from tidelog.simulation.faults import Kill, PowerLoss
from tidelog.simulation.history import History
from tidelog.simulation.links import LinkQuality
from tidelog.simulation.network import NetworkSettings
from tidelog.simulation.random import SimRandom
from tidelog.simulation.seed_run import CONVERGE_S, SeedRun

_NODES: Final = (1, 2, 3)
_SETTLE_S: Final = 4.0
"""Time for all replicas to clean once more, before keys stop to change."""


class CompactionRun(SeedRun):
    """Three nodes that are both. One is away for many times ``delete.retention.ms``."""

    kind = "compaction"
    duration_ms = 16_000

    def __init__(self, world: World, schedule: FaultSchedule | None = None) -> None:
        super().__init__(world, schedule or _absence(world.random.fork("absence")))
        random = world.random.fork("workload")
        self.history = History()
        self.passes = self.tombstones_dropped = 0
        self.workload = CompactionWorkload(
            self.cluster,
            self.history,
            world.random.fork("clients"),
            partitions=random.choice((1, 2)),
            pause_s=random.choice((0.1, 0.3)),
            may_be_damaged=bool(self.flipped),
        )

    def draw_cluster(self, random: SimRandom) -> ClusterPlan:
        quality = LinkQuality(max_delay_ms=random.choice((1.0, 1.0, 20.0)))
        return ClusterPlan(
            {node: BOTH_ROLES for node in _NODES},
            settings=CLEANER_SETTINGS,
            network=NetworkSettings(quality),
            max_disk_delay_ms=random.choice((2.0, 10.0)),
        )

    async def begin(self) -> None:
        await self.workload.begin()

    async def finish(self) -> None:
        await asyncio.sleep(_SETTLE_S)
        await self.workload.finish(CONVERGE_S)
        await self.converge()
        self.workload.check()
        for one in self.cluster.nodes.values():
            if one.node is not None and one.node.broker is not None:
                totals = one.node.broker.cleaners.totals
                self.passes += totals.passes
                self.tombstones_dropped += totals.tombstones_dropped

    def summary(self) -> str:
        return (
            f"{self.history.summary()}, {self.passes} passes,"
            f" {self.tombstones_dropped} tombstones dropped"
        )


def _absence(random: SimRandom) -> FaultSchedule:
    """One node is gone for long; in half of the seeds other things happen as well."""
    budget = Budget(_NODES, _NODES)
    node = random.choice(_NODES)
    at_ms, for_ms = random.randrange(1_500, 5_000), random.randrange(6_000, 11_000)
    away = random.choice((Kill(at_ms, for_ms, node), PowerLoss(at_ms, for_ms, (node,))))
    if random.random() < 0.5:
        return FaultSchedule(budget, (away,))
    others = draw_schedule(
        random.fork("others"), budget, duration_ms=CompactionRun.duration_ms, max_faults=4
    )
    return FaultSchedule(budget, (away, *others.faults))
