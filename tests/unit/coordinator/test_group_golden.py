"""Kafka's answers to good and bad group requests, given by our machine.

The scenarios of golden/errors are replayed in order. Times are made up (the recordings have none):
after each call the clock moves to the next deadline if the call still waits for its answer.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tidelog.coordinator.classic import events as e
from tidelog.coordinator.classic_group import GroupSettings, GroupState
from tidelog.coordinator.classic_groups import ClassicGroups
from tidelog.coordinator.commit_checks import Committer, check_commit
from tidelog.coordinator.offsets import CommittedOffsets, OffsetSettings, OffsetToCommit
from tidelog.coordinator.subscriptions import subscribed_topics
from tidelog.kernel.errors import ErrorCode

CASES = Path(__file__).parents[2] / "data/golden/errors/cases.jsonl"
COUNTS = {"t1": 3, "t3": 3}
Fields = dict[str, Any]


def scenario(name: str) -> list[Fields]:
    lines = (json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines())
    return [case for case in lines if case["scenario"] == name]


def exists(topic: str, partition: int) -> bool:
    return 0 <= partition < COUNTS.get(topic, 0)


class Replay:
    """A coordinator without a network: writes succeed at once."""

    def __init__(self) -> None:
        self.groups = ClassicGroups(GroupSettings(initial_rebalance_delay_ms=500))
        self.offsets = CommittedOffsets(OffsetSettings())
        self.now_ms = 0
        self.position = 0

    def call(self, case: Fields) -> object:
        request, version = case["request"], case["version"]
        match case["api"]:
            case "JoinGroup":
                return self.join(request, version, case["response"])
            case "SyncGroup":
                return self.sync(request, version)
            case "Heartbeat":
                event = e.Heartbeat(1, *sender(request))
                return self.answer(request["groupId"], event)
            case "LeaveGroup":
                return self.leave(request)
            case "OffsetCommit" if version < 10:
                return self.commit(request, version)
            case "OffsetDelete":
                return self.delete_offsets(request)
            case "OffsetFetch" if 8 <= version < 10:
                return self.fetch(request)
            case "DeleteGroups":
                return self.delete_groups(request)
        return None

    def answer(self, group: str, event: e.JoinGroup | e.SyncGroup | e.Heartbeat | e.LeaveGroup
    ) -> Any:  # fmt: skip
        effects = self.groups.handle(self.now_ms, group, event)
        while True:
            more: list[e.Effect] = []
            for effect in effects:
                if isinstance(effect, e.Respond):
                    return effect.result
                write = (self.now_ms, effect.group_id, effect.write_id, ErrorCode.NONE)
                more += self.groups.append_finished(*write)
            if not more:
                deadline_ms = self.groups.next_deadline_ms()
                assert deadline_ms is not None, "nobody will ever answer"
                self.now_ms = deadline_ms
                more = self.groups.expire(self.now_ms)
            effects = more

    def join(self, request: Fields, version: int, response: Fields) -> object:
        given = response["memberId"].partition("-")[2]
        protocols = tuple(
            e.Protocol(each["name"], base64.b64decode(each["metadata"]))
            for each in request["protocols"]
        )
        event = e.JoinGroup(
            1, request["memberId"], request["groupInstanceId"], "golden", "/127.0.0.1",
            request["sessionTimeoutMs"], request["rebalanceTimeoutMs"], request["protocolType"],
            protocols, given, needs_member_id=version >= 4, can_skip_assignment=version >= 9,
        )  # fmt: skip
        result = self.answer(request["groupId"], event)
        members = [member.member_id for member in result.members]
        return (
            result.error, result.generation, result.protocol or "", result.leader,
            result.member_id, members,
        )  # fmt: skip

    def sync(self, request: Fields, version: int) -> object:
        given = tuple(
            (each["memberId"], base64.b64decode(each["assignment"]))
            for each in request["assignments"]
        )
        kind = request["protocolType"] if version >= 5 else None
        protocol = request["protocolName"] if version >= 5 else None
        member, instance, generation = sender(request)
        event = e.SyncGroup(1, member, instance, generation, kind, protocol, given)
        result = self.answer(request["groupId"], event)
        return result.error, base64.b64encode(result.assignment).decode()

    def leave(self, request: Fields) -> object:
        asked = request.get("members", [{"memberId": request.get("memberId")}])
        leavers = tuple(e.Leaver(each["memberId"], each.get("groupInstanceId")) for each in asked)
        result = self.answer(request["groupId"], e.LeaveGroup(1, leavers))
        return result.error, [member.error for member in result.members]

    def commit(self, request: Fields, version: int) -> object:
        name = request["groupId"]
        member, instance, generation = sender(request, "generationIdOrMemberEpoch")
        who = Committer(member, instance, generation)
        error = check_commit(self.groups.get(name), who, version)
        asked = [
            OffsetToCommit(
                topic["name"], each["partitionIndex"], each["committedOffset"],
                metadata=each.get("committedMetadata"),
            )
            for topic in request["topics"]
            for each in topic["partitions"]
        ]  # fmt: skip
        if error is not ErrorCode.NONE:
            return [error] * len(asked)
        self.groups.ensure(name).keep_alive(self.now_ms, member)
        plan = self.offsets.plan_commit(self.now_ms, name, asked, exists)
        for record in plan.records:
            self.position += 1
            self.offsets.replay(record, self.position)
        return list(plan.errors)

    def fetch(self, request: Fields) -> object:
        found = []
        for group in request["groups"]:
            topics = group["topics"]
            places = None if topics is None else [
                (topic["name"], index) for topic in topics for index in topic["partitionIndexes"]
            ]  # fmt: skip
            stable = request.get("requireStable", False)
            answers = self.offsets.fetch(group["groupId"], places, require_stable=stable)
            found.append([(each.partition, each.offset, each.error) for each in answers])
        return found

    def delete_offsets(self, request: Fields) -> object:
        name = request["groupId"]
        group = self.groups.get(name)
        if not name or group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND if name else ErrorCode.INVALID_GROUP_ID, []
        places = [
            (t["name"], p["partitionIndex"]) for t in request["topics"] for p in t["partitions"]
        ]
        topics = subscribed_topics(group.subscriptions()) or ()
        errors, records = self.offsets.plan_delete(name, places, exists, topics.__contains__)
        for record in records:
            self.offsets.replay(record, self.position)
        return ErrorCode.NONE, sorted(errors)

    def delete_groups(self, request: Fields) -> object:
        found = {name: self.groups.check_deletable(name) for name in request["groupsNames"]}
        for name in [name for name, error in found.items() if error is ErrorCode.NONE]:
            self.groups.delete(self.now_ms, name)
            for record in self.offsets.tombstones(name):
                self.offsets.replay(record, self.position)
        return {name: int(error) for name, error in found.items()}


def sender(request: Fields, generation: str = "generationId") -> tuple[str, str | None, int]:
    return request["memberId"], request.get("groupInstanceId"), request[generation]


def expected(case: Fields) -> object:
    answer = case["response"]
    match case["api"]:
        case "JoinGroup":
            members = [member["memberId"] for member in answer["members"]]
            return (
                answer["errorCode"], answer["generationId"], answer["protocolName"] or "",
                answer["leader"], answer["memberId"], members,
            )  # fmt: skip
        case "SyncGroup":
            return answer["errorCode"], answer["assignment"]
        case "LeaveGroup" if "members" not in answer:
            return ErrorCode.NONE, [answer["errorCode"]]
        case "LeaveGroup":
            return answer["errorCode"], [each["errorCode"] for each in answer["members"]]
        case "Heartbeat":
            return e.HeartbeatResult(ErrorCode(answer["errorCode"]))
        case "OffsetCommit":
            return [p["errorCode"] for t in answer["topics"] for p in t["partitions"]]
        case "OffsetFetch":
            return [
                [
                    (p["partitionIndex"], p["committedOffset"], p["errorCode"])
                    for t in group["topics"]
                    for p in t["partitions"]
                ]
                for group in answer["groups"]
            ]
        case "OffsetDelete":
            codes = sorted(p["errorCode"] for t in answer["topics"] for p in t["partitions"])
            return answer["errorCode"], codes
        case "DeleteGroups":
            return {each["groupId"]: each["errorCode"] for each in answer["results"]}
    raise AssertionError(case["api"])


@pytest.mark.parametrize(("name", "fewest"), [("join-group", 70), ("join-v0", 1)])
def test_kafkas_answers(name: str, fewest: int) -> None:
    replay = Replay()
    compared = 0
    for case in scenario(name):
        if case["outcome"] != "response" or case["request"] is None:
            continue
        ours = replay.call(case)
        if ours is not None:
            assert ours == expected(case), f"step {case['step']}: {case['api']} {case['request']}"
            compared += 1
    assert compared >= fewest


def test_a_group_between_generations_is_described_without_metadata() -> None:
    replay = Replay()
    for case in scenario("join-group"):
        if case["step"] == 32:
            break
        if case["outcome"] == "response" and case["request"] is not None:
            replay.call(case)
    group = replay.groups.get("jg")
    assert group is not None
    view = group.describe()
    assert (view.state, view.protocol) == (GroupState.COMPLETING_REBALANCE, None)
    assert [(m.subscription, m.assignment) for m in view.members] == [(b"", b"assignment")]
