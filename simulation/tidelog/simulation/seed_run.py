"""One seed of a whole cluster: draw it, run it under faults, heal it, judge it.

A seed draws the cluster (how many nodes and in which roles, how fast its disks and links are), the
workload and the schedule of faults. Given another schedule instead (``schedule``), all else stays
as drawn, so that a failing seed can be shrunk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tidelog.simulation.cluster import BOTH_ROLES, ClusterPlan, SimCluster
from tidelog.simulation.defects import Defects
from tidelog.simulation.event_loop import World, run_simulation
from tidelog.simulation.fault_driver import FaultDriver
from tidelog.simulation.fault_schedule import Budget, FaultSchedule, draw_schedule
from tidelog.simulation.faults import (
    FailedOperation,
    FlippedBit,
    FullDisk,
    StalledDisk,
    nodes_of,
)
from tidelog.simulation.final_checks import check_history, check_replicas, obstacle
from tidelog.simulation.history import History, Violation
from tidelog.simulation.links import LinkQuality
from tidelog.simulation.network import NetworkSettings
from tidelog.simulation.partition_checks import PartitionChecks
from tidelog.simulation.quorum_checks import QuorumChecks
from tidelog.simulation.random import SimRandom
from tidelog.simulation.trace import Trace
from tidelog.simulation.workload import Workload, draw_workload

LOOK_INTERVAL_MS: Final = 4.0
_DURATION_MS: Final = 15_000
_CONVERGE_S: Final = 90.0
_TIME_LIMIT_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class SeedResult:
    """What came of a seed; ``failure`` is None if all held."""

    kind: str
    seed: int
    schedule: FaultSchedule
    events: int
    digest: str
    summary: str
    failure: str | None = None
    tail: str = ""
    virtual_s: float = 0.0


def draw_cluster(random: SimRandom) -> ClusterPlan:
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
        roles, network=NetworkSettings(quality), max_disk_delay_ms=random.choice((2.0, 10.0, 40.0))
    )


class ClusterRun:
    """The run of one seed, from outside of all processes."""

    def __init__(self, world: World, schedule: FaultSchedule | None = None) -> None:
        plan = draw_cluster(world.random.fork("cluster"))
        self.cluster = SimCluster(world, plan)
        self.history = History()
        self.schedule = schedule or draw_schedule(
            world.random.fork("faults"),
            Budget(tuple(plan.roles), plan.controllers),
            duration_ms=_DURATION_MS,
        )
        faults = self.schedule.faults
        flipped = {n for f in faults if isinstance(f, FlippedBit) for n in nodes_of(f)}
        failing = {n for f in faults if isinstance(f, FailedOperation) for n in nodes_of(f)}
        self._flipped = flipped
        self._lossy = flipped | failing
        self._may_halt = self._lossy | {
            n for f in faults if isinstance(f, StalledDisk | FullDisk) for n in nodes_of(f)
        }
        workload = draw_workload(world.random.fork("workload"), len(plan.brokers))
        self.workload = Workload(
            self.cluster,
            workload,
            self.history,
            world.random.fork("clients"),
            may_be_damaged=bool(flipped),
        )
        self.partitions = PartitionChecks(self.cluster, flipped=flipped, failing=failing)
        self.quorum = QuorumChecks(self.cluster, flipped=flipped, failing=failing)
        self.defects = Defects(world, self.cluster)
        self._world = world
        self._looked_ms = -LOOK_INTERVAL_MS

    @property
    def trace(self) -> Trace:
        return self.cluster.trace

    def look(self) -> None:
        self.defects.check()
        now_ms = self._world.loop.elapsed_ms()
        if now_ms - self._looked_ms >= LOOK_INTERVAL_MS:
            self._looked_ms = now_ms
            self.partitions.look()
            self.quorum.look()

    async def run(self) -> None:
        self._world.loop.watch(self.look)
        cluster = self.cluster
        await cluster.start()
        await cluster.until_serving()
        await self.workload.begin()
        driver = FaultDriver(cluster, cluster.trace)
        await driver.run(self.schedule)
        await driver.heal()
        await self._repair()
        await self.workload.finish(_CONVERGE_S)
        await self._converge()
        self.look()
        check_replicas(cluster)
        check_history(cluster, self.history, self.workload.partitions)
        self._world.loop.watch(None)

    # --- healing -----------------------------------------------------------------------

    async def _repair(self) -> None:
        """What an operator does after a bad day: mend, restart, and replace what is broken.

        A disk that flips bits is replaced in any case: a bit that nobody has read since is
        noticed by nobody.
        """
        cluster = self.cluster
        cluster.network.heal()
        for one in cluster.nodes.values():
            one.disk.faults.heal()
        for node in sorted(self._flipped):
            if cluster.is_alive(node):
                await cluster.kill(node)
            cluster.replace_disk(node)
            await cluster.restart(node)
        for _ in range(10):
            await self._settle()
            self._check_halts()
            down = [n for n in cluster.nodes if not cluster.is_alive(n)]
            for node in down:
                words = cluster.nodes[node].last_words or ""
                if node in self._lossy and self._restarts_in_vain(node, words):
                    cluster.replace_disk(node)
                await cluster.restart(node)
            if not down:
                break
        await cluster.admit_replaced()

    def _restarts_in_vain(self, node: int, words: str) -> bool:
        return len([1 for n, why in self.cluster.halts if n == node and why == words]) > 1

    async def _settle(self) -> None:
        """Until every node serves or is down again; a start takes a while."""

        def is_settled() -> bool:
            nodes = self.cluster.nodes
            return all(n.is_serving or not self.cluster.is_alive(i) for i, n in nodes.items())

        await asyncio.sleep(0.5)
        with suppress(TimeoutError):  # such as a wiped voter that waits; told at the end
            await self.cluster.until(is_settled, "nodes serve or end", 60.0)

    def _check_halts(self) -> None:
        for node, why in self.cluster.halts:
            if node not in self._may_halt:
                raise Violation(f"node {node} gave up, although its disk is sound: {why}")

    async def _converge(self) -> None:
        cluster = self.cluster
        try:
            await cluster.until(lambda: obstacle(cluster) is None, "", _CONVERGE_S)
        except TimeoutError:
            raise Violation(f"no convergence: {obstacle(cluster)}") from None
        self._check_halts()


def run_seed(
    seed: int,
    schedule: FaultSchedule | None = None,
    *,
    on_begin: Callable[[ClusterRun], None] | None = None,
) -> SeedResult:
    """Run one seed; failures of any kind are told in the result."""
    begun: list[ClusterRun] = []

    async def main(world: World) -> None:
        run = ClusterRun(world, schedule)
        begun.append(run)
        if on_begin is not None:
            on_begin(run)
        await run.run()

    failure: str | None = None
    try:
        run_simulation(main, seed, time_limit_s=_TIME_LIMIT_S)
    except Exception as error:  # whatever it is, it is the finding of this seed
        failure = describe(error)
    assert begun, failure
    run = begun[0]
    trace = run.trace
    summary = (
        f"{run.history.summary()}, {run.quorum.elections} elections,"
        f" {run.partitions.commits_checked} commits checked"
    )
    return SeedResult(
        "cluster",
        seed,
        run.schedule,
        trace.count,
        trace.digest(),
        summary,
        failure,
        "" if failure is None else trace.tail(80),
        run.cluster.world.loop.time(),
    )


def describe(error: BaseException) -> str:
    """What happened, and where it came from if that is not a check of ours."""
    if isinstance(error, Violation | TimeoutError):
        return f"{type(error).__name__}: {error}"
    import traceback

    return "".join(traceback.format_exception(error)).rstrip()
