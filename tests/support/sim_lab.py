"""A simulated cluster under load for tests that say themselves what happens to it.

``SimLab`` starts a cluster and clients, watches all that must hold at every moment, and at the end
requires what a seed requires: everything acknowledged, nothing lost, all replicas equal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from tidelog.controller.metadata.partitions import PartitionRef, PartitionState
from tidelog.controller.raft.model import ReplicaKey
from tidelog.kernel.ids import PartitionIndex
from tidelog.simulation import World, run_simulation
from tidelog.simulation.cluster import BOTH_ROLES, ClusterPlan, SimCluster
from tidelog.simulation.defects import Defects
from tidelog.simulation.final_checks import check_history, check_replicas, obstacle
from tidelog.simulation.history import History, Outcome, Send
from tidelog.simulation.partition_checks import PartitionChecks, newest_image
from tidelog.simulation.quorum_checks import QuorumChecks
from tidelog.simulation.sim_client import SimKafkaClient
from tidelog.simulation.sim_node import client_address
from tidelog.simulation.workload import TOPIC, Workload, WorkloadPlan

THREE = ClusterPlan({n: BOTH_ROLES for n in (1, 2, 3)})
APART = ClusterPlan({n: ("controller" if n < 4 else "broker",) for n in range(1, 7)})
"""Three controllers (1 to 3) and three brokers (4 to 6)."""

STEADY = WorkloadPlan(
    partitions=1, window=3, pause_s=0.05, request_timeout_s=2.0, has_careless=False, has_admin=False
)
_LOOK_INTERVAL_MS = 1.0


class SimLab:
    def __init__(
        self,
        world: World,
        plan: ClusterPlan,
        workload: WorkloadPlan,
        *,
        flipped: tuple[int, ...] = (),
        failing: tuple[int, ...] = (),
    ) -> None:
        self.world = world
        self.cluster = SimCluster(world, plan)
        self.history = History()
        self.partition_checks = PartitionChecks(self.cluster, flipped=flipped, failing=failing)
        self.quorum_checks = QuorumChecks(self.cluster, flipped=flipped, failing=failing)
        self.defects = Defects(world, self.cluster)
        self.workload = Workload(
            self.cluster,
            workload,
            self.history,
            world.random.fork("clients"),
            may_be_damaged=bool(flipped),
        )
        self._looked_ms = -1.0

    async def begin(self) -> None:
        """A cluster that serves, with clients at work."""
        self.world.loop.watch(self._look)
        await self.cluster.start()
        await self.cluster.until_serving()
        await self.workload.begin()
        await self.cluster.until(lambda: self.acknowledged > 20, "the first batches")

    async def finish(self) -> None:
        """All faults are over: all is acknowledged, read, equal and where it was said to be."""
        await self.workload.finish(60.0)
        await self.cluster.until(lambda: obstacle(self.cluster) is None, "convergence", 60.0)
        self._look()
        check_replicas(self.cluster)
        check_history(self.cluster, self.history, self.workload.partitions)
        self.world.loop.watch(None)

    def _look(self) -> None:
        self.defects.check()
        now_ms = self.world.loop.elapsed_ms()
        if now_ms - self._looked_ms >= _LOOK_INTERVAL_MS:
            self._looked_ms = now_ms
            self.partition_checks.look()
            self.quorum_checks.look()

    async def ask(self, node: int, request: Any) -> Any:
        """What a client of its own is answered by one broker."""
        network = self.cluster.network
        client = SimKafkaClient(network, network.boot("asker"), ())
        client.note_address(node, client_address(node))
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await client.call(node, request, 5.0))

        await client.start(ask())
        client.close()
        return answers[0]

    # --- where things stand ------------------------------------------------------------

    @property
    def answered(self) -> list[Send]:
        return [s for s in self.history.all_sends() if s.is_counted and s.outcome is Outcome.OK]

    @property
    def acknowledged(self) -> int:
        return len(self.answered)

    def longest_gap_ms(self, since_ms: float) -> float:
        """Between two acknowledgements, from a moment on."""
        times = sorted(s.answered_ms for s in self.answered if s.answered_ms >= since_ms)
        return max(
            (after - before for before, after in zip([since_ms, *times], times, strict=False)),
            default=0.0,
        )

    def ref(self, index: int = 0) -> PartitionRef:
        image = newest_image(self.cluster)
        assert image is not None
        return PartitionRef(image.topics.by_name[TOPIC], PartitionIndex(index))

    def state(self, index: int = 0) -> PartitionState:
        image = newest_image(self.cluster)
        assert image is not None
        state = image.topics.partition(self.ref(index))
        assert state is not None
        return state

    def leader(self, index: int = 0) -> int:
        return int(self.state(index).leader)

    def followers(self, index: int = 0) -> list[int]:
        return [int(n) for n in self.state(index).replicas if n != self.state(index).leader]

    def fencings(self) -> list[int]:
        """Brokers that are fenced now."""
        image = newest_image(self.cluster)
        assert image is not None
        return [int(n) for n, broker in image.brokers.items() if broker.fenced]

    def has_report(self, leader: int, index: int = 0) -> bool:
        """Whether a leader has told the controller of an ISR and does not know the outcome."""
        replicas = self.cluster.replicas(leader)
        partition = None if replicas is None else replicas.partitions.get(self.ref(index))
        machine = None if partition is None else partition.leader
        return machine is not None and machine.pending_report is not None

    def voters(self) -> list[ReplicaKey]:
        """By the newest active controller."""
        active = self.cluster.active_controller
        quorum = None if active is None else self.cluster.quorum(active)
        return [] if quorum is None or quorum.raft is None else list(quorum.raft.status.voters)

    def log_directory(self, index: int = 0) -> str:
        return f"/data/logs/{TOPIC}-{index}"

    # --- waiting -----------------------------------------------------------------------

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def until_in_sync(self, index: int = 0) -> None:
        def is_in_sync() -> bool:
            state = self.state(index)
            return set(state.isr) == set(state.replicas)

        await self.cluster.until(is_in_sync, "all replicas are in sync")

    async def until_led_by_another(self, than: int, index: int = 0) -> None:
        await self.cluster.until(lambda: self.leader(index) not in (-1, than), "another leads")

    async def until_down(self, node: int) -> None:
        await self.cluster.until(lambda: not self.cluster.is_alive(node), f"node {node} ends", 20.0)

    async def until_acknowledged(self, more: int, within_s: float = 60.0) -> float:
        """So many more batches; how long that took in milliseconds."""
        wanted = self.acknowledged + more
        return await self.cluster.until(
            lambda: self.acknowledged >= wanted, f"{more} more batches", within_s
        )


def with_settings(plan: ClusterPlan, settings: Mapping[str, str]) -> ClusterPlan:
    return replace(plan, settings={**plan.settings, **settings})


def simulate(
    scenario: Callable[[SimLab], Awaitable[None]],
    *,
    seed: int = 1,
    plan: ClusterPlan = THREE,
    workload: WorkloadPlan = STEADY,
    flipped: tuple[int, ...] = (),
    failing: tuple[int, ...] = (),
) -> None:
    """Run a scenario on a cluster that is not started yet."""
    logging.getLogger("tidelog").propagate = False

    async def main(world: World) -> None:
        await scenario(SimLab(world, plan, workload, flipped=flipped, failing=failing))

    run_simulation(main, seed, time_limit_s=600)
