"""Random lives of a group, with what must be true after every step.

- Every request is answered exactly once, at the latest when the group is unloaded.
- The generation never goes back; a change of state is in the table (the machine checks that).
- In one generation a member is told one assignment, and only after the write was confirmed.
- Nothing waits for ever: once nothing but time happens, the group comes to rest.
- A member that joins and vanishes again and again costs a bounded amount of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.coordinator.classic import events as e
from tidelog.coordinator.classic.history import MOST_CAUSES, MOST_REBALANCES
from tidelog.coordinator.classic.states import (
    TRANSITIONS,
    GroupState,
    IllegalTransition,
    check_transition,
)
from tidelog.coordinator.classic_group import ClassicGroup, GroupSettings
from tidelog.coordinator.classic_groups import ClassicGroups
from tidelog.coordinator.records import GroupRecord
from tidelog.kernel.errors import ErrorCode

Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "rejoin", "sync", "beat", "leave", "write", "fail", "time"]),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    min_size=10,
    max_size=60,
)


class World:
    def __init__(self) -> None:
        self.groups = ClassicGroups(GroupSettings(initial_rebalance_delay_ms=100, max_size=3))
        self.now_ms = 0
        self.requests = 0
        self.open: dict[int, str] = {}
        self.writes: list[int] = []
        self.ids = [""] * 4
        self.owner: dict[int, int] = {}
        self.confirmed: set[int] = set()
        self.told: dict[tuple[int, str], bytes] = {}
        self.highest = 0

    def run(self, step: Step) -> None:
        kind, who, extra = step
        match kind:
            case "time":
                self.now_ms += (50, 3000, 7000, 25_000)[extra]
                self.absorb(self.groups.expire(self.now_ms))
            case "write" | "fail":
                if self.writes:
                    error = ErrorCode.NONE if kind == "write" else ErrorCode.NOT_ENOUGH_REPLICAS
                    self.finish_write(error)
            case _:
                self.send(kind, who, extra)

    def send(self, kind: str, who: int, extra: int) -> None:
        self.requests += 1
        number, member = self.requests, self.ids[who]
        self.open[number], self.owner[number] = kind, who
        instance = f"i{who}" if who >= 2 else None
        request: e.JoinGroup | e.SyncGroup | e.Heartbeat | e.LeaveGroup
        match kind:
            case "join" | "rejoin":
                known = member if kind == "rejoin" else ""
                protocols = (e.Protocol("range", bytes([extra])), e.Protocol("rr", b""))
                request = e.JoinGroup(
                    number, known, instance, f"c{who}", "/h", 6000, 20_000, "consumer",
                    protocols if extra < 3 else protocols[::-1], str(number),
                    needs_member_id=extra != 0, can_skip_assignment=extra != 1,
                )  # fmt: skip
            case "sync":
                given_out = tuple((each, f"{number}".encode()) for each in self.ids)
                request = e.SyncGroup(
                    number, member, instance, self.generation(), None, None, given_out
                )
            case "beat":
                request = e.Heartbeat(number, member, instance, self.generation())
            case _:
                request = e.LeaveGroup(number, (e.Leaver(member, instance),))
        self.absorb(self.groups.handle(self.now_ms, "g", request))

    def finish_write(self, error: ErrorCode) -> None:
        write = self.writes.pop(0)
        if error is ErrorCode.NONE:
            self.confirmed.add(write)
        self.absorb(self.groups.append_finished(self.now_ms, "g", write, error))

    def generation(self) -> int:
        group = self.groups.get("g")
        return 0 if group is None else group.generation

    def absorb(self, effects: list[e.Effect]) -> None:
        for effect in effects:
            match effect:
                case e.Append(_, write_id, (GroupRecord(),)):
                    self.writes.append(write_id)
                case e.Append():
                    raise AssertionError("one record at a time")
                case e.Respond(request_id, result):
                    del self.open[request_id]  # KeyError: answered twice
                    self.see(request_id, result)
        self.check()

    def see(self, request_id: int, result: e.Result) -> None:
        match result:
            case e.JoinResult(error=ErrorCode.NONE | ErrorCode.MEMBER_ID_REQUIRED):
                self.ids[self.owner[request_id]] = result.member_id
            case e.SyncResult(error=ErrorCode.NONE):
                assert self.confirmed, "told before any write was confirmed"
                key = (self.generation(), self.ids[self.owner[request_id]])
                assert self.told.setdefault(key, result.assignment) == result.assignment
            case _:
                pass

    def check(self) -> None:
        group = self.groups.get("g")
        if group is None:
            return
        view = group.describe()
        assert view.generation >= self.highest
        self.highest = view.generation
        assert len(view.members) <= 6
        assert (view.leader is None) == (not view.members)
        if view.leader is not None:
            assert view.leader in {member.member_id for member in view.members}
        instances = [m.instance_id for m in view.members if m.instance_id is not None]
        assert len(instances) == len(set(instances))
        if view.state is GroupState.EMPTY:
            assert not view.members
        elif view.state is GroupState.PREPARING_REBALANCE or view.members:
            waits_for = group.next_deadline_ms is not None or self.writes
            assert waits_for, "nothing would ever happen again"


@given(STEPS)
@settings(derandomize=True, max_examples=150, deadline=None)
def test_a_group_keeps_its_promises(steps: list[Step]) -> None:
    world = World()
    for step in steps:
        world.run(step)
    come_to_rest(world)
    world.absorb(world.groups.unload(world.now_ms))
    assert world.open == {}


def come_to_rest(world: World) -> None:
    """All members are silent from now on, all writes succeed."""
    for _ in range(100):
        while world.writes:
            world.finish_write(ErrorCode.NONE)
        deadline_ms = world.groups.next_deadline_ms()
        if deadline_ms is None:
            break
        world.now_ms = max(world.now_ms, deadline_ms)
        world.absorb(world.groups.expire(world.now_ms))
    group = world.groups.get("g")
    assert group is None or group.state is GroupState.EMPTY
    assert world.open == {}


def joining(number: int, member: str = "") -> e.JoinGroup:
    protocols = (e.Protocol("range", b""),)
    return e.JoinGroup(
        number, member, None, "c", "/h", 6000, 20_000, "consumer", protocols, str(number)
    )


def test_a_member_that_joins_and_vanishes_costs_a_bounded_amount() -> None:
    groups = ClassicGroups(GroupSettings(max_pending_members=50))
    for number in range(5_000):
        groups.handle(0, "g", joining(number))
    group = groups.get("g")
    assert group is not None
    assert group.pending_count == 50
    assert len(group._core.timers) == 50
    groups.expire(6_000)
    assert group.pending_count == 0
    assert groups.next_deadline_ms() is None


def test_the_history_is_bounded_and_says_who_and_why() -> None:
    group = ClassicGroup("g", GroupSettings(initial_rebalance_delay_ms=10, max_size=10**6))
    for number in range(1, MOST_CAUSES + 5):
        group.step(0, joining(number))
        group.step(number, joining(1000 + number, f"c-{number}"))
    (first,) = group.rebalances
    assert [str(cause) for cause in first.causes[:2]] == ["c-1 joined", "c-2 joined"]
    assert (len(first.causes), first.causes_left_out) == (MOST_CAUSES, 4)
    assert first.last_to_join == f"c-{MOST_CAUSES + 4}"


def test_only_the_last_rebalances_are_remembered() -> None:
    group = ClassicGroup("g", GroupSettings(initial_rebalance_delay_ms=0))
    group.step(0, joining(1))
    group.step(0, joining(2, "c-1"))
    group.step(0, e.TimePassed())
    for number in range(MOST_REBALANCES + 5):
        changed = (e.Protocol("range", bytes([number + 1])),)
        group.step(number, replace(joining(3, "c-1"), protocols=changed))
    assert len(group.rebalances) == MOST_REBALANCES
    last = group.rebalances[-1]
    assert (str(last.causes[0]), last.generation) == ("c-1 changed its subscription", 16)


def test_a_rebalance_names_whom_it_waited_for_in_vain() -> None:
    group = ClassicGroup("g", GroupSettings(initial_rebalance_delay_ms=0))
    for number in (1, 2):
        group.step(0, joining(number))
    for number in (1, 2):
        group.step(0, joining(10 + number, f"c-{number}"))
    group.step(0, e.TimePassed())
    group.step(1, joining(21, "c-1"))
    group.step(1, e.SyncGroup(31, "c-1", None, 1, None, None))
    group.step(1, e.SyncGroup(32, "c-2", None, 1, None, None))
    group.step(2, e.AppendFinished(0))
    group.step(5, joining(41, "c-1"))
    for now_ms in (5000, 10_000, 15_000, 20_000):
        group.step(now_ms, e.Heartbeat(50, "c-2", None, 1))
    group.step(20_005, e.TimePassed())
    last = group.rebalances[-1]
    assert (last.started_ms, last.joined_ms, last.generation) == (5, 20_005, 2)
    assert (last.dropped, last.last_to_join) == (("c-2",), "c-1")
    assert last.ended_ms is None


ALLOWED = {(old, new) for old, targets in TRANSITIONS.items() for new in targets}


@pytest.mark.parametrize("old", GroupState)
@pytest.mark.parametrize("new", GroupState)
def test_the_table_is_the_law(old: GroupState, new: GroupState) -> None:
    if (old, new) in ALLOWED:
        check_transition("g", old, new)
    else:
        with pytest.raises(IllegalTransition, match=f"from {old.value} to {new.value}"):
            check_transition("g", old, new)


@pytest.mark.parametrize(
    ("request_of", "error"),
    [
        (lambda: joining(1), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (lambda: joining(1, "x"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (
            lambda: e.SyncGroup(1, "x", None, 0, None, None),
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ),
        (lambda: e.Heartbeat(1, "x", None, 0), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (lambda: e.LeaveGroup(1, ()), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_dead_group_answers_that_it_is_not_there(
    request_of: Callable[[], e.Event], error: ErrorCode
) -> None:
    group = ClassicGroup("g", GroupSettings())
    group.step(0, e.Closed(ErrorCode.NOT_COORDINATOR))
    (effect,) = group.step(0, request_of())
    assert isinstance(effect, e.Respond)
    assert effect.result.error is error
