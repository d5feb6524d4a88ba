"""Seeds of the whole cluster: brokers and controllers, and clients that use them."""

from __future__ import annotations

from tidelog.simulation.cluster import BOTH_ROLES, ClusterPlan
from tidelog.simulation.event_loop import World
from tidelog.simulation.fault_schedule import FaultSchedule
from tidelog.simulation.final_checks import check_history, check_replicas
from tidelog.simulation.history import History
from tidelog.simulation.links import LinkQuality
from tidelog.simulation.network import NetworkSettings
from tidelog.simulation.partition_checks import PartitionChecks
from tidelog.simulation.random import SimRandom
from tidelog.simulation.seed_run import CONVERGE_S, SeedRun
from tidelog.simulation.workload import Workload, WorkloadPlan, draw_workload


class ClusterRun(SeedRun):
    """Mostly three nodes that are both; sometimes five, or brokers apart from controllers."""

    kind = "cluster"
    duration_ms = 15_000

    def __init__(self, world: World, schedule: FaultSchedule | None = None) -> None:
        super().__init__(world, schedule)
        brokers = self.cluster.plan.brokers
        self.history = History()
        self.partition_checks = PartitionChecks(
            self.cluster, flipped=self.flipped, failing=self.failing
        )
        self.workload = Workload(
            self.cluster,
            self.draw_workload(world.random.fork("workload"), len(brokers)),
            self.history,
            world.random.fork("clients"),
            may_be_damaged=bool(self.flipped),
        )

    def draw_cluster(self, random: SimRandom) -> ClusterPlan:
        shape = random.random()
        roles: dict[int, tuple[str, ...]]
        if shape < 0.75:
            roles = {n: BOTH_ROLES for n in range(1, 4)}
        elif shape < 0.85:
            roles = {n: BOTH_ROLES for n in range(1, 6)}
        else:
            roles = {n: ("controller" if n < 4 else "broker",) for n in range(1, 7)}
        quality = LinkQuality(
            max_delay_ms=random.choice((1.0, 1.0, 20.0)), loss=random.choice((0.0, 0.0, 0.01))
        )
        return ClusterPlan(
            roles,
            network=NetworkSettings(quality),
            max_disk_delay_ms=random.choice((2.0, 10.0, 40.0)),
        )

    def draw_workload(self, random: SimRandom, brokers: int) -> WorkloadPlan:
        return draw_workload(random, brokers)

    async def begin(self) -> None:
        await self.workload.begin()

    def check(self) -> None:
        super().check()
        self.partition_checks.look()

    async def finish(self) -> None:
        await self.workload.finish(CONVERGE_S)
        await self.converge()
        check_replicas(self.cluster)
        check_history(self.cluster, self.history, self.workload.partitions)

    def ends(self) -> dict[int, int]:
        """Where partitions end, by what readers were shown: they are at the end now."""
        return {
            index: 1 + max(self.history.reads.get((topic, index), {-1: b""}))
            for topic, index in self.workload.partitions
        }

    def summary(self) -> str:
        return (
            f"{self.history.summary()}, {self.quorum_checks.elections} elections,"
            f" {self.partition_checks.commits_checked} commits checked"
        )
