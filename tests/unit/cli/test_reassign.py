"""``tidelog reassign``: plans, throttles, and what has become of a plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from scripted_brokers import ScriptedBrokers

from tidelog.cli.brokers import BrokerNode
from tidelog.cli.failures import CommandFailed
from tidelog.cli.reassignment import Status, propose, statuses, throttles
from tidelog.cli.topics import Partition, Topic
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey

Run = Callable[..., Any]
BROKERS = {
    node: BrokerNode(node, "h", 1, rack) for node, rack in ((1, "a"), (2, "a"), (3, "b"), (4, "b"))
}


def topic(*partitions: Partition) -> Topic:
    return Topic("t", "id", False, partitions)


def test_a_proposal_is_even_and_uses_all_racks() -> None:
    one = topic(*(Partition(index, 1, 0, (1, 2), (1, 2)) for index in range(8)))
    proposed = propose([one], BROKERS, [1, 2, 3, 4], uses_racks=True)
    assert proposed == propose([one], BROKERS, [4, 3, 2, 1], uses_racks=True)
    leaders = [nodes[0] for nodes in proposed.values()]
    assert [leaders.count(node) for node in BROKERS] == [2, 2, 2, 2]
    for nodes in proposed.values():
        assert {BROKERS[node].rack for node in nodes} == {"a", "b"}
    wider = propose([one], BROKERS, [1, 2, 3, 4], uses_racks=False, factor=3)
    assert {len(set(nodes)) for nodes in wider.values()} == {3}


def test_proposals_that_cannot_be() -> None:
    one = topic(Partition(0, 1, 0, (1, 2), (1, 2)))
    with pytest.raises(CommandFailed, match="no broker 9"):
        propose([one], BROKERS, [1, 9], uses_racks=True)
    with pytest.raises(CommandFailed, match="only 1 broker"):
        propose([one], BROKERS, [1], uses_racks=True)


def test_throttles_are_for_replicas_that_move() -> None:
    current = {("t", 0): (1, 2), ("t", 1): (1, 2)}
    found = throttles(current, {("t", 0): (2, 3), ("t", 1): (2, 1)})
    assert found.leaders == {"t": "0:1,0:2"}
    assert found.followers == {"t": "0:3"}
    assert found.brokers == (1, 2, 3)


@pytest.mark.parametrize(
    ("partition", "status"),
    [
        (Partition(0, 1, 0, (1, 2), (1, 2)), Status.COMPLETED),
        (Partition(0, 1, 0, (2, 1), (1, 2)), Status.DIFFERENT),
        (Partition(0, 1, 0, (1, 2, 3), (1, 2), adding=(2,), removing=(3,)), Status.IN_PROGRESS),
        (Partition(1, 1, 0, (1, 2), (1, 2)), Status.MISSING),
    ],
)
def test_statuses(partition: Partition, status: Status) -> None:
    assert statuses({("t", 0): (1, 2)}, [topic(partition)]) == {("t", 0): status}


class Cluster(ScriptedBrokers):
    """One topic with one partition on 1 and 2."""

    def __init__(self) -> None:
        super().__init__(
            {
                ApiKey.METADATA: lambda request: {"topics": [{"name": "t"}]},
                ApiKey.DESCRIBE_TOPIC_PARTITIONS: self.partitions,
                ApiKey.DESCRIBE_CONFIGS: self.configs,
                ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda request: {"responses": [{}]},
                ApiKey.LIST_PARTITION_REASSIGNMENTS: self.ongoing,
                ApiKey.ALTER_PARTITION_REASSIGNMENTS: self.alter,
            },
            nodes=(1, 2, 3),
        )
        self.moving = False
        self.error = ErrorCode.NONE
        self.is_throttled = False

    def partitions(self, request: Any) -> Mapping[str, Any]:
        partition = {"leader_id": 1, "replica_nodes": (1, 2), "isr_nodes": (1, 2)}
        return {"topics": [{"name": "t", "partitions": [partition]}]}

    def configs(self, request: Any) -> Mapping[str, Any]:
        (resource,) = request.resources
        if not self.is_throttled or resource.configuration_keys is None:
            return {"results": [{"resource_name": resource.resource_name}]}
        source = 1 if resource.resource_type == 2 else 2
        configs = [
            {"name": name, "value": "5", "config_source": source}
            for name in resource.configuration_keys
        ]
        return {"results": [{"configs": configs, "resource_name": resource.resource_name}]}

    def ongoing(self, request: Any) -> Mapping[str, Any]:
        if not self.moving:
            return {}
        one = {"replicas": (1, 2), "adding_replicas": (2,), "removing_replicas": ()}
        return {"topics": [{"name": "t", "partitions": [one]}]}

    def alter(self, request: Any) -> Mapping[str, Any]:
        return {"responses": [{"name": "t", "partitions": [{"error_code": self.error}]}]}

    def settings_changed(self) -> list[tuple[str, dict[str, str | None]]]:
        return [
            (one.resources[0].resource_name, {c.name: c.value for c in one.resources[0].configs})
            for one in self.questions(ApiKey.INCREMENTAL_ALTER_CONFIGS)
        ]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    made.install(monkeypatch)
    return made


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., Path]:
    def write(*replicas: int, topic: str = "t", partition: int = 0) -> Path:
        entry = {"topic": topic, "partition": partition, "replicas": list(replicas)}
        file = tmp_path / "plan.json"
        file.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        return file

    return write


def test_generate(tidelog: Run, cluster: Cluster) -> None:
    lines = tidelog("reassign", "generate", "t", "--broker-list", "3").err
    assert "only 1 broker(s) are registered" in lines
    lines = tidelog("reassign", "generate", "t", "--broker-list", "2,3").out.splitlines()
    assert lines[0] == "Current partition replica assignment"
    assert json.loads(lines[1])["partitions"][0]["replicas"] == [1, 2]
    assert lines[3] == "Proposed partition reassignment configuration"
    assert sorted(json.loads(lines[4])["partitions"][0]["replicas"]) == [2, 3]
    both = json.loads(tidelog("reassign", "generate", "t", "--json").out)
    assert sorted(both) == ["current", "proposed"]
    ran = tidelog("reassign", "generate", "nope")
    assert (ran.code, "topic 'nope' does not exist" in ran.err) == (1, True)


def test_execute(tidelog: Run, cluster: Cluster, plan: Callable[..., Path]) -> None:
    ran = tidelog("reassign", "execute", plan(2, 3))
    assert ran.code == 0
    assert "Successfully started partition reassignments for t-0" in ran.out
    assert '"replicas": [1, 2]' in ran.out
    (asked,) = cluster.questions(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    assert asked.topics[0].partitions[0].replicas == (2, 3)
    assert cluster.settings_changed() == []


def test_a_throttle_is_set_before_anything_moves(
    tidelog: Run, cluster: Cluster, plan: Callable[..., Path]
) -> None:
    ran = tidelog("reassign", "execute", plan(2, 3), "--throttle", "1000", "--json")
    assert json.loads(ran.out)["started"] == ["t-0"]
    rates = {
        "leader.replication.throttled.rate": "1000",
        "follower.replication.throttled.rate": "1000",
    }
    replicas = {
        "leader.replication.throttled.replicas": "0:1,0:2",
        "follower.replication.throttled.replicas": "0:3",
    }
    assert cluster.settings_changed() == [*((str(n), rates) for n in (1, 2, 3)), ("t", replicas)]
    order = [one.__api_key__ for _, one in cluster.asked]
    assert order.index(ApiKey.INCREMENTAL_ALTER_CONFIGS) < order.index(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS
    )


def test_what_is_not_executed(tidelog: Run, cluster: Cluster, plan: Callable[..., Path]) -> None:
    for replicas, place, said in (
        ((1, 9), {}, "no broker 9"),
        ((1, 2), {"topic": "x"}, "topic 'x' does not exist"),
        ((1, 2), {"partition": 4}, "partition t-4 does not exist"),
    ):
        ran = tidelog("reassign", "execute", plan(*replicas, **place))
        assert (ran.code, said in ran.err) == (1, True)
    assert cluster.questions(ApiKey.ALTER_PARTITION_REASSIGNMENTS) == []
    cluster.moving = True
    ran = tidelog("reassign", "execute", plan(2, 3))
    assert (ran.code, "on the move already (t-0)" in ran.err) == (1, True)
    assert tidelog("reassign", "execute", plan(2, 3), "--additional").code == 0
    cluster.error = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    ran = tidelog("reassign", "execute", plan(2, 3), "--additional")
    assert (ran.code, ran.err.startswith("Error reassigning partition(s):\nt-0: ")) == (1, True)


def test_verify(tidelog: Run, cluster: Cluster, plan: Callable[..., Path]) -> None:
    ran = tidelog("reassign", "verify", plan(1, 2))
    assert (ran.code, ran.out) == (
        0,
        "Status of partition reassignment:\nReassignment of partition t-0 is completed.\n",
    )
    ran = tidelog("reassign", "verify", plan(2, 3))
    assert (ran.code, "replica set is 1,2 rather than 2,3" in ran.out) == (1, True)
    cluster.is_throttled = True
    cluster.moving = True
    ran = tidelog("reassign", "verify", plan(1, 2))
    assert (ran.code, "is still in progress" in ran.out) == (1, True)
    assert cluster.settings_changed() == []
    cluster.moving = False
    kept = tidelog("reassign", "verify", plan(1, 2), "--preserve-throttles", "--json")
    assert json.loads(kept.out)["throttles_cleared"] is False
    assert cluster.settings_changed() == []
    done = tidelog("reassign", "verify", plan(1, 2), "--json")
    assert json.loads(done.out)["throttles_cleared"] is True
    assert [name for name, _ in cluster.settings_changed()] == ["1", "2", "3", "t"]
    assert {value for _, values in cluster.settings_changed() for value in values.values()} == {
        None
    }


def test_cancel_and_list(tidelog: Run, cluster: Cluster, plan: Callable[..., Path]) -> None:
    assert "None of the specified" in tidelog("reassign", "cancel", plan(2, 3)).out
    assert tidelog("reassign", "list").out == "No partition reassignments found.\n"
    cluster.moving = True
    assert (
        "cancelled partition reassignments for: t-0"
        in tidelog("reassign", "cancel", plan(2, 3)).out
    )
    (asked,) = cluster.questions(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    assert asked.topics[0].partitions[0].replicas is None
    assert "t-0: replicas: 1,2. adding: 2. removing: -." in tidelog("reassign", "list").out
    assert json.loads(tidelog("reassign", "list", "--json").out)[0]["adding"] == [2]


@pytest.mark.parametrize(
    "document",
    [
        "[]",
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/d"]}]}',
        '{"partitions": [{"topic": "t", "partition": "0", "replicas": [1]}]}',
    ],
)
def test_plans_that_are_none(tidelog: Run, tmp_path: Path, document: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(document)
    ran = tidelog("reassign", "execute", file)
    assert (ran.code, "must look like" in ran.err) == (2, True)
    assert tidelog("reassign", "execute", file, "--throttle", "0").code == 2
    assert tidelog("reassign", "generate").code == 2
