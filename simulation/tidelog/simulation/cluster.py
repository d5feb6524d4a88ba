"""A whole cluster in one process: real node shells on simulated machines.

``SimCluster`` gives each node a disk, a clock and a network, starts it as ``tidelog server``
would, and is what faults strike (``FaultTarget``). A node that gives up by itself is buried like a
process that exited; ``restart`` starts it again, as its supervisor would.

An operator comes in two shapes. ``replace_disk`` is a new disk for a node that cannot start from
its old one; ``admit_replaced`` then makes the quorum forget the old directory and take in the new
one, which no node does by itself (hazard 40).

Owner: the simulation, from outside of all processes.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.controller.quorum import NotController, RequestRefused
from tidelog.controller.quorum.quorum import Quorum
from tidelog.controller.raft.model import ReplicaKey
from tidelog.controller.service.controller import Controller
from tidelog.kernel.ids import NodeId
from tidelog.replication.replicas import ReplicaSet
from tidelog.simulation.disk_faults import CrashAt, MutationKind, SimulatedCrash
from tidelog.simulation.disk_view import DiskView
from tidelog.simulation.event_loop import World
from tidelog.simulation.faults import DiskOperation
from tidelog.simulation.links import LinkQuality
from tidelog.simulation.network import NetworkSettings, SimNetwork
from tidelog.simulation.processes import SimProcess
from tidelog.simulation.random import SimRandom
from tidelog.simulation.scripted_broker import Answered, ScriptedBroker
from tidelog.simulation.sim_node import SimNode, plan_node

BOTH_ROLES: Final = ("broker", "controller")
SCRIPTED: Final = ("scripted",)
"""The role of a ``ScriptedBroker``."""
SMALL_SETTINGS: Final[Mapping[str, str]] = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "log.roll.ms": "3000",
    "log.index.interval.bytes": "1024",
    "metadata.log.segment.bytes": str(8 << 20),
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "log.flush.start.offset.checkpoint.interval.ms": "3000",
    "replica.high.watermark.checkpoint.interval.ms": "2000",
    "log.dir.min.free.bytes": "0",
    "log.cleaner.enable": "false",
}
"""Time-outs as in production; segments, snapshots and checkpoints after a few dozen records.

Logs are compacted only where a run is about that: the checks compare every batch ever committed."""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """Which nodes there are, and what they are started with."""

    roles: Mapping[int, tuple[str, ...]]
    settings: Mapping[str, str] = field(default_factory=dict)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    max_disk_delay_ms: float = 5.0

    @property
    def cleans_logs(self) -> bool:
        return {**SMALL_SETTINGS, **self.settings}["log.cleaner.enable"] == "true"

    @property
    def controllers(self) -> tuple[int, ...]:
        return tuple(n for n, roles in sorted(self.roles.items()) if "controller" in roles)

    @property
    def brokers(self) -> tuple[int, ...]:
        return tuple(n for n, roles in sorted(self.roles.items()) if "broker" in roles)

    @property
    def scripted(self) -> tuple[int, ...]:
        return tuple(n for n, roles in sorted(self.roles.items()) if roles == SCRIPTED)


class SimCluster:
    """See the module. Nodes are named by their numbers."""

    def __init__(self, world: World, plan: ClusterPlan) -> None:
        self.world = world
        self.plan = plan
        self.network = SimNetwork(world, settings=plan.network)
        self.trace = self.network.trace
        values = {**SMALL_SETTINGS, **plan.settings}
        self.answered = Answered()
        """What scripted brokers were told."""
        self.nodes: dict[int, SimNode] = {
            n: self._node(n, roles, values) for n, roles in sorted(plan.roles.items())
        }
        self.halts: list[tuple[int, str]] = []
        """Nodes that gave up by themselves, and why, in order."""
        self.replaced: set[int] = set()
        """Nodes that were given a new disk."""
        self.on_defect: Callable[[str, BaseException], None] | None = None
        self._power = world.random.fork("power")
        self._power_losses = 0
        self._lives: dict[int, asyncio.Task[None]] = {}
        self._burials: set[asyncio.Task[None]] = set()

    def _node(self, number: int, roles: tuple[str, ...], values: Mapping[str, str]) -> SimNode:
        is_scripted = roles == SCRIPTED
        plan = plan_node(
            number,
            ("broker",) if is_scripted else roles,
            self.plan.controllers,
            values,
            self.plan.max_disk_delay_ms,
        )
        if is_scripted:
            return ScriptedBroker(self.world, self.network, plan, self.answered)
        return SimNode(self.world, self.network, plan)

    # --- looking at it -----------------------------------------------------------------

    def replicas(self, node: int) -> ReplicaSet | None:
        """The replicas of a living broker."""
        shell = self.nodes[node].node
        return None if shell is None or shell.broker is None else shell.broker.replicas

    def controller(self, node: int) -> Controller | None:
        shell = self.nodes[node].node
        return None if shell is None or shell.controller is None else shell.controller.controller

    def quorum(self, node: int) -> Quorum | None:
        """A member of the quorum that takes part."""
        shell = self.nodes[node].node
        if shell is None or shell.controller is None or shell.controller.quorum.raft is None:
            return None
        return shell.controller.quorum

    def disk_view(self, node: int) -> DiskView:
        return DiskView(self.nodes[node].disk)

    @property
    def active_controller(self) -> int | None:
        """The newest active one; an older one may not know yet that it is not."""
        active = {
            node: quorum.term
            for node in self.plan.controllers
            if (quorum := self.quorum(node)) is not None and quorum.is_active
        }
        return max(active, key=lambda node: active[node], default=None)

    # --- life --------------------------------------------------------------------------

    async def start(self, nodes: Iterable[int] | None = None) -> None:
        for node in self.nodes if nodes is None else nodes:
            await self.restart(node)

    async def until(
        self, condition: Callable[[], bool], what: str, within_s: float = 60.0
    ) -> float:
        """Wait for something; how long it took, in milliseconds. ``TimeoutError`` says what."""
        begin_s = self.world.loop.time()
        while not condition():
            if self.world.loop.time() - begin_s > within_s:
                raise TimeoutError(f"not within {within_s:g} s: {what}")
            await asyncio.sleep(0.010)
        return (self.world.loop.time() - begin_s) * 1000

    async def until_serving(self, within_s: float = 60.0) -> None:
        def is_serving() -> bool:
            return all(node.is_serving for node in self.nodes.values())

        await self.until(is_serving, "all nodes serve", within_s)

    def _ended(self, node: int, life: asyncio.Task[None]) -> None:
        """A life is over. If it was not killed, the process exits now."""
        if self._lives.get(node) is not life:
            return
        del self._lives[node]
        error = None if life.cancelled() else life.exception()
        if error is not None and self.on_defect is not None:
            self.on_defect(f"node {node}", error)
        reason = self.nodes[node].last_words
        if reason is not None or error is not None:
            self.halts.append((node, reason or repr(error)))
        self.trace.note(f"node-{node}", "ended", why=reason or repr(error))
        self._later(self._exit(node, self.nodes[node].process))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        """Outside of all processes, as soon as what runs now has had its turn."""
        burial = self.world.loop.create_task(work, context=contextvars.Context())
        self._burials.add(burial)
        burial.add_done_callback(self._burials.discard, context=contextvars.Context())

    async def _exit(self, node: int, process: SimProcess | None) -> None:
        if process is not None and process.is_alive:
            await self.kill(node)

    # --- FaultTarget -------------------------------------------------------------------

    def is_alive(self, node: int) -> bool:
        return self.network.is_alive(node)

    async def kill(self, node: int) -> None:
        one = self.nodes[node]
        one.disk = one.disk.kill()
        await self._bury([node], self.network.kill)

    def stop(self, node: int) -> None:
        self.trace.note(f"node-{node}", "is asked to stop")
        self.nodes[node].stop()

    def crash_at(self, node: int, nth: int | None, *, is_power_loss: bool) -> None:
        disk = self.nodes[node].disk
        if nth is None:
            disk.on_operation(None)
            return
        plan = CrashAt(nth)

        def strike(kind: MutationKind, path: str) -> None:
            try:
                plan(kind, path)
            except SimulatedCrash:
                disk.on_operation(None)
                self.trace.note(f"node-{node}", "crashes", before=kind, path=path)
                self.network.strike(node, is_power_loss=is_power_loss)
                self._later(self.power_loss([node]) if is_power_loss else self.kill(node))
                raise

        disk.on_operation(strike)

    async def power_loss(self, nodes: Sequence[int]) -> None:
        for node in nodes:
            self._power_losses += 1
            random = self._power.fork(f"{node}/{self._power_losses}")
            one = self.nodes[node]
            one.disk = one.disk.power_loss(random)
        await self._bury(nodes, self.network.power_off)

    async def _bury(
        self, nodes: Sequence[int], end: Callable[..., Coroutine[Any, Any, None]]
    ) -> None:
        for node in nodes:
            self._lives.pop(node, None)
        await end(*nodes)
        for node in nodes:
            if not self.is_alive(node):
                self.nodes[node].end()

    async def restart(self, node: int) -> None:
        if self.is_alive(node):
            return
        life = self.nodes[node].start()
        self._lives[node] = life
        life.add_done_callback(
            lambda ended: self._ended(node, ended), context=contextvars.Context()
        )

    def pause(self, node: int) -> None:
        self.network.pause(node)

    def resume(self, node: int) -> None:
        self.network.resume(node)

    def cut(self, source: int, target: int) -> None:
        self.network.cut(source, target)

    def mend(self, source: int, target: int) -> None:
        self.network.mend(source, target)

    def set_quality(self, source: int, target: int, quality: LinkQuality | None) -> None:
        self.network.set_quality(source, target, quality)

    def slow_disk(self, node: int, step_delay_ms: float) -> None:
        self.nodes[node].disk.faults.step_delay_ms = step_delay_ms

    def stall_disk(self, node: int, is_stalled: bool) -> None:
        self.nodes[node].disk.faults.stalled = is_stalled

    def limit_disk(self, node: int, free_bytes: int | None) -> None:
        disk = self.nodes[node].disk
        disk.faults.capacity_bytes = None if free_bytes is None else disk.used_bytes + free_bytes

    def fail_disk(self, node: int, operation: DiskOperation, times: int) -> None:
        self.nodes[node].disk.faults.fail(operation, times=times)

    def repair_disk(self, node: int) -> None:
        self.nodes[node].disk.faults.forget_failures()

    def flip_bit(self, node: int, draw: int) -> None:
        random = SimRandom(draw)
        view = self.disk_view(node)
        files = [path for path in view.paths() if view.size(path) > 0]
        # Mostly where acknowledged records are: there are far more small files than segments.
        logs = [path for path in files if path.endswith(".log")]
        chosen = logs if logs and random.random() < 0.7 else files
        if chosen:
            path = random.choice(chosen)
            position, bit = random.randrange(view.size(path)), random.randrange(8)
            self.nodes[node].disk.flip_bit(path, position, bit)
            self.trace.note(f"node-{node}", "bit flipped", path=path, position=position, bit=bit)

    def set_clock_skew(self, node: int, skew_ms: int) -> None:
        self.nodes[node].clock.skew_ms = skew_ms

    # --- an operator's work ------------------------------------------------------------

    def replace_disk(self, node: int) -> None:
        """Empty hardware for a node that is down."""
        assert not self.is_alive(node), f"node {node} still uses its disk"
        self.trace.note(f"node-{node}", "gets a new disk")
        self.replaced.add(node)
        self.nodes[node].replace_disk()

    async def admit_replaced(self, within_s: float = 60.0) -> None:
        """Exchange voters whose directories are gone for the ones their nodes have now."""
        deadline_s = self.world.loop.time() + within_s
        while True:
            active = self.active_controller
            if active is not None and self._exchange_of(active) is None:
                return
            if self.world.loop.time() > deadline_s:
                raise TimeoutError(f"not within {within_s:g} s: the quorum has today's voters")
            if active is not None:
                with suppress(NotController, RequestRefused, TimeoutError):
                    async with asyncio.timeout(5.0):
                        await self._exchange(active)
            await asyncio.sleep(0.1)

    async def _exchange(self, active: int) -> None:
        """One step towards the right voters."""
        quorum, process = self.quorum(active), self.nodes[active].process
        change = self._exchange_of(active)
        assert quorum is not None and process is not None and change is not None
        wrong, right = change
        work = quorum.add_voter(right) if wrong is None else quorum.remove_voter(wrong)
        task = process.start(work)
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    def _exchange_of(self, active: int) -> tuple[ReplicaKey | None, ReplicaKey] | None:
        """A voter to remove (None: it is out already) and the one to take in for it."""
        quorum = self.quorum(active)
        assert quorum is not None and quorum.raft is not None
        voters = {key.node_id: key for key in quorum.raft.status.voters}
        for node in self.plan.controllers:
            known, wanted = voters.get(NodeId(node)), self.replica_key(node)
            if known != wanted:
                return known, wanted
        return None

    def replica_key(self, node: int) -> ReplicaKey:
        """What the voter of this node is called today."""
        return ReplicaKey(NodeId(node), self.nodes[node].metadata_directory_id)
