"""Seeds of transactions: writers, zombies and copiers while faults strike brokers."""

from __future__ import annotations

from dataclasses import replace

from tidelog.simulation.cluster import ClusterPlan
from tidelog.simulation.cluster_run import ClusterRun
from tidelog.simulation.event_loop import World
from tidelog.simulation.fault_schedule import FaultSchedule
from tidelog.simulation.final_checks import check_history, check_replicas
from tidelog.simulation.random import SimRandom
from tidelog.simulation.seed_run import CONVERGE_S
from tidelog.simulation.transaction_workload import (
    TRANSACTION_SETTINGS,
    TransactionsPlan,
    TransactionWorkload,
)
from tidelog.simulation.workload import TOPIC, WorkloadPlan


class TransactionRun(ClusterRun):
    """A cluster as in ``ClusterRun``, with transactional clients of both versions."""

    kind = "transactions"
    duration_ms = 12_000

    def __init__(self, world: World, schedule: FaultSchedule | None = None) -> None:
        super().__init__(world, schedule)
        random = world.random.fork("transactions")
        workload = self.workload.plan
        self.transactions = TransactionWorkload(
            self.cluster,
            TransactionsPlan(
                TOPIC,
                workload.partitions,
                writers=random.choice((1, 2)),
                pause_s=random.choice((0.2, 1.0)),
                churn_s=random.choice((0.7, 2.0)),
                replication_factor=workload.replication_factor,
                may_be_damaged=bool(self.flipped),
            ),
            self.history,
            world.random.fork("transactors"),
        )

    def draw_cluster(self, random: SimRandom) -> ClusterPlan:
        return replace(super().draw_cluster(random), settings=TRANSACTION_SETTINGS)

    def draw_workload(self, random: SimRandom, brokers: int) -> WorkloadPlan:
        return WorkloadPlan(
            partitions=random.choice((1, 2)),
            window=1,
            pause_s=random.choice((1.0, 2.0)),
            has_careless=False,
            has_admin=False,
            replication_factor=min(3, brokers),
        )

    async def begin(self) -> None:
        await super().begin()
        await self.transactions.begin()

    async def finish(self) -> None:
        await self.workload.finish(CONVERGE_S)
        await self.transactions.drain(self.ends(), CONVERGE_S)
        await self.transactions.abandon()
        await self.transactions.check(CONVERGE_S)
        await self.converge()
        check_replicas(self.cluster)
        check_history(self.cluster, self.history, self.workload.partitions)

    def summary(self) -> str:
        return f"{super().summary()}, {self.transactions.summary()}"
