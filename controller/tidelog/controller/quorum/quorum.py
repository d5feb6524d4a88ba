"""One member of the metadata quorum: the Raft machine with a disk, peers and a state machine.

Owner task: ``_own`` feeds the machine one event after the other, ticks it when it wants to be
ticked, behind whatever messages are waiting, and applies what is committed. A proposal alone steps
the machine from its caller's task, because its caller wants to know at once where it stands. No
step waits for anything: writes go to the ``DiskWriter``, messages to ``Links``, snapshots to
``snapshot_work``.

Whatever makes going on unsafe (a broken invariant, an error of the metadata directory, a record
that this node does not understand) stops the member at once and for good, and ``on_fatal`` is
told: it must end the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

from tidelog.controller.metadata.records import MetadataRecord
from tidelog.controller.quorum.applier import Applier, PendingProposal
from tidelog.controller.quorum.batches import records_to_data
from tidelog.controller.quorum.ignored import IgnoredMessages
from tidelog.controller.quorum.inbox import Inbox
from tidelog.controller.quorum.interface import (
    NotController,
    Proposal,
    QuorumStatus,
    StateMachine,
)
from tidelog.controller.quorum.links import Links
from tidelog.controller.quorum.messages import EXCHANGE
from tidelog.controller.quorum.meters import QuorumMeters
from tidelog.controller.quorum.replica_status import ReplicaTable
from tidelog.controller.quorum.requests import Requests, refusal
from tidelog.controller.quorum.settings import QuorumSettings
from tidelog.controller.quorum.snapshot_work import ChunkSender, SnapshotTaker
from tidelog.controller.quorum.startup import Restored, open_store
from tidelog.controller.quorum.store import Performed
from tidelog.controller.quorum.writer import DiskWriter
from tidelog.controller.raft import RaftNode
from tidelog.controller.raft.effects import (
    AppendEntries,
    BecameLeader,
    Committed,
    Effect,
    Ignored,
    InstallSnapshot,
    LeaderChanged,
    LeadershipEstablished,
    LeadershipHandedOver,
    LeadershipLost,
    MembershipChanged,
    MoveLogStart,
    PersistState,
    ProposalAccepted,
    ProposalRejected,
    RequestRejected,
    RoleChanged,
    Send,
    SendSnapshotChunk,
    VotersChanged,
    WriteSnapshotChunk,
)
from tidelog.controller.raft.errors import BrokenInvariant
from tidelog.controller.raft.events import (
    AddVoterRequested,
    Event,
    Persisted,
    Proposed,
    RemoveVoterRequested,
    ResignRequested,
    SnapshotChunkFailed,
    SnapshotTaken,
    Tick,
    TransferRequested,
)
from tidelog.controller.raft.model import NO_TERM, Identity, ReplicaKey, SnapshotId, Term
from tidelog.kernel.ids import NodeId, Offset
from tidelog.kernel.peers import Peers, PeerServer
from tidelog.kernel.ports import Clock, Disk, Offload, Random

_log = logging.getLogger(__name__)

_GOODBYE_MS: Final = 200.0
_STOPPED: Final = "this member of the quorum has stopped"


@dataclass(frozen=True, slots=True)
class QuorumPorts:
    clock: Clock
    random: Random
    disk: Disk
    offload: Offload
    peers: Peers


class Quorum:
    """See the module. ``open``, then ``serve``, then ``start``; at the end ``close``."""

    def __init__(
        self,
        identity: Identity,
        settings: QuorumSettings,
        ports: QuorumPorts,
        restored: Restored,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._ports = ports
        self._restored: Restored | None = restored
        self._on_fatal = on_fatal
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None
        self._is_closing = False

        self._inbox = Inbox(settings.inbox_messages, settings.inbox_bytes)
        outbox = (settings.outbox_messages, settings.outbox_bytes)
        self._links = Links(ports.peers, self._inbox, self._spawn, *outbox)
        store = restored.store
        self._writer = DiskWriter(store, ports.offload, ports.clock, self._performed)
        self._chunks = ChunkSender(
            ports.disk, store.directory, ports.offload, self._links.post, self._chunk_failed
        )
        self._requests = Requests()
        self._ignored = IgnoredMessages(ports.clock)
        self._replicas = ReplicaTable(identity.key, ports.clock)
        self.meters = QuorumMeters(ports.clock.monotonic_ms())
        self._effects: deque[Effect] = deque()
        self._is_carrying_out = False
        self._last_proposal = 0

        self._term: Term = restored.state.term if restored.state else NO_TERM
        self._leader_id: NodeId | None = None
        self._high_watermark = Offset(0)
        self._establishing: tuple[Term, Offset] | None = None
        self._active_term: Term | None = None

    # --- life --------------------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        metadata_dir: str,
        identity: Identity,
        settings: QuorumSettings,
        ports: QuorumPorts,
        on_fatal: Callable[[BaseException], None],
    ) -> Quorum:
        """Read the directory; raises ``RefusedToStart`` if what is there cannot be trusted."""
        where = (ports.disk, metadata_dir, identity, settings.store, ports.clock, ports.random)
        restored = await ports.offload.run(open_store(*where))
        return cls(identity, settings, ports, restored, on_fatal)

    def serve(self, server: PeerServer) -> None:
        """Answer for the ``Quorum`` service; before the server is started."""
        server.on_stream(EXCHANGE, self._links.listen)

    def start(self, machine: StateMachine) -> None:
        """Take part. ``machine`` gets the newest snapshot at once, if there is one."""
        restored, self._restored = self._restored, None
        assert restored is not None, "a member of the quorum is started once"
        ports = self._ports
        self._machine = machine
        self._applier = Applier(machine)
        if restored.snapshot is not None:
            self._applier.load(restored.snapshot)
        self._high_watermark = self._applier.applied_end
        directory = restored.store.directory
        where = (ports.disk, directory, ports.clock, ports.offload, self._settings)
        self._taker = SnapshotTaker(*where, self._applier.applied_end)
        now_ms = ports.clock.monotonic_ms()
        start = (self._identity, self._settings.raft, ports.random, now_ms)
        self._node = RaftNode.restore(*start, restored.state, restored.log)
        self._term = self._node.status.term
        self._writing = self._spawn(self._writer.run(), "quorum writer")
        self._spawn(self._chunks.run(), "quorum chunks")
        self._spawn(self._own(), "quorum owner")

    async def close(self) -> None:
        """Leave in good order: hand leadership on, write what is queued, let the files go."""
        if self._restored is not None:
            self._restored.store.abandon()
        elif self._failure is None:
            self._step(ResignRequested())
            await self._until_said()
            self._writer.finish()
            await asyncio.wait([self._writing])
        self._is_closing = True
        self._end_all("the node is stopping")
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _until_said(self) -> None:
        """Give the last messages a moment to leave."""
        waited_ms = 0.0
        while not self._links.is_idle and waited_ms < _GOODBYE_MS and self._failure is None:
            await asyncio.sleep(0.005)
            waited_ms += 5.0

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.append(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not self._is_closing:
            self._tasks.remove(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._halt(error)

    def _halt(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            _log.critical("the metadata quorum stops here: %s", error, exc_info=error)
            self._end_all(_STOPPED)
            self._on_fatal(error)

    def _end_all(self, why: str) -> None:
        self._links.close()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._stand_down()
        self._requests.fail_all(why)
        if self._restored is None:
            self._applier.give_up(lambda: NotController(None, why))

    # --- the owner ---------------------------------------------------------------------

    async def _own(self) -> None:
        clock, interval_ms = self._ports.clock, self._settings.raft.tick_interval_ms
        while self._failure is None:
            due_ms = self._node.next_tick_ms()
            is_busy = self._applier.has_backlog or len(self._inbox) > 0
            await self._inbox.wait(0.0 if is_busy else due_ms - clock.monotonic_ms())
            self._drain_inbox()
            now_ms = clock.monotonic_ms()
            if now_ms >= due_ms + 2 * interval_ms:
                # We stood still, and so did those who bring messages: let them come first.
                await self._inbox.wait(0.0)
                self._drain_inbox()
            if now_ms >= due_ms:
                self._step(Tick(due_ms))
                self._look_around()
            self._apply_some()

    def _drain_inbox(self) -> None:
        """All that waits now; what comes in meanwhile must not keep ticks from their turn."""
        for _ in range(len(self._inbox)):
            if (event := self._inbox.take()) is not None:
                self._step(event)

    def _look_around(self) -> None:
        """What is done from time to time, at a tick."""
        if self._active_term is not None:
            self._replicas.note(self._node.status)
        is_due = self._taker.is_due(self._applier)
        if is_due and self._applier.applied_end <= self._node.status.durable_end:
            writing = self._taker.begin(self._applier, self._machine)
            self._spawn(self._take_snapshot(writing), "quorum snapshot")

    async def _take_snapshot(self, writing: Coroutine[Any, Any, SnapshotId | None]) -> None:
        snapshot = await writing
        if snapshot is not None:
            self._inbox.put(SnapshotTaken(snapshot))

    def _apply_some(self) -> None:
        if self._failure is not None:
            return
        self._applier.apply_some(self._settings.records_per_slice, self._settle_leadership)
        self._settle_leadership()

    # --- steps and effects -------------------------------------------------------------

    def _step(self, event: Event) -> None:
        if self._failure is not None:
            return
        try:
            effects = self._node.step(self._ports.clock.monotonic_ms(), event)
        except BrokenInvariant as error:
            self._halt(error)
            return
        self._effects.extend(effects)
        self._carry_out_all()

    def _carry_out_all(self) -> None:
        """In order, also when carrying one out leads to another step."""
        if self._is_carrying_out:
            return
        self._is_carrying_out = True
        try:
            while self._effects:
                self._carry_out(self._effects.popleft())
        finally:
            self._is_carrying_out = False

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case PersistState() | AppendEntries() | WriteSnapshotChunk() | InstallSnapshot():
                self._write(effect)
            case MoveLogStart():
                self._writer.add(effect)
            case Send(envelope=envelope):
                self._links.post(envelope)
            case SendSnapshotChunk():
                self._chunks.add(effect)
            case Committed(end_offset=end):
                self._high_watermark = end
                self._applier.add(self._node.entries_between(self._applier.queued_end, end))
            case LeadershipEstablished(term=term):
                self._establishing = (term, self._high_watermark)
            case LeadershipLost(term=term, reason=reason):
                _log.info("no longer the leader of term %s: %s", term, reason)
                self._lose_leadership(reason)
            case LeaderChanged(term=term, leader_id=leader_id):
                self._leader_id = leader_id
                self.meters.leader_changed(self._ports.clock.monotonic_ms(), leader_id)
                _log.info("the leader of term %s is %s", term, leader_id)
            case MembershipChanged() | LeadershipHandedOver():
                self._requests.done(effect.request_id)
            case RequestRejected(request_id=request_id, reason=why, leader_id=leader_id):
                self._requests.rejected(request_id, why, leader_id)
            case VotersChanged(voters=voters):
                _log.info("the voters are %s", ", ".join(map(str, voters)))
            case BecameLeader(term=term, epoch_start=epoch_start):
                _log.info("elected leader of term %s, which begins at %s", term, epoch_start)
            case Ignored(reason=ignore_reason, detail=detail):
                self._ignored.note(ignore_reason, detail)
            case RoleChanged() | ProposalAccepted() | ProposalRejected():
                pass
            case _:
                assert_never(effect)

    def _write(
        self, effect: PersistState | AppendEntries | WriteSnapshotChunk | InstallSnapshot
    ) -> None:
        if isinstance(effect, PersistState):
            self._term = effect.state.term
        elif isinstance(effect, InstallSnapshot):
            self._high_watermark = effect.snapshot.end_offset
        self._writer.add(effect)

    def _performed(self, performed: Performed) -> None:
        if performed.installed is not None:
            # Before the machine hears that the disk has it, and commits what comes behind.
            self._applier.load(performed.installed)
            self._taker.installed(performed.installed.snapshot.end_offset)
        if performed.write is not None:
            self._inbox.put(Persisted(performed.write))

    def _chunk_failed(self, target: ReplicaKey, snapshot: SnapshotId) -> None:
        self._inbox.put(SnapshotChunkFailed(target, snapshot))

    # --- leadership --------------------------------------------------------------------

    def _settle_leadership(self) -> None:
        """Active once all that was decided before has been applied."""
        if self._establishing is not None and self._applier.applied_end >= self._establishing[1]:
            term = self._establishing[0]
            self._establishing = None
            self._active_term = term
            self._machine.became_active(term)

    def _lose_leadership(self, reason: str) -> None:
        self._stand_down()
        leader_id = None if self._leader_id == self._identity.key.node_id else self._leader_id
        self._applier.give_up(lambda: NotController(leader_id, reason))

    def _stand_down(self) -> None:
        self._establishing = None
        if self._active_term is not None:
            self._active_term = None
            self._replicas.clear()
            self._machine.became_standby()

    # --- MetadataQuorum ----------------------------------------------------------------

    @property
    def leader_id(self) -> NodeId | None:
        return self._leader_id

    @property
    def term(self) -> Term:
        return self._term

    @property
    def is_active(self) -> bool:
        return self._active_term is not None

    @property
    def high_watermark(self) -> Offset:
        return self._high_watermark

    def propose(self, records: Sequence[MetadataRecord]) -> Proposal:
        if not self.is_active:
            raise NotController(self._leader_id, "this node is not the active controller")
        if not records:
            raise ValueError("a proposal has at least one record")
        clock = self._ports.clock
        data = records_to_data(records, clock.wall_ms())
        self._last_proposal += 1
        proposed = Proposed(self._last_proposal, data, len(records))
        try:
            effects = self._node.step(clock.monotonic_ms(), proposed)
        except BrokenInvariant as error:
            self._halt(error)
            raise NotController(None, _STOPPED) from error
        proposal = self._proposal(effects, tuple(records))
        self._effects.extend(effects)
        self._carry_out_all()
        return proposal

    def _proposal(self, effects: Sequence[Effect], records: tuple[MetadataRecord, ...]) -> Proposal:
        """What became of the proposal; it is expected before anything can commit it."""
        for effect in effects:
            match effect:
                case ProposalAccepted(base_offset=base, last_offset=last, term=term):
                    committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._measure(committed)
                    self._applier.expect(PendingProposal(base, last, term, records, committed))
                    return Proposal(base, last, term, committed)
                case ProposalRejected(reason=reason, leader_id=leader_id):
                    raise refusal(reason, leader_id, len(records))
                case _:
                    pass
        raise AssertionError("the machine answers every proposal")

    def _measure(self, committed: asyncio.Future[None]) -> None:
        clock = self._ports.clock
        began_ms = clock.monotonic_ms()

        def note(done: asyncio.Future[None]) -> None:
            if not done.cancelled() and done.exception() is None:
                self.meters.committed(began_ms, clock.monotonic_ms())

        committed.add_done_callback(note)

    @property
    def raft(self) -> RaftNode | None:
        """The machine, for those who only watch; None before ``start``."""
        return None if self._restored is not None else self._node

    def status(self) -> QuorumStatus:
        return self._replicas.describe(self._node.status)

    async def add_voter(self, voter: ReplicaKey) -> None:
        """Done when the change is committed; raises ``NotController`` or ``RequestRefused``."""
        request_id, answer = self._requests.begin(f"add voter {voter}")
        self._step(AddVoterRequested(request_id, voter))
        await answer

    async def remove_voter(self, voter: ReplicaKey) -> None:
        request_id, answer = self._requests.begin(f"remove voter {voter}")
        self._step(RemoveVoterRequested(request_id, voter))
        await answer

    async def transfer_leadership(self, target: NodeId | None) -> None:
        request_id, answer = self._requests.begin(f"hand leadership to {target}")
        self._step(TransferRequested(request_id, target))
        await answer
