"""``tidelog cluster``: who is there, what is wrong, and letting go of a broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from scripted_brokers import ScriptedBrokers

from tidelog.cli.cluster import few, partition_findings, quorum_findings
from tidelog.cli.quorum import Quorum, Replica
from tidelog.cli.topics import NO_LEADER, Partition, Topic
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey

Run = Callable[..., Any]


def topic(*partitions: Partition, min_isr: int = 2) -> Topic:
    return Topic("t", "id", False, partitions, {}, min_isr)


@pytest.mark.parametrize(
    ("partition", "found"),
    [
        (Partition(0, 1, 0, (1, 2, 3), (3, 2, 1)), []),
        (Partition(0, 1, 0, (1, 2, 3), (1, 2)), ["under_replicated_partitions"]),
        (
            Partition(0, 1, 0, (1, 2, 3), (1,)),
            ["under_min_isr_partitions", "under_replicated_partitions"],
        ),
        (
            Partition(0, NO_LEADER, 0, (1, 2, 3), ()),
            ["offline_partitions", "under_replicated_partitions"],
        ),
        (Partition(0, 1, 0, (1,), (1,)), []),  # a single replica cannot have two in sync
        (Partition(0, 1, 0, (1, 2, 3), (1, 2), adding=(3,)), []),
    ],
)
def test_findings_of_partitions(partition: Partition, found: list[str]) -> None:
    assert [one.name for one in partition_findings([topic(partition)])] == found


def test_a_controller_that_does_not_follow() -> None:
    def quorum(*caught_up_ms: int) -> Quorum:
        voters = tuple(
            Replica(node, "d", 9, at, at, "Follower") for node, at in enumerate(caught_up_ms, 1)
        )
        return Quorum("c", 1, 5, 9, voters, ())

    assert quorum_findings(quorum(20_000, 19_000, 10_001)) == []
    (found,) = quorum_findings(quorum(20_000, 9_000, -1))
    assert (found.count, "2, 3 of 3 voters" in found.text) == (2, True)
    new = Replica(3, "other", 9, 20_000, 20_000, "Observer")
    (found,) = quorum_findings(replace(quorum(20_000, 19_000, 1), observers=(new,)))
    assert "tidelog quorum remove 3, then add" in found.text


def test_long_lists_are_cut() -> None:
    assert few(["a", "b"]) == "a, b"
    assert few(list("abcdefg")) == "a, b, c, d, e and 2 more"


class Cluster(ScriptedBrokers):
    def __init__(self) -> None:
        super().__init__(
            {
                ApiKey.METADATA: lambda request: {"topics": [{"name": "t"}]},
                ApiKey.DESCRIBE_TOPIC_PARTITIONS: self.partitions,
                ApiKey.DESCRIBE_CONFIGS: lambda request: {},
                ApiKey.DESCRIBE_QUORUM: self.quorum,
                ApiKey.UNREGISTER_BROKER: lambda request: {"error_code": self.error},
            }
        )
        self.isr: tuple[int, ...] = (1, 2)
        self.fenced: set[int] = set()
        self.error = ErrorCode.NONE
        known = self.answers[ApiKey.DESCRIBE_CLUSTER]

        def describe(request: Any) -> Mapping[str, Any]:
            answer = dict(known(request))
            brokers = answer["brokers"]
            answer["brokers"] = [
                one | {"is_fenced": one["broker_id"] in self.fenced} for one in brokers
            ]
            return answer

        self.answers[ApiKey.DESCRIBE_CLUSTER] = describe

    def partitions(self, request: Any) -> Mapping[str, Any]:
        partition = {"leader_id": 1, "replica_nodes": (1, 2), "isr_nodes": self.isr}
        return {"topics": [{"name": "t", "partitions": [partition]}]}

    def quorum(self, request: Any) -> Mapping[str, Any]:
        partition = {"leader_id": 2, "current_voters": [{"replica_id": 2}]}
        return {"topics": [{"topic_name": "m", "partitions": [partition]}]}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    made.install(monkeypatch)
    return made


def test_info(tidelog: Run, cluster: Cluster) -> None:
    cluster.fenced = {2}
    lines = tidelog("cluster", "info").out.splitlines()
    assert lines[:3] == ["Cluster: tide", "Controller: 2", "Topics: 1, with 1 partitions"]
    assert [line.split() for line in lines[4:]] == [
        ["1", "node-1:9092", "-", "live", "1", "1"],
        ["2", "node-2:9092", "-", "fenced", "1", "0"],
    ]
    shown = json.loads(tidelog("cluster", "info", "--json").out)
    assert (shown["cluster_id"], shown["brokers"][1]["is_fenced"]) == ("tide", True)


def test_health(tidelog: Run, cluster: Cluster) -> None:
    ran = tidelog("cluster", "health")
    assert (ran.code, ran.out) == (0, "Healthy: 2 brokers, 1 partitions, all in sync.\n")
    cluster.isr, cluster.fenced = (1,), {2}
    ran = tidelog("cluster", "health")
    assert ran.code == 1
    assert "not serving: 2" in ran.out and "lag or are down: t-0" in ran.out
    shown = json.loads(tidelog("cluster", "health", "--json").out)
    assert shown["healthy"] is False
    assert [one["name"] for one in shown["problems"]] == [
        "fenced_brokers",
        "under_replicated_partitions",
    ]


def test_unregister(tidelog: Run, cluster: Cluster) -> None:
    alive = tidelog("cluster", "unregister", "2")
    assert (alive.code, "stop it first" in alive.err) == (1, True)
    assert cluster.questions(ApiKey.UNREGISTER_BROKER) == []
    cluster.fenced = {2}
    assert tidelog("cluster", "unregister", "2").out == "Broker 2 is no longer registered.\n"
    assert json.loads(tidelog("cluster", "unregister", "2", "--json").out) == {"unregistered": 2}
    cluster.error = ErrorCode.BROKER_ID_NOT_REGISTERED
    ran = tidelog("cluster", "unregister", "9")
    assert (ran.code, "broker 9 was not unregistered" in ran.err) == (1, True)
    assert tidelog("cluster", "unregister", "two").code == 2
