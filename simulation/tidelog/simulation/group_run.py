"""Seeds of consumer groups: members of both protocols come and go while faults strike brokers."""

from __future__ import annotations

from dataclasses import replace

from tidelog.simulation.cluster import ClusterPlan
from tidelog.simulation.cluster_run import ClusterRun
from tidelog.simulation.event_loop import World
from tidelog.simulation.fault_schedule import FaultSchedule
from tidelog.simulation.final_checks import check_history, check_replicas
from tidelog.simulation.group_workload import GROUP_SETTINGS, GroupsPlan, GroupWorkload
from tidelog.simulation.offsets_log_checks import check_offsets_log
from tidelog.simulation.random import SimRandom
from tidelog.simulation.seed_run import CONVERGE_S
from tidelog.simulation.workload import TOPIC, WorkloadPlan


class GroupRun(ClusterRun):
    """A cluster as in ``ClusterRun``, with one group of each protocol."""

    kind = "groups"
    duration_ms = 12_000

    def __init__(self, world: World, schedule: FaultSchedule | None = None) -> None:
        super().__init__(world, schedule)
        plan = self.draw_groups(world.random.fork("groups"))
        self.groups = GroupWorkload(
            self.cluster,
            replace(plan, may_be_damaged=bool(self.flipped)),
            self.history,
            world.random.fork("members"),
        )

    def draw_cluster(self, random: SimRandom) -> ClusterPlan:
        return replace(super().draw_cluster(random), settings=GROUP_SETTINGS)

    def draw_workload(self, random: SimRandom, brokers: int) -> WorkloadPlan:
        return WorkloadPlan(
            partitions=random.choice((3, 5)),
            window=random.choice((1, 3)),
            pause_s=random.choice((0.8, 1.5)),
            has_careless=False,
            has_admin=False,
            replication_factor=min(3, brokers),
        )

    def draw_groups(self, random: SimRandom) -> GroupsPlan:
        return GroupsPlan(
            TOPIC,
            self.workload.plan.partitions,
            random.choice(("range", "roundrobin", "sticky", "cooperative-sticky")),
            random.choice(("uniform", "range")),
            members=random.choice((2, 3, 4)),
            churn_s=random.choice((1.0, 2.5)),
        )

    async def begin(self) -> None:
        await super().begin()
        await self.groups.begin()

    async def finish(self) -> None:
        await self.workload.finish(CONVERGE_S)
        await self.groups.drain(self.ends(), CONVERGE_S)
        for group in self.groups.ledgers:
            await self.converge()
            await self.groups.check_failover(group, CONVERGE_S)
        await self.groups.end()
        await self.converge()
        check_replicas(self.cluster)
        check_history(self.cluster, self.history, self.workload.partitions)
        check_offsets_log(self.cluster, self.groups.ledgers)

    def summary(self) -> str:
        return f"{super().summary()}, {self.groups.summary()}"
