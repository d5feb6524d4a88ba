"""One member of the metadata quorum as a pure machine: ``step(now_ms, event) -> effects``.

The node does no I/O and reads no clock. Its shell owns it, feeds it events one at a time, and
carries out what comes back, in order. What the shell owes:

- a tick at ``next_tick_ms``, with the time it was due, and behind whatever messages are already
  waiting (DESIGN, 2.3);
- disk writes in the order of their numbers, and ``Persisted`` only for what is fsynced;
- on ``BrokenInvariant``: stop the node.

The rules live next door: ``founding`` (the first election), ``election``, ``follower``,
``replication`` and ``leader``, ``membership``, ``snapshots``; ``roles`` has the table of legal
transitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, assert_never

from tidelog.controller.raft import (
    election,
    follower,
    founding,
    leader,
    membership,
    replication,
    snapshots,
)
from tidelog.controller.raft.core import Core
from tidelog.controller.raft.disk_queue import OwnVote
from tidelog.controller.raft.effects import Effect, RejectReason, RequestRejected, Send
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
from tidelog.controller.raft.log_view import LogView
from tidelog.controller.raft.messages import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Envelope,
    Hello,
    HelloBack,
    SnapshotAck,
    SnapshotChunk,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tidelog.controller.raft.model import (
    Entry,
    EntryKind,
    Identity,
    PersistentState,
    ReplicaKey,
    RestoredLog,
    Settings,
    SnapshotId,
    Term,
    Voters,
)
from tidelog.controller.raft.progress import Progress
from tidelog.controller.raft.roles import (
    Following,
    Leader,
    Learner,
    Resigned,
    Role,
    Unattached,
)
from tidelog.controller.raft.stall_clock import StallClock
from tidelog.controller.raft.validation import find_fault
from tidelog.kernel.ids import NodeId, Offset
from tidelog.kernel.ports import Random

_LEAST_TICK_MS: Final = 1.0
"""A deadline that was missed by a rounding error is met a moment later, and not in a busy loop."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    key: ReplicaKey
    is_voter: bool
    match_end: Offset
    silent_ms: float | None
    """None if the leader has not heard from it in its term."""


@dataclass(frozen=True, slots=True)
class QuorumStatus:
    """For ``quorum describe``, metrics and tests; only a leader knows its replicas."""

    role: Role
    term: Term
    voted_for: ReplicaKey | None
    leader_id: NodeId | None
    voters: Voters
    log_start: Offset
    log_end: Offset
    durable_end: Offset
    high_watermark: Offset
    snapshot: SnapshotId | None
    replicas: tuple[ReplicaStatus, ...]


class RaftNode:
    """See the module. Make one with ``restore``, also for a directory that was never used."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @classmethod
    def restore(
        cls,
        identity: Identity,
        settings: Settings,
        random: Random,
        now_ms: float,
        state: PersistentState | None = None,
        found: RestoredLog | None = None,
    ) -> RaftNode:
        """Start from what is on disk; nothing means an empty directory.

        A node never leads again in a term it may have led, because standing raises the term. It
        keeps its vote, and asks for pre-votes soon in case there is no leader.
        """
        log = LogView.restore(found or RestoredLog())
        state = state or PersistentState()
        if log.last_term > state.term:
            # The entries reached the disk, the state before them did not; no vote was given yet.
            state = PersistentState(log.last_term)
        clock = StallClock(now_ms, settings.tick_interval_ms)
        core = Core(identity, settings, random, state, log, clock)
        if core.has_voting_right:
            deadline_ms = core.short_deadline_ms()
            has_led = _has_led(identity.key, state, found or RestoredLog())
            core.role = Resigned(deadline_ms) if has_led else Unattached(deadline_ms)
        return cls(core)

    def step(self, now_ms: float, event: Event) -> list[Effect]:
        """Take one event; return what is to be done about it, in order."""
        self._core.begin_step(now_ms, event.due_ms if isinstance(event, Tick) else None)
        match event:
            case Tick():
                self._tick()
            case MessageReceived(envelope=envelope):
                self._receive(envelope)
            case Persisted(write=write):
                self._persisted(write)
            case PeerStreamReset(node_id=node_id):
                self._stream_reset(node_id)
            case Proposed():
                leader.on_proposed(self._core, event)
            case SnapshotTaken(snapshot=snapshot):
                snapshots.on_taken(self._core, snapshot)
            case SnapshotChunkFailed(target=target, snapshot=snapshot):
                self._snapshot_chunk_failed(target, snapshot)
            case TransferRequested() | AddVoterRequested() | RemoveVoterRequested():
                self._requested(event)
            case ResignRequested():
                if isinstance(self._core.role, Leader):
                    leader.on_resign_requested(self._core, self._core.role)
            case _:
                assert_never(event)
        return self._core.end_step()

    def next_tick_ms(self) -> float:
        """When it wants to be ticked: at its next deadline, and every so often all the same.

        Any step may move it, in either direction.
        """
        core = self._core
        due_ms = min(core.last_tick_ms + core.settings.tick_interval_ms, self._deadline_ms())
        return max(due_ms, core.last_tick_ms + _LEAST_TICK_MS)

    def _deadline_ms(self) -> float:
        core = self._core
        match core.role:
            case Leader(heartbeat_due_ms=due_ms):
                return due_ms
            case Learner(following=Following(lease_until_ms=due_ms)):
                pass
            case Learner(hello_due_ms=due_ms):
                pass
            case Unattached(hello_due_ms=due_ms) if self._awaits_founders():
                pass
            case role:
                due_ms = role.deadline_ms
        return core.in_real_time(due_ms)

    def _awaits_founders(self) -> bool:
        """Whether the very first election has to wait for others."""
        return self._core.log.is_empty and not self._core.may_stand

    @property
    def term(self) -> Term:
        return self._core.state.term

    @property
    def high_watermark(self) -> Offset:
        return self._core.commit

    @property
    def is_leader(self) -> bool:
        return isinstance(self._core.role, Leader)

    @property
    def status(self) -> QuorumStatus:
        """All of it at once, to be shown; it is dear."""
        core, role = self._core, self._core.role
        progress = list(role.progress.values()) if isinstance(role, Leader) else []
        return QuorumStatus(
            role=role.role,
            term=core.term,
            voted_for=core.state.voted_for,
            leader_id=core.leader_id,
            voters=core.voters,
            log_start=core.log.start,
            log_end=core.log.end,
            durable_end=core.disk.durable_end,
            high_watermark=core.commit,
            snapshot=core.log.snapshot,
            replicas=tuple(self._describe(replica) for replica in progress),
        )

    def _describe(self, replica: Progress) -> ReplicaStatus:
        is_voter = replica.key in self._core.voters
        silent_ms = self._core.now_ms - replica.last_contact_ms if replica.has_answered else None
        return ReplicaStatus(replica.key, is_voter, replica.match_end, silent_ms)

    def entries_between(self, start: Offset, end: Offset) -> tuple[Entry, ...]:
        """The entries to apply after ``Committed(end)``, if all was applied up to ``start``."""
        return self._core.log.entries_between(start, end)

    # --- dispatch --------------------------------------------------------------------------------

    def _tick(self) -> None:
        match self._core.role:
            case Leader() as role:
                leader.tick(self._core, role)
            case Learner() as role:
                founding.tick_learner(self._core, role)
            case Unattached() as role if self._awaits_founders():
                founding.tick_founder(self._core, role)
            case role:
                election.tick_voter(self._core, role)

    def _receive(self, envelope: Envelope) -> None:
        core = self._core
        fault = find_fault(envelope, core.identity, core.settings)
        if fault is not None:
            core.ignore(fault.reason, fault.detail)
            return
        match envelope.body:
            case Hello() as hello:
                founding.on_hello(core, envelope, hello)
                self._take_on(envelope.source)
            case HelloBack() as back:
                founding.on_hello_back(core, envelope, back)
            case VoteRequest() as request:
                election.on_vote_request(core, envelope, request)
                self._take_on(envelope.source)
            case VoteResponse() as response:
                if election.on_vote_response(core, envelope, response):
                    leader.start_term(core)
            case AppendRequest() as append:
                follower.on_append(core, envelope, append)
            case AppendAccepted() | AppendRejected() | SnapshotAck() as answer:
                leader.on_answer(core, envelope, answer)
            case SnapshotChunk() as chunk:
                snapshots.on_chunk(core, envelope, chunk)
            case TimeoutNow() as timeout_now:
                election.on_timeout_now(core, envelope, timeout_now)
            case body:
                assert_never(body)

    def _take_on(self, source: ReplicaKey) -> None:
        """Who asks around does not know of us as leader: a new, wiped or removed node."""
        if isinstance(self._core.role, Leader):
            membership.take_on_observer(self._core, self._core.role, source)
            replication.push_to_all(self._core, self._core.role)

    def _persisted(self, write: int) -> None:
        core = self._core
        for promise in core.disk.persisted(write):
            if not isinstance(promise, OwnVote):
                core.emit(Send(promise))
            elif election.on_own_vote(core, promise.term):
                leader.start_term(core)
        if isinstance(core.role, Leader):
            leader.go_on(core, core.role)
        elif core.following is not None:
            follower.on_more_durable(core, core.following)

    def _stream_reset(self, node_id: NodeId) -> None:
        election.on_stream_reset(self._core, node_id)
        if isinstance(self._core.role, Leader):
            leader.on_stream_reset(self._core.role, node_id)

    def _snapshot_chunk_failed(self, target: ReplicaKey, snapshot: SnapshotId) -> None:
        role = self._core.role
        if isinstance(role, Leader) and target in role.progress:
            snapshots.on_chunk_failed(role.progress[target], snapshot)

    def _requested(
        self, event: TransferRequested | AddVoterRequested | RemoveVoterRequested
    ) -> None:
        core, role = self._core, self._core.role
        if not isinstance(role, Leader):
            rejection = RequestRejected(event.request_id, RejectReason.NOT_LEADER, core.leader_id)
            core.emit(rejection)
            return
        match event:
            case TransferRequested():
                leader.on_transfer_requested(core, role, event)
            case AddVoterRequested(request_id=request_id, voter=voter):
                membership.request_add(core, role, request_id, voter)
                leader.go_on(core, role)
            case RemoveVoterRequested(request_id=request_id, voter=voter):
                membership.request_remove(core, role, request_id, voter)
                leader.go_on(core, role)
            case _:
                assert_never(event)


def _has_led(key: ReplicaKey, state: PersistentState, found: RestoredLog) -> bool:
    """Whether this directory led the term it restarts in."""
    return state.voted_for == key and any(
        entry.term == state.term
        and entry.kind is EntryKind.LEADER_CHANGE
        and entry.leader_id == key.node_id
        for entry in found.entries
    )
