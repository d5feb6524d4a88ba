"""A quorum in one process, driven by one seed: messages get lost, doubled and late, disks lose
what was not synced, nodes crash, stall, are cut off, wiped, added and removed.

``run_seed(seed)`` draws a subset of faults, runs a workload under them with ``raft_checks`` after
every event, then heals everything and requires that a leader commits again and all nodes agree. A
failure raises ``Violation`` (or what the machine raised); the same seed fails the same way again.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from raft_checks import START_DIGEST, Checks, Violation, digest_after
from raft_disk import MemoryDisk, StoredSnapshot

from tidelog.controller.raft import RaftNode
from tidelog.controller.raft.effects import (
    AppendEntries,
    BecameLeader,
    Committed,
    Effect,
    InstallSnapshot,
    MoveLogStart,
    PersistState,
    Send,
    SendSnapshotChunk,
    WriteSnapshotChunk,
)
from tidelog.controller.raft.events import (
    AddVoterRequested,
    Event,
    MessageReceived,
    PeerStreamReset,
    Persisted,
    Proposed,
    RemoveVoterRequested,
    ResignRequested,
    SnapshotChunkFailed,
    SnapshotTaken,
    Tick,
    TransferRequested,
)
from tidelog.controller.raft.messages import Envelope
from tidelog.controller.raft.model import (
    NO_TERM,
    Identity,
    ReplicaKey,
    Settings,
    SnapshotId,
    Term,
    Voters,
)
from tidelog.controller.raft.roles import Role
from tidelog.kernel.ids import DirectoryId, NodeId, Offset, Uuid

TEST_SETTINGS = Settings(
    tick_interval_ms=50.0,
    max_append_bytes=400,
    max_inflight_appends=4,
    snapshot_chunk_bytes=24,
    catch_up_timeout_ms=5000.0,
)
CLUSTER = "test-cluster"


def directory(node: int, generation: int) -> DirectoryId:
    return DirectoryId(Uuid(bytes([node] * 15 + [generation])))


@dataclass(slots=True)
class Faults:
    """How likely what is; drawn per seed, so that each seed shows another mixture."""

    drop: float = 0.0
    double: float = 0.0
    max_delay_ms: int = 10
    max_sync_ms: int = 10
    every_ms: int = 700
    kinds: tuple[str, ...] = ()

    @classmethod
    def drawn(cls, chance: random.Random) -> Faults:
        kinds = ("crash", "cut", "wipe", "stall", "reset", "transfer", "members", "resign", "blink")
        return cls(
            drop=chance.choice([0.0, 0.02, 0.15]),
            double=chance.choice([0.0, 0.1]),
            max_delay_ms=chance.choice([5, 40, 400]),
            max_sync_ms=chance.choice([2, 40, 300]),
            every_ms=chance.choice([200, 700, 2000]),
            kinds=tuple(kind for kind in kinds if chance.random() < 0.5),
        )


@dataclass(slots=True)
class Host:
    """One node with its disk and its state machine (a digest of what was applied)."""

    node_id: NodeId
    generation: int
    disk: MemoryDisk
    node: RaftNode | None = None
    life: int = 0
    stalled_until_ms: float = 0.0
    applied_end: Offset = Offset(0)
    digest: bytes = START_DIGEST

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, directory(self.node_id, self.generation))


Action = Callable[[], None]


class Network:
    def __init__(self, seed: int, faults: Faults, node_ids: tuple[int, ...] = (1, 2, 3)) -> None:
        self.chance = random.Random(seed)
        self.faults = faults
        self.checks = Checks()
        self.now_ms = 0.0
        self.trace: deque[tuple[object, ...]] = deque(maxlen=60)
        self.events = 0
        self.founders = tuple(NodeId(n) for n in node_ids)
        self.hosts = {n: Host(n, 0, MemoryDisk()) for n in self.founders}
        self.lost_disks: dict[ReplicaKey, MemoryDisk] = {}
        """They were counted when they acknowledged, before they were lost."""
        self.cut_links: set[tuple[NodeId, NodeId]] = set()
        self._queue: list[tuple[float, int, Action]] = []
        self._order = 0
        self._proposals = 0
        for host in self.hosts.values():
            self.at(self.chance.randrange(0, 300), lambda host=host: self.start(host))  # type: ignore[misc]

    # --- time ------------------------------------------------------------------------------------

    def at(self, delay_ms: float, action: Action) -> None:
        self._order += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._order, action))

    def run_for(self, duration_ms: float, until: Callable[[], bool] = lambda: False) -> bool:
        end_ms = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._queue)
            action()
            if until():
                return True
        self.now_ms = end_ms
        return until()

    # --- nodes -----------------------------------------------------------------------------------

    def add_node(self, node_id: int) -> Host:
        """A node that the founders' configuration does not name."""
        host = self.hosts[NodeId(node_id)] = Host(NodeId(node_id), 0, MemoryDisk())
        self.start(host)
        return host

    def start(self, host: Host) -> None:
        if host.node is not None:
            return
        host.life += 1
        disk = host.disk
        identity = Identity(host.key, CLUSTER, self.founders)
        chance = random.Random(self.chance.randrange(0, 1 << 30))
        host.node = RaftNode.restore(
            identity, TEST_SETTINGS, chance, self.now_ms, disk.state, disk.restored()
        )
        host.applied_end, host.digest = Offset(0), START_DIGEST
        if disk.snapshot is not None:
            host.applied_end = disk.snapshot.snapshot.end_offset
            host.digest = disk.snapshot.data[:16]
        self.trace.append((self.now_ms, "start", host.key, disk.state))
        self._schedule_tick(host, self.now_ms)

    def crash(self, host: Host) -> None:
        if host.node is None:
            return
        self.trace.append((self.now_ms, "crash", host.key))
        host.node = None
        host.life += 1
        host.disk.crash(self.chance)
        for other in self.hosts.values():
            if other is not host and self.chance.random() < 0.8:
                self._later(other, self.chance.randrange(0, 50), PeerStreamReset(host.node_id))

    def wipe(self, host: Host) -> None:
        """The disk is lost and replaced: another directory, all forgotten."""
        self.crash(host)
        self.lost_disks[host.key] = host.disk
        host.generation += 1
        host.disk = MemoryDisk()
        if self.checks.chain:
            self.checks.replacements.add(host.key)
        self.trace.append((self.now_ms, "wiped", host.key))

    def running(self) -> list[Host]:
        return [host for host in self.hosts.values() if host.node is not None]

    def leader(self) -> Host | None:
        """The leader of the highest term, if it is up."""
        led = [(h.node.status.term, h.node_id) for h in self.running() if h.node and _leads(h.node)]
        return self.hosts[max(led)[1]] if led else None

    def _schedule_tick(self, host: Host, due_ms: float) -> None:
        life = host.life
        at_ms = max(due_ms, host.stalled_until_ms)

        def tick() -> None:
            if host.life == life and host.node is not None:
                if self.now_ms < host.stalled_until_ms:
                    self._schedule_tick(host, due_ms)
                    return
                self.step(host, Tick(due_ms))
                self._schedule_tick(host, max(due_ms, self.now_ms - 1) + 50.0)

        self.at(at_ms - self.now_ms, tick)

    def _later(self, host: Host, delay_ms: float, event: Event) -> None:
        """An event for this life of a node; while it stands still, events wait in order."""
        life = host.life

        def happen() -> None:
            if host.life != life or host.node is None:
                return
            if self.now_ms < host.stalled_until_ms:
                self.at(host.stalled_until_ms - self.now_ms, happen)
            else:
                self.step(host, event)

        self.at(delay_ms, happen)

    # --- one step --------------------------------------------------------------------------------

    def step(self, host: Host, event: Event) -> list[Effect]:
        assert host.node is not None
        self.events += 1
        if isinstance(event, Persisted):
            host.disk.complete(event.write)
        effects = host.node.step(self.now_ms, event)
        if effects:
            self.trace.append((self.now_ms, host.node_id, event, effects))
        for effect in effects:
            self._carry_out(host, effect)
        return effects

    def _carry_out(self, host: Host, effect: Effect) -> None:
        assert host.node is not None
        match effect:
            case PersistState() | AppendEntries() | WriteSnapshotChunk() | InstallSnapshot():
                self._write(host, effect)
            case Send(envelope=envelope):
                self.checks.sent(host.key, envelope, host.disk)
                self._transmit(host.node_id, envelope)
            case SendSnapshotChunk():
                self._send_chunk(host, effect)
            case Committed(end_offset=end):
                self._apply(host, end)
                disks = {other.key: other.disk for other in self.hosts.values()}
                self.checks.committed(host.key, host.node, disks | self.lost_disks)
            case BecameLeader(term=term):
                self.checks.became_leader(host.key, term, host.node)
            case MoveLogStart(snapshot=snapshot):
                if self.chance.random() < 0.5:
                    host.disk.forget_below(snapshot)
            case _:
                pass

    def _write(
        self,
        host: Host,
        effect: PersistState | AppendEntries | WriteSnapshotChunk | InstallSnapshot,
    ) -> None:
        if isinstance(effect, AppendEntries):
            if effect.truncate_to is not None:
                self.checks.truncated(host.key, effect.truncate_to, host.applied_end)
            if effect.entries:
                self.checks.appended(effect.entries, self._term_before(host, effect))
        host.disk.write(effect)
        if isinstance(effect, InstallSnapshot):
            host.applied_end = effect.snapshot.end_offset
            host.digest = host.disk.installing[effect.snapshot][:16]
            self.checks.installed(host.key, host.applied_end, host.digest)
        delay_ms = self.chance.randrange(0, self.faults.max_sync_ms)
        self._later(host, delay_ms, Persisted(effect.write))

    def _term_before(self, host: Host, effect: AppendEntries) -> Term:
        """The term in front of what is appended, as the node's own log has it."""
        assert host.node is not None
        first = effect.entries[0].base_offset
        status = host.node.status
        if first == status.log_start:
            return status.snapshot.term if status.snapshot else NO_TERM
        return host.node.entries_between(status.log_start, first)[-1].term

    def _transmit(self, source: NodeId, envelope: Envelope) -> None:
        copies = 2 if self.chance.random() < self.faults.double else 1
        for _ in range(copies):
            if self.chance.random() < self.faults.drop:
                continue
            delay_ms = self.chance.randrange(1, self.faults.max_delay_ms + 1)
            self.at(delay_ms, lambda: self._deliver(source, envelope))

    def _deliver(self, source: NodeId, envelope: Envelope) -> None:
        target = self.hosts.get(envelope.target_id)
        if target is not None and (source, envelope.target_id) not in self.cut_links:
            self._later(target, 0, MessageReceived(envelope))

    def _send_chunk(self, host: Host, effect: SendSnapshotChunk) -> None:
        stored, chunk = host.disk.snapshot, effect.chunk
        assert effect.envelope.target_directory is not None
        if stored is None or stored.snapshot != chunk.snapshot:
            key = ReplicaKey(effect.envelope.target_id, effect.envelope.target_directory)
            self._later(host, 1, SnapshotChunkFailed(key, chunk.snapshot))
            return
        data = stored.data[chunk.position : chunk.position + effect.max_bytes]
        self._transmit(host.node_id, effect.filled(data, len(stored.data)))

    def _apply(self, host: Host, end: Offset) -> None:
        assert host.node is not None
        for entry in host.node.entries_between(host.applied_end, end):
            self.checks.applied(host.key, entry, host.node.status.term)
            host.digest = digest_after(host.digest, entry)
            host.applied_end = entry.end_offset
        if host.applied_end != end:
            raise Violation(f"{host.key} cannot apply up to {end}, only to {host.applied_end}")

    # --- what clients, operators and the state machine do ----------------------------------------

    def propose(self) -> None:
        running = self.running()
        if running:
            host = self.leader() if self.chance.random() < 0.8 else None
            self._proposals += 1
            data = self.chance.randbytes(self.chance.randrange(0, 200))
            proposed = Proposed(self._proposals, data, self.chance.randrange(1, 5))
            self._later(host or self.chance.choice(running), 0, proposed)

    def take_snapshot(self, host: Host) -> None:
        if host.node is None or host.applied_end == 0 or self.now_ms < host.stalled_until_ms:
            return
        status = host.node.status
        if not status.log_start < host.applied_end <= status.durable_end:
            return
        last = host.node.entries_between(status.log_start, host.applied_end)[-1]
        voters = self._voters_at(host.applied_end)
        snapshot = SnapshotId(host.applied_end, last.term)
        host.disk.snapshot = StoredSnapshot(snapshot, voters, host.digest + bytes(50))
        self.step(host, SnapshotTaken(snapshot))

    def _voters_at(self, end: Offset) -> Voters:
        below = [e.voters for e in self.checks.chain if e.voters and e.end_offset <= end]
        return below[-1]

    def readmit(self) -> None:
        """The operator: swap directories that were lost for the ones that replaced them."""
        leader, voters = self.leader(), self.checks.committed_voters
        if leader is None or voters is None:
            return
        for host in self.hosts.values():
            old = voters.of_node(host.node_id)
            if old is not None and old != host.key:
                self._ask(leader, RemoveVoterRequested(1, old))
                return
        for host in self.hosts.values():
            if voters.of_node(host.node_id) is None:
                self._ask(leader, AddVoterRequested(2, host.key))
                return

    def _ask(self, leader: Host, request: AddVoterRequested | RemoveVoterRequested) -> None:
        # At once or not at all: an operator does not remove a voter after another was lost.
        if leader.node is not None and self.now_ms >= leader.stalled_until_ms:
            self.step(leader, request)

    def change_members(self) -> None:
        leader, voters = self.leader(), self.checks.committed_voters
        present = [host.key for host in self.hosts.values()]
        if leader is None or voters is None or any(key not in present for key in voters):
            return
        if len(self.hosts) < 5 and self.chance.random() < 0.4:
            self.add_node(len(self.hosts) + 1)
        elif len(voters) > 2 and self.chance.random() < 0.5:
            self._ask(leader, RemoveVoterRequested(3, self.chance.choice(voters.keys)))
        else:
            outside = [host.key for host in self.hosts.values() if host.key not in voters]
            if outside:
                self._ask(leader, AddVoterRequested(4, self.chance.choice(outside)))

    # --- faults ----------------------------------------------------------------------------------

    def inject(self) -> None:
        host = self.chance.choice(list(self.hosts.values()))
        match self.chance.choice(self.faults.kinds or ("none",)):
            case "crash":
                self.crash(host)
                self.at(self.chance.randrange(10, 3000), lambda: self.start(host))
            case "blink":
                self.crash(host)
                self.start(host)
            case "wipe":
                if self._may_wipe(host):
                    self.wipe(host)
                    self.at(self.chance.randrange(10, 1000), lambda: self.start(host))
            case "cut":
                self._cut(host)
            case "stall":
                host.stalled_until_ms = self.now_ms + self.chance.randrange(100, 3000)
            case "reset":
                self._later(host, 0, PeerStreamReset(self.chance.choice(list(self.hosts))))
            case "transfer":
                self._later(self.leader() or host, 0, TransferRequested(5))
            case "resign":
                self._later(self.leader() or host, 0, ResignRequested())
            case "members":
                self.change_members()
            case _:
                pass

    def _cut(self, host: Host) -> None:
        links = [(host.node_id, n) for n in self.hosts] + [(n, host.node_id) for n in self.hosts]
        chosen = [link for link in links if self.chance.random() < 0.7]
        self.cut_links.update(chosen)
        heal_ms = self.chance.randrange(300, 4000)
        self.at(heal_ms, lambda: self.cut_links.difference_update(chosen))

    def _may_wipe(self, host: Host) -> bool:
        """Within what a quorum promises to survive: one lost disk among three or more voters, and
        the next only when the first was readmitted."""
        voters = self.checks.committed_voters
        if voters is None:
            return not self.lost_disks and host.node_id in self.founders
        present = {other.key for other in self.hosts.values()}
        views = [h.node.status.voters for h in self.running() if h.node is not None]
        is_settled = all(view == voters for view in views) and len(views) == len(self.hosts)
        return len(voters) >= 3 and is_settled and all(key in present for key in voters)

    def heal(self) -> None:
        self.faults = Faults(max_delay_ms=5, max_sync_ms=5)
        self.cut_links.clear()
        for host in self.hosts.values():
            host.stalled_until_ms = 0.0
            self.start(host)

    def agree(self) -> bool:
        """A leader is established and every voter has applied the same."""
        leader, voters = self.leader(), self.checks.committed_voters
        if leader is None or leader.node is None or voters is None:
            return False
        status = leader.node.status
        ends = {self.hosts[key.node_id].applied_end for key in voters}
        digests = {self.hosts[key.node_id].digest for key in voters}
        return (
            status.voters == voters
            and status.high_watermark == status.log_end
            and ends == {status.high_watermark}
            and len(digests) == 1
        )


def _leads(node: RaftNode) -> bool:
    return node.status.role is Role.LEADER


def every(network: Network, interval_ms: int, until_ms: float, action: Action) -> None:
    """Repeat something at random moments, on average once per interval."""

    def again() -> None:
        if network.now_ms < until_ms:
            action()
            network.at(network.chance.randrange(1, 2 * interval_ms), again)

    network.at(network.chance.randrange(1, 2 * interval_ms), again)


def run_seed(seed: int, fault_ms: float = 10_000.0) -> Network:
    """Faults for a while, then heal, then agree."""
    chance = random.Random(seed)
    faults = Faults.drawn(chance)
    network = Network(chance.randrange(0, 1 << 30), faults)
    every(network, 60, fault_ms, network.propose)
    every(network, faults.every_ms, fault_ms, network.inject)
    every(network, 1000, fault_ms, lambda: network.take_snapshot(_any_host(network)))
    if "wipe" in faults.kinds:
        every(network, 500, fault_ms, network.readmit)
    try:
        network.run_for(fault_ms)
        network.heal()
        _converge(network)
    except Exception as failure:
        failure.add_note(f"seed {seed}, {faults}\n" + "\n".join(map(str, network.trace)))
        raise
    return network


def _any_host(network: Network) -> Host:
    return network.chance.choice(list(network.hosts.values()))


def _converge(network: Network) -> None:
    before = network.checks.committed_end
    if not network.run_for(20_000.0, until=lambda: network.leader() is not None):
        raise Violation("no leader was elected after the network healed")
    for _ in range(20):
        network.propose()
        network.readmit()
        network.run_for(1_000.0)
        if network.agree() and network.checks.committed_end > before and _all_admitted(network):
            return
    raise Violation(f"no agreement after healing: {list(_describe(network))}")


def _all_admitted(network: Network) -> bool:
    voters = network.checks.committed_voters
    return voters is not None and all(host.key in voters for host in network.hosts.values())


def _describe(network: Network) -> Iterator[str]:
    for host in network.hosts.values():
        yield f"{host.key.node_id}: {host.node.status if host.node else 'down'}"
