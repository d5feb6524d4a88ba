"""``tidelog doctor`` and ``tidelog features``: what is made of what was seen."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from scripted_brokers import ScriptedBrokers

from tidelog.cli import doctor
from tidelog.cli.brokers import BrokerNode
from tidelog.cli.doctor_checks import (
    Level,
    Reached,
    Spoken,
    Verdict,
    judge_advertised,
    judge_clock,
    judge_disk,
    judge_identity,
    judge_internal,
    judge_versions,
    summary,
)
from tidelog.cli.log_dirs import Directory
from tidelog.cli.node_http import Answer, NoHttp
from tidelog.cli.topics import Partition, Topic
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey

Run = Callable[..., Any]
OK, WARNING, PROBLEM = Level.OK, Level.WARNING, Level.PROBLEM


def levels(verdicts: list[Verdict]) -> list[Level]:
    return [one.level for one in verdicts]


@pytest.mark.parametrize(
    ("skew_ms", "round_trip_ms", "level"),
    [
        (0, 1, OK),
        (-999, 1, OK),
        (1500, 2, WARNING),
        (1500, 2000, OK),  # the answer may have taken that long
        (-3_600_000, 2, PROBLEM),
        (10_001, 2, PROBLEM),
    ],
)
def test_clocks(skew_ms: float, round_trip_ms: float, level: Level) -> None:
    found = judge_clock("the clock", skew_ms, round_trip_ms)
    assert found.level is level
    if level is not OK:
        assert ("ahead of" if skew_ms > 0 else "behind") in found.text
        assert found.fix


def directory(free: int | None, error: str | None = None) -> Directory:
    return Directory(1, "/d", error, None if free is None else 100, free, ())


@pytest.mark.parametrize(
    ("given", "level"),
    [
        (directory(50), OK),
        (directory(15), OK),
        (directory(14), WARNING),
        (directory(4), PROBLEM),
        (directory(None), WARNING),
        (directory(50, "broken"), PROBLEM),
    ],
)
def test_disks(given: Directory, level: Level) -> None:
    assert judge_disk(given).level is level


def test_an_internal_topic_below_its_setting() -> None:
    alone = Partition(0, 1, 0, (1,), (1,))
    full = Partition(1, 1, 0, (1, 2, 3), (1, 2, 3))
    topic = Topic("__consumer_offsets", "id", True, (full, alone))
    found = judge_internal(topic, 3, 3)
    assert (found.level, found.fix) == (
        WARNING,
        "tidelog reassign generate __consumer_offsets --replication-factor 3 --plan-only | "
        "tidelog reassign execute -",
    )
    assert "only 2 brokers" in judge_internal(topic, 3, 2).fix
    assert judge_internal(Topic("__consumer_offsets", "id", True, (full,)), 3, 3).level is OK


def test_versions() -> None:
    old = Spoken({0: (0, 9)}, {"f": (0, 1)}, {"f": 1})
    new = Spoken({0: (0, 10)}, {"f": (0, 2)}, {"f": 1})
    assert levels(judge_versions({1: old, 2: old})) == [OK]
    assert levels(judge_versions({1: old, 2: new})) == [WARNING]
    mixed = judge_versions({1: new, 2: new})
    assert levels(mixed) == [OK, WARNING]
    assert mixed[1].fix == "tidelog features upgrade f=2"
    assert judge_versions({}) == []


def test_advertised_addresses() -> None:
    far = Reached("cluster.example:9092", ("10.1.2.3",))
    near = Reached("localhost:9092", ("127.0.0.1",))
    own = BrokerNode(1, "localhost", 9092)
    refused = Reached("localhost:9092", ("127.0.0.1",), "nothing listens there", "start it")
    (afar,) = judge_advertised([far], {1: (own, refused)})
    assert "loopback" in afar.fix and "advertised.listeners of broker 1" in afar.fix
    (close,) = judge_advertised([near], {1: (own, refused)})
    assert close.fix == "start it"
    anywhere = BrokerNode(1, "0.0.0.0", 9092)
    assert levels(judge_advertised([far], {1: (anywhere, far)})) == [PROBLEM]
    assert levels(judge_advertised([far], {1: (own, near)})) == [OK]


def test_who_answers() -> None:
    assert judge_identity(1, "a:1", "tide", "tide") is None
    wrong = judge_identity(1, "a:1", "tide", "ebb")
    assert wrong is not None and "belongs to cluster ebb, not tide" in wrong.text


def test_summary() -> None:
    assert summary([Verdict("c", OK, "t")]) == "All is well."
    assert summary([Verdict("c", WARNING, "t"), Verdict("c", PROBLEM, "t")]) == (
        "1 problems, 1 warnings."
    )


# --- dialling -----------------------------------------------------------------------------------


def test_reaching_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        found = doctor.reach(SocketAddress("127.0.0.1", taken.getsockname()[1]))
    assert (found.problem, found.resolved) == ("nothing listens there", ("127.0.0.1",))

    def fail(address: SocketAddress) -> tuple[str, ...]:
        raise socket.gaierror("unknown")

    def give_up(address: SocketAddress) -> None:
        raise TimeoutError("timed out")

    monkeypatch.setattr(doctor, "dial", give_up)
    found = doctor.reach(SocketAddress("127.0.0.1", 1))
    assert (found.problem, "firewalls" in found.fix) == ("cannot be reached (timed out)", True)
    monkeypatch.setattr(doctor, "resolve", fail)
    found = doctor.reach(SocketAddress("nosuch", 1))
    assert found.problem is not None and "does not resolve" in found.problem


def test_something_else_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidelog.cli.failures import CommandFailed

    def refuse(bootstrap: str, timeout_s: float) -> None:
        raise CommandFailed("no node answers")

    monkeypatch.setattr(doctor, "Connection", refuse)
    monkeypatch.setattr(doctor, "dial", lambda address: None)
    found = doctor.reach(SocketAddress("127.0.0.1", 1))
    assert found.problem is not None and "does not speak Kafka" in found.problem


# --- the commands -------------------------------------------------------------------------------


class Patient(ScriptedBrokers):
    """Two brokers; the offsets topic has one replica where two are wanted."""

    def __init__(self) -> None:
        super().__init__(
            {
                ApiKey.METADATA: lambda request: {"topics": [{"name": "__consumer_offsets"}]},
                ApiKey.DESCRIBE_TOPIC_PARTITIONS: self.partitions,
                ApiKey.DESCRIBE_CONFIGS: self.configs,
                ApiKey.DESCRIBE_QUORUM: self.quorum,
                ApiKey.DESCRIBE_LOG_DIRS: self.directories,
                ApiKey.API_VERSIONS: self.versions,
                ApiKey.UPDATE_FEATURES: self.update,
            }
        )
        self.replicas: tuple[int, ...] = (1, 2)
        self.out_of_sync: tuple[int, ...] = ()
        self.out_of_reach = ""
        self.skew_ms = 0
        self.broker_skew_ms = 0
        self.free = 90
        self.level = 2
        self.error = ErrorCode.NONE
        self.swapped = False

    def partitions(self, request: Any) -> Mapping[str, Any]:
        in_sync = [one for one in self.replicas if one not in self.out_of_sync]
        partition = {"leader_id": 1, "replica_nodes": self.replicas, "isr_nodes": in_sync}
        return {"topics": [{"name": "__consumer_offsets", "partitions": [partition]}]}

    def configs(self, request: Any) -> Mapping[str, Any]:
        (resource,) = request.resources
        if self.swapped and resource.resource_type == 4:
            return {"results": [{"error_code": ErrorCode.INVALID_REQUEST}]}
        values = {"offsets.topic.replication.factor": "2", "http.listener": ":9644"}
        configs = [
            {"name": name, "value": value, "config_source": 4}
            for name, value in values.items()
            if name in (resource.configuration_keys or ())
        ]
        return {"results": [{"configs": configs if resource.resource_type == 4 else []}]}

    def quorum(self, request: Any) -> Mapping[str, Any]:
        now_ms = int(doctor._now_ms()) + self.skew_ms
        voter = {"replica_id": 1, "last_caught_up_timestamp": now_ms}
        partition = {"leader_id": 1, "current_voters": [voter]}
        return {"topics": [{"topic_name": "m", "partitions": [partition]}]}

    def fetch(self, address: SocketAddress, path: str) -> Answer:
        """HTTP tells whole seconds."""
        assert (path, address.port) == ("/healthz", 9644)
        if address.host == "node-1":
            raise NoHttp("off")
        return Answer({}, int(doctor._now_ms() + self.broker_skew_ms) // 1000 * 1000)

    def reach(self, address: SocketAddress) -> Reached:
        problem = "nothing listens there" if str(address) == self.out_of_reach else None
        return Reached(str(address), ("10.0.0.1",), problem, "start the broker")

    def directories(self, request: Any) -> Mapping[str, Any]:
        return {"results": [{"log_dir": "/d", "total_bytes": 100, "usable_bytes": self.free}]}

    def versions(self, request: Any) -> Mapping[str, Any]:
        return {
            "api_keys": [{"api_key": 0, "max_version": 13}],
            "supported_features": [{"name": "f", "min_version": 0, "max_version": 2}],
            "finalized_features": [{"name": "f", "max_version_level": self.level}],
        }

    def update(self, request: Any) -> Mapping[str, Any]:
        return {"error_code": self.error, "error_message": "not now" if self.error else None}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Patient:
    made = Patient()
    made.install(monkeypatch)
    monkeypatch.setattr(doctor, "reach", made.reach)
    monkeypatch.setattr(doctor, "fetch", made.fetch)
    return made


def test_a_sound_cluster(tidelog: Run, patient: Patient) -> None:
    ran = tidelog("doctor", "-b", "node-1:9092")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "All is well.")
    shown = json.loads(tidelog("doctor", "-b", "node-1:9092", "--json").out)
    assert shown["healthy"] is True
    assert {one["check"] for one in shown["checks"]} == {
        "address", "cluster", "listeners", "versions", "quorum", "clock", "replication", "disk",
        "internal topics",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"replicas": (1,)}, 0, "tidelog reassign generate __consumer_offsets"),
        ({"skew_ms": 3_600_000}, 1, "ahead of this machine's"),
        ({"broker_skew_ms": -3_600_000}, 1, "the clock of broker 2 is"),
        ({"free": 3}, 1, "GiB free (3%)"),
        ({"level": 1}, 0, "tidelog features upgrade f=2"),
        ({"swapped": True}, 1, "does not answer as broker 1"),
        ({"out_of_sync": (2,)}, 1, "tidelog topic describe --under-replicated-partitions"),
        ({"out_of_reach": "node-2:9092"}, 1, "FAIL  listeners        broker 2 at node-2:9092"),
    ],
)
def test_what_is_wrong_and_what_to_do(
    tidelog: Run, patient: Patient, change: dict[str, Any], code: int, said: str
) -> None:
    for name, value in change.items():
        setattr(patient, name, value)
    ran = tidelog("doctor", "-b", "node-1:9092")
    assert said in ran.out + ran.err
    assert ran.code == code


def test_nobody_answers(tidelog: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Reached("a:1", (), "nothing listens there", "start the broker")
    monkeypatch.setattr(doctor, "reach", lambda address: gone)
    ran = tidelog("doctor", "-b", "a:1")
    assert ran.code == 1
    assert ran.out.splitlines()[0].split() == [
        "FAIL", "address", "a:1:", "nothing", "listens", "there",
    ]  # fmt: skip
    assert "-> start the broker" in ran.out
    assert tidelog("doctor", "-b", "nowhere").code == 2


def test_features(tidelog: Run, patient: Patient) -> None:
    patient.level = 1
    assert tidelog("features", "describe").out == (
        "Feature: f\tSupportedMinVersion: 0\tSupportedMaxVersion: 2\tFinalizedVersionLevel: 1\n"
    )
    assert json.loads(tidelog("features", "describe", "--json").out)[0]["finalized"] == 1
    assert tidelog("features", "upgrade", "--all").out == "f was upgraded to 2.\n"
    dry = tidelog("features", "upgrade", "f=2", "--dry-run", "--json")
    assert json.loads(dry.out) == {"upgraded": {"f": 2}, "dry_run": True}
    asked = patient.questions(ApiKey.UPDATE_FEATURES)
    assert [one.validate_only for one in asked] == [False, True]
    assert asked[0].feature_updates[0].max_version_level == 2
    assert tidelog("features", "upgrade", "f=1").out == "Nothing to upgrade.\n"
    lower = tidelog("features", "upgrade", "f=0")
    assert (lower.code, "never lowers" in lower.err) == (1, True)
    patient.error = ErrorCode.INVALID_UPDATE_VERSION
    refused = tidelog("features", "upgrade", "f=2")
    assert (refused.code, refused.err) == (1, "no feature was upgraded: not now\n")


@pytest.mark.parametrize("arguments", [(), ("f",), ("f=x",), ("=1",), ("f=1", "--all")])
def test_no_upgrades(tidelog: Run, patient: Patient, arguments: tuple[str, ...]) -> None:
    assert tidelog("features", "upgrade", *arguments).code == 2
