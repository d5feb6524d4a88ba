"""Scripts for classic groups, with what the machine decides printed below each event.

A line that begins with ``>`` is an event; the lines below it, up to the next event, comment or
blank line, are what happened. A new member of client ``a`` whose join is the third request is
called ``a-3``. ``at`` moves the clock (ms), ``written`` finishes the oldest write.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.coordinator.classic import events as e
from tidelog.coordinator.classic.history import Rebalance
from tidelog.coordinator.classic_group import GroupSettings
from tidelog.coordinator.classic_groups import ClassicGroups
from tidelog.coordinator.records import GroupRecord
from tidelog.kernel.errors import ErrorCode

SCRIPTS = sorted((Path(__file__).parents[2] / "transcripts/coordinator").glob("*.txt"))
Words = dict[str, str]


class Script:
    def __init__(self, settings: Words) -> None:
        self.groups = ClassicGroups(
            GroupSettings(
                initial_rebalance_delay_ms=int(settings.get("delay", "3000")),
                max_size=int(settings.get("max_size", "100")),
                max_pending_members=int(settings.get("max_pending", "100")),
            )
        )
        self.now_ms = 0
        self.requests = 0
        self.labels: dict[int, str] = {}
        self.writes: list[int] = []
        self.group = settings.get("group", "g")

    def run(self, line: str) -> list[str]:
        verb, *rest = line.split()
        words = dict(word.split("=", 1) for word in rest if "=" in word)
        plain = [word for word in rest if "=" not in word]
        before = self.rebalance_count()
        effects = self.dispatch(verb, plain, words)
        shown = [self.show(effect) for effect in effects]
        if self.rebalance_count() > before:
            shown.append(f"rebalance: {self.rebalances()[-1].causes[0]}")
        return [*shown, self.status()]

    def rebalances(self) -> tuple[Rebalance, ...]:
        group = self.groups.get(self.group)
        return () if group is None else group.rebalances

    def rebalance_count(self) -> int:
        return len(self.rebalances())

    def dispatch(self, verb: str, plain: list[str], words: Words) -> list[e.Effect]:
        match verb:
            case "at":
                self.now_ms = int(plain[0])
                return self.groups.expire(self.now_ms)
            case "written":
                error = ErrorCode[words.get("error", "NONE")]
                assert self.writes, f"nothing is being written: {words}"
                write = self.writes.pop(0)
                return self.groups.append_finished(self.now_ms, self.group, write, error)
            case "unload":
                return self.groups.unload(self.now_ms)
            case "delete":
                record, effects = self.groups.delete(self.now_ms, self.group)
                assert record.value is None
                return effects
            case _:
                return self.groups.handle(self.now_ms, self.group, self.request(verb, plain, words))

    def request(
        self, verb: str, plain: list[str], words: Words
    ) -> e.JoinGroup | e.SyncGroup | e.Heartbeat | e.LeaveGroup:
        self.requests += 1
        number = self.requests
        self.labels[number] = f"{verb} {plain[0] if plain else ''}".strip()
        member, instance = words.get("id", ""), words.get("inst")
        generation = int(words.get("gen", "1"))
        match verb:
            case "join":
                return self.join(number, plain[0], member, instance, words)
            case "sync":
                pairs = [pair.split(":") for pair in words.get("give", "").split(",") if pair]
                given = tuple((who, what.encode()) for who, what in pairs)
                kind, protocol = words.get("type"), words.get("p")
                return e.SyncGroup(number, member, instance, generation, kind, protocol, given)
            case "beat":
                return e.Heartbeat(number, member, instance, generation)
            case "leave":
                leavers = [name.partition("@") for name in plain[0].split(",")]
                return e.LeaveGroup(number, tuple(e.Leaver(m, i or None) for m, _, i in leavers))
        raise ValueError(f"no event {verb!r}")

    def join(
        self, number: int, client: str, member: str, instance: str | None, words: Words
    ) -> e.JoinGroup:
        version = int(words.get("v", "9"))
        names = [name for name in words.get("p", "range").split(",") if name]
        metadata = words.get("meta", "").encode()
        return e.JoinGroup(
            number, member, instance, client, "/h",
            int(words.get("session", "10000")), int(words.get("rebalance", "20000")),
            words.get("type", "consumer"), tuple(e.Protocol(name, metadata) for name in names),
            str(number), needs_member_id=version >= 4, can_skip_assignment=version >= 9,
        )  # fmt: skip

    def show(self, effect: e.Effect) -> str:
        match effect:
            case e.Append(_, write_id, (GroupRecord(_, value),)):
                self.writes.append(write_id)
                assert value is not None
                members = " ".join(f"{m.member_id}:{m.assignment.decode()}" for m in value.members)
                return f"write gen={value.generation} [{members}]"
            case e.Append():
                raise AssertionError("a group writes one record at a time")
            case e.Respond(request_id, result):
                return f"{self.labels[request_id]}: {self.show_result(result)}"

    def show_result(self, result: e.Result) -> str:
        match result:
            case e.JoinResult(error=ErrorCode.NONE):
                listed = ",".join(f"{m.member_id}={m.metadata.decode()}" for m in result.members)
                skip = " skip" if result.skip_assignment else ""
                who = f"{result.member_id} gen={result.generation} {result.protocol}"
                return f"{who} leader={result.leader} [{listed}]{skip}"
            case e.JoinResult():
                return f"{result.error.name} {result.member_id}".strip()
            case e.SyncResult(error=ErrorCode.NONE):
                return f"assigned {result.assignment.decode() or 'nothing'}"
            case e.LeaveResult():
                each = (f"{m.member_id or m.instance_id}={m.error.name}" for m in result.members)
                return " ".join((result.error.name, *each))
            case _:
                return result.error.name

    def status(self) -> str:
        group = self.groups.get(self.group)
        if group is None:
            return "= no group"
        view = group.describe()
        members = ",".join(m.member_id for m in view.members)
        pending = f" pending={group.pending_count}" if group.pending_count else ""
        deadline = self.groups.next_deadline_ms()
        due = "" if deadline is None else f" next={deadline}"
        return f"= {view.state.value} gen={view.generation} [{members}]{pending}{due}"


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
    assert len(SCRIPTS) >= 8
