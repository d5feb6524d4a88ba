"""Three replicas of one partition as pure machines, a controller, and a network without manners.

Messages between replicas are lost, doubled, delayed and overtaken; a node is killed (its page cache
survives), loses power (what was not flushed is gone), or loses its disk. Metadata reaches each node
in order but at its own pace. After each event the world checks what replication promises:

- what was acknowledged, or shown below a leader's high watermark, is never lost or rewritten;
- a leader's high watermark is at most the least flushed end over its maximal ISR;
- two replicas that have the same (offset, epoch) have the same log up to there.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from scripted_controller import ScriptedController, directory

from tidelog.controller.decisions.alter_partition import PartitionReport, PartitionVerdict
from tidelog.controller.metadata.partitions import PartitionState
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import BrokerEpoch, LeaderEpoch, NodeId, Offset
from tidelog.replication import follower as f
from tidelog.replication.cluster_view import ClusterView
from tidelog.replication.leader import (
    Accepted,
    Diverged,
    LeaderPartition,
    LeaderStart,
    Refused,
)
from tidelog.replication.remote_replica import FollowerFetch
from tidelog.replication.settings import ReplicationSettings
from tidelog.storage.epoch_cache import EpochCache, EpochEnd

SETTINGS = ReplicationSettings(lag_time_max_ms=600, session_timeout_ms=300, fetch_backoff_ms=50)
MIN_ISR = 2
Entry = tuple[int, int]
"""(epoch, value); every value is written once."""


class Violation(AssertionError):
    """A promise was broken."""


@dataclass(slots=True)
class Node:
    id: NodeId
    broker_epoch: BrokerEpoch
    disk: int
    log: list[Entry] = field(default_factory=list)
    flushed: int = 0
    high_watermark: int = 0
    epochs: EpochCache = field(default_factory=EpochCache)
    is_up: bool = True
    deltas_seen: int = 0
    cluster: ClusterView = field(default_factory=ClusterView)
    state: PartitionState | None = None
    leader: LeaderPartition | None = None
    follower: f.FollowerPartition | None = None
    correlation_id: int = 0

    @property
    def end(self) -> Offset:
        return Offset(len(self.log))

    def local(self) -> f.LocalLog:
        return f.LocalLog(
            Offset(0),
            Offset(self.high_watermark),
            Offset(self.flushed),
            self.end,
            self.epochs.latest_epoch,
        )

    def end_of(self, epoch: int) -> EpochEnd:
        return self.epochs.end_offset_for(epoch, self.end)

    def append(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.epochs.assign(entry[0], len(self.log))
            self.log.append(entry)

    def cut(self, offset: int) -> None:
        del self.log[offset:]
        self.flushed = min(self.flushed, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.epochs.truncate_from_end(min(offset, len(self.log)))


@dataclass(frozen=True, slots=True)
class FetchMessage:
    to: NodeId
    fetch: FollowerFetch
    correlation_id: int


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    to: NodeId
    correlation_id: int
    fetched: f.Fetched
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class ReportMessage:
    sender: NodeId
    broker_epoch: BrokerEpoch
    report: PartitionReport


@dataclass(frozen=True, slots=True)
class ReportAnswer:
    to: NodeId
    report: PartitionReport
    code: ErrorCode
    verdict: PartitionVerdict | None


Message = FetchMessage | FetchAnswer | ReportMessage | ReportAnswer


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0.0
        self.controller = ScriptedController(min_insync_replicas=str(MIN_ISR))
        self.nodes = {NodeId(i): self._born(i) for i in (1, 2, 3)}
        self.ref = self.controller.create("t", (1, 2, 3))
        self.messages: list[Message] = []
        self.committed: list[Entry] = []
        self.acknowledged = 0
        self.waiting: dict[NodeId, list[tuple[LeaderEpoch, int, Entry]]] = {}
        self.values = 0
        self.loss = self.random.choice((0.0, 0.05, 0.2))
        self.doubling = self.random.choice((0.0, 0.1))

    def _born(self, i: int) -> Node:
        epoch = self.controller.register(i, directory(1000 + i))
        self.controller.unfence(i)
        return Node(NodeId(i), epoch, 1000 + i)

    # --- running -----------------------------------------------------------------------

    def run(self, events: int) -> None:
        weights = {
            self.produce: 12, self.flush: 14, self.ask: 20, self.deliver: 40,
            self.see_metadata: 24, self.check_isr: 4, self.pass_time: 6, self.crash: 0.6,
            self.restart: 3, self.fence: 0.4, self.unfence: 3, self.lose_disk: 0.3,
        }  # fmt: skip
        kinds, chances = list(weights), list(weights.values())
        for kind in self.random.choices(kinds, chances, k=events):
            kind()
            self.check()

    def heal(self) -> None:
        """Everybody comes back and nothing is lost on the way; the partition must converge."""
        self.loss = self.doubling = 0.0
        for node in self.nodes.values():
            self._restart(node)
            self.controller.unfence(node.id)
        calm = [self.flush, self.ask, self.deliver, self.see_metadata, self.check_isr]
        for turn in range(4000):
            self.random.choice([*calm, self.deliver, self.ask])()
            if turn % 40 == 0:
                self.now_ms += 60
            self.check()
            if turn > 500 and not self.messages and self._is_converged():
                return
        raise Violation("the replicas did not converge")

    def _is_converged(self) -> bool:
        state = self.controller.state(self.ref)
        logs = {tuple(node.log) for node in self.nodes.values()}
        leader = self.nodes.get(state.leader)
        return (
            len(state.isr) == 3
            and len(logs) == 1
            and leader is not None
            and leader.leader is not None
            and leader.leader.high_watermark == leader.end
        )

    def _some(self, *, up: bool = True) -> Node | None:
        fitting = [node for node in self.nodes.values() if node.is_up is up]
        return self.random.choice(fitting) if fitting else None

    def send(self, message: Message) -> None:
        if self.random.random() >= self.loss:
            self.messages.append(message)
            if self.random.random() < self.doubling:
                self.messages.append(message)

    # --- events ------------------------------------------------------------------------

    def pass_time(self) -> None:
        self.now_ms += self.random.choice((1, 3, 10, 40))

    def produce(self) -> None:
        node = self._some()
        if node is None or node.leader is None:
            return
        machine = node.leader
        if machine.refusal_of_append(-1) is not ErrorCode.NONE and self.random.random() < 0.7:
            return
        self.values += 1
        entry = (int(machine.leader_epoch), self.values)
        node.append([entry])
        waits = self.waiting.setdefault(node.id, [])
        waits.append((machine.leader_epoch, len(node.log), entry))
        machine.appended(self.now_ms, node.end, Offset(node.flushed))
        self._after_leading(node)

    def flush(self) -> None:
        node = self._some()
        if node is None:
            return
        node.flushed = len(node.log)
        if node.leader is not None:
            node.leader.flushed(self.now_ms, Offset(node.flushed))
            self._after_leading(node)

    def check_isr(self) -> None:
        node = self._some()
        if node is not None and node.leader is not None:
            node.leader.check_isr(self.now_ms)
            self._after_leading(node)

    def ask(self) -> None:
        node = self._some()
        if node is None or node.follower is None:
            return
        machine = node.follower
        if machine.phase is f.Phase.WAITING and self.random.random() < 0.3:
            machine.stream_lost()
        if not machine.is_ready(self.now_ms):
            return
        node.correlation_id += 1
        machine.asked(node.correlation_id, node.end)
        local = node.local()
        fetch = FollowerFetch(
            node.id, node.broker_epoch, machine.leader_epoch, local.end, local.flushed_end,
            local.last_epoch, Offset(0),
        )  # fmt: skip
        self.send(FetchMessage(machine.leader, fetch, node.correlation_id))

    def deliver(self) -> None:
        if not self.messages:
            return
        message = self.messages.pop(self.random.randrange(min(len(self.messages), 6)))
        match message:
            case FetchMessage():
                self._serve(message)
            case FetchAnswer():
                self._take(message)
            case ReportMessage(sender=sender, broker_epoch=epoch, report=report):
                answer = self.controller.alter_partition(sender, epoch, [report])
                verdict = answer.partitions[0] if answer.partitions else None
                code = answer.error.code if verdict is None else verdict.error.code
                self.send(ReportAnswer(sender, report, code, verdict))
            case ReportAnswer():
                self._take_report_answer(message)

    def see_metadata(self) -> None:
        node = self._some()
        if node is None or node.deltas_seen == len(self.controller.deltas):
            return
        delta = self.controller.deltas[node.deltas_seen]
        node.deltas_seen += 1
        node.cluster.brokers = delta.after.brokers
        state = delta.after.topics.partition(self.ref)
        known = delta.after.brokers.get(node.id)
        if state is None or known is None or known.epoch != node.broker_epoch:
            return  # of a former life of this node, or before the partition was
        self._assume(node, state)

    def _assume(self, node: Node, state: PartitionState) -> None:
        old, node.state = node.state, state
        if old is not None and old.leader_epoch == state.leader_epoch:
            if node.leader is not None:
                node.leader.updated(self.now_ms, state)
                self._after_leading(node)
            return
        node.leader = node.follower = None
        if state.leader == node.id:
            node.epochs.assign(state.leader_epoch, node.end)
            start = LeaderStart(
                self.now_ms, node.end, Offset(node.flushed), Offset(node.high_watermark)
            )
            node.leader = LeaderPartition(
                node.id, self.ref, state, node.cluster, SETTINGS, MIN_ISR, start
            )
            self._after_leading(node)
        elif state.has_leader:
            node.follower = f.FollowerPartition(state.leader, state.leader_epoch, 50)

    # --- failing -----------------------------------------------------------------------

    def crash(self) -> None:
        node = self._some()
        if node is None:
            return
        node.is_up = False
        if self.random.random() < 0.5:
            node.log = node.log[: self.random.randint(node.flushed, len(node.log))]
            node.epochs.truncate_from_end(len(node.log))
        node.leader = node.follower = node.state = None
        node.high_watermark = self.random.randint(0, node.high_watermark)  # its checkpoint
        self.waiting.pop(node.id, None)

    def restart(self) -> None:
        node = self._some(up=False)
        if node is not None:
            self._restart(node)

    def _restart(self, node: Node) -> None:
        if node.is_up:
            return
        node.is_up = True
        node.flushed = len(node.log)  # recovery syncs what it found
        node.high_watermark = min(node.high_watermark, len(node.log))
        self._register(node)

    def _register(self, node: Node) -> None:
        node.broker_epoch = self.controller.register(node.id, directory(node.disk))
        node.cluster = ClusterView()
        if self.controller.state(self.ref).directory_of(node.id) != directory(node.disk):
            self.controller.assign(node.id, self.ref, directory(node.disk))

    def lose_disk(self) -> None:
        """Within what is promised: one member of the ISR at a time, and another one is left."""
        node = self._some(up=False)
        if node is None:
            return
        others = set(self.controller.state(self.ref).isr) - {node.id}
        if not others:
            return
        node.log, node.epochs, node.flushed, node.high_watermark = [], EpochCache(), 0, 0
        node.disk += 10
        self._restart(node)

    def fence(self) -> None:
        self.controller.fence(self.random.choice(list(self.nodes)))

    def unfence(self) -> None:
        node = self._some()
        if node is not None and self.controller.epoch(node.id) == node.broker_epoch:
            self.controller.unfence(node.id)

    # --- the two sides -----------------------------------------------------------------

    def _serve(self, message: FetchMessage) -> None:
        node, fetch = self.nodes[message.to], message.fetch
        if not node.is_up or node.leader is None:
            return
        machine = node.leader
        epoch = fetch.last_fetched_epoch
        ours = node.end_of(-1 if epoch is None else epoch)
        told = f.Fetched(
            ErrorCode.NONE, machine.leader_epoch, fetch.fetch_offset,
            machine.high_watermark, Offset(0), node.end,
        )  # fmt: skip
        entries: tuple[Entry, ...] = ()
        match machine.fetched(self.now_ms, fetch, ours, Offset(0)):
            case Accepted():
                entries = tuple(node.log[fetch.fetch_offset : fetch.fetch_offset + 4])
                told = replace(told, size=len(entries))
            case Diverged(end=end):
                told = replace(told, diverging=end)
            case Refused(code=code):
                told = replace(told, code=code)
        self._after_leading(node)
        self.send(FetchAnswer(fetch.follower, message.correlation_id, told, entries))

    def _take(self, message: FetchAnswer) -> None:
        node = self.nodes[message.to]
        if not node.is_up or node.follower is None:
            return
        decision = node.follower.answered(
            self.now_ms, message.correlation_id, message.fetched, node.local(), node.end_of
        )
        match decision:
            case f.Append(high_watermark=told) | f.Note(high_watermark=told):
                node.append(list(message.entries))
                node.high_watermark = f.high_watermark_after(told, node.local())
            case f.TruncateTo(offset=offset, is_below_high_watermark=is_below):
                if is_below:
                    raise Violation(f"{node.id} cuts below its high watermark, to {offset}")
                node.cut(offset)
            case f.StartOverAt():
                raise Violation("no log start has moved")
            case _:
                pass

    def _take_report_answer(self, message: ReportAnswer) -> None:
        node = self.nodes[message.to]
        if not node.is_up or node.leader is None:
            return
        state = None if message.verdict is None else message.verdict.state
        node.leader.answered(self.now_ms, message.report, message.code, state)
        pending = node.leader.pending_report
        if pending is not None and message.code not in (ErrorCode.NONE,):
            self.send(ReportMessage(node.id, node.broker_epoch, pending))
        self._after_leading(node)

    def _after_leading(self, node: Node) -> None:
        machine = node.leader
        assert machine is not None
        node.high_watermark = max(node.high_watermark, machine.high_watermark)
        report = machine.take_report()
        if report is not None:
            self.send(ReportMessage(node.id, node.broker_epoch, report))
        elif machine.pending_report is not None and self.random.random() < 0.1:
            self.send(ReportMessage(node.id, node.broker_epoch, machine.pending_report))
        self._commit(node, machine)
        waits = self.waiting.get(node.id, [])
        while waits and waits[0][1] <= machine.high_watermark:
            epoch, end, entry = waits.pop(0)
            if epoch == machine.leader_epoch and machine.outcome_of_append(Offset(end)) == 0:
                self.acknowledged += 1
                if self.committed[end - 1] != entry:
                    raise Violation(f"{entry} was acknowledged but is not at {end - 1}")

    # --- judging -----------------------------------------------------------------------

    def _commit(self, node: Node, machine: LeaderPartition) -> None:
        for offset in range(machine.high_watermark):
            if offset == len(self.committed):
                self.committed.append(node.log[offset])
            elif node.log[offset] != self.committed[offset]:
                raise Violation(
                    f"committed {self.committed[offset]} at {offset} is {node.log[offset]} on"
                    f" {node.id}"
                )

    def check(self) -> None:
        state = self.controller.state(self.ref)
        for node in self.nodes.values():
            if node.is_up and node.leader is not None:
                self._check_high_watermark(node, node.leader, state)
            if node.leader is not None and node.leader.leader_epoch == state.leader_epoch:
                self._check_completeness(node)
        self._check_histories()

    def _check_high_watermark(
        self, node: Node, machine: LeaderPartition, state: PartitionState
    ) -> None:
        if machine.leader_epoch != state.leader_epoch:
            return  # overtaken; what it still believes is judged by what it commits
        for member in machine.maximal_isr:
            other = self.nodes[member]
            if not other.is_up or other.disk % 1000 >= 10:
                continue
            if other.flushed < machine.high_watermark and other.deltas_seen >= node.deltas_seen:
                raise Violation(
                    f"high watermark {machine.high_watermark} of {node.id} is above the flushed"
                    f" end {other.flushed} of {member}"
                )

    def _check_completeness(self, node: Node) -> None:
        if node.log[: len(self.committed)] != self.committed:
            raise Violation(f"leader {node.id} lacks committed records")

    def _check_histories(self) -> None:
        logs = [node.log for node in self.nodes.values()]
        for i, one in enumerate(logs):
            for other in logs[i + 1 :]:
                shared = min(len(one), len(other))
                meeting = shared
                while meeting and one[meeting - 1][0] != other[meeting - 1][0]:
                    meeting -= 1
                if one[:meeting] != other[:meeting]:
                    raise Violation(f"two histories share (offset, epoch) at {meeting - 1}")
