"""Members of the metadata quorum on a simulated network, disks and clock, in one process.

``QuorumCluster`` starts, kills, cuts the power of and stops members, proposes records, and checks
after every batch that a member applies: batches come once, in order, with the same content on
every member. ``converge`` waits until all of them have applied all that was acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tidelog.controller.metadata.records import Config, MetadataRecord, ResourceType
from tidelog.controller.quorum import (
    CommittedBatch,
    NotController,
    Quorum,
    QuorumOverloaded,
    QuorumPorts,
    QuorumSettings,
)
from tidelog.controller.quorum.entry_log import EntryLogSettings
from tidelog.controller.quorum.store import StoreSettings
from tidelog.controller.raft.model import Identity, ReplicaKey, SnapshotId, Term
from tidelog.controller.raft.model import Settings as RaftSettings
from tidelog.kernel.addresses import AddressBook, SocketAddress
from tidelog.kernel.ids import DirectoryId, IncarnationId, NodeId, Offset, Uuid
from tidelog.kernel.peers import PeerIdentity
from tidelog.simulation import (
    NetworkSettings,
    SimDisk,
    SimNetwork,
    SimOffload,
    SimPeers,
    SimPeerServer,
    SimProcess,
    SimRandom,
    World,
)
from tidelog.storage.names import META_PROPERTIES
from tidelog.storage.node_files import MetaProperties, write_meta_properties

T = TypeVar("T")

CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
METADATA_DIR: Final = "/data/metadata"
_PORT: Final = 9093

SMALL: Final = QuorumSettings(
    raft=RaftSettings(snapshot_chunk_bytes=2048, max_append_bytes=4096),
    store=StoreSettings(
        log=EntryLogSettings(segment_bytes=16 << 10, file_delete_delay_ms=1000),
        retention_bytes=64 << 10,
    ),
    bytes_between_snapshots=8 << 10,
    records_per_slice=20,
)
"""Everything happens after a few dozen records."""


class Violation(AssertionError):
    """The quorum broke a promise."""


def record(name: str, attempt: int) -> MetadataRecord:
    return Config(ResourceType.TOPIC, "topic", name, str(attempt))


class Truth:
    """What was applied anywhere, by offset: all members must agree with it."""

    def __init__(self) -> None:
        self.batches: dict[Offset, CommittedBatch] = {}
        self.terms: dict[Term, NodeId] = {}

    def check(self, node: NodeId, batch: CommittedBatch) -> None:
        known = self.batches.setdefault(batch.base_offset, batch)
        if known != batch:
            raise Violation(f"node {node} applied {batch}, another {known}")

    def led(self, node: NodeId, term: Term) -> None:
        if self.terms.setdefault(term, node) != node:
            raise Violation(f"term {term} was led by {self.terms[term]} and by {node}")


class HistoryMachine:
    """A state machine that remembers every record; a snapshot of it is the whole history."""

    def __init__(self, node: NodeId, truth: Truth) -> None:
        self._node = node
        self._truth = truth
        self.history: list[MetadataRecord] = []
        self.next_offset = Offset(0)
        self.loaded: list[SnapshotId] = []
        self.activations: list[tuple[Term, Offset]] = []
        """The terms in which it was active, and how far it had come by then."""
        self.is_active = False
        self.on_applied: Callable[[CommittedBatch], None] | None = None

    def apply(self, batch: CommittedBatch) -> None:
        if batch.base_offset < self.next_offset:
            raise Violation(f"node {self._node} applied {batch.base_offset} twice")
        if len(batch.records) != batch.last_offset - batch.base_offset + 1:
            raise Violation(f"{len(batch.records)} records in {batch}")
        self._truth.check(self._node, batch)
        self.history.extend(batch.records)
        self.next_offset = Offset(batch.last_offset + 1)
        if self.on_applied is not None:
            self.on_applied(batch)

    def load_snapshot(self, snapshot: SnapshotId, records: Iterable[MetadataRecord]) -> None:
        self.history = list(records)
        self.next_offset = snapshot.end_offset
        self.loaded.append(snapshot)

    def snapshot_records(self) -> Iterable[MetadataRecord]:
        return tuple(self.history)

    def became_active(self, term: Term) -> None:
        self._truth.led(self._node, term)
        if self.is_active:
            raise Violation(f"node {self._node} became active twice")
        self.is_active = True
        self.activations.append((term, self.next_offset))

    def became_standby(self) -> None:
        self.is_active = False


@dataclass(slots=True)
class Member:
    node_id: NodeId
    disk: SimDisk
    generation: int = 1
    process: SimProcess | None = None
    quorum: Quorum | None = None
    server: SimPeerServer | None = None
    machine: HistoryMachine | None = None
    fatal: list[BaseException] = field(default_factory=list)

    @property
    def key(self) -> ReplicaKey:
        raw = bytes([self.node_id] * 15 + [self.generation])
        return ReplicaKey(self.node_id, DirectoryId(Uuid(raw)))

    @property
    def is_running(self) -> bool:
        return self.quorum is not None and not self.fatal

    @property
    def is_active(self) -> bool:
        return self.is_running and self.quorum is not None and self.quorum.is_active


class QuorumCluster:
    """Nodes are numbers; the first ``node_ids`` are the configured voters."""

    def __init__(
        self,
        world: World,
        node_ids: Sequence[int] = (1, 2, 3),
        *,
        settings: QuorumSettings = SMALL,
        network: NetworkSettings | None = None,
        max_disk_delay_ms: float = 2.0,
    ) -> None:
        self.world = world
        self.network = SimNetwork(world, settings=network)
        self.settings = settings
        self.truth = Truth()
        self.acknowledged: list[MetadataRecord] = []
        self.members: dict[NodeId, Member] = {}
        self.configured = tuple(NodeId(node) for node in node_ids)
        self._max_disk_delay_ms = max_disk_delay_ms
        self._power = world.random.fork("power")
        self._proposals = 0
        self.addresses: dict[NodeId, SocketAddress] = {}
        for node in node_ids:
            self.add_host(node)

    # --- hosts -------------------------------------------------------------------------

    def add_host(self, node: int) -> Member:
        """A host with an empty, formatted disk."""
        node_id = NodeId(node)
        self.addresses[node_id] = SocketAddress(f"node-{node}", _PORT)
        member = Member(node_id, SimDisk(clock=self.world.clock))
        self.members[node_id] = member
        self._format(member)
        return member

    def wipe(self, node: int) -> None:
        """Give a stopped node a new disk; its directory id is another then."""
        member = self.member(node)
        member.disk = SimDisk(clock=self.world.clock)
        member.generation += 1
        self._format(member)

    def _format(self, member: Member) -> None:
        member.disk.make_dirs(METADATA_DIR)
        for path in ("/", "/data"):
            member.disk.sync_dir(path)
        meta = MetaProperties(CLUSTER_ID, member.node_id, member.key.directory_id)
        write_meta_properties(member.disk, f"{METADATA_DIR}/{META_PROPERTIES}", meta)

    def member(self, node: int) -> Member:
        return self.members[NodeId(node)]

    # --- life --------------------------------------------------------------------------

    async def start(self, *nodes: int) -> None:
        """Start these, or all that do not run."""
        for node in nodes or [n for n, m in self.members.items() if m.process is None]:
            member = self.member(node)
            member.process = self.network.boot(node)
            member.fatal = []
            await member.process.start(self._run(member, member.process))

    async def _run(self, member: Member, process: SimProcess) -> None:
        random = self.world.random.fork(process.name)
        incarnation = IncarnationId(Uuid(random.randbytes(16)))
        who = PeerIdentity(member.node_id, CLUSTER_ID, incarnation)
        peers = SimPeers(self.network, process, who, AddressBook(self.addresses))
        delay_ms = self._max_disk_delay_ms
        offload = SimOffload(random.fork("offload"), member.disk.faults, max_delay_ms=delay_ms)
        ports = QuorumPorts(self.world.clock, random.fork("raft"), member.disk, offload, peers)
        identity = Identity(member.key, CLUSTER_ID, self.configured)
        member.machine = HistoryMachine(member.node_id, self.truth)

        def on_fatal(error: BaseException) -> None:
            if process.is_alive:
                member.fatal.append(error)

        member.quorum = await Quorum.open(METADATA_DIR, identity, self.settings, ports, on_fatal)
        member.server = SimPeerServer(self.network, process, who)
        member.quorum.serve(member.server)
        await member.server.start(self.addresses[member.node_id])
        member.quorum.start(member.machine)

    async def kill(self, node: int) -> None:
        """kill −9: what was written stays, synced or not."""
        member = self.member(node)
        member.disk = member.disk.kill()
        await self.network.kill(node)
        self._gone(member)

    async def lose_power(self, node: int, random: SimRandom | None = None) -> None:
        """What was not synced is kept, lost or torn; the others hear nothing of it."""
        member = self.member(node)
        member.disk = member.disk.power_loss(random or self._power)
        await self.network.power_off(node)
        self._gone(member)

    async def stop(self, node: int) -> None:
        """An orderly end."""
        member = self.member(node)
        assert member.quorum is not None and member.server is not None
        await self.run_in(node, member.quorum.close())
        await self.run_in(node, member.server.close())
        await self.kill(node)

    def _gone(self, member: Member) -> None:
        member.process = member.quorum = member.server = None

    async def run_in(self, node: int, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine as part of a node; ``NotController`` if the node dies over it."""
        process = self.member(node).process
        assert process is not None, f"node {node} does not run"
        task = process.start(work)
        await asyncio.wait([task])
        if task.cancelled():
            raise NotController(None, f"node {node} died")
        return task.result()

    # --- the workload ------------------------------------------------------------------

    @property
    def active(self) -> Member | None:
        """The newest active member, if there is one."""
        active = [m for m in self.members.values() if m.is_active]
        return max(active, key=lambda m: m.quorum.term if m.quorum else 0, default=None)

    async def until(self, condition: Callable[[], object], timeout_s: float = 30.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - virtual time costs nothing
                await asyncio.sleep(0.005)

    async def until_active(self, timeout_s: float = 30.0) -> Member:
        await self.until(lambda: self.active is not None, timeout_s)
        assert self.active is not None
        return self.active

    async def propose(self, count: int = 3, timeout_s: float = 30.0) -> Offset:
        """Propose so many records until they are acknowledged; the last offset of them.

        An attempt that fails may commit all the same, so every attempt has its own records.
        """
        async with asyncio.timeout(timeout_s):
            while True:
                member = await self.until_active(timeout_s)
                self._proposals += 1
                attempt = [record(f"name.{number}", self._proposals) for number in range(count)]
                try:
                    last = await self.run_in(member.node_id, _propose(member, attempt))
                except (NotController, QuorumOverloaded):
                    await asyncio.sleep(0.010)
                    continue
                self.acknowledged.extend(attempt)
                return last

    # --- the end -----------------------------------------------------------------------

    async def converge(self, timeout_s: float = 60.0) -> None:
        """All members run, agree, and hold what was acknowledged, in the order it was."""
        last = await self.propose(1, timeout_s)
        running = [member for member in self.members.values() if member.is_running]
        await self.until(
            lambda: all(m.machine and m.machine.next_offset > last for m in running), timeout_s
        )
        for member in running:
            self.check_history(member)

    def check_history(self, member: Member) -> None:
        assert member.machine is not None
        history = member.machine.history
        if len(set(history)) != len(history):
            raise Violation(f"node {member.node_id} applied a record twice")
        wanted = set(self.acknowledged)
        kept = [record for record in history if record in wanted]
        if kept != self.acknowledged:
            missing = [record for record in self.acknowledged if record not in set(history)]
            raise Violation(f"node {member.node_id} lost {missing}, or changed the order")


async def _propose(member: Member, batch: Sequence[MetadataRecord]) -> Offset:
    assert member.quorum is not None
    proposal = member.quorum.propose(batch)
    await proposal.committed
    return proposal.last_offset
