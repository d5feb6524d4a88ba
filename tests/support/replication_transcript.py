"""Scripts for one leader or follower machine, with what it decides printed below each event.

A script is a text file. A line that begins with ``>`` is an event, the lines below it up to the
next blank line, comment or event are the answer. ``replay`` gives the script back with the answers
as they are now; a test compares the two, and a reviewer reads the difference. Brokers 1 to 5 are
registered with the epochs 101 to 105; an epoch's end is written ``4:10``: epoch 4 ends at 10.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from immutables import Map

from tidelog.controller.metadata.brokers import BrokerRegistration
from tidelog.controller.metadata.partitions import UNASSIGNED, PartitionRef, PartitionState
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import (
    NO_OFFSET,
    BrokerEpoch,
    DirectoryId,
    IncarnationId,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    TopicId,
    Uuid,
)
from tidelog.replication import follower as f
from tidelog.replication.cluster_view import ClusterView
from tidelog.replication.leader import Accepted, Diverged, LeaderPartition, LeaderStart, Refused
from tidelog.replication.remote_replica import FollowerFetch
from tidelog.replication.settings import ReplicationSettings
from tidelog.storage.epoch_cache import UNDEFINED_END, EpochCache, EpochEnd

Words = dict[str, str]
TOPIC = TopicId(Uuid(bytes(15) + b"\7"))
REF = PartitionRef(TOPIC, PartitionIndex(0))
EMPTY_LOG = f.LocalLog(Offset(0), Offset(0), Offset(0), Offset(0), None)


def broker(node: int, **changes: object) -> BrokerRegistration:
    """An active broker with the epoch 100 + its id."""
    known = BrokerRegistration(
        broker_id=NodeId(node),
        incarnation_id=IncarnationId(Uuid(bytes(15) + bytes([node]))),
        epoch=BrokerEpoch(100 + node),
        endpoints=(),
        features=(),
        rack=None,
        fenced=False,
        in_controlled_shutdown=False,
        controlled_shutdown_at=NO_OFFSET,
        log_dirs=(DirectoryId(Uuid(bytes(14) + bytes([1, node]))),),
        peer_endpoint=None,
    )
    return replace(known, **changes)  # type: ignore[arg-type]


def cluster(nodes: int = 5) -> ClusterView:
    return ClusterView(Map({NodeId(i): broker(i) for i in range(1, nodes + 1)}))


def nodes(text: str) -> tuple[NodeId, ...]:
    return tuple(NodeId(int(part)) for part in text.split(",") if part)


def epoch_end(text: str) -> EpochEnd:
    if text == "none":
        return UNDEFINED_END
    epoch, end = text.split(":")
    return EpochEnd(LeaderEpoch(int(epoch)), Offset(int(end)))


def show_nodes(some: object) -> str:
    return ",".join(map(str, sorted(some)))  # type: ignore[call-overload]


@dataclass(slots=True)
class Script:
    now_ms: float = 0.0
    cluster: ClusterView = field(default_factory=cluster)
    leader: LeaderPartition | None = None
    log_start: Offset = Offset(0)
    follower: f.FollowerPartition | None = None
    log: f.LocalLog = EMPTY_LOG
    epochs: EpochCache = field(default_factory=EpochCache)
    sent: list[object] = field(default_factory=list)

    def run(self, line: str) -> list[str]:
        command, *rest = line.split()
        words = dict(part.split("=", 1) for part in rest if "=" in part)
        flags = [part for part in rest if "=" not in part]
        try:
            if command in ("leader", "follower", "at", "broker"):
                return self._setup(command, words, flags)
            if self.leader is not None:
                return self._lead(command, words, flags)
            return self._follow(command, words, flags)
        except ValueError as error:
            return [f"ValueError: {error}"]

    # --- setting up --------------------------------------------------------------------

    def _setup(self, command: str, words: Words, flags: list[str]) -> list[str]:
        match command:
            case "at":
                self.now_ms = float(flags[0])
                return []
            case "broker":
                return self._change_broker(NodeId(int(flags[0])), words, flags[1:])
            case "leader":
                return self._become_leader(words)
            case _:
                return self._become_follower(words)

    def _change_broker(self, node: NodeId, words: Words, flags: list[str]) -> list[str]:
        known = self.cluster.brokers[node]
        if "epoch" in words:
            known = replace(known, epoch=BrokerEpoch(int(words["epoch"])))
        known = replace(
            known,
            fenced="fenced" in flags,
            in_controlled_shutdown="stopping" in flags,
            log_dirs=() if "dirless" in flags else broker(node).log_dirs,
        )
        self.cluster.brokers = self.cluster.brokers.set(node, known)
        return []

    def _become_leader(self, words: Words) -> list[str]:
        self.follower = None
        replicas = nodes(words["replicas"])
        state = PartitionState(
            replicas=replicas,
            isr=nodes(words["isr"]),
            leader=NodeId(1),
            leader_epoch=LeaderEpoch(int(words.get("epoch", 5))),
            partition_epoch=PartitionEpoch(int(words.get("pepoch", 7))),
            directories=(UNASSIGNED,) * len(replicas),
            restarts_empty=nodes(words.get("empty", "")),
        )
        end = Offset(int(words["end"]))
        self.log_start = Offset(int(words.get("start", 0)))
        self.leader = LeaderPartition(
            NodeId(1),
            REF,
            state,
            self.cluster,
            ReplicationSettings(),
            int(words.get("min", 1)),
            LeaderStart(
                self.now_ms,
                end,
                Offset(int(words.get("flushed", end))),
                Offset(int(words.get("hw", 0))),
            ),
        )
        return self._status()

    # --- leading -----------------------------------------------------------------------

    def _status(self) -> list[str]:
        machine = self.leader
        assert machine is not None
        maximal = ""
        if machine.maximal_isr != frozenset(machine.isr):
            maximal = f" maximal={show_nodes(machine.maximal_isr)}"
        line = f"hw={machine.high_watermark} isr={show_nodes(machine.isr)}{maximal}"
        report = machine.take_report()
        if report is None:
            return [line]
        self.sent.append(report)
        members = " ".join(f"{m.broker}@{m.epoch}" for m in report.isr)
        head = f"epoch={report.leader_epoch} pepoch={report.partition_epoch}"
        return [line, f"report {len(self.sent)}: {head} isr={members}"]

    def _lead(self, command: str, words: Words, flags: list[str]) -> list[str]:
        machine = self.leader
        assert machine is not None
        match command:
            case "append":
                end = Offset(int(flags[0]))
                flushed = Offset(int(words.get("flushed", machine.flushed_end)))
                machine.appended(self.now_ms, end, flushed)
                return self._status()
            case "flush":
                machine.flushed(self.now_ms, Offset(int(flags[0])))
                return self._status()
            case "fetch":
                return [self._fetch(machine, words, flags), *self._status()]
            case "brokers-changed":
                machine.brokers_changed(self.now_ms)
                return self._status()
            case "check":
                heard = {NodeId(int(k)): float(v) for k, v in words.items()}
                machine.check_isr(self.now_ms, heard)
                return self._status()
            case "answer":
                return self._answer(machine, words, flags)
            case "metadata":
                taken = machine.updated(self.now_ms, self._state(machine, words))
                return [*([] if taken else ["old news"]), *self._status()]
            case "min":
                machine.configured(self.now_ms, machine.settings, int(flags[0]))
                return self._status()
            case "produce":
                return [machine.refusal_of_append(int(words["acks"])).name]
            case "outcome":
                outcome = machine.outcome_of_append(Offset(int(flags[0])))
                return ["wait" if outcome is None else outcome.name]
            case "established":
                return [str(machine.is_established)]
            case "low-watermark":
                return [str(machine.low_watermark(self.log_start))]
            case "clean-point":
                return [str(machine.min_clean_point(Offset(int(flags[0]))))]
            case "wanted":
                return [str(machine.wanted_clean_point(Offset(int(flags[0]))))]
            case _:
                raise ValueError(f"unknown event {command}")

    def _fetch(self, machine: LeaderPartition, words: Words, flags: list[str]) -> str:
        node = int(flags[0])
        at = Offset(int(words["at"]))
        fetch = FollowerFetch(
            follower=NodeId(node),
            broker_epoch=BrokerEpoch(int(words.get("bepoch", 100 + node))),
            leader_epoch=LeaderEpoch(int(words.get("epoch", machine.leader_epoch))),
            fetch_offset=at,
            flushed_end=Offset(int(words.get("flushed", at))),
            last_fetched_epoch=int(words["last"]) if "last" in words else None,
            log_start=Offset(int(words.get("start", 0))),
            clean_point=Offset(int(words.get("clean", 0))),
            held_back_to=Offset(int(words.get("held", 0))),
        )
        ours = epoch_end(words.get("ours", "none"))
        verdict = machine.fetched(self.now_ms, fetch, ours, self.log_start)
        match verdict:
            case Accepted(high_watermark=told):
                return f"accepted, told hw={told}"
            case Diverged(end=end):
                return f"diverged at {end.epoch}:{end.end_offset}"
            case Refused(code=code):
                return f"refused {code.name}"

    def _state(self, machine: LeaderPartition, words: Words) -> PartitionState:
        state = machine.state
        replicas = nodes(words["replicas"]) if "replicas" in words else state.replicas
        return replace(
            state,
            replicas=replicas,
            directories=(UNASSIGNED,) * len(replicas),
            isr=nodes(words["isr"]) if "isr" in words else state.isr,
            leader_epoch=LeaderEpoch(int(words.get("epoch", state.leader_epoch))),
            partition_epoch=PartitionEpoch(int(words.get("pepoch", state.partition_epoch))),
            restarts_empty=nodes(words.get("empty", "")),
        )

    def _answer(self, machine: LeaderPartition, words: Words, flags: list[str]) -> list[str]:
        report = self.sent[int(flags[0]) - 1]
        code = ErrorCode[flags[1]]
        state = self._state(machine, words) if code is ErrorCode.NONE else None
        outcome = machine.answered(self.now_ms, report, code, state)  # type: ignore[arg-type]
        return [outcome.value, *self._status()]

    # --- following ---------------------------------------------------------------------

    def _become_follower(self, words: Words) -> list[str]:
        self.leader = None
        pairs = [pair.split(":") for pair in words.get("epochs", "").split(",") if pair]
        self.epochs = EpochCache()
        for one, start in pairs:
            self.epochs.assign(int(one), int(start))
        end = int(words.get("end", 0))
        self.log = f.LocalLog(
            Offset(int(words.get("start", 0))),
            Offset(int(words.get("hw", 0))),
            Offset(int(words.get("flushed", end))),
            Offset(end),
            self.epochs.latest_epoch,
        )
        epoch = LeaderEpoch(int(words.get("epoch", 5)))
        self.follower = f.FollowerPartition(NodeId(1), epoch, 1000)
        cut = self.follower.first_cut(self.log)
        return [self._do(cut, 0)] if cut is not None else [self._where()]

    def _where(self) -> str:
        machine, log = self.follower, self.log
        assert machine is not None
        last = "-" if log.last_epoch is None else log.last_epoch
        return (
            f"{machine.phase.value}: log {log.log_start}..{log.end}@{last} hw={log.high_watermark}"
        )

    def _follow(self, command: str, words: Words, flags: list[str]) -> list[str]:
        machine = self.follower
        assert machine is not None
        match command:
            case "ask":
                machine.is_ready(self.now_ms)
                machine.asked(int(flags[0]), self.log.end)
                return [self._where()]
            case "ready":
                return [str(machine.is_ready(self.now_ms))]
            case "stream-lost":
                machine.stream_lost()
                return [self._where()]
            case "answer":
                fetched = f.Fetched(
                    ErrorCode[words.get("code", "NONE")],
                    LeaderEpoch(int(words.get("epoch", machine.leader_epoch))),
                    Offset(int(words.get("at", self.log.end))),
                    Offset(int(words.get("hw", 0))),
                    Offset(int(words.get("start", 0))),
                    Offset(int(words.get("end", 0))),
                    epoch_end(words["diverging"]) if "diverging" in words else None,
                    int(words.get("records", 0)),
                )
                decision = machine.answered(
                    self.now_ms, int(flags[0]), fetched, self.log, self._end_of
                )
                return [self._do(decision, fetched.size), self._where()]
            case _:
                raise ValueError(f"unknown event {command}")

    def _end_of(self, epoch: LeaderEpoch) -> EpochEnd:
        return self.epochs.end_offset_for(epoch, self.log.end)

    def _do(self, decision: f.Decision, records: int) -> str:
        match decision:
            case f.Append(high_watermark=told, log_start=start):
                assert self.follower is not None
                self.epochs.assign(self.follower.leader_epoch, self.log.end)
                self._moved(Offset(self.log.end + records))
                self._note(told, start)
                return f"append {records}"
            case f.Note(high_watermark=told, log_start=start):
                self._note(told, start)
                return "note"
            case f.TruncateTo(offset=offset, is_below_high_watermark=is_below):
                self.epochs.truncate_from_end(min(offset, self.log.end))
                self._moved(offset)
                return f"truncate to {offset}{' below the high watermark' if is_below else ''}"
            case f.StartOverAt(offset=offset):
                self.epochs.clear()
                self.log = f.LocalLog(offset, offset, offset, offset, None)
                return f"start over at {offset}"
            case f.BackOff(until_ms=until_ms, code=code):
                return f"back off until {until_ms:.0f}: {code.name}"
            case f.AwaitMetadata(code=code):
                return f"await metadata: {code.name}"
            case f.Ignore(why=why):
                return f"ignore: {why}"

    def _moved(self, end: Offset) -> None:
        hw = min(self.log.high_watermark, end)
        flushed = min(self.log.flushed_end, end)
        last = self.epochs.latest_epoch
        self.log = f.LocalLog(self.log.log_start, hw, flushed, end, last)

    def _note(self, told: Offset, start: Offset) -> None:
        self.log = replace(
            self.log,
            high_watermark=f.high_watermark_after(told, self.log),
            log_start=f.log_start_after(start, self.log),
        )


def replay(text: str) -> str:
    """The same script with the answers as the machine gives them now."""
    script, lines = Script(), []
    is_answer = False
    for line in text.splitlines():
        if line.startswith(">"):
            lines.append(line)
            lines += script.run(line[1:])
            is_answer = True
        elif not line.strip() or line.startswith("#"):
            lines.append(line)
            is_answer = False
        elif not is_answer:
            lines.append(line)
    return "\n".join(lines) + "\n"
