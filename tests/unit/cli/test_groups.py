"""``tidelog group``: who is asked, what is sent, and Kafka's columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from scripted_brokers import ScriptedBrokers, topics_metadata

from tidelog.coordinator.subscriptions import Assignment, encode_assignment
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import PartitionIndex, TopicPartition
from tidelog.wire.protocol.apis import ApiKey

Run = Callable[..., Any]
EARLIEST, END = {0: 2, 1: 0}, {0: 20, 1: 30}
GROUPS_OF_NODE = {"node-1:9092": ["b"], "node-2:9092": ["a", "c"]}


class Groups(ScriptedBrokers):
    """Group ``a`` has a member with orders-0, and has committed orders-0 and orders-1."""

    def __init__(self) -> None:
        super().__init__(
            {
                ApiKey.METADATA: topics_metadata({"orders": {0: 1, 1: 2}, "empty": {0: -1}}),
                ApiKey.LIST_GROUPS: self.list_groups,
                ApiKey.DESCRIBE_GROUPS: self.describe,
                ApiKey.OFFSET_FETCH: self.fetch,
                ApiKey.LIST_OFFSETS: self.list_offsets,
                ApiKey.OFFSET_COMMIT: self.commit,
                ApiKey.DELETE_GROUPS: self.delete,
                ApiKey.OFFSET_DELETE: self.delete_offsets,
            }
        )
        self.committed: dict[int, int] = {0: 15, 1: 30}
        self.state = "Stable"
        self.error = ErrorCode.NONE
        self.coordinator_errors: list[ErrorCode] = []

    def list_groups(self, request: Any) -> Mapping[str, Any]:
        address, _ = self.asked[-1]
        if self.coordinator_errors:
            return {"error_code": self.coordinator_errors.pop(0)}
        listed = [
            {"group_id": name, "group_state": "Empty", "group_type": "classic"}
            for name in GROUPS_OF_NODE[address]
        ]
        return {"groups": listed}

    def describe(self, request: Any) -> Mapping[str, Any]:
        (name,) = request.groups
        if name == "missing":
            return {"groups": [{"group_id": name, "group_state": "Dead"}]}
        partitions = (TopicPartition("orders", PartitionIndex(0)),)
        member = {
            "member_id": "m-1", "client_id": "c", "client_host": "/10.0.0.1",
            "member_assignment": encode_assignment(Assignment(partitions)),
        }  # fmt: skip
        group = {
            "group_id": name,
            "group_state": self.state,
            "protocol_type": "consumer",
            "protocol_data": "range",
            "members": [member] if self.state == "Stable" else [],
        }
        return {"groups": [group]}

    def fetch(self, request: Any) -> Mapping[str, Any]:
        partitions = [
            {"partition_index": index, "committed_offset": offset}
            for index, offset in self.committed.items()
        ]
        topics = [{"name": "orders", "partitions": partitions}] if partitions else []
        return {"groups": [{"group_id": "a", "topics": topics}]}

    def list_offsets(self, request: Any) -> Mapping[str, Any]:
        def found(one: Any) -> dict[str, Any]:
            index = int(one.partition_index)
            by_time = {-2: EARLIEST[index], -1: END[index]}
            return {"partition_index": index, "offset": by_time.get(one.timestamp, -1)}

        return {
            "topics": [
                {"name": topic.name, "partitions": [found(one) for one in topic.partitions]}
                for topic in request.topics
            ]
        }

    def commit(self, request: Any) -> Mapping[str, Any]:
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": one.partition_index, "error_code": self.error}
                        for one in topic.partitions
                    ],
                }
                for topic in request.topics
            ]
        }

    def delete(self, request: Any) -> Mapping[str, Any]:
        (name,) = request.groups_names
        return {"results": [{"group_id": name, "error_code": self.error}]}

    def delete_offsets(self, request: Any) -> Mapping[str, Any]:
        return self.commit(request)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    made = Groups()
    made.install(monkeypatch)
    return made


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_list_asks_every_broker(tidelog: Run, groups: Groups) -> None:
    groups.coordinator_errors = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
    assert tidelog("group", "list").out.split() == ["a", "b", "c"]
    long = tidelog("group", "list", "--long")
    assert rows(long.out)[:2] == [["GROUP", "TYPE", "STATE"], ["a", "classic", "Empty"]]
    shown = json.loads(tidelog("group", "list", "--json").out)
    assert shown[1] == {"group": "b", "type": "classic", "state": "Empty", "protocol_type": ""}
    tidelog("group", "list", "--state", "Stable,Empty", "--type", "classic")
    asked = groups.questions(ApiKey.LIST_GROUPS)[-1]
    assert (asked.states_filter, asked.types_filter) == (("Stable", "Empty"), ("classic",))


def test_list_says_which_broker_does_not(tidelog: Run, groups: Groups) -> None:
    groups.coordinator_errors = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    ran = tidelog("group", "list")
    assert (ran.code, ran.out) == (1, "")
    assert "broker 1 does not list its groups" in ran.err


def test_describe_offsets(tidelog: Run, groups: Groups) -> None:
    ran = tidelog("group", "describe", "a")
    assert rows(ran.out) == [
        [
            "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG",
            "CONSUMER-ID", "HOST", "CLIENT-ID",
        ],
        ["a", "orders", "0", "15", "20", "5", "m-1", "/10.0.0.1", "c"],
        ["a", "orders", "1", "30", "30", "0", "-", "-", "-"],
    ]  # fmt: skip
    assert (ran.code, ran.err) == (0, "")
    asked = [address for address, one in groups.asked if one.__api_key__ == ApiKey.LIST_OFFSETS]
    assert asked == ["node-1:9092", "node-2:9092"]


def test_describe_without_members_and_commits(tidelog: Run, groups: Groups) -> None:
    groups.committed.pop(0)
    row = rows(tidelog("group", "describe", "a").out)[1]
    assert row[3:6] == ["-", "20", "-"]
    groups.state = "Empty"
    assert "Consumer group 'a' has no active members." in tidelog("group", "describe", "a").err
    groups.state = "PreparingRebalance"
    assert "Warning: Consumer group 'a' is rebalancing." in tidelog("group", "describe", "a").err


def test_describe_members_and_state(tidelog: Run, groups: Groups) -> None:
    members = tidelog("group", "describe", "a", "--members", "--verbose")
    assert rows(members.out)[1] == ["a", "m-1", "-", "/10.0.0.1", "c", "1", "orders(0)"]
    state = tidelog("group", "describe", "--all-groups", "--state")
    assert rows(state.out)[1] == ["a", "node-2:9092", "(2)", "range", "Stable", "1"]
    assert len(rows(state.out)) == 4
    (shown,) = json.loads(tidelog("group", "describe", "a", "--json").out)
    assert shown["offsets"][0]["lag"] == 5
    assert shown["members"][0]["assignment"] == [{"topic": "orders", "partition": 0}]


def test_a_group_of_the_consumer_protocol(tidelog: Run, groups: Groups) -> None:
    def describe(request: Any) -> Mapping[str, Any]:
        member = {
            "member_id": "m-9",
            "client_id": "k",
            "client_host": "/10.0.0.9",
            "assignment": {"topic_partitions": [{"topic_name": "orders", "partitions": [1]}]},
        }
        known = {"group_state": "Stable", "assignor_name": "uniform", "members": [member]}
        unknown = {"error_code": ErrorCode.GROUP_ID_NOT_FOUND}
        (name,) = request.group_ids
        return {"groups": [{"group_id": name} | (known if name == "new" else unknown)]}

    groups.answers[ApiKey.CONSUMER_GROUP_DESCRIBE] = describe
    (shown,) = json.loads(tidelog("group", "describe", "new", "--json").out)
    assert (shown["type"], shown["assignment_strategy"]) == ("Consumer", "uniform")
    assert shown["members"][0]["assignment"] == [{"topic": "orders", "partition": 1}]
    (classic,) = json.loads(tidelog("group", "describe", "a", "--json").out)
    assert classic["type"] == "Classic"


def test_reset_shows_and_changes_nothing(tidelog: Run, groups: Groups) -> None:
    groups.state = "Empty"
    ran = tidelog("group", "reset-offsets", "a", "--all-topics", "--to-earliest")
    assert rows(ran.out) == [
        ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"],
        ["a", "orders", "0", "2"],
        ["a", "orders", "1", "0"],
    ]
    assert "add --execute" in ran.err
    assert groups.questions(ApiKey.OFFSET_COMMIT) == []


def test_reset_commits_when_told(tidelog: Run, groups: Groups, tmp_path: Path) -> None:
    groups.state = "Empty"
    ran = tidelog("group", "reset-offsets", "a", "--topic", "orders:1", "--shift-by", "-4",
                  "--execute", "--json")  # fmt: skip
    assert json.loads(ran.out) == {
        "executed": True,
        "offsets": [{"group": "a", "topic": "orders", "partition": 1, "new_offset": 26}],
    }
    (asked,) = groups.questions(ApiKey.OFFSET_COMMIT)
    assert (asked.group_id, asked.generation_id_or_member_epoch) == ("a", -1)
    assert asked.topics[0].partitions[0].committed_offset == 26
    file = tmp_path / "offsets.csv"
    export = ("group", "reset-offsets", "a", "--all-topics", "--to-current", "--export")
    file.write_text(tidelog(*export).out)
    again = tidelog("group", "reset-offsets", "a", "--from-file", file, "--export")
    assert again.out == "orders,0,15\norders,1,30\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--topic", "nope", "--to-latest"), "topic 'nope' does not exist"),
        (("--topic", "orders:9", "--to-latest"), "no partition 9; it has 2"),
        (("--topic", "empty", "--to-latest"), "empty-0: has no leader"),
    ],
)
def test_what_cannot_be_reset(
    tidelog: Run, groups: Groups, arguments: tuple[str, ...], said: str
) -> None:
    groups.state = "Empty"
    ran = tidelog("group", "reset-offsets", "a", *arguments)
    assert (ran.code, ran.out) == (1, "")
    assert said in ran.err


def test_reset_needs_an_inactive_group(tidelog: Run, groups: Groups) -> None:
    ran = tidelog("group", "reset-offsets", "a", "--all-topics", "--to-earliest", "--execute")
    assert ran.code == 1
    assert "can only be reset if the group 'a' is inactive, but the current state is Stable" in (
        ran.err
    )
    groups.state, groups.error = "Empty", ErrorCode.UNKNOWN_MEMBER_ID
    raced = tidelog("group", "reset-offsets", "a", "--all-topics", "--to-earliest", "--execute")
    assert (raced.code, "has members again" in raced.err) == (1, True)
    groups.committed = {}
    nothing = tidelog("group", "reset-offsets", "missing", "--all-topics", "--to-earliest")
    assert (nothing.code, "name topics with --topic" in nothing.err) == (1, True)


def test_delete(tidelog: Run, groups: Groups) -> None:
    ran = tidelog("group", "delete", "a", "b")
    assert ran.out == "Deletion of requested consumer groups ('a', 'b') was successful.\n"
    groups.error = ErrorCode.NON_EMPTY_GROUP
    ran = tidelog("group", "delete", "a", "--json")
    assert (ran.code, json.loads(ran.out)) == (1, {"deleted": []})
    assert "Group 'a' could not be deleted" in ran.err


def test_delete_offsets(tidelog: Run, groups: Groups) -> None:
    ran = tidelog("group", "delete-offsets", "a", "--topic", "orders")
    assert rows(ran.out)[1:] == [["orders", "0", "Successful"], ["orders", "1", "Successful"]]
    groups.error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    ran = tidelog("group", "delete-offsets", "a", "--topic", "orders:1", "--json")
    assert ran.code == 1
    (shown,) = json.loads(ran.out)
    assert shown["partition"] == 1 and "subscribe" in shown["error"]
    ran = tidelog("group", "delete-offsets", "a", "--topic", "nope")
    assert (ran.code, "has no committed offsets for nope" in ran.err) == (1, True)


def test_a_group_that_is_not_there(tidelog: Run, groups: Groups) -> None:
    ran = tidelog("group", "describe", "missing")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "Error: Consumer group 'missing' does not exist; tidelog group list\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), ""),
        (("describe",), "name groups"),
        (("describe", "a", "--all-groups"), "name groups"),
        (("describe", "a", "--members", "--state"), "one of"),
        (("describe", "a", "--verbose"), "goes with --members"),
        (("reset-offsets",), ""),
        (("reset-offsets", "a", "--to-latest"), "--all-topics"),
        (("reset-offsets", "a", "--all-topics"), "exactly one of"),
        (("reset-offsets", "a", "--all-topics", "--to-latest", "--to-offset", "1"), "exactly"),
        (("reset-offsets", "a", "--all-topics", "--by-duration", "1h"), "--by-duration 1h"),
        (("reset-offsets", "a", "--all-topics", "--to-datetime", "now"), "--to-datetime now"),
        (("reset-offsets", "a", "--all-topics", "--to-offset", "-1"), "--to-offset"),
        (("reset-offsets", "a", "--topic", ":1", "--to-latest"), "orders:0,1"),
        (("reset-offsets", "a", "--topic", "t", "--to-latest", "--execute", "--dry-run"), "one of"),
        (("delete",), "name a group"),
        (("delete-offsets", "a"), "name a topic"),
        (("list", "-b", "nowhere"), "--bootstrap-server"),
    ],
)
def test_wrong_uses(
    tidelog: Run, groups: Groups, arguments: tuple[str, ...], said: str, monkeypatch: Any
) -> None:
    groups.state = "Empty"
    if "-b" in arguments:
        monkeypatch.undo()
    ran = tidelog("group", *arguments)
    assert ran.code == 2
    assert said in " ".join(ran.err.replace("│", " ").split())
