"""Scripts of events for one Raft node, with the effects it answers printed below each.

A script is a text file. A line that begins with ``>`` is an event, the lines below it up to the
next blank line, comment or event are the effects. ``replay`` gives the script back with the
effects as they are now; a test compares the two, and a reviewer reads the difference. A replica is
written ``2A``: node 2 with its first directory; a position ``7@3``: offset 7, behind an entry of
term 3.
Chance always draws one half, so silence lasts 1500 ms and a broken stream counts after 75.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from raft_network import CLUSTER, directory

from tidelog.controller.raft import BrokenInvariant, RaftNode
from tidelog.controller.raft import effects as eff
from tidelog.controller.raft import events as ev
from tidelog.controller.raft import messages as msg
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
from tidelog.kernel.ids import NodeId, Offset

Words = dict[str, str]


class OneHalf:
    """Chance without surprises."""

    def random(self) -> float:
        return 0.5

    def randrange(self, start: int, stop: int) -> int:
        return (start + stop) // 2

    def randbytes(self, n: int) -> bytes:
        return bytes(n)


# --- reading -------------------------------------------------------------------------------------


def key(text: str) -> ReplicaKey:
    node = int(text[:-1])
    return ReplicaKey(NodeId(node), directory(node, ord(text[-1]) - ord("A")))


def voters(text: str) -> Voters:
    return Voters.of(key(part) for part in text.split(","))


def position(text: str) -> tuple[Offset, Term]:
    offset, term = text.split("@")
    return Offset(int(offset)), Term(int(term))


def node_ids(text: str) -> tuple[NodeId, ...]:
    return tuple(NodeId(int(part)) for part in text.split(",") if part)


def entries(text: str, start: int) -> tuple[Entry, ...]:
    """``voters@1(1A,2A);leader@1(1);data@2x3``: kinds, terms, and how many records."""
    made: list[Entry] = []
    base = start
    for part in text.split(";") if text else []:
        kind, _, rest = part.partition("@")
        rest, _, inside = rest.rstrip(")").partition("(")
        term, _, count = rest.partition("x")
        last = base + int(count or 1) - 1
        entry = Entry(Offset(base), Offset(last), Term(int(term)))
        if kind == "voters":
            entry = replace(entry, kind=EntryKind.VOTERS, voters=voters(inside))
        elif kind == "leader":
            entry = replace(entry, kind=EntryKind.LEADER_CHANGE, leader_id=NodeId(int(inside)))
        else:
            entry = replace(entry, data=inside.encode())
        made.append(entry)
        base = last + 1
    return tuple(made)


def body(kind: str, words: Words, flags: set[str]) -> msg.Body:
    leader = NodeId(int(words["leader"])) if "leader" in words else None
    match kind:
        case "hello":
            ids = node_ids(words["voters"])
            return msg.Hello("empty" in flags, "founder" in flags, ids)
        case "hello-back":
            ids = node_ids(words["voters"])
            return msg.HelloBack("empty" in flags, "founder" in flags, ids, leader)
        case "vote-request":
            end, term = position(words["log"])
            return msg.VoteRequest(term, end, "pre" in flags, "transfer" in flags)
        case "vote-response":
            asked = Term(int(words["asked"]))
            return msg.VoteResponse("granted" in flags, "pre" in flags, asked, leader)
        case "append":
            end, term = position(words["prev"])
            new = entries(words.get("entries", ""), int(words.get("base", end)))
            commit = Offset(int(words.get("commit", 0)))
            return msg.AppendRequest(end, term, new, commit, "announcement" in flags)
        case "accepted":
            return msg.AppendAccepted(Offset(int(words["match"])))
        case "rejected":
            start = Offset(int(words["start"]))
            conflict = Term(int(words["conflict"])) if "conflict" in words else None
            return msg.AppendRejected(Offset(int(words["prev"])), conflict, start)
        case "chunk":
            data = b"x" * int(words["bytes"])
            place, total = int(words["position"]), int(words["total"])
            snapshot = SnapshotId(*position(words["snapshot"]))
            return msg.SnapshotChunk(snapshot, voters(words["voters"]), place, total, data)
        case "snapshot-ack":
            snapshot = SnapshotId(*position(words["snapshot"]))
            place = int(words.get("position", 0))
            return msg.SnapshotAck(snapshot, place, "installed" in flags)
        case "timeout-now":
            return msg.TimeoutNow()
        case _:
            raise ValueError(f"unknown message {kind}")


# --- printing ------------------------------------------------------------------------------------


def show_key(k: ReplicaKey | None) -> str:
    return "-" if k is None else f"{k.node_id}{chr(ord('A') + k.directory_id.raw[-1])}"


def show_voters(some: Voters | None) -> str:
    return "-" if some is None else ",".join(show_key(k) for k in some)


def show_entry(entry: Entry) -> str:
    span = f"{entry.base_offset}"
    if entry.last_offset != entry.base_offset:
        span += f"-{entry.last_offset}"
    inside = f"({show_voters(entry.voters)})" if entry.voters else ""
    inside = f"({entry.leader_id})" if entry.leader_id is not None else inside
    return f"{span}:{entry.kind.value}@{entry.term}{inside}"


def show_entries(some: tuple[Entry, ...]) -> str:
    return "[" + " ".join(show_entry(entry) for entry in some) + "]"


def show_body(b: msg.Body) -> str:
    match b:
        case msg.Hello(is_log_empty=empty, is_founder=founder):
            return f"hello{' empty' if empty else ''}{' founder' if founder else ''}"
        case msg.HelloBack(is_log_empty=empty, is_founder=founder, leader_id=leader):
            hint = f" leader={leader}" if leader is not None else ""
            return f"hello-back{' empty' if empty else ''}{' founder' if founder else ''}{hint}"
        case msg.VoteRequest(last_term=term, end_offset=end, is_pre_vote=pre):
            transfer = " transfer" if b.is_leadership_transfer else ""
            return f"{'pre-' if pre else ''}vote-request log={end}@{term}{transfer}"
        case msg.VoteResponse(is_granted=granted, is_pre_vote=pre, asked_in_term=asked):
            hint = f" leader={b.leader_id}" if b.leader_id is not None else ""
            answer = "granted" if granted else "refused"
            return f"{'pre-' if pre else ''}vote {answer} asked={asked}{hint}"
        case msg.AppendRequest(prev_end=end, prev_term=term, entries=new, commit=commit):
            what = "announcement" if b.is_announcement else show_entries(new)
            return f"append prev={end}@{term} commit={commit} {what}"
        case msg.AppendAccepted(match_end=end):
            return f"accepted match={end}"
        case msg.AppendRejected(prev_end=end, conflict_term=term, conflict_start=start):
            return f"rejected prev={end} conflict={'-' if term is None else term} start={start}"
        case msg.SnapshotChunk(snapshot=s, position=place, total_bytes=total, data=data):
            return f"chunk {s.end_offset}@{s.term} {place}+{len(data)}/{total}"
        case msg.SnapshotAck(snapshot=s, position=place, is_installed=installed):
            where = "installed" if installed else f"position={place}"
            return f"snapshot-ack {s.end_offset}@{s.term} {where}"
        case msg.TimeoutNow():
            return "timeout-now"


def show_state(s: PersistentState) -> str:
    founding = "" if s.founding is None else f" founding={show_voters(s.founding)}"
    confirmed = " confirmed" if s.is_founding_confirmed else ""
    return f"term={s.term} voted={show_key(s.voted_for)}{founding}{confirmed}"


def show_target(e: msg.Envelope) -> str:
    if e.target_directory is None:
        return str(e.target_id)
    return show_key(ReplicaKey(e.target_id, e.target_directory))


def show_request(id_: int, reason: eff.RejectReason, leader: NodeId | None) -> str:
    return f"{id_} {reason.value} leader={'-' if leader is None else leader}"


def show(effect: eff.Effect) -> str:
    return _show_disk(effect) or _show_peer(effect) or _show_client(effect)


def _show_disk(effect: eff.Effect) -> str | None:
    match effect:
        case eff.PersistState(write=w, state=s):
            return f"disk {w}: state {show_state(s)}"
        case eff.AppendEntries(write=w, truncate_to=to, entries=new):
            cut = "" if to is None else f"cut to {to}, "
            return f"disk {w}: {cut}append {show_entries(new)}"
        case eff.WriteSnapshotChunk(write=w, snapshot=s, position=place, data=data):
            return f"disk {w}: snapshot {s.end_offset}@{s.term} {place}+{len(data)}"
        case eff.InstallSnapshot(write=w, snapshot=s, voters=v):
            return f"disk {w}: install {s.end_offset}@{s.term} voters={show_voters(v)}"
        case eff.MoveLogStart(snapshot=s):
            return f"disk: log starts at {s.end_offset}@{s.term}"
        case _:
            return None


def _show_peer(effect: eff.Effect) -> str | None:
    match effect:
        case eff.Send(envelope=e):
            return f"to {show_target(e)} t{e.term}: {show_body(e.body)}"
        case eff.SendSnapshotChunk(envelope=e, chunk=c, max_bytes=n):
            s = c.snapshot
            where = f"{s.end_offset}@{s.term} from {c.position}, up to {n} bytes"
            return f"to {show_target(e)} t{e.term}: chunk {where}, voters={show_voters(c.voters)}"
        case eff.Ignored(reason=reason, detail=detail):
            return f"ignored {reason.value}: {_short(detail)}"
        case _:
            return None


def _show_client(effect: eff.Effect) -> str:
    match effect:
        case eff.Committed(end_offset=end):
            return f"committed {end}"
        case eff.ProposalAccepted(proposal_id=i, base_offset=base, last_offset=last, term=t):
            return f"proposal {i} accepted {base}-{last}@{t}"
        case eff.ProposalRejected(proposal_id=i, reason=reason, leader_id=leader):
            return f"proposal rejected {show_request(i, reason, leader)}"
        case eff.BecameLeader(term=t, epoch_start=start):
            return f"leader of {t} from {start}"
        case eff.LeadershipEstablished(term=t, epoch_start=start):
            return f"established in {t} from {start}"
        case eff.LeadershipLost(term=t, reason=why):
            return f"lost leadership of {t}: {why}"
        case eff.RoleChanged(term=t, old=old, new=new):
            return f"role {old.value} -> {new.value} in {t}"
        case eff.LeaderChanged(term=t, leader_id=leader):
            return f"leader is {'unknown' if leader is None else leader} in {t}"
        case eff.VotersChanged(voters=v):
            return f"voters {show_voters(v)}"
        case eff.MembershipChanged(request_id=i, voters=v):
            return f"request {i} done voters={show_voters(v)}"
        case eff.LeadershipHandedOver(request_id=i):
            return f"request {i} done"
        case eff.RequestRejected(request_id=i, reason=reason, leader_id=leader):
            return f"request rejected {show_request(i, reason, leader)}"
        case _:
            raise ValueError(f"no print for {effect}")


def _short(detail: str) -> str:
    """Directories as letters, also inside sentences."""
    for node in range(10):
        for generation in range(3):
            name = str(ReplicaKey(NodeId(node), directory(node, generation)))
            detail = detail.replace(name, f"{node}{chr(ord('A') + generation)}")
            detail = detail.replace(str(directory(node, generation)), chr(ord("A") + generation))
    return detail


# --- replaying -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Script:
    node: RaftNode | None = None
    settings: Settings = field(default_factory=Settings)
    me: ReplicaKey = field(default_factory=lambda: key("1A"))
    now_ms: float = 0.0
    last_write: int = 0

    def run(self, line: str) -> list[str]:
        command, *rest = line.split()
        words = dict(part.split("=", 1) for part in rest if "=" in part)
        flags = [part for part in rest if "=" not in part]
        try:
            return self._run(command, words, flags) or ["(nothing)"]
        except BrokenInvariant as error:
            return [f"{type(error).__name__}: {_short(str(error))}"]

    def _run(self, command: str, words: Words, flags: list[str]) -> list[str]:
        match command:
            case "start":
                return self._start(words, set(flags))
            case "advance":
                return self._advance(float(flags[0]))
            case "live":
                return self._live(float(flags[0]))
            case "late-tick":
                due_ms = self.now_ms + self.settings.tick_interval_ms
                self.now_ms = due_ms + float(flags[0])
                return self._step(ev.Tick(due_ms))
            case "pause":
                self.now_ms += float(flags[0])
                return []
            case "status":
                return self._status()
            case _:
                return self._step(self._event(command, words, flags))

    def _event(self, command: str, words: Words, flags: list[str]) -> ev.Event:
        request_id = int(words.get("id", 0))
        match command:
            case "from":
                return self._message(flags, words)
            case "persist":
                return ev.Persisted(int(flags[0]) if flags else self.last_write)
            case "reset":
                return ev.PeerStreamReset(NodeId(int(flags[0])))
            case "propose":
                data, count = b"x" * int(words.get("size", 5)), int(words.get("records", 1))
                return ev.Proposed(request_id, data, count)
            case "snapshot-taken":
                return ev.SnapshotTaken(SnapshotId(*position(flags[0])))
            case "chunk-failed":
                return ev.SnapshotChunkFailed(key(flags[0]), SnapshotId(*position(flags[1])))
            case "transfer":
                target = NodeId(int(words["to"])) if "to" in words else None
                return ev.TransferRequested(request_id, target)
            case "add-voter":
                return ev.AddVoterRequested(request_id, key(flags[0]))
            case "remove-voter":
                return ev.RemoveVoterRequested(request_id, key(flags[0]))
            case "resign":
                return ev.ResignRequested()
            case _:
                raise ValueError(f"unknown event {command}")

    def _start(self, words: Words, flags: set[str]) -> list[str]:
        given: dict[str, Any] = {
            name: int(value) for name, value in words.items() if hasattr(Settings, name)
        }
        self.settings = Settings(**given)
        self.me = key(words["me"])
        identity = Identity(self.me, CLUSTER, node_ids(words["voters"]))
        state = PersistentState(
            Term(int(words.get("term", 0))),
            key(words["voted"]) if "voted" in words else None,
            voters(words["founding"]) if "founding" in words else None,
            "confirmed" in flags,
        )
        snapshot = SnapshotId(*position(words["snapshot"])) if "snapshot" in words else None
        in_force = voters(words["snapshot-voters"]) if snapshot else None
        first = int(words.get("first", snapshot.end_offset if snapshot else 0))
        found = RestoredLog(snapshot, in_force, entries(words.get("log", ""), first))
        self.last_write = 0
        self.node = RaftNode.restore(identity, self.settings, OneHalf(), self.now_ms, state, found)
        return self._status()

    def _status(self) -> list[str]:
        assert self.node is not None
        s = self.node.status
        log = f"log={s.log_start}..{s.log_end} durable={s.durable_end} hw={s.high_watermark}"
        vote = f"voted={show_key(s.voted_for)} leader={'-' if s.leader_id is None else s.leader_id}"
        lines = [f"{s.role.value} term={s.term} {vote} voters={show_voters(s.voters)} {log}"]
        for r in s.replicas:
            kind = "voter" if r.is_voter else "observer"
            lines.append(f"  {kind} {show_key(r.key)} match={r.match_end}")
        return lines

    def _message(self, flags: list[str], words: Words) -> ev.Event:
        to = key(words["to"]) if "to" in words else self.me
        kind = flags[1]
        target = None if kind == "hello" else to.directory_id
        cluster = words.get("cluster", CLUSTER)
        term = Term(int(words["term"]))
        content = body(kind, words, set(flags[2:]))
        return ev.MessageReceived(
            msg.Envelope(cluster, key(flags[0]), to.node_id, target, term, content)
        )

    def _advance(self, duration_ms: float) -> list[str]:
        lines: list[str] = []
        passed = 0.0
        while passed < duration_ms:
            passed += self.settings.tick_interval_ms
            self.now_ms += self.settings.tick_interval_ms
            lines += [f"+{passed:.0f} {line}" for line in self._step(ev.Tick(self.now_ms))]
        return lines

    def _live(self, duration_ms: float) -> list[str]:
        """As a shell does: a tick whenever the machine wants one, whether it brings anything."""
        assert self.node is not None
        lines: list[str] = []
        start_ms, end_ms = self.now_ms, self.now_ms + duration_ms
        while (due_ms := self.node.next_tick_ms()) <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            at = f"+{self.now_ms - start_ms:.0f} "
            lines += [at + line for line in self._step(ev.Tick(due_ms)) or ["(nothing)"]]
        self.now_ms = end_ms
        return lines

    def _step(self, event: ev.Event) -> list[str]:
        assert self.node is not None
        effects = self.node.step(self.now_ms, event)
        for effect in effects:
            if isinstance(effect, eff.DiskWrite):
                self.last_write = effect.write
        return [show(effect) for effect in effects]


def replay(text: str) -> str:
    """The same script with the effects as the machine gives them now."""
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
