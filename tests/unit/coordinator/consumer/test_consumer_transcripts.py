"""Scripts for groups of the consumer protocol, with what the machine decides below each event.

A line that begins with ``>`` is an event; the lines below it, up to the next event, comment or
blank line, are what happened. ``hb`` is a ConsumerGroupHeartbeat; with epoch 0 it has all that a
join needs. ``join``, ``sync``, ``beat`` and ``leave`` are the classic requests. ``at`` moves the
clock (ms). Writes succeed at once and are not shown, except with ``writes=shown``: then ``written``
finishes the oldest one, ``slow`` sends away whoever waits for the oldest that is not slow yet, and
``refused`` is the end of the newest. ``reload`` is a new coordinator that has only read the records
that were replicated.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.coordinator import consumer_records as r
from tidelog.coordinator.classic import events as e
from tidelog.coordinator.classic_group import ClassicGroup, GroupSettings
from tidelog.coordinator.consumer.context import (
    ConsumerGroupSettings,
    GroupContext,
    MigrationPolicy,
)
from tidelog.coordinator.consumer.core import REPLICATED
from tidelog.coordinator.consumer.events import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    Effect,
    RespondConsumer,
)
from tidelog.coordinator.consumer.members import Held, Member, MemberState, held_of
from tidelog.coordinator.consumer.topics import KnownTopics, TopicInfo
from tidelog.coordinator.consumer_group import ConsumerGroup
from tidelog.coordinator.groups import Groups, Request
from tidelog.coordinator.records import (
    CoordinatorRecord,
    GroupRecord,
    OffsetRecord,
    UnsupportedRecord,
    decode_record,
    encode_record,
)
from tidelog.coordinator.subscriptions import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import PartitionIndex, TopicPartition, Uuid

SCRIPTS = sorted((Path(__file__).parents[3] / "transcripts/consumer_groups").glob("*.txt"))
Words = dict[str, str]
G = "g"


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"\0"))


def topic_name(topic: Uuid) -> str:
    return topic.raw.rstrip(b"\0").decode()


def shares(text: str) -> dict[str, tuple[int, ...]]:
    """``t:0,1+u:0`` is partitions 0 and 1 of t, and 0 of u."""
    pairs = (part.split(":") for part in text.split("+") if part)
    return {name: tuple(map(int, indexes.split(","))) for name, indexes in pairs}


def shown(held: Held) -> str:
    return "+".join(
        f"{topic_name(topic)}:{','.join(map(str, sorted(held[topic])))}" for topic in sorted(held)
    )


class Script:
    def __init__(self, words: Words) -> None:
        self.settings = ConsumerGroupSettings(
            assignment_interval_ms=int(words.get("interval", "0")),
            max_size=int(words.get("max_size", "100")),
            max_classic_size=int(words.get("max_classic", "100")),
            migration_policy=MigrationPolicy(words.get("policy", "bidirectional")),
        )
        self.auto = words.get("writes", "auto") == "auto"
        self.topics = self.parse_topics(words.get("topics", "t:4"), 1)
        self.groups = self.new_groups()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = 0
        self.requests = 0
        self.labels: dict[int, str] = {}
        self.writes: list[e.Append] = []
        self.slow: set[int] = set()

    def new_groups(self) -> Groups:
        context = GroupContext(self.settings, self.topics)
        return Groups.empty(GroupSettings(initial_rebalance_delay_ms=0), context)

    def parse_topics(self, text: str, version: int) -> KnownTopics:
        pairs = (part.split(":") for part in text.split("+") if part)
        infos = [TopicInfo(topic_id(name), name, int(count)) for name, count in pairs]
        return KnownTopics(infos, version)

    def run(self, line: str) -> list[str]:
        verb, *rest = line.split()
        words = dict(word.split("=", 1) for word in rest if "=" in word)
        plain = [word for word in rest if "=" not in word]
        before = self.last_cause()
        output = self.show(self.dispatch(verb, plain, words))
        if self.last_cause() not in (None, before):
            output.append(f"cause: {self.last_cause()}")
        return [*output, *self.status()]

    def last_cause(self) -> object:
        group = self.groups.get(G)
        entries = () if group is None else group.rebalances
        if not entries:
            return None
        return entries[-1].causes[-1]

    def dispatch(self, verb: str, plain: list[str], words: Words) -> list[Effect]:
        match verb:
            case "at":
                self.now_ms = int(plain[0])
                return self.groups.expire(self.now_ms)
            case "written":
                error = ErrorCode[words.get("error", "NONE")]
                assert self.writes, f"nothing is being written: {words}"
                return self.finish(self.writes.pop(0), error)
            case "refused":
                return self.finish(self.writes.pop(), ErrorCode.NOT_ENOUGH_REPLICAS)
            case "slow":
                late = next(each for each in self.writes if each.write_id not in self.slow)
                self.slow.add(late.write_id)
                return self.groups.append_delayed(self.now_ms, G, late.write_id)
            case "topics":
                self.topics = self.parse_topics(plain[0], self.topics.version + 1)
                self.groups.set_topics(self.topics)
                return []
            case "policy":
                self.groups.consumer.context.settings = ConsumerGroupSettings(
                    assignment_interval_ms=0, migration_policy=MigrationPolicy(plain[0])
                )
                return []
            case "unload":
                return self.groups.unload(self.now_ms)
            case "delete":
                records, effects = self.groups.delete(self.now_ms, G)
                self.keep(records)
                return effects
            case "reload":
                return self.reload()
            case _:
                request = self.request(verb, plain, words)
                return self.groups.handle(self.now_ms, G, request)

    def finish(self, append: e.Append, error: ErrorCode) -> list[Effect]:
        if error in REPLICATED:
            self.keep(append.records)
        if append.write_id in self.slow:
            assert error is ErrorCode.NONE, "what is slow is in the log: nobody takes it back"
            return self.groups.append_late(self.now_ms, G, append.write_id)
        return self.groups.append_finished(self.now_ms, G, append.write_id, error)

    def keep(self, records: tuple[CoordinatorRecord, ...]) -> None:
        self.log += map(encode_record, records)

    def reload(self) -> list[Effect]:
        self.groups = self.new_groups()
        self.writes.clear()
        for key, value in self.log:
            record = decode_record(key, value)
            assert not isinstance(record, OffsetRecord | UnsupportedRecord)
            self.groups.load(record, self.now_ms)
        return []

    # --- requests ------------------------------------------------------------------------------

    def request(self, verb: str, plain: list[str], words: Words) -> Request:
        self.requests += 1
        number = self.requests
        who = plain[0] if plain else ""
        self.labels[number] = f"{verb} {who}".strip()
        generation = int(words.get("gen", "0"))
        match verb:
            case "hb":
                return self.heartbeat(number, who, words)
            case "join":
                return self.join(number, who, words)
            case "sync":
                pairs = [pair.split("=>") for pair in words.get("give", "").split(";") if pair]
                given = tuple((to, self.assignment(what)) for to, what in pairs)
                return e.SyncGroup(
                    number, who, words.get("inst"), generation, words.get("type"), words.get("p"),
                    given,
                )  # fmt: skip
            case "beat":
                return e.Heartbeat(number, who, words.get("inst"), generation)
            case "leave":
                leavers = [name.partition("@") for name in who.split(",")]
                return e.LeaveGroup(number, tuple(e.Leaver(m, i or None) for m, _, i in leavers))
        raise ValueError(f"no event {verb!r}")

    def heartbeat(self, number: int, who: str, words: Words) -> ConsumerHeartbeat:
        epoch = int(words.get("epoch", "0"))
        joins = epoch == 0
        by_name = joins and "regex" not in words and "nosub" not in words
        names = words.get("topics", "t" if by_name else None)
        owned = words.get("owned", "" if joins else None)
        return ConsumerHeartbeat(
            number, who, epoch, words.get("inst"), words.get("rack"),
            int(words.get("timeout", "20000" if joins else "-1")),
            None if names is None else tuple(name for name in names.split(",") if name),
            words.get("regex"), words.get("assignor"),
            None if owned is None else tuple(
                (topic_id(name), indexes) for name, indexes in shares(owned).items()
            ),
            f"client-{who}", "/h", f"fresh-{number}", has_own_id=words.get("v") != "0",
        )  # fmt: skip

    def join(self, number: int, client: str, words: Words) -> e.JoinGroup:
        owned = tuple(
            TopicPartition(name, PartitionIndex(index))
            for name, indexes in shares(words.get("owned", "")).items()
            for index in indexes
        )
        said = Subscription(tuple(words.get("topics", "t").split(",")), owned)
        metadata = b"junk" if "junk" in words else encode_subscription(said)
        names = words.get("p", "range").split(",")
        return e.JoinGroup(
            number, words.get("id", ""), words.get("inst"), client, "/h",
            int(words.get("session", "10000")), int(words.get("rebalance", "20000")),
            words.get("type", "consumer"), tuple(e.Protocol(name, metadata) for name in names),
            str(number), needs_member_id=words.get("v") == "4",
        )  # fmt: skip

    def assignment(self, text: str) -> bytes:
        partitions = tuple(
            TopicPartition(name, PartitionIndex(index))
            for name, indexes in shares(text).items()
            for index in indexes
        )
        return encode_assignment(Assignment(partitions))

    # --- what happened -------------------------------------------------------------------------

    def show(self, effects: list[Effect]) -> list[str]:
        output: list[str] = []
        for effect in effects:
            match effect:
                case e.Append():
                    if self.auto:
                        output += self.show(self.finish(effect, ErrorCode.NONE))
                    else:
                        self.writes.append(effect)
                        output += [f"write {self.show_record(each)}" for each in effect.records]
                case RespondConsumer(request_id, result):
                    output.append(f"{self.labels[request_id]}: {self.show_beat(result)}")
                case e.Respond(request_id, answer):
                    output.append(f"{self.labels[request_id]}: {self.show_classic(answer)}")
        return output

    def show_beat(self, result: ConsumerHeartbeatResult) -> str:
        if result.error is not ErrorCode.NONE:
            return result.error.name
        given = "" if result.assignment is None else f" [{shown(held_of(result.assignment))}]"
        return f"{result.member_id} epoch={result.member_epoch}{given}"

    def show_classic(self, result: e.Result) -> str:
        match result:
            case e.JoinResult(error=ErrorCode.NONE):
                members = ",".join(each.member_id for each in result.members)
                leads = f" leads [{members}]" if members else ""
                return f"{result.member_id} gen={result.generation} {result.protocol}{leads}"
            case e.JoinResult():
                return f"{result.error.name} {result.member_id}".strip()
            case e.SyncResult(error=ErrorCode.NONE):
                return f"assigned [{self.show_bytes(result.assignment)}]"
            case e.LeaveResult():
                each = (f"{m.member_id or m.instance_id}={m.error.name}" for m in result.members)
                return " ".join((result.error.name, *each))
            case _:
                return result.error.name

    def show_bytes(self, data: bytes) -> str:
        found: dict[str, list[str]] = {}
        for each in decode_assignment(data).partitions if data else ():
            found.setdefault(each.topic, []).append(str(each.partition))
        return "+".join(f"{topic}:{','.join(indexes)}" for topic, indexes in found.items())

    def show_record(self, record: CoordinatorRecord) -> str:
        match record:
            case GroupRecord(_, None):
                return "- classic"
            case GroupRecord(_, value) if value is not None:
                members = ";".join(
                    f"{m.member_id}=>{self.show_bytes(m.assignment)}" for m in value.members
                )
                return f"classic gen={value.generation} {value.protocol} [{members}]"
            case r.ConsumerRecord(key, None):
                return f"- {self.show_key(key)}"
            case r.ConsumerRecord(key, value) if value is not None:
                return f"{self.show_key(key)} {self.show_value(value)}"
        raise AssertionError(record)

    def show_key(self, key: r.ConsumerKey) -> str:
        names = {3: "epoch", 4: "metadata", 5: "member", 6: "target epoch", 7: "target",
                 8: "current", 16: "regex"}  # fmt: skip
        return " ".join(filter(None, (names[key.key_type], key.member_id, key.regex)))

    def show_value(self, value: r.ConsumerValue) -> str:
        match value:
            case r.GroupEpoch(epoch) | r.TargetEpoch(epoch):
                return str(epoch)
            case r.ConsumerMember():
                kind = " classic" if value.classic else ""
                regex = f" regex={value.topic_regex}" if value.topic_regex else ""
                return f"topics={','.join(value.topic_names)}{regex}{kind}"
            case r.TargetAssignment(topics):
                return f"[{shown(held_of(topics))}]"
            case r.CurrentAssignment():
                gives = shown(held_of(value.pending_revocation))
                state = MemberState(value.state).name.partition("_")[0]
                step = f"{value.previous_member_epoch}->{value.member_epoch} {state}"
                return f"{step} [{shown(held_of(value.assigned))}]{f' -[{gives}]' if gives else ''}"
            case r.ResolvedRegex(topics):
                return ",".join(topics)
            case r.PartitionMetadata():
                return "..."

    def status(self) -> list[str]:
        group = self.groups.get(G)
        deadline = self.groups.next_deadline_ms()
        due = "" if deadline is None else f" next={deadline}"
        match group:
            case None:
                return ["= no group"]
            case ClassicGroup():
                members = ",".join(each.member_id for each in group.describe().members)
                state = f"{group.state.value} gen={group.generation} [{members}]"
                return [f"= classic {state}{due}"]
            case ConsumerGroup():
                members = " ".join(
                    self.show_member(member)
                    for each in group.describe().members
                    if (member := group.member(each.member_id)) is not None
                )
                epochs = f"{group.state.value} {group.epoch}/{group.target_epoch}"
                return [f"= {epochs} {members}".rstrip() + due]

    def show_member(self, member: Member) -> str:
        state = member.state.name.partition("_")[0]
        gives = f"-[{shown(member.revoking)}]" if member.revoking else ""
        kind = "*" if member.is_classic else ""
        return f"{member.member_id}{kind}@{member.epoch}:{state}[{shown(member.assigned)}]{gives}"


def replay(text: str) -> str:
    script = Script({})
    output: list[str] = []
    for line in text.splitlines():
        if line.startswith("> settings"):
            script = Script(dict(word.split("=") for word in line.split()[2:]))
            output.append(line)
        elif line.startswith(">"):
            output += [line, *script.run(line[1:])]
        elif line.startswith("#") or not line:
            output.append(line)
    return "\n".join(output) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_machine_does_as_written(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert replay(text) == text


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 9
