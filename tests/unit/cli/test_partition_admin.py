"""``tidelog offsets``, ``delete-records``, ``leader-election`` and ``log-dirs``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from scripted_brokers import ScriptedBrokers, topics_metadata

from tidelog.cli.failures import WrongUse
from tidelog.cli.offsets import parse_time
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [
        ("latest", -1),
        ("earliest", -2),
        ("max-timestamp", -3),
        ("-1", -1),
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
    ],
)
def test_times(text: str, timestamp: int) -> None:
    assert parse_time(text) == timestamp


@pytest.mark.parametrize("text", ["-4", "now", "", "9" * 20])
def test_no_times(text: str) -> None:
    with pytest.raises(WrongUse, match="--time"):
        parse_time(text)


class Partitions(ScriptedBrokers):
    def __init__(self) -> None:
        super().__init__(
            {
                ApiKey.METADATA: topics_metadata({"orders": {0: 1, 1: 2}, "dark": {0: -1}}),
                ApiKey.LIST_OFFSETS: self.per_partition("offset", 42),
                ApiKey.DELETE_RECORDS: self.per_partition("low_watermark", 7),
                ApiKey.ELECT_LEADERS: self.elect,
                ApiKey.DESCRIBE_LOG_DIRS: self.directories,
            }
        )
        self.errors: dict[int, ErrorCode] = {}
        self.top_error = ErrorCode.NONE

    def per_partition(self, field: str, value: int) -> Callable[[Any], Mapping[str, Any]]:
        def answer(request: Any) -> Mapping[str, Any]:
            return {
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {
                                "partition_index": one.partition_index,
                                field: value,
                                "timestamp": -1,
                                "error_code": self.errors.get(one.partition_index, 0),
                            }
                            for one in topic.partitions
                        ],
                    }
                    for topic in request.topics
                ]
            }

        return answer

    def elect(self, request: Any) -> Mapping[str, Any]:
        results = [
            {"partition_id": index, "error_code": self.errors.get(index, 0)} for index in (0, 1)
        ]
        topics = [{"topic": "orders", "partition_result": results}]
        return {"error_code": self.top_error, "replica_election_results": topics}

    def directories(self, request: Any) -> Mapping[str, Any]:
        address, _ = self.asked[-1]
        broken = address == "node-2:9092"
        part = {"partition_index": 1, "partition_size": 10, "offset_lag": 2}
        result = {
            "log_dir": "/d",
            "error_code": ErrorCode.KAFKA_STORAGE_ERROR if broken else ErrorCode.NONE,
            "total_bytes": -1 if broken else 1000,
            "usable_bytes": -1 if broken else 400,
            "topics": [] if broken else [{"name": "orders", "partitions": [part]}],
        }
        return {"results": [result]}


@pytest.fixture
def partitions(monkeypatch: pytest.MonkeyPatch) -> Partitions:
    made = Partitions()
    made.install(monkeypatch)
    return made


def test_offsets(tidelog: Run, partitions: Partitions) -> None:
    assert tidelog("offsets", "orders").out == "orders:0:42\norders:1:42\n"
    assert tidelog("offsets", "orders", "--partitions", "1").out == "orders:1:42\n"
    asked = [(a, q.topics[0].partitions[0]) for a, q in partitions.asked if q.__api_key__ == 2]
    assert [address for address, _ in asked] == ["node-1:9092", "node-2:9092", "node-2:9092"]
    assert {one.timestamp for _, one in asked} == {-1}
    (first, _) = json.loads(tidelog("offsets", "--topic", "ord.*", "--json").out)
    assert first == {
        "topic": "orders", "partition": 0, "offset": 42, "timestamp": None, "error": None,
    }  # fmt: skip


def test_offsets_that_are_not_to_be_had(tidelog: Run, partitions: Partitions) -> None:
    ran = tidelog("offsets")
    assert (ran.code, ran.out.count("42")) == (1, 2)
    assert ran.err == "dark-0: has no leader\n"
    ran = tidelog("offsets", "nope")
    assert (ran.code, "no topic matches nope" in ran.err) == (1, True)
    assert tidelog("offsets", "orders", "--time", "soon").code == 2
    assert tidelog("offsets", "orders", "--partitions", "x").code == 2


def test_delete_records(tidelog: Run, partitions: Partitions, tmp_path: Path) -> None:
    ran = tidelog("delete-records", "--topic", "orders:0", "--before", "7")
    assert ran.out == (
        "Executing records delete operation\nRecords delete operation completed:\n"
        "partition: orders-0\tlow_watermark: 7\n"
    )
    partitions.errors = {1: ErrorCode.OFFSET_OUT_OF_RANGE}
    file = tmp_path / "offsets.json"
    rows = [{"topic": "orders", "partition": index, "offset": -1} for index in (0, 1)]
    file.write_text(json.dumps({"partitions": rows, "version": 1}))
    ran = tidelog("delete-records", "--offset-json-file", file, "--json")
    assert ran.code == 1
    shown = json.loads(ran.out)
    assert [one["error"] is None for one in shown] == [True, False]
    asked = partitions.questions(ApiKey.DELETE_RECORDS)[-1]
    assert asked.topics[0].partitions[0].offset == -1
    dark = tidelog("delete-records", "--topic", "dark", "--before", "latest")
    assert (dark.code, "error: has no leader" in dark.out) == (1, True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "Expecting"),
        ("{}", "'partitions' is missing"),
        ('{"partitions": []}', "names no partition"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "'offset' is missing"),
        ('{"partitions": [{"topic": "t", "partition": -1, "offset": 0}]}', "must look like"),
    ],
)
def test_files_that_name_no_partitions(
    tidelog: Run, partitions: Partitions, tmp_path: Path, content: str, said: str
) -> None:
    file = tmp_path / "f.json"
    file.write_text(content)
    ran = tidelog("delete-records", "--offset-json-file", file)
    assert (ran.code, said in ran.err) == (2, True)


def test_leader_election(tidelog: Run, partitions: Partitions, tmp_path: Path) -> None:
    partitions.errors = {1: ErrorCode.ELECTION_NOT_NEEDED}
    ran = tidelog("leader-election", "--topic", "orders")
    assert ran.out == (
        "Successfully completed leader election (PREFERRED) for partitions orders-0\n"
        "Valid replica already elected for partitions orders-1\n"
    )
    file = tmp_path / "f.json"
    file.write_text('{"partitions": [{"topic": "orders", "partition": 1}]}')
    tidelog("leader-election", "--election-type", "unclean", "--path-to-json-file", file)
    asked = partitions.questions(ApiKey.ELECT_LEADERS)
    assert asked[0].topic_partitions[0].partitions == (0, 1)
    assert (asked[1].election_type, asked[1].topic_partitions[0].partitions) == (1, (1,))
    partitions.errors = {1: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    ran = tidelog("leader-election", "--all-topic-partitions", "--json")
    assert ran.code == 1
    assert list(json.loads(ran.out)["failed"]) == ["orders-1"]
    assert "Error completing leader election for orders-1" in ran.err
    assert partitions.questions(ApiKey.ELECT_LEADERS)[-1].topic_partitions is None


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--topic", "orders", "--all-topic-partitions"),
        ("--election-type", "rigged", "--all-topic-partitions"),
        ("--topic", "a", "--topic", "b", "--partition", "1"),
        ("--path-to-json-file", "/nowhere"),
    ],
)
def test_no_elections(tidelog: Run, partitions: Partitions, arguments: tuple[str, ...]) -> None:
    assert tidelog("leader-election", *arguments).code == 2


def test_log_dirs(tidelog: Run, partitions: Partitions) -> None:
    lines = tidelog("log-dirs").out.splitlines()
    assert lines[1].split() == ["1", "/d", "1", "10", "400", "1000", "-"]
    assert lines[2].split()[:6] == ["2", "/d", "0", "0", "-", "-"]
    shown = json.loads(tidelog("log-dirs", "--broker-list", "1", "--json").out)
    assert shown["brokers"][0]["logDirs"][0]["partitions"] == [
        {"partition": "orders-1", "size": 10, "offsetLag": 2, "isFuture": False}
    ]
    rows = tidelog("log-dirs", "--partitions", "--topic-list", "orders").out.splitlines()
    assert rows[1].split() == ["1", "/d", "orders-1", "10", "2"]
    asked = partitions.questions(ApiKey.DESCRIBE_LOG_DIRS)[-1].topics
    assert (asked[0].topic, asked[0].partitions) == ("orders", (0, 1))
    assert tidelog("log-dirs", "--broker-list", "9").code == 1
    assert tidelog("log-dirs", "--broker-list", "one").code == 2
