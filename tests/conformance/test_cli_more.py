"""The commands of operators against real nodes: groups, settings, replicas, offsets, transactions,
measuring, and the doctor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from waiting import until

from tidelog.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.xdist_group("cluster")

COMMAND = [sys.executable, "-c", "from tidelog.cli.main import main; main()"]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(cluster: LocalCluster) -> Run:
    environment = os.environ | {"TIDELOG_BOOTSTRAP_SERVER": cluster.bootstrap}

    def run_command(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run_command


@pytest.fixture
def topic(run: Run, cluster: LocalCluster) -> str:
    """Three partitions with ten records each."""
    name = f"cli-{uuid4().hex[:8]}"
    assert run("topic", "create", name, "--partitions", "3").returncode == 0
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(30):
        producer.produce(name, f"{number}".encode(), partition=number % 3)
    assert producer.flush(60) == 0
    return name


def loaded(ran: subprocess.CompletedProcess[str]) -> Any:
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_life_of_a_group(run: Run, topic: str, tmp_path: Path) -> None:
    group = f"g-{topic}"
    read = run("consume", topic, "--group", group, "--from-beginning", "-n", "30")
    assert read.returncode == 0, read.stderr
    assert group in run("group", "list").stdout.split()
    (described,) = loaded(run("group", "describe", group, "--json"))
    assert (described["state"], described["type"]) == ("Empty", "Classic")
    assert sum(row["current_offset"] for row in described["offsets"]) == 30
    assert {row["lag"] for row in described["offsets"]} == {0}

    shown = run("group", "reset-offsets", group, "--topic", f"{topic}:1", "--shift-by", "-4")
    assert shown.stdout.split()[-4:] == [group, topic, "1", "6"]
    (same,) = loaded(run("group", "describe", group, "--json"))
    assert same["offsets"] == described["offsets"]
    done = run("group", "reset-offsets", group, "--all-topics", "--to-offset", "7", "--execute")
    assert done.returncode == 0, done.stderr
    (reset,) = loaded(run("group", "describe", group, "--json"))
    assert [row["lag"] for row in reset["offsets"]] == [3, 3, 3]
    exported = run("group", "reset-offsets", group, "--all-topics", "--to-current", "--export")
    file = tmp_path / "offsets.csv"
    file.write_text(exported.stdout)
    again = run("group", "reset-offsets", group, "--from-file", str(file), "--export")
    assert again.stdout == exported.stdout == "".join(f"{topic},{n},7\n" for n in range(3))

    assert run("group", "delete-offsets", group, "--topic", f"{topic}:2").returncode == 0
    (less,) = loaded(run("group", "describe", group, "--json"))
    assert [row["partition"] for row in less["offsets"]] == [0, 1]
    assert loaded(run("group", "delete", group, "--json")) == {"deleted": [group]}
    gone = run("group", "describe", group)
    assert (gone.returncode, "does not exist" in gone.stderr) == (1, True)


def test_an_active_group_is_not_reset(run: Run, cluster: LocalCluster, topic: str) -> None:
    group = f"busy-{topic}"
    member = subprocess.Popen(
        [*COMMAND, "verifiable-consumer", "--topic", topic, "--group-id", group,
         "-b", cluster.bootstrap],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert member.stdout is not None
        while '"offsets_committed"' not in member.stdout.readline():
            pass
        (described,) = loaded(run("group", "describe", group, "--json"))
        assert described["state"] == "Stable"
        assert len(described["members"][0]["assignment"]) == 3
        refused = run("group", "reset-offsets", group, "--all-topics", "--to-earliest", "--execute")
        assert (refused.returncode, "is inactive" in refused.stderr) == (1, True)
        assert "could not be deleted" in run("group", "delete", group).stderr
        (first,) = loaded(run("group", "explain", group, "--json"))
        assert first["causes"][0]["kind"] == "joined"
        assert first["last_to_join"] == described["members"][0]["member_id"]
        assert first["duration_ms"] >= 0
    finally:
        member.terminate()
        assert member.wait(30) == 0
    until(lambda: run("group", "delete", group).returncode == 0, "the group can be deleted")


def test_settings(run: Run, topic: str) -> None:
    altered = run("config", "alter", "--topic", topic, "--set", "retention.ms=77000")
    assert altered.stdout == f"Completed updating config for topic {topic}.\n"
    (shown,) = loaded(run("config", "describe", "--topic", topic, "--json"))
    assert {"retention.ms": "77000"}.items() <= {
        one["name"]: one["value"] for one in shown["configs"]
    }.items()
    assert run("config", "alter", "--broker", "2", "--set", "log.cleaner.threads=2").returncode == 0
    assert "log.cleaner.threads=2" in run("config", "describe", "--broker", "2").stdout
    assert run("config", "alter", "--broker", "2", "--unset", "log.cleaner.threads").returncode == 0
    unknown = run("config", "alter", "--topic", topic, "--set", "bogus=1")
    assert (unknown.returncode, "Unknown topic config name: bogus" in unknown.stderr) == (1, True)


def test_replicas_are_moved(run: Run, topic: str, tmp_path: Path) -> None:
    both = loaded(
        run("reassign", "generate", topic, "--replication-factor", "2", "--broker-list", "1,2",
            "--json")
    )  # fmt: skip
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    plan.write_text(json.dumps(both["proposed"]))
    back.write_text(json.dumps(both["current"]))

    def is_done(*command: str) -> bool:
        return run(*command).returncode == 0

    for file, nodes in ((plan, {1, 2}), (back, {1, 2, 3})):
        started = run("reassign", "execute", str(file), "--throttle", "10000000")
        assert started.returncode == 0, started.stderr
        until(partial(is_done, "reassign", "verify", str(file)), f"{file.name} is carried out")
        (moved,) = loaded(run("topic", "describe", topic, "--json"))
        assert {node for one in moved["partitions"] for node in one["replicas"]} == nodes
        assert "throttled" not in run("config", "describe", "--topic", topic).stdout
    assert "throttled" not in run("config", "describe", "--broker", "1").stdout


def test_offsets_and_deleted_records(run: Run, topic: str) -> None:
    ends = "".join(f"{topic}:{n}:10\n" for n in range(3))
    assert run("offsets", topic).stdout == ends
    deleted = run("delete-records", "--topic", f"{topic}:1", "--before", "4")
    assert f"partition: {topic}-1\tlow_watermark: 4\n" in deleted.stdout
    assert run("offsets", topic, "--time", "earliest", "--partitions", "1").stdout == (
        f"{topic}:1:4\n"
    )
    beyond = run("delete-records", "--topic", f"{topic}:1", "--before", "40")
    assert (beyond.returncode, f"{topic}-1\terror: " in beyond.stdout) == (1, True)
    elected = run("leader-election", "--topic", topic)
    assert elected.returncode == 0, elected.stderr
    directories = loaded(run("log-dirs", "--topic-list", topic, "--json"))["brokers"]
    assert [one["broker"] for one in directories] == [1, 2, 3]
    assert len(directories[0]["logDirs"][0]["partitions"]) == 3


def test_the_cluster_is_well(run: Run) -> None:
    until(lambda: run("cluster", "health").returncode == 0, "the cluster is well")
    shown = loaded(run("cluster", "info", "--json"))
    assert [one["node_id"] for one in shown["brokers"]] == [1, 2, 3]
    alive = run("cluster", "unregister", "2")
    assert (alive.returncode, "stop it first" in alive.stderr) == (1, True)
    found = run("doctor", "--json")
    assert found.returncode == 0, found.stdout
    checks = {one["check"]: one["level"] for one in json.loads(found.stdout)["checks"]}
    assert {checks[name] for name in ("address", "listeners", "clock", "versions", "quorum")} == {
        "ok"
    }
    assert "metadata.version" in run("features", "describe").stdout
    assert run("features", "upgrade", "--all").stdout == "Nothing to upgrade.\n"


def test_a_controller_loses_its_vote_and_gets_it_back(run: Run) -> None:
    leader = loaded(run("quorum", "describe", "--json"))["leader_id"]
    other = str(leader % 3 + 1)
    removed = run("quorum", "remove", other)
    assert removed.returncode == 0, removed.stderr
    table = run("quorum", "describe", "--replication").stdout.splitlines()
    assert [row.split()[-1] for row in table[1:]] == ["Leader", "Follower", "Observer"]
    until(lambda: run("quorum", "add", other).returncode == 0, "the vote is back")
    voters = loaded(run("quorum", "describe", "--json"))["replicas"]
    assert sorted(one["status"] for one in voters) == ["Follower", "Follower", "Leader"]


def test_measuring(run: Run, topic: str) -> None:
    sent = loaded(run("perf", "produce", topic, "-n", "2000", "--record-size", "50", "--json"))
    assert (sent["records"], sent["failed"]) == (2000, 0)
    assert sent["latency_ms"]["p50"] <= sent["latency_ms"]["p99"]
    read = run("perf", "consume", topic, "-n", "2030")
    assert read.returncode == 0, read.stderr
    assert read.stdout.splitlines()[1].split(", ")[4] == "2030"


def test_an_open_transaction(run: Run, cluster: LocalCluster, topic: str) -> None:
    name = f"mover-{topic}"
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush()
    listed = {one["transactional_id"]: one for one in loaded(run("txn", "list", "--json"))}
    assert listed[name]["state"] == "Ongoing"
    described = loaded(run("txn", "describe", name, "--json"))
    assert described["partitions"] == [{"topic": topic, "partition": 0}]
    rows = loaded(run("txn", "describe-producers", "--topic", topic, "--partition", "0", "--json"))
    assert [one["start_offset"] for one in rows if one["start_offset"] is not None] == [10]
    assert loaded(run("txn", "find-hanging", "--topic", topic, "--json")) == []
    stable = run("offsets", topic, "--partitions", "0", "--isolation-level", "read_committed")
    assert stable.stdout == f"{topic}:0:10\n"
    aborted = run("txn", "abort", "--topic", topic, "--partition", "0", "--start-offset", "10")
    assert aborted.returncode == 0, aborted.stderr
    stable = run("offsets", topic, "--partitions", "0", "--isolation-level", "read_committed")
    assert stable.stdout == f"{topic}:0:12\n"
