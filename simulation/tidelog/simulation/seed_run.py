"""One seed: draw a cluster, run it under faults, heal it, judge it.

``SeedRun`` is what the kinds of seeds have in common. A seed draws the cluster (which nodes there
are, how fast their disks and links are) and the schedule of faults. Given another schedule instead,
all else stays as drawn, so that a failing seed can be shrunk.

A node may give up by itself only if its disk gave it a reason. When the faults are over an operator
mends, restarts and replaces what is broken; then the cluster must come to rest.
"""

from __future__ import annotations

import asyncio
import traceback
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Final

from tidelog.simulation.cluster import ClusterPlan, SimCluster
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
from tidelog.simulation.final_checks import obstacle
from tidelog.simulation.history import Violation
from tidelog.simulation.partition_checks import newest_image
from tidelog.simulation.quorum_checks import QuorumChecks
from tidelog.simulation.random import SimRandom

LOOK_INTERVAL_MS: Final = 4.0
CONVERGE_S: Final = 90.0
_TIME_LIMIT_S: Final = 900.0
_TAIL_EVENTS: Final = 80


@dataclass(frozen=True, slots=True)
class SeedResult:
    """What came of a seed; ``failure`` is None if all held."""

    kind: str
    seed: int
    schedule: FaultSchedule
    events: int
    digest: str
    summary: str
    virtual_s: float
    failure: str | None = None
    tail: str = ""


class SeedRun(ABC):
    """The run of one seed, from outside of all processes."""

    kind: ClassVar[str]
    duration_ms: ClassVar[int]

    def __init__(self, world: World, schedule: FaultSchedule | None = None) -> None:
        plan = self.draw_cluster(world.random.fork("cluster"))
        self.world = world
        self.cluster = SimCluster(world, plan)
        self.schedule = schedule or draw_schedule(
            world.random.fork("faults"),
            Budget(tuple(plan.roles), plan.controllers),
            duration_ms=self.duration_ms,
        )
        faults = self.schedule.faults
        self.flipped = {n for f in faults if isinstance(f, FlippedBit) for n in nodes_of(f)}
        self.failing = {n for f in faults if isinstance(f, FailedOperation) for n in nodes_of(f)}
        self._may_halt = {*self.flipped, *self.failing} | {
            n for f in faults if isinstance(f, StalledDisk | FullDisk) for n in nodes_of(f)
        }
        self.quorum_checks = QuorumChecks(self.cluster, flipped=self.flipped, failing=self.failing)
        self.defects = Defects(world, self.cluster)
        self._looked_ms = -LOOK_INTERVAL_MS

    @abstractmethod
    def draw_cluster(self, random: SimRandom) -> ClusterPlan: ...

    @abstractmethod
    async def begin(self) -> None:
        """Start what keeps the cluster busy."""

    @abstractmethod
    async def finish(self) -> None:
        """The faults are over: let everything come to rest, and judge it."""

    @abstractmethod
    def summary(self) -> str: ...

    def look(self) -> None:
        """Called at every moment; the costly checks are made at short intervals."""
        try:
            self.defects.check()
            now_ms = self.world.loop.elapsed_ms()
            if now_ms - self._looked_ms >= LOOK_INTERVAL_MS:
                self._looked_ms = now_ms
                self.check()
        except BaseException:
            self.cluster.trace.close()
            raise

    def check(self) -> None:
        self.quorum_checks.look()

    async def run(self) -> None:
        cluster = self.cluster
        self.world.loop.watch(self.look)
        await cluster.start()
        await cluster.until_serving()
        await self.begin()
        driver = FaultDriver(cluster, cluster.trace)
        await driver.run(self.schedule)
        await driver.heal()
        await self._repair()
        if self._has_lost_its_replicas():
            cluster.trace.note("operator", "is beyond what replication promises to survive")
        else:
            await self.finish()
        self.check()
        self._check_halts()
        self.world.loop.watch(None)

    # --- healing -----------------------------------------------------------------------

    async def _repair(self) -> None:
        """What an operator does after a bad day: mend, restart, and replace what is broken."""
        cluster = self.cluster
        cluster.network.heal()
        for one in cluster.nodes.values():
            one.disk.faults.heal()
        await self._restart_all()
        for node in sorted(self.flipped):
            await self._replace_damaged(node)

    async def _restart_all(self) -> None:
        cluster = self.cluster
        for _ in range(10):
            for node in cluster.nodes:
                if not cluster.is_alive(node):
                    if self._restarts_in_vain(node):
                        cluster.replace_disk(node)
                    await cluster.restart(node)
            await self._settle()
            self._check_halts()
            if all(map(cluster.is_alive, cluster.nodes)):
                break
        await cluster.admit_replaced()

    async def _replace_damaged(self, node: int) -> None:
        """A disk that flips bits goes, noticed or not: a bit that nobody reads nobody notices.

        Not before the others can do without it, if they ever can: what they fetch from it may
        be what is damaged.
        """
        cluster = self.cluster
        with suppress(TimeoutError):
            await cluster.until(lambda: self._is_dispensable(node), "", 30.0)
        if cluster.is_alive(node):
            await cluster.kill(node)
        cluster.replace_disk(node)
        await self._restart_all()

    def _is_dispensable(self, node: int) -> bool:
        image = newest_image(self.cluster)
        return image is not None and all(
            any(int(member) != node for member in state.isr)
            for topic in image.topics.by_id.values()
            for state in topic.partitions.values()
        )

    def _restarts_in_vain(self, node: int) -> bool:
        """Whether a node whose disk lost something gave up twice for the same reason."""
        words = self.cluster.nodes[node].last_words
        told = [why for n, why in self.cluster.halts if n == node and why == words]
        return node in self.flipped | self.failing and len(told) > 1

    def _has_lost_its_replicas(self) -> bool:
        """Whether new disks took all that counted of a partition. One is survived by three
        replicas of which two have every record; five nodes may lose the disks of two."""
        image = newest_image(self.cluster)
        replaced = self.cluster.replaced
        return image is not None and any(
            not state.isr and not state.elr and len(replaced.intersection(state.replicas)) > 1
            for topic in image.topics.by_id.values()
            for state in topic.partitions.values()
        )

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

    async def converge(self) -> None:
        cluster = self.cluster
        try:
            await cluster.until(lambda: obstacle(cluster) is None, "", CONVERGE_S)
        except TimeoutError:
            raise Violation(f"no convergence: {obstacle(cluster)}") from None


def run_seed(kind: type[SeedRun], seed: int, schedule: FaultSchedule | None = None) -> SeedResult:
    """Run one seed; failures of any kind are told in the result."""
    begun: list[SeedRun] = []

    async def main(world: World) -> None:
        run = kind(world, schedule)
        begun.append(run)
        try:
            await run.run()
        finally:
            run.cluster.trace.close()

    failure: str | None = None
    try:
        run_simulation(main, seed, time_limit_s=_TIME_LIMIT_S)
    except Exception as error:  # whatever it is, it is the finding of this seed
        failure = _describe(error)
    if not begun:
        raise RuntimeError(f"seed {seed} did not begin: {failure}")
    run = begun[0]
    trace = run.cluster.trace
    return SeedResult(
        kind.kind,
        seed,
        run.schedule,
        trace.count,
        trace.digest(),
        run.summary(),
        run.world.loop.time(),
        failure,
        "" if failure is None else trace.tail(_TAIL_EVENTS),
    )


def _describe(error: BaseException) -> str:
    """What happened, and where it came from if that is not a check of ours."""
    if isinstance(error, Violation | TimeoutError):
        return f"{type(error).__name__}: {error}"
    return "".join(traceback.format_exception(error)).rstrip()
