"""Nodes with simulated disks and real replica sets, a scripted controller, peers in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from memory_peers import Handler, MemoryNetwork
from scripted_controller import CLUSTER_ID, ScriptedController

from tidelog.controller.decisions.alter_partition import AlterPartitionAnswer, PartitionReport
from tidelog.controller.decisions.directories import AssignmentAnswer, DirectoryAssignment
from tidelog.controller.decisions.outcome import NO_ERROR, ApiError
from tidelog.controller.metadata.delta import delta_between
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.ids import BrokerEpoch, DirectoryId, NodeId
from tidelog.kernel.peers import PeerUnavailable
from tidelog.kernel.settings import Settings
from tidelog.replication.fetch_messages import FETCH, OFFSETS_FOR_EPOCH
from tidelog.replication.housekeeping import Housekeeping
from tidelog.replication.log_keeper import RecoveredLog
from tidelog.replication.outcomes import Produced
from tidelog.replication.partition import Partition
from tidelog.replication.replicas import ReplicaPorts, ReplicaSet
from tidelog.simulation.disk import SimDisk
from tidelog.simulation.event_loop import World, run_simulation
from tidelog.simulation.offload import SimOffload
from tidelog.storage.log_dir import LogDirectory, open_directory
from tidelog.wire.records import Record, build_batch, decode_records

SETTINGS = {
    "broker.session.timeout.ms": "1000",
    "min.insync.replicas": "2",
    "replica.fetch.backoff.ms": "200",
    "replica.lag.time.max.ms": "2000",
}


def batch(*values: str, **options: int) -> bytes:
    records = [
        Record(offset=i, timestamp=1000 + i, key=None, value=value.encode(), headers=())
        for i, value in enumerate(values)
    ]
    return build_batch(records, **options)  # type: ignore[arg-type]


@dataclass(slots=True)
class LabNode:
    lab: Lab
    id: NodeId
    disk: SimDisk
    rack: str | None = None
    dirs: int = 1
    replicas: ReplicaSet = field(init=False)
    directories: list[LogDirectory] = field(default_factory=list)
    recovered: list[RecoveredLog] = field(default_factory=list)
    failures: list[tuple[DirectoryId, str]] = field(default_factory=list)
    epoch: BrokerEpoch = BrokerEpoch(-1)
    seen: int = 0
    is_up: bool = False
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def start(self, *, previous_epoch: int = -1, from_snapshot: bool = True) -> None:
        """Recover, register, follow metadata, be unfenced."""
        world, controller = self.lab.world, self.lab.controller
        offload = SimOffload(world.random.fork(f"offload {self.id}"), self.disk.faults)
        self.directories = [
            open_directory(
                self.disk,
                f"/data{number}",
                world.random.fork(f"ids {self.id} {number}"),
                cluster_id=CLUSTER_ID,
                node_id=self.id,
            )
            for number in range(self.dirs)
        ]
        ports = ReplicaPorts(
            self.id,
            world.clock,
            self.disk,
            offload,
            self.lab.network.peers(self.id),
            _Port(self),
            lambda: self.epoch,
        )
        self.replicas = ReplicaSet(
            ports,
            self.directories,
            Settings.of(self.lab.settings),
            on_directory_failed=self._directory_failed,
        )
        self.recovered = await self.replicas.open_logs()
        ids = [d.directory_id for d in self.directories]
        # A snapshot first, from before the registration, then the deltas behind it.
        snapshot, self.seen = controller.image, len(controller.deltas)
        self.epoch = controller.register(
            self.id, *ids, rack=self.rack, previous_epoch=previous_epoch
        )
        self.replicas.start()
        handlers: dict[str, Handler] = {
            FETCH.path: self.replicas.fetch_service.serve,
            OFFSETS_FOR_EPOCH.path: self.replicas.fetch_service.offsets_for_epoch,
        }
        self.lab.network.serve(self.id, handlers)
        self.is_up = True
        if from_snapshot:
            self.replicas.apply(delta_between(MetadataImage(), snapshot))
        else:
            self.seen = 0
        loop = asyncio.get_running_loop()
        self.tasks = [
            loop.create_task(self._follow_metadata(), name=f"metadata of {self.id}"),
            loop.create_task(Housekeeping(self.replicas).run(), name=f"housekeeping of {self.id}"),
        ]
        controller.unfence(self.id)

    def _directory_failed(self, directory: DirectoryId, reason: str) -> None:
        self.failures.append((directory, reason))
        self.lab.controller.unfence(self.id, offline=(directory,))

    async def _follow_metadata(self) -> None:
        while True:
            await asyncio.sleep(self.lab.metadata_delay_ms / 1000)
            if self.is_up:
                self.see_metadata()

    def see_metadata(self) -> None:
        """Apply all there is, at once."""
        while self.seen < len(self.lab.controller.deltas):
            delta = self.lab.controller.deltas[self.seen]
            self.seen += 1
            self.replicas.apply(delta)

    async def kill(self, *, power_loss: bool = False) -> None:
        """The process dies on the spot; the page cache survives unless power is lost."""
        self.is_up = False
        self.lab.network.down(self.id)
        old, world = self.disk, self.lab.world
        self.disk = old.power_loss(world.random.fork("power")) if power_loss else old.kill()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.replicas.close()
        self.directories = []

    async def stop(self) -> None:
        self.is_up = False
        self.lab.network.down(self.id)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.replicas.close()
        assert self.replicas.close_directories()

    def partition(self, ref: PartitionRef) -> Partition:
        return self.replicas.partitions[ref]

    def values(self, ref: PartitionRef, *, committed: bool = False) -> list[str]:
        """All values in the log, or only those a consumer would see."""
        log = self.partition(ref).log
        limit = log.high_watermark if committed else log.end_offset
        found, offset = [], log.log_start
        while offset < limit:
            read = log.read(offset, limit, 1 << 20)
            assert not isinstance(read, int) and read.records is not None
            data = read.records.read()
            position = 0
            while position < len(data):
                size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
                if position + size > len(data):
                    break
                for record in decode_records(data[position : position + size]):
                    if record.offset >= offset and not _is_control(data[position:]):
                        found.append((record.value or b"").decode())
                offset = type(offset)(int.from_bytes(data[position : position + 8], "big"))
                offset = type(offset)(
                    offset + int.from_bytes(data[position + 23 : position + 27], "big") + 1
                )
                position += size
        return found


def _is_control(data: bytes) -> bool:
    return bool(int.from_bytes(data[21:23], "big") & 0x20)


class _Port:
    """``ControllerPort``: the scripted controller, a little away."""

    def __init__(self, node: LabNode) -> None:
        self._node = node

    async def _reach(self) -> ScriptedController:
        lab = self._node.lab
        await asyncio.sleep(0.002)
        if lab.is_controller_cut:
            raise PeerUnavailable("no controller")
        return lab.controller

    async def alter_partition(self, reports: Sequence[PartitionReport]) -> AlterPartitionAnswer:
        controller = await self._reach()
        self._node.lab.reports += reports
        return controller.alter_partition(self._node.id, self._node.epoch, reports)

    async def assign_directories(
        self, assignments: Sequence[DirectoryAssignment]
    ) -> AssignmentAnswer:
        controller = await self._reach()
        for one in assignments:
            controller.assign(self._node.id, one.partition, one.directory)
        return AssignmentAnswer(NO_ERROR)

    async def restarted_empty(self, partition: PartitionRef) -> ApiError:
        controller = await self._reach()
        code = controller.restarted_empty(self._node.id, self._node.epoch, partition)
        return ApiError(code)


class Lab:
    def __init__(self, world: World, **settings: str) -> None:
        self.world = world
        values = {name.replace("_", "."): value for name, value in settings.items()}
        self.settings = {**SETTINGS, **values}
        self.controller = ScriptedController(min_insync_replicas="2")
        self.network = MemoryNetwork()
        self.metadata_delay_ms = 3.0
        self.is_controller_cut = False
        self.reports: list[PartitionReport] = []
        self.nodes: dict[int, LabNode] = {}

    async def start(
        self, count: int = 3, *, racks: Sequence[str] = (), dirs: int = 1
    ) -> list[LabNode]:
        for i in range(1, count + 1):
            disk = SimDisk(clock=self.world.clock)
            rack = racks[i - 1] if racks else None
            self.nodes[i] = LabNode(self, NodeId(i), disk, rack, dirs)
            await self.nodes[i].start()
        return list(self.nodes.values())

    async def create(self, name: str, *replicas: tuple[int, ...], **configs: str) -> PartitionRef:
        ref = self.controller.create(name, *replicas, **configs)
        await self.until(lambda: self._is_served(ref))
        return ref

    def _is_served(self, ref: PartitionRef) -> bool:
        state = self.controller.state(ref)
        holders = [self.nodes[b] for b in state.replicas if self.nodes[b].is_up]
        return all(
            ref in node.replicas.partitions
            and node.replicas.partitions[ref].leader_epoch == state.leader_epoch
            for node in holders
        )

    def leader(self, ref: PartitionRef) -> LabNode:
        return self.nodes[self.controller.state(ref).leader]

    async def produce(
        self, ref: PartitionRef, *values: str, acks: int = -1, timeout_ms: float = 5000
    ) -> Produced:
        partition = self.leader(ref).partition(ref)
        return await partition.append(batch(*values), acks=acks, timeout_ms=timeout_ms)

    async def until(self, condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
        """Let time pass until the condition holds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not condition():
            if loop.time() > deadline:
                raise AssertionError("it did not come to that")
            await asyncio.sleep(0.002)

    async def in_sync(self, ref: PartitionRef, count: int) -> None:
        await self.until(lambda: len(self.controller.state(ref).isr) == count)

    async def equal(self, ref: PartitionRef) -> None:
        """Until all replicas that are up hold the same, committed and flushed."""

        def same() -> bool:
            logs = [
                node.replicas.partitions[ref].log
                for node in self.nodes.values()
                if node.is_up and ref in node.replicas.partitions
            ]
            ends = {log.end_offset for log in logs}
            marks = {log.high_watermark for log in logs}
            return len(ends) == 1 and marks == ends

        await self.until(same)

    async def close(self) -> None:
        for node in self.nodes.values():
            if node.is_up:
                await node.stop()


def in_lab(
    script: Callable[[Lab], Awaitable[None]],
    *,
    nodes: int = 3,
    seed: int = 1,
    racks: Sequence[str] = (),
    dirs: int = 1,
    **settings: str,
) -> None:
    """Run a script in a lab of its own, on virtual time."""

    async def main(world: World) -> None:
        lab = Lab(world, **settings)
        await lab.start(nodes, racks=racks, dirs=dirs)
        await script(lab)
        await lab.close()

    run_simulation(main, seed, time_limit_s=600)
