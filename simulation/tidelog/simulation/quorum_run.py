"""Seeds of the controller quorum: real controllers, and brokers that are scripted."""

from __future__ import annotations

import asyncio

from tidelog.simulation.cluster import SCRIPTED, ClusterPlan
from tidelog.simulation.history import Violation
from tidelog.simulation.links import LinkQuality
from tidelog.simulation.network import NetworkSettings
from tidelog.simulation.partition_checks import newest_image
from tidelog.simulation.random import SimRandom
from tidelog.simulation.seed_run import SeedRun

_REST_S = 3.0


class QuorumRun(SeedRun):
    """Three controllers, sometimes five, and three brokers that ask for things."""

    kind = "quorum"
    duration_ms = 12_000

    def draw_cluster(self, random: SimRandom) -> ClusterPlan:
        controllers = 3 if random.random() < 0.8 else 5
        roles: dict[int, tuple[str, ...]] = {n: ("controller",) for n in range(1, controllers + 1)}
        roles |= {n: SCRIPTED for n in range(11, 14)}
        quality = LinkQuality(
            max_delay_ms=random.choice((1.0, 1.0, 20.0)),
            loss=random.choice((0.0, 0.0, 0.01)),
            reset=random.choice((0.0, 0.0, 0.001)),
        )
        # Snapshots after a few, a few dozen or no records.
        between = random.choice(("2000", "10000", "1000000"))
        return ClusterPlan(
            roles,
            settings={"metadata.log.max.record.bytes.between.snapshots": between},
            network=NetworkSettings(quality),
            max_disk_delay_ms=random.choice((2.0, 10.0, 40.0)),
        )

    async def begin(self) -> None:
        """The scripted brokers are at it from the moment they serve."""

    async def finish(self) -> None:
        """One more promise after the last fault, then rest, agreement and the reckoning."""
        before = len(self.cluster.answered.topics)
        await self.cluster.until(
            lambda: len(self.cluster.answered.topics) > before, "a topic is created", 60.0
        )
        for node in self.cluster.plan.scripted:
            self.cluster.stop(node)
        await asyncio.sleep(_REST_S)
        await self.cluster.until(self._is_agreed, "the controllers agree", 60.0)
        image = newest_image(self.cluster)
        if image is None:
            raise Violation("no controller is left")
        self.cluster.answered.check(image)

    def _is_agreed(self) -> bool:
        ends = [
            raft.high_watermark
            for node in self.cluster.plan.controllers
            if (quorum := self.cluster.quorum(node)) is not None and (raft := quorum.raft)
        ]
        is_complete = len(ends) == len(self.cluster.plan.controllers)
        # An idle log grows by a record now and then.
        return is_complete and max(ends) - min(ends) <= 2

    def summary(self) -> str:
        answered, checks = self.cluster.answered, self.quorum_checks
        return (
            f"{len(answered.topics)} topics, {len(answered.states)} partitions reported on,"
            f" {len(answered.producer_ids)} id blocks, {checks.elections} elections,"
            f" metadata up to {checks.committed_end}"
        )
