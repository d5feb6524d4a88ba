"""The command against real nodes: a cluster is started, used, hurt and stopped as a user would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from slow_tests import slow_after
from waiting import until

from tidelog.kernel.addresses import SocketAddress
from tidelog.testing.ports import Ports
from tidelog.testing.probe import ProbeFailed, ask_cluster

COMMAND = [sys.executable, "-c", "from tidelog.cli.main import main; main()"]
Run = Callable[..., subprocess.CompletedProcess[str]]


class Cluster:
    """A running ``tidelog up --json``; what it says goes into a file."""

    def __init__(self, directory: Path) -> None:
        self.log = (directory / "up.log").open("w")
        first = Ports().draw("127.0.0.1").port
        self.process = subprocess.Popen(
            [*COMMAND, "up", "--json", "--port", str(first), "--data-dir", str(directory / "data")],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (directory / "up.log").read_text()
        self.described: dict[str, Any] = json.loads(line)
        self.bootstrap: str = self.described["bootstrap"]

    def node(self, node_id: int) -> dict[str, Any]:
        found: dict[str, Any] = self.described["nodes"][node_id - 1]
        return found

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(60)
        self.log.close()
        return code


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("cli"))
    yield running
    if running.process.poll() is None:
        running.stop()


@pytest.fixture(scope="module")
def run(cluster: Cluster) -> Run:
    environment = os.environ | {"TIDELOG_BOOTSTRAP_SERVER": cluster.bootstrap}

    def run_command(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    return run_command


def test_topics(run: Run) -> None:
    assert run("topic", "create", "a.b", "orders", "--partitions", "3").stdout == (
        "Created topic a.b.\nCreated topic orders.\n"
    )
    again = run("topic", "create", "orders")
    assert (again.returncode, again.stderr) == (
        1,
        "Error while executing topic command : Topic 'orders' already exists.\n",
    )
    assert run("topic", "create", "orders", "--if-not-exists").returncode == 0
    altered = run("topic", "alter", "orders", "--partitions", "4", "--config", "retention.ms=99000")
    assert altered.returncode == 0, altered.stderr
    shown = run("topic", "describe", "orders").stdout.splitlines()
    assert "PartitionCount: 4\tReplicationFactor: 3\t" in shown[0]
    assert "retention.ms=99000" in shown[0] and len(shown) == 5
    (described,) = json.loads(run("topic", "describe", "orders", "--json").stdout)
    assert sorted(described["partitions"][0]["isr"]) == [1, 2, 3]
    assert run("topic", "delete", "a.b").stdout == "Deleted topic a.b.\n"
    assert run("topic", "list", "--exclude-internal", "a.b|orders").stdout == "orders\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create", "bad topic"), "contains one or more characters other than"),
        (("create", "t", "--config", "bogus=1"), "Unknown topic config name: bogus"),
        (("create", "t", "--replication-factor", "9"), "replication factor"),
        (("alter", "known", "--partitions", "1"), "partition"),
        (("alter", "known", "--config", "retention.ms=soon"), "retention.ms"),
    ],
)
def test_what_the_cluster_refuses(run: Run, arguments: tuple[str, ...], said: str) -> None:
    run("topic", "create", "known", "--partitions", "2", "--if-not-exists")
    ran = run("topic", *arguments)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("Error while executing topic command : ")
    assert said.lower() in ran.stderr.lower()


@pytest.mark.parametrize("compression", slow_after(1, ["zstd", "none", "gzip", "snappy", "lz4"]))
def test_what_is_produced_is_consumed(run: Run, compression: str) -> None:
    topic = f"words-{compression}"
    run("topic", "create", topic, "--partitions", "1")
    lines = "".join(f"h:{n},i:\tkey-{n}\tvalue {n} – ü\n" for n in range(50))
    parse = ("--property", "parse.key=true", "--property", "parse.headers=true")
    sent = run("produce", topic, "--compression", compression, *parse, stdin=lines)
    assert (sent.returncode, sent.stderr) == (0, "")
    read = run("consume", topic, "--from-beginning", "--until-end", "--print", "headers,key")
    assert read.stdout == lines
    assert read.stderr == "Processed a total of 50 messages\n"
    assert run("consume", topic, "--offset", "48", "--until-end").stdout.count("\n") == 2
    assert run("consume", topic, "--offset", "-3", "--until-end").stdout.count("\n") == 3


def test_timestamps_nulls_and_bytes(run: Run) -> None:
    run("topic", "create", "json", "--partitions", "2")
    records: list[dict[str, Any]] = [
        {"key": "k", "value": None, "partition": 1, "timestamp": 1_700_000_000_000},
        {"key": None, "value": {"base64": "/w=="}, "partition": 1, "timestamp": 1_700_000_001_000},
    ]
    sent = run(
        "produce", "json", "--format", "json", "--json", stdin="\n".join(map(json.dumps, records))
    )
    assert [json.loads(line)["offset"] for line in sent.stdout.splitlines()] == [0, 1]
    whole = run("consume", "json", "--from-beginning", "--until-end", "--json").stdout
    read = [json.loads(line) for line in whole.splitlines()]
    assert [{name: one[name] for name in records[0]} for one in read] == records
    at = ("consume", "json", "-p", "1", "--until-end", "--json", "--offset")
    later = run(*at, "@1700000000500").stdout.splitlines()
    assert [json.loads(line)["offset"] for line in later] == [1]
    assert later == run(*at, "@2023-11-14T22:13:20.500").stdout.splitlines()


def test_a_topic_is_made_by_the_first_record(run: Run) -> None:
    sent = run("produce", "made-up", "--json", stdin="first\n")
    assert sent.returncode == 0, sent.stderr
    assert run("consume", "made-up", "--from-beginning", "-n", "1").stdout == "first\n"
    assert run("consume", "missing", "-n", "1").returncode == 1


def test_the_quorum(run: Run, cluster: Cluster) -> None:
    status = dict(
        line.split(":", 1) for line in run("quorum", "describe", "--status").stdout.splitlines()
    )
    assert status["ClusterId"].strip() == cluster.described["cluster_id"]
    table = run("quorum", "describe", "--replication").stdout.splitlines()
    assert table[0].split() == [
        "NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp",
        "LastCaughtUpTimestamp", "Status",
    ]  # fmt: skip
    assert [row.split()[-1] for row in table[1:]] == ["Leader", "Follower", "Follower"]
    assert sorted(row.split()[0] for row in table[1:]) == ["1", "2", "3"]


def test_directories_of_a_running_node(run: Run, cluster: Cluster) -> None:
    node = cluster.node(1)
    for topic in ("held", "held-too"):  # what is acknowledged is on all three nodes
        assert run("produce", topic, stdin="first\n").returncode == 0
    shown = json.loads(run("storage", "info", "-c", node["config"], "--json").stdout)
    (directory,) = shown["directories"]
    assert directory["path"] == node["data_dir"]
    assert directory["cluster_id"] == cluster.described["cluster_id"]
    assert (directory["node_id"], directory["is_in_use"], shown["problems"]) == (1, True, [])
    assert directory["partitions"] > 1


def test_a_node_is_killed_and_started_by_hand(run: Run, cluster: Cluster) -> None:
    run("topic", "create", "survivor", "--partitions", "3")
    os.kill(cluster.node(3)["pid"], signal.SIGKILL)
    sent = run("produce", "survivor", stdin="".join(f"{n}\n" for n in range(30)))
    assert (sent.returncode, sent.stderr) == (0, "")

    def isr() -> list[list[int]]:
        (topic,) = json.loads(run("topic", "describe", "survivor", "--json").stdout)
        return [sorted(partition["isr"]) for partition in topic["partitions"]]

    until(lambda: isr() == [[1, 2]] * 3, "node 3 is out of sync")
    lacking = run("topic", "describe", "survivor", "--under-replicated-partitions")
    assert lacking.stdout.count("Partition: ") == 3
    by_hand = subprocess.Popen(
        [*COMMAND, "server", "--config", cluster.node(3)["config"]],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: isr() == [[1, 2, 3]] * 3, "node 3 is in sync again")
        read = run("consume", "survivor", "--from-beginning", "--until-end").stdout.split()
        assert sorted(map(int, read)) == list(range(30))
    finally:
        by_hand.send_signal(signal.SIGTERM)
        assert by_hand.wait(60) == 0


def test_stopping_is_clean(run: Run, cluster: Cluster) -> None:
    """The last test of this file: its cluster ends here."""
    assert cluster.stop() == 0
    for node_id in (1, 2):
        with pytest.raises(ProbeFailed):
            ask_cluster(SocketAddress.parse(cluster.node(node_id)["kafka"]), timeout_s=1)
        shown = run("storage", "info", "-c", cluster.node(node_id)["config"], "--json")
        (directory,) = json.loads(shown.stdout)["directories"]
        assert (directory["is_in_use"], directory["was_shut_down_cleanly"]) == (False, True)
    refused = run("topic", "list")
    assert (refused.returncode, "tidelog up starts one" in refused.stderr) == (1, True)
