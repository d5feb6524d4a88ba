"""Kafka's answers to good and bad requests of the consumer protocol, given by our machine.

The scenarios of golden/errors and the runs of golden/wire are replayed in order; writes succeed at
once. Recorded times are used where there are any; in the scenarios a note tells of each pause.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidelog.coordinator.classic import events as e
from tidelog.coordinator.classic_group import GroupSettings
from tidelog.coordinator.commit_checks import Committer, check_commit
from tidelog.coordinator.consumer.context import ConsumerGroupSettings, GroupContext
from tidelog.coordinator.consumer.events import ConsumerHeartbeat, Effect
from tidelog.coordinator.consumer.topics import KnownTopics, TopicInfo
from tidelog.coordinator.consumer_commit_checks import check_consumer_commit, check_consumer_fetch
from tidelog.coordinator.consumer_group import ConsumerGroup, ConsumerGroupDescription, NamedShare
from tidelog.coordinator.groups import Groups, Request
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Uuid

GOLDEN = Path(__file__).parents[3] / "data/golden"
Fields = dict[str, Any]
T3 = Uuid.parse("2GdDMTART-qy3jjVU77rhg")
PAUSE_MS = 1_200


def lines(path: str) -> list[Fields]:
    text = (GOLDEN / path).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


class Replay:
    def __init__(self, topics: list[TopicInfo], max_size: int) -> None:
        context = GroupContext(ConsumerGroupSettings(max_size=max_size), KnownTopics(topics, 1))
        self.groups = Groups.empty(GroupSettings(initial_rebalance_delay_ms=500), context)
        self.now_ms = 1_000_000
        self.appended = 0

    def call(self, api: str, version: int, request: Fields, response: Fields) -> object:
        match api:
            case "ConsumerGroupHeartbeat":
                return self.heartbeat(request, version, response)
            case "ConsumerGroupDescribe":
                return [self.describe(each) for each in request["groupIds"] if each]
            case "OffsetCommit" if version < 10:
                return self.commit(request, version)
            case "OffsetFetch" if version == 9 and request["groups"][0].get("memberId"):
                return self.fetch(request["groups"][0])
            case "JoinGroup":
                return self.join(request, version, response)
            case "Heartbeat":
                sent = e.Heartbeat(1, request["memberId"], None, request["generationId"])
                return self.answer(request["groupId"], sent).error
            case "LeaveGroup":
                leavers = tuple(e.Leaver(each["memberId"]) for each in request["members"])
                left = self.answer(request["groupId"], e.LeaveGroup(1, leavers))
                return left.error, [each.error for each in left.members]
            case "DescribeGroups" if version == 6:
                found = self.groups.describe_classic(request["groups"][0])
                return found[0] if isinstance(found, tuple) else ErrorCode.NONE
            case "DeleteGroups":
                return [self.groups.check_deletable(each) for each in request["groupsNames"]]
            case "OffsetDelete":
                group = self.groups.get(request["groupId"])
                assert isinstance(group, ConsumerGroup)
                names = group.subscribed_topics()
                subscribed = (topic["name"] in names for topic in request["topics"])
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                return [code if each else ErrorCode.NONE for each in subscribed]
        return None

    def answer(self, group_id: str, request: Request) -> Any:
        effects = self.groups.handle(self.now_ms, group_id, request)
        while True:
            more: list[Effect] = []
            for effect in effects:
                if isinstance(effect, e.Append):
                    self.appended += len(effect.records)
                    written = (effect.group_id, effect.write_id, ErrorCode.NONE)
                    more += self.groups.append_finished(self.now_ms, *written)
                else:
                    return effect.result
            if not more:
                deadline_ms = self.groups.next_deadline_ms()
                assert deadline_ms is not None, "nobody will ever answer"
                self.now_ms = deadline_ms
                more = self.groups.expire(self.now_ms)
            effects = more

    def heartbeat(self, request: Fields, version: int, response: Fields) -> object:
        owned = request["topicPartitions"]
        names = request["subscribedTopicNames"]
        event = ConsumerHeartbeat(
            1, request["memberId"], request["memberEpoch"], request["instanceId"],
            request["rackId"], request["rebalanceTimeoutMs"],
            None if names is None else tuple(names), request["subscribedTopicRegex"],
            request["serverAssignor"],
            None if owned is None else tuple(
                (Uuid.parse(each["topicId"]), tuple(each["partitions"])) for each in owned
            ),
            "golden", "/127.0.0.1", response["memberId"] or "", has_own_id=version >= 1,
        )  # fmt: skip
        result = self.answer(request["groupId"], event)
        assert (result.error is ErrorCode.NONE) == (result.message is None)
        given = None if result.assignment is None else [
            {"topicId": str(each.topic_id), "partitions": list(each.partitions)}
            for each in result.assignment
        ]  # fmt: skip
        return (
            result.error, result.member_id, result.member_epoch, result.heartbeat_interval_ms,
            given,
        )  # fmt: skip

    def describe(self, group_id: str) -> object:
        found = self.groups.describe_consumer(group_id)
        if not isinstance(found, ConsumerGroupDescription):
            return group_id, found[0], "", 0, 0, "", []
        members = [
            (
                each.member_id, each.instance_id, each.epoch, each.client_id, each.client_host,
                list(each.topic_names), each.topic_regex, shown(each.assigned), shown(each.target),
            )
            for each in found.members
        ]  # fmt: skip
        return (
            group_id, ErrorCode.NONE, found.state.value, found.epoch, found.target_epoch,
            found.assignor, sorted(members),
        )  # fmt: skip

    def commit(self, request: Fields, version: int) -> object:
        who = Committer(
            request["memberId"], request.get("groupInstanceId"),
            request["generationIdOrMemberEpoch"],
        )  # fmt: skip
        places = [
            (topic["name"], each["partitionIndex"])
            for topic in request["topics"]
            for each in topic["partitions"]
        ]
        group = self.groups.get(request["groupId"])
        if isinstance(group, ConsumerGroup):
            error = check_consumer_commit(group, who, version, places)
        else:
            error = check_commit(group, who, version)
        return [error] * len(places)

    def fetch(self, request: Fields) -> object:
        group = self.groups.get(request["groupId"])
        assert isinstance(group, ConsumerGroup)
        return check_consumer_fetch(group, request["memberId"], request["memberEpoch"])

    def join(self, request: Fields, version: int, response: Fields) -> object:
        protocols = tuple(e.Protocol(each["name"], b"") for each in request["protocols"])
        event = e.JoinGroup(
            1, request["memberId"], request["groupInstanceId"], "golden", "/127.0.0.1",
            request["sessionTimeoutMs"], request["rebalanceTimeoutMs"], request["protocolType"],
            protocols, response["memberId"].partition("-")[2], needs_member_id=version >= 4,
        )  # fmt: skip
        result = self.answer(request["groupId"], event)
        return result.error, result.generation, result.member_id


def shown(shares: tuple[NamedShare, ...]) -> list[object]:
    return [(str(each.topic_id), each.topic, list(each.partitions)) for each in shares]


def expected(api: str, answer: Fields) -> object:
    match api:
        case "ConsumerGroupHeartbeat":
            given = answer["assignment"]
            return (
                answer["errorCode"], answer["memberId"], answer["memberEpoch"],
                answer["heartbeatIntervalMs"], None if given is None else given["topicPartitions"],
            )  # fmt: skip
        case "ConsumerGroupDescribe":
            found = {each["groupId"]: described(each) for each in answer["groups"]}
            return [found[name] for name in found if name]
        case "OffsetCommit":
            return [p["errorCode"] for t in answer["topics"] for p in t["partitions"]]
        case "OffsetFetch":
            return answer["groups"][0]["errorCode"]
        case "JoinGroup":
            return answer["errorCode"], answer["generationId"], answer["memberId"]
        case "Heartbeat":
            return answer["errorCode"]
        case "LeaveGroup":
            return answer["errorCode"], [each["errorCode"] for each in answer["members"]]
        case "DescribeGroups":
            return answer["groups"][0]["errorCode"]
        case "DeleteGroups":
            return [each["errorCode"] for each in answer["results"]]
        case "OffsetDelete":
            return [p["errorCode"] for t in answer["topics"] for p in t["partitions"]]
    raise AssertionError(api)


def described(group: Fields) -> object:
    members = [
        (
            each["memberId"], each["instanceId"], each["memberEpoch"], each["clientId"],
            each["clientHost"], each["subscribedTopicNames"], each["subscribedTopicRegex"],
            named(each["assignment"]), named(each["targetAssignment"]),
        )
        for each in group["members"]
    ]  # fmt: skip
    return (
        group["groupId"], group["errorCode"], group["groupState"], group["groupEpoch"],
        group["assignmentEpoch"], group["assignorName"], sorted(members),
    )  # fmt: skip


def named(assignment: Fields) -> list[object]:
    shares = assignment["topicPartitions"]
    return [(each["topicId"], each["topicName"], each["partitions"]) for each in shares]


@pytest.mark.parametrize(
    ("name", "fewest"),
    [("consumer-group-heartbeat", 57), ("consumer-group-reconcile", 25), ("mixed-groups", 4)],
)
def test_kafkas_answers(name: str, fewest: int) -> None:
    replay = Replay([TopicInfo(T3, "t3", 3)], max_size=3)
    compared = 0
    for case in lines("errors/cases.jsonl"):
        if case["scenario"] != name or case["outcome"] != "response":
            continue
        if "pause of 1.2 s" in case["note"]:
            replay.now_ms += PAUSE_MS
        ours = replay.call(case["api"], case["version"], case["request"], case["response"])
        if ours is not None:
            theirs = expected(case["api"], case["response"])
            assert ours == theirs, f"step {case['step']} ({case['note']})"
            compared += 1
    assert compared >= fewest


@pytest.mark.parametrize(("client", "fewest"), [("java", 13), ("confluent", 15)])
def test_the_runs_of_stock_clients(client: str, fewest: int) -> None:
    replay = Replay([TopicInfo(Uuid.parse("s-YSUeumSdq0yjPSLn64vg"), "w-t", 2)], max_size=100)
    answers = {}
    run = lines(f"wire/{client}-group-consumer.jsonl")
    for line in run:
        if line["dir"] == "response":
            answers[line["connection"], line["correlation_id"]] = line["body"]
    compared = 0
    for line in run:
        wanted = "Group" in line["api_name"] or line["api_name"] == "OffsetCommit"
        if line["dir"] != "request" or not wanted:
            continue
        replay.now_ms = 1_000_000 + line["t_ms"]
        assert replay.groups.expire(replay.now_ms) == []
        response = answers[line["connection"], line["correlation_id"]]
        ours = replay.call(line["api_name"], line["version"], line["body"], response)
        if ours is not None:
            assert ours == expected(line["api_name"], response), line
            compared += 1
    assert compared >= fewest
