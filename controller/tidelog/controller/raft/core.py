"""The state that all rules of the quorum share, and the few moves they are made of.

Nothing is decided here. ``Core`` keeps what is on disk (term, vote, log), what is not (role, high
watermark, deadlines), collects the effects of one step, and offers the moves: send now, send once
something is durable, write, change role, adopt a term. The rules are in ``election``,
``founding``, ``follower``, ``leader`` and their neighbours.

Invariants: the term never goes back; in one term the vote goes to one candidate; the high
watermark never goes back and nothing below it is cut.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog.controller.raft.disk_queue import DiskQueue, OwnVote
from tidelog.controller.raft.effects import (
    AppendEntries,
    BecameLeader,
    Effect,
    Ignored,
    IgnoreReason,
    LeaderChanged,
    LeadershipHandedOver,
    LeadershipLost,
    PersistState,
    RejectReason,
    RequestRejected,
    RoleChanged,
    Send,
    VotersChanged,
)
from tidelog.controller.raft.errors import BrokenInvariant
from tidelog.controller.raft.log_view import LogView
from tidelog.controller.raft.messages import Body, Envelope
from tidelog.controller.raft.model import (
    NO_VOTERS,
    Entry,
    Identity,
    PersistentState,
    ReplicaKey,
    Settings,
    Term,
    Voters,
)
from tidelog.controller.raft.roles import (
    Follower,
    Following,
    Handover,
    Leader,
    Learner,
    RoleState,
    Unattached,
    check_transition,
)
from tidelog.controller.raft.stall_clock import StallClock
from tidelog.kernel.ids import NodeId, Offset
from tidelog.kernel.ports import Random


class Core:
    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        random: Random,
        state: PersistentState,
        log: LogView,
        clock: StallClock,
    ) -> None:
        self.identity = identity
        self.settings = settings
        self.state = state
        self.log = log
        self.disk = DiskQueue(log.end)
        self.commit: Offset = log.start
        self.rounds = 0
        self.founders: dict[NodeId, ReplicaKey] = {}
        self.role: RoleState = Learner(following=None, hello_due_ms=clock.running_ms)
        self._random = random
        self._clock = clock
        self._effects: list[Effect] = []
        self._state_effect: int | None = None
        self._announced_leader: tuple[Term, NodeId | None] = (state.term, None)
        self._announced_voters: Voters = self.voters

    # --- one step --------------------------------------------------------------------------------

    def begin_step(self, now_ms: float, due_ms: float | None) -> None:
        self._clock.observe(now_ms)
        if due_ms is not None:
            self._clock.tick(due_ms)

    def end_step(self) -> list[Effect]:
        self._end_founding()
        self._announce()
        effects, self._effects = self._effects, []
        self._state_effect = None
        return effects

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def ignore(self, reason: IgnoreReason, detail: str) -> None:
        self.emit(Ignored(reason, detail))

    def _end_founding(self) -> None:
        """Once something is committed and on disk here, an empty log would be a lost one."""
        if self.state.founding is not None and min(self.commit, self.disk.durable_end) > 0:
            self.persist(self.state)

    def _announce(self) -> None:
        leader = self.leader_id
        last_term, last_leader = self._announced_leader
        if leader != last_leader or (leader is not None and self.state.term != last_term):
            self._announced_leader = (self.state.term, leader)
            self.emit(LeaderChanged(self.state.term, leader))
        if self.voters != self._announced_voters:
            self._announced_voters = self.voters
            self.emit(VotersChanged(self.voters))

    # --- what is known ---------------------------------------------------------------------------

    @property
    def now_ms(self) -> float:
        return self._clock.running_ms

    @property
    def real_ms(self) -> float:
        """For what must happen the sooner, not the later, after a stall: heartbeats."""
        return self._clock.real_ms

    @property
    def last_tick_ms(self) -> float:
        return self._clock.last_tick_ms

    def in_real_time(self, deadline_ms: float) -> float:
        """When a deadline comes if nothing more is lost in stalls."""
        return deadline_ms + self.real_ms - self.now_ms

    @property
    def key(self) -> ReplicaKey:
        return self.identity.key

    @property
    def term(self) -> Term:
        return self.state.term

    @property
    def voters(self) -> Voters:
        """The voters in force: by the log, or before the first entry by the founding exchange."""
        return self.log.voters or self.state.founding or NO_VOTERS

    @property
    def is_voter(self) -> bool:
        return self.key in self.voters

    @property
    def has_voting_right(self) -> bool:
        """Voters have it, and so has one whose removal is not committed yet: its log may be the
        only one that can win. It does not count itself (thesis, 4.2.2)."""
        return self.is_voter or (
            self.log.voters_end > self.commit and self.key in (self.log.previous_voters or ())
        )

    @property
    def may_stand(self) -> bool:
        """With an empty log only in the very first election, and only when all are ready."""
        is_ready = not self.log.is_empty or self.state.is_founding_confirmed
        return self.has_voting_right and is_ready

    @property
    def following(self) -> Following | None:
        return self.role.following if isinstance(self.role, Follower | Learner) else None

    @property
    def leader_id(self) -> NodeId | None:
        if isinstance(self.role, Leader):
            return self.key.node_id
        return self.following.leader.node_id if self.following else None

    # --- chance ----------------------------------------------------------------------------------

    def silence_deadline_ms(self) -> float:
        """One to two election time-outs from now (Raft paper, section 5.2)."""
        return self.now_ms + self.settings.election_timeout_ms * (1 + self._random.random())

    def short_deadline_ms(self) -> float:
        """Soon: the leader's stream broke, or the node has just started."""
        return self.now_ms + self.settings.reset_delay_ms * self._random.random()

    def round_deadline_ms(self) -> float:
        """The end of an election round; rounds that fail get longer, up to the time-out."""
        base = self.settings.reset_delay_ms * 2.0 ** min(self.rounds, 16)
        base = min(base, self.settings.election_timeout_ms)
        return self.now_ms + base * (1 + self._random.random())

    # --- messages --------------------------------------------------------------------------------

    def envelope(self, target: ReplicaKey, body: Body) -> Envelope:
        return Envelope(
            self.identity.cluster_id,
            self.key,
            target.node_id,
            target.directory_id,
            self.term,
            body,
        )

    def send(self, target: ReplicaKey, body: Body) -> None:
        self.emit(Send(self.envelope(target, body)))

    def send_when_state_durable(self, target: ReplicaKey, body: Body) -> None:
        """For messages that speak of the term or the vote."""
        self._send_after(self.disk.state_write, self.envelope(target, body))

    def send_when_all_durable(self, target: ReplicaKey, body: Body) -> None:
        self._send_after(self.disk.last_write, self.envelope(target, body))

    def send_to_node_when_state_durable(self, target: NodeId, body: Body) -> None:
        """For a node whose directory is not known."""
        cluster_id = self.identity.cluster_id
        envelope = Envelope(cluster_id, self.key, target, None, self.term, body)
        self._send_after(self.disk.state_write, envelope)

    def vote_for_self_when_durable(self) -> None:
        self.disk.withhold(self.disk.state_write, OwnVote(self.term))

    def _send_after(self, write: int, envelope: Envelope) -> None:
        if self.disk.is_durable(write):
            self.emit(Send(envelope))
        else:
            self.disk.withhold(write, envelope)

    # --- the disk --------------------------------------------------------------------------------

    def persist(self, state: PersistentState) -> None:
        """Change the durable state; several changes in one step make one write."""
        if state.term < self.state.term:
            raise BrokenInvariant(f"the term would go back from {self.term} to {state.term}")
        if self.log.voters is not None:
            # The log names the voters from now on; see PersistentState.founding.
            state = replace(state, founding=None, is_founding_confirmed=False)
        self.state = state
        if self._state_effect is None:
            self._state_effect = len(self._effects)
            self.emit(PersistState(self.disk.number_state_write(), state))
        else:
            self._effects[self._state_effect] = PersistState(self.disk.state_write, state)

    def write_log(self, truncate_to: Offset | None, entries: tuple[Entry, ...]) -> None:
        if truncate_to is not None:
            if truncate_to < self.commit:
                raise BrokenInvariant(
                    f"the log would be cut to {truncate_to}, below the high watermark {self.commit}"
                )
            self.log.truncate(truncate_to)
            self.disk.cut(truncate_to)
        self.log.append(entries)
        self.emit(AppendEntries(self.disk.number_log_write(self.log.end), truncate_to, entries))

    # --- roles -----------------------------------------------------------------------------------

    def become(self, new: RoleState, why: str = "") -> None:
        old = self.role
        check_transition(old.role, new.role)
        self.role = new
        self.emit(RoleChanged(self.term, old.role, new.role))
        if isinstance(old, Leader):
            self._give_up_leadership(old, why)
        if isinstance(new, Leader):
            self.emit(BecameLeader(self.term, new.epoch_start))

    def _give_up_leadership(self, leader: Leader, why: str) -> None:
        self.emit(LeadershipLost(leader.term, why))
        for request in (leader.handover, leader.change):
            if isinstance(request, Handover) and request.is_told:
                self.emit(LeadershipHandedOver(request.request_id))
            elif request is not None and request.request_id is not None:
                self.emit(RequestRejected(request.request_id, RejectReason.NOT_LEADER, None))

    def adopt_term(self, term: Term) -> None:
        """Rules for all servers: a higher term makes this node a follower of nobody yet."""
        self.persist(replace(self.state, term=term, voted_for=None))
        match self.role:
            case Learner() as learner:
                learner.following = None
            case Unattached() as unattached:
                unattached.deadline_ms = self.round_deadline_ms()
            case _:
                self.become(Unattached(self.round_deadline_ms()), "another term began")

    def settle_voting_right(self) -> None:
        """The log or the high watermark moved: a follower whose removal is certain becomes a
        learner, and a learner that was admitted a follower."""
        match self.role:
            case Follower(following=following) if not self.has_voting_right:
                self.become(Learner(following, hello_due_ms=self.now_ms))
            case Learner(following=Following() as following) if self.is_voter:
                self.become(Follower(following, self.silence_deadline_ms()))
            case _:
                pass
