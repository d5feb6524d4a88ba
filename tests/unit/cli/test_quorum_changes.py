"""``tidelog quorum add | remove``: which directory is meant, and what is sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from scripted_brokers import ScriptedBrokers

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Uuid
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.kio_values import from_kio_uuid, to_kio_uuid

Run = Callable[..., Any]
OLD, NEW = Uuid.parse("s8epkSQYRDS5Pb-ILwidmg"), Uuid.parse("vq3vBNGbQYeDwvSlcxtvcg")


class Quorum(ScriptedBrokers):
    """Node 1 votes; node 2 follows."""

    def __init__(self) -> None:
        super().__init__(
            {
                ApiKey.DESCRIBE_QUORUM: self.describe,
                ApiKey.ADD_RAFT_VOTER: lambda request: {"error_code": self.error()},
                ApiKey.REMOVE_RAFT_VOTER: lambda request: {"error_code": self.error()},
            }
        )
        self.errors: list[ErrorCode] = []

    def error(self) -> ErrorCode:
        return self.errors.pop(0) if self.errors else ErrorCode.NONE

    def describe(self, request: Any) -> Mapping[str, Any]:
        partition = {
            "leader_id": 1,
            "current_voters": [{"replica_id": 1, "replica_directory_id": to_kio_uuid(OLD)}],
            "observers": [{"replica_id": 2, "replica_directory_id": to_kio_uuid(NEW)}],
        }
        return {"topics": [{"topic_name": "m", "partitions": [partition]}]}


@pytest.fixture
def quorum(monkeypatch: pytest.MonkeyPatch) -> Quorum:
    made = Quorum()
    made.install(monkeypatch)
    return made


def test_the_directory_is_found_out(tidelog: Run, quorum: Quorum) -> None:
    quorum.errors = [ErrorCode.NOT_CONTROLLER]
    assert tidelog("quorum", "add", "2").out == f"Controller 2 with directory {NEW} was added.\n"
    asked = quorum.questions(ApiKey.ADD_RAFT_VOTER)[-1]
    assert (asked.cluster_id, asked.voter_id) == ("tide", 2)
    assert from_kio_uuid(asked.voter_directory_id) == NEW
    shown = json.loads(tidelog("quorum", "remove", "1", "--json").out)
    assert shown == {"removed": {"node_id": 1, "directory_id": str(OLD)}}
    asked = quorum.questions(ApiKey.REMOVE_RAFT_VOTER)[-1]
    assert from_kio_uuid(asked.voter_directory_id) == OLD


def test_the_directory_may_be_given(tidelog: Run, quorum: Quorum) -> None:
    assert tidelog("quorum", "remove", "9", "--directory-id", str(NEW)).code == 0
    assert tidelog("quorum", "remove", "9", "--directory-id", "what").code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "1"), "has a vote already"),
        (("add", "9"), "start it as a controller"),
        (("remove", "2"), "controller 2 has no vote; those of 1 have"),
    ],
)
def test_what_is_not_asked(
    tidelog: Run, quorum: Quorum, arguments: tuple[str, ...], said: str
) -> None:
    ran = tidelog("quorum", *arguments)
    assert (ran.code, said in ran.err) == (1, True)
    assert quorum.questions(ApiKey.ADD_RAFT_VOTER) == []


def test_what_the_quorum_refuses(tidelog: Run, quorum: Quorum) -> None:
    quorum.errors = [ErrorCode.INVALID_REQUEST]
    ran = tidelog("quorum", "remove", "1")
    assert (ran.code, ran.err.startswith("controller 1 was not removed: ")) == (1, True)
