"""Seeds of groups and of transactions whose internal topics are compacted all the time.

Coordinators must find in ``__consumer_offsets`` and ``__transaction_state`` what they wrote,
however often those were cleaned: after a failover they know a group, or a transaction, from nothing
else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tidelog.simulation.cluster import ClusterPlan, SimCluster
from tidelog.simulation.compaction_workload import CLEANER_SETTINGS
from tidelog.simulation.group_run import GroupRun
from tidelog.simulation.random import SimRandom
from tidelog.simulation.transaction_run import TransactionRun

_OFTEN: Final = {**CLEANER_SETTINGS, "log.roll.ms": "400", "log.cleaner.backoff.ms": "100"}


class CleanedGroupRun(GroupRun):
    kind = "groups-cleaned"
    passes = 0

    def draw_cluster(self, random: SimRandom) -> ClusterPlan:
        return _cleaned(super().draw_cluster(random))

    async def finish(self) -> None:
        await super().finish()
        self.passes = passes(self.cluster)

    def summary(self) -> str:
        return f"{super().summary()}, {self.passes} passes"


class CleanedTransactionRun(TransactionRun):
    kind = "transactions-cleaned"
    passes = 0

    def draw_cluster(self, random: SimRandom) -> ClusterPlan:
        return _cleaned(super().draw_cluster(random))

    async def finish(self) -> None:
        await super().finish()
        self.passes = passes(self.cluster)

    def summary(self) -> str:
        return f"{super().summary()}, {self.passes} passes"


def _cleaned(plan: ClusterPlan) -> ClusterPlan:
    return replace(plan, settings={**plan.settings, **_OFTEN})


def passes(cluster: SimCluster) -> int:
    """Of the brokers that run, in their present lives."""
    brokers = (one.node.broker for one in cluster.nodes.values() if one.node is not None)
    return sum(broker.cleaners.totals.passes for broker in brokers if broker is not None)
