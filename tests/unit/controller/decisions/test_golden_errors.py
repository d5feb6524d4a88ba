"""Wrong and right administrative requests, as Apache Kafka 4.3.1 answered them.

Code and words must be Kafka's, because tools and people match on both, except where the tables
below give a reason. Requests are put in the order in which Kafka got them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.controller.decisions.add_partitions import MorePartitions, decide_add_partitions
from tidelog.controller.decisions.configs import (
    ConfigOperation,
    ResourceChange,
    ResourceReplacement,
    decide_incremental_configs,
    decide_whole_configs,
)
from tidelog.controller.decisions.create_topics import NewTopic, decide_create_topics
from tidelog.controller.decisions.delete_topics import NO_TOPIC, Deletion, decide_delete_topics
from tidelog.controller.decisions.features import FeatureUpdate, decide_feature_updates
from tidelog.controller.decisions.leaders import decide_elections
from tidelog.controller.decisions.outcome import ApiError, Decision
from tidelog.controller.decisions.reassignment import ReassignmentRequest, decide_reassignments
from tidelog.controller.decisions.registration import decide_unregistration
from tidelog.kernel.ids import NodeId, PartitionIndex, TopicId, TopicPartition, Uuid

if TYPE_CHECKING:
    from tests.unit.controller.decisions.conftest import Scene

GOLDEN = Path(__file__).parents[3] / "data" / "golden" / "errors"
Request = dict[str, Any]
Answers = list[tuple[int, str | None]]


def answers(*errors: ApiError) -> Answers:
    return [(int(error.code), error.message) for error in errors]


def nodes(ids: list[int]) -> tuple[NodeId, ...]:
    return tuple(map(NodeId, ids))


def create_topics(scene: Scene, request: Request) -> Answers:
    topics = [
        NewTopic(
            name=topic["name"],
            partitions=topic["numPartitions"],
            replication_factor=topic["replicationFactor"],
            assignments=tuple(
                (one["partitionIndex"], nodes(one["brokerIds"]))
                for one in topic.get("assignments", [])
            ),
            configs=tuple((c["name"], c["value"]) for c in topic.get("configs", [])),
        )
        for topic in request["topics"]
    ]
    decision = decide_create_topics(
        scene.image,
        scene.policy,
        topics,
        scene.random,
        validate_only=request.get("validateOnly", False),
    )
    assert not (decision.records and request.get("validateOnly"))
    return answers(*(created.error for created in scene.take(decision)))


def delete_topics(scene: Scene, request: Request) -> Answers:
    deletions = [
        Deletion(one["name"], TopicId(Uuid.parse(one["topicId"])) if "topicId" in one else NO_TOPIC)
        for one in request.get("topics", [])
    ]
    deletions += [Deletion(name) for name in request.get("topicNames", [])]
    decision = decide_delete_topics(scene.image, scene.policy, deletions)
    return answers(*(deleted.error for deleted in scene.take(decision)))


def create_partitions(scene: Scene, request: Request) -> Answers:
    wanted = [
        MorePartitions(
            topic["name"],
            topic["count"],
            None
            if topic["assignments"] is None
            else tuple(nodes(one["brokerIds"]) for one in topic["assignments"]),
        )
        for topic in request["topics"]
    ]
    decision = decide_add_partitions(scene.image, wanted, scene.random, validate_only=True)
    return answers(*(grown.error for grown in scene.take(decision)))


def incremental_configs(scene: Scene, request: Request) -> Answers:
    changes = [
        ResourceChange(
            one["resourceType"],
            one["resourceName"],
            tuple(
                ConfigOperation(c["name"], c["configOperation"], c["value"]) for c in one["configs"]
            ),
        )
        for one in request["resources"]
    ]
    decision = decide_incremental_configs(
        scene.image, scene.policy, changes, validate_only=request["validateOnly"]
    )
    return answers(*(result.error for result in scene.take(decision)))


def whole_configs(scene: Scene, request: Request) -> Answers:
    replacements = [
        ResourceReplacement(
            one["resourceType"],
            one["resourceName"],
            tuple((c["name"], c["value"]) for c in one["configs"]),
        )
        for one in request["resources"]
    ]
    decision = decide_whole_configs(
        scene.image, scene.policy, replacements, validate_only=request["validateOnly"]
    )
    return answers(*(result.error for result in scene.take(decision)))


def elect_leaders(scene: Scene, request: Request) -> Answers:
    wanted = request["topicPartitions"]
    partitions = (
        None
        if wanted is None
        else [
            TopicPartition(topic["topic"], PartitionIndex(index))
            for topic in wanted
            for index in topic["partitions"]
        ]
    )
    decision = decide_elections(scene.image, scene.policy, request["electionType"], partitions)
    return answers(
        *(one.error for topic in scene.take(decision).topics for one in topic.partitions)
    )


def reassign(scene: Scene, request: Request) -> Answers:
    wanted = [
        ReassignmentRequest(
            TopicPartition(topic["name"], PartitionIndex(one["partitionIndex"])),
            None if one["replicas"] is None else nodes(one["replicas"]),
        )
        for topic in request["topics"]
        for one in topic["partitions"]
    ]
    decision = decide_reassignments(
        scene.image,
        scene.policy,
        wanted,
        may_change_factor=request.get("allowReplicationFactorChange", True),
    )
    return answers(*(result.error for result in scene.take(decision)))


def update_features(scene: Scene, request: Request) -> Answers:
    updates = [
        FeatureUpdate(one["feature"], one["maxVersionLevel"], one.get("upgradeType", 1))
        for one in request["featureUpdates"]
    ]
    decision: Decision[ApiError] = decide_feature_updates(
        scene.image, scene.policy, updates, validate_only=True
    )
    return answers(scene.take(decision))


def unregister(scene: Scene, request: Request) -> Answers:
    decision = decide_unregistration(scene.image, scene.policy, NodeId(request["brokerId"]))
    return answers(scene.take(decision))


APIS: dict[str, Callable[[Scene, Request], Answers]] = {
    "CreateTopics": create_topics,
    "DeleteTopics": delete_topics,
    "CreatePartitions": create_partitions,
    "IncrementalAlterConfigs": incremental_configs,
    "AlterConfigs": whole_configs,
    "ElectLeaders": elect_leaders,
    "AlterPartitionReassignments": reassign,
    "UpdateFeatures": update_features,
    "UnregisterBroker": unregister,
}

# The broker that gets the request judges these; the controller never sees them.
JUDGED_ELSEWHERE = {
    ("CreateTopics", "timeout 0"): "time-outs are the listener's",
    ("CreateTopics", "timeout -1"): "time-outs are the listener's",
    ("UpdateFeatures", "v1"): "old versions repeat the answer for every feature",
    ("IncrementalAlterConfigs", "log level"): "log levels belong to a broker",
    ("IncrementalAlterConfigs", "bad log level"): "log levels belong to a broker",
    ("IncrementalAlterConfigs", "unknown logger"): "log levels belong to a broker",
    ("IncrementalAlterConfigs", "append to a logger"): "log levels belong to a broker",
    ("IncrementalAlterConfigs", "cleaner threads doubled plus one"): "a broker's running value",
}
# Another code than Kafka's, with the reason.
OTHER_CODE = {
    ("IncrementalAlterConfigs", "operation 4"): (42, "Kafka fails without foreseeing it (-1)"),
    ("IncrementalAlterConfigs", "operation -1"): (42, "Kafka fails without foreseeing it (-1)"),
    ("IncrementalAlterConfigs", "broker 9"): (102, "any broker may be asked for any broker"),
    ("CreatePartitions", "20000"): (44, "Kafka fails without foreseeing it (-1)"),
}
# The same code in other words, with the reason.
OTHER_WORDS = {
    "replication factor": "there are no cordoned directories here",
    "config leader.replication.throttled.replicas=bad": "written here",
    "config remote.storage.enable=true": "there is no tiered storage to be enabled",
    "min.compaction.lag": "written here",
    "client metrics": "there are no client metrics subscriptions",
    "per-broker config on the cluster default": "listeners need a restart here",
    "broker 9": "any broker may be asked for any broker",
    "operation": "Kafka says nothing",
    "20000": "Kafka says nothing",
}


def cases() -> list[dict[str, Any]]:
    lines = (GOLDEN / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return [case for case in found if case["api"] in APIS]


def expected_answers(case: dict[str, Any]) -> Answers:
    def walk(node: Any) -> Answers:
        if isinstance(node, list):
            return [answer for one in node for answer in walk(one)]
        if not isinstance(node, dict):
            return []
        below = [answer for name, one in node.items() if name != "configs" for answer in walk(one)]
        if below or "errorCode" not in node or "replicaElectionResults" in node:
            return below
        if "responses" in node or "results" in node:
            return below
        return [(node["errorCode"], node.get("errorMessage"))]

    return walk(case["response"])


CASES = [case for case in cases() if (case["api"], case["note"]) not in JUDGED_ELSEWHERE]


@pytest.fixture(scope="module")
def given_answers(lone_broker: Scene) -> dict[int, Answers]:
    """All cases, asked in Kafka's order, because one deletes what another creates."""
    setup = json.loads((GOLDEN / "setup.json").read_text(encoding="utf-8"))
    for name in [*setup["topicIds"], "__consumer_offsets"]:
        lone_broker.create(name, *[(1,)] * (3 if name == "t3" else 1))
    return {case["id"]: APIS[case["api"]](lone_broker, case["request"]) for case in CASES}


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{case['id']} {case['api']}: {case['note']}"[:80] for case in CASES]
)
def test_answers_are_kafkas(given_answers: dict[int, Answers], case: dict[str, Any]) -> None:
    ours = given_answers[case["id"]]
    theirs = expected_answers(case)
    key = (case["api"], case["note"])
    code = OTHER_CODE.get(key, (None, ""))[0]
    assert [c for c, _ in ours] == [c if code is None else code for c, _ in theirs]
    if any(words in case["note"] for words in OTHER_WORDS):
        return
    if case["version"] < 5 and case["api"] == "DeleteTopics":
        return  # these versions have no message
    assert [m for c, m in ours if c] == [m for c, m in theirs if c]


def test_the_cases_are_all_there() -> None:
    assert len(CASES) > 190
