"""Nodes and commands that were given something wrong: each says what, and ends with its own code.

Exit code 2: never started, because of what it was given. 1: gave up. What only containers have, a
volume that cannot be written and variables alone, is in tests/docker/test_image.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from client_kits import Confluent, Sent
from typer.testing import CliRunner

from tidelog.cli.app import app
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.ids import NodeId
from tidelog.kernel.real import OsDisk, SystemRandom
from tidelog.storage.format import format_directories
from tidelog.testing.local_cluster import LocalCluster
from tidelog.testing.ports import Ports

pytestmark = pytest.mark.xdist_group("cluster")

SERVER = (sys.executable, "-m", "tidelog.broker")
SKEWED_NODE = (sys.executable, str(Path(__file__).parents[1] / "support/skewed_node.py"), "3600")
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
PATIENCE_S = 60.0
LINES_BEFORE_THE_END = 200


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node would be."""

    clients: SocketAddress
    nodes: SocketAddress
    http: SocketAddress
    data: Path

    def settings(self, **others: str) -> list[str]:
        own = {
            "log.dirs": str(self.data),
            "listeners": f"PLAINTEXT://{self.clients},CONTROLLER://{self.nodes}",
            "advertised.listeners": f"PLAINTEXT://{self.clients}",
            "http.listener": str(self.http),
        }
        return [part for item in (own | others).items() for part in ("-o", "=".join(item))]


def place(data: Path, node_id: int = 1, cluster_id: str = CLUSTER_ID) -> Place:
    ports = Ports()
    format_directories(
        OsDisk(), [str(data)], SystemRandom(), cluster_id=cluster_id, node_id=NodeId(node_id)
    )
    clients, nodes, http = (ports.draw("127.0.0.1") for _ in range(3))
    return Place(clients, nodes, http, data)


def alone(data: Path, **others: str) -> tuple[Place, list[str]]:
    """A node that is a cluster of its own."""
    where = place(data)
    voters = {"node.id": "1", "controller.quorum.voters": f"1@{where.nodes}"}
    return where, where.settings(**(voters | others))


def ended(arguments: list[str], **environment: str) -> tuple[int, str]:
    """The exit code and the words of a node that is expected to end by itself."""
    done = subprocess.run(
        [*SERVER, *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "Traceback" not in done.stdout, done.stdout
    return done.returncode, done.stdout


@contextmanager
def running(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    node = subprocess.Popen(
        [*SERVER, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield node
    finally:
        node.kill()
        node.communicate()


def line_with(node: subprocess.Popen[str], words: str) -> str:
    """The next such line of its log."""
    assert node.stdout is not None
    for _, line in zip(range(LINES_BEFORE_THE_END), node.stdout, strict=False):
        if words in line:
            return line
    raise AssertionError(f"the node never said {words!r}")


def not_ready(http: SocketAddress) -> Any:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{http}/readyz", timeout=PATIENCE_S)
    assert refused.value.code == 503
    return json.loads(refused.value.read())


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"KAFKA_NOD_ID": "1"}, ["KAFKA_NOD_ID", "did you mean node.id?"]),
        ({"KAFKA_LOG_SEGMENT_BYTES": "many"}, ["KAFKA_LOG_SEGMENT_BYTES", "Not a number"]),
        (
            {"TIDELOG_LOG_FLUSH_POLICY": "never"},
            ["TIDELOG_LOG_FLUSH_POLICY", "fsync", "page-cache"],
        ),
    ],
)
def test_wrong_variables(tmp_path: Path, given: dict[str, str], words: list[str]) -> None:
    _, settings = alone(tmp_path)
    code, said = ended(settings, **given)
    assert code == 2
    assert all(word in said for word in words), said


def test_a_node_id_listed_twice(tmp_path: Path) -> None:
    _, settings = alone(tmp_path, **{"controller.quorum.voters": "1@a:9093,1@b:9093"})
    code, said = ended(settings)
    assert code == 2
    assert "controller.quorum.voters" in said and "node 1 has two addresses" in said


# --- ports --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("clients", "listeners: cannot listen on {} (PLAINTEXT): Address already in use"),
        ("nodes", "listeners: cannot listen on {} (CONTROLLER): Address already in use"),
        ("http", "http.listener: cannot listen on {}: "),
    ],
)
def test_a_port_in_use(tmp_path: Path, which: str, words: str) -> None:
    where, settings = alone(tmp_path)
    address: SocketAddress = getattr(where, which)
    with socket.create_server((address.host, address.port)):
        code, said = ended(settings)
    assert code == 2
    assert words.format(address) in said, said


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    where, settings = alone(tmp_path)
    elsewhere = SocketAddress("192.0.2.1", where.clients.port)
    code, said = ended([part.replace(str(where.clients), str(elsewhere)) for part in settings])
    assert code == 2
    assert f"cannot listen on {elsewhere}" in said, said


# --- other nodes --------------------------------------------------------------------------------


def one_of_three(data: Path, **others: str) -> tuple[Place, SocketAddress, list[str]]:
    """Node 1 of three, of which the others are not there; and where 2 should be."""
    where, ports = place(data), Ports()
    missing, other = ports.draw("127.0.0.1"), ports.draw("127.0.0.1")
    given = {
        "node.id": "1",
        "controller.quorum.voters": f"1@{where.nodes},2@{missing},3@{other}",
        "broker.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "200",
        **others,
    }
    return where, missing, where.settings(**given)


def test_unreachable_peers_are_named_while_the_node_waits(tmp_path: Path) -> None:
    where, missing, settings = one_of_three(tmp_path)
    with running(settings) as node:
        told = line_with(node, "has reached no active controller")
        assert "controller 2: " in told and str(missing) in told and "refused" in told, told
        assert not_ready(where.http)["reasons"] == [
            "the quorum has no leader that this node knows of",
            "the broker is not registered: it recovers its logs, or finds no controller",
        ]
        asked_at = time.monotonic()
        node.send_signal(signal.SIGTERM)
        line_with(node, "told to stop before the node came into service")
        assert node.wait(PATIENCE_S) == 0
        assert time.monotonic() - asked_at < 15  # and not when it would have given up
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_node_gives_up_unreachable_peers(tmp_path: Path) -> None:
    short = {"initial.broker.registration.timeout.ms": "1500"}
    _, _, settings = one_of_three(tmp_path, **short)
    code, said = ended(settings)
    assert code == 1
    assert "RegisterBroker was not done within 1500 ms; node " in said, said


def test_a_node_id_in_use(cluster: LocalCluster, tmp_path: Path) -> None:
    """The first one goes on undisturbed."""
    second = place(tmp_path, 2, cluster.cluster_id)
    short = {"initial.broker.registration.timeout.ms": "5000"}
    code, said = ended(["--config", str(cluster.nodes[2].config), *second.settings(**short)])
    assert code == 1
    assert "does another node have the same node.id?" in said, said
    assert "DUPLICATE_BROKER_REGISTRATION: Another broker is registered with id 2" in said
    assert "every node needs a node.id of its own" in said
    kit = Confluent(cluster.bootstrap)
    assert kit.produce("after-the-duplicate", [Sent(b"k", b"v")]) == [0]
    assert cluster.fallen() == []


# --- clocks -------------------------------------------------------------------------------------


Cli = Callable[..., Any]


@pytest.fixture
def tidelog() -> Cli:
    def run(bootstrap: str, *arguments: str) -> Any:
        return CliRunner().invoke(app, [*arguments, "-b", bootstrap])

    return run


def test_a_clock_an_hour_off(tidelog: Cli) -> None:
    with LocalCluster(1, server=SKEWED_NODE) as one:
        ran = tidelog(one.bootstrap, "doctor")
        kit = Confluent(one.bootstrap)
        assert kit.produce("t", [Sent(b"k", b"v")]) == [0]  # which nothing prevents
    assert ran.exit_code == 1
    for what in ("controller 1", "broker 1"):
        told = re.search(rf"the clock of {what} is ([0-9.]+) s ahead of this machine's", ran.stdout)
        assert told is not None and 3590 < float(told[1]) < 3660, ran.stdout
    assert "chrony" in ran.stdout


# --- names on the command line ------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "topic describe {}",
        "topic delete {}",
        "topic alter {} --partitions 3",
        "consume {} -n 1 --timeout-ms 5000",
        "offsets {}",
        "delete-records --topic {}:0 --before 1",
        "config describe --topic {}",
        "config alter --topic {} --set retention.ms=1",
        "leader-election --topic {}",
        "reassign generate {}",
        "log-dirs --topic-list {}",
        "perf consume {} -n 1",
        "group reset-offsets some --topic {} --to-earliest",
        "txn describe-producers --topic {} --partition 0",
        "txn find-hanging --topic {}",
        "explain compaction {}",
        "group describe {}",
        "group delete {}",
        "txn describe {}",
    ],
)
def test_an_unknown_name(cluster: LocalCluster, tidelog: Cli, command: str) -> None:
    ran = tidelog(cluster.bootstrap, *command.format("nosuch").split())
    assert (ran.exit_code, ran.stdout) == (1, "")
    said = ran.stderr.splitlines()[-1]
    assert "nosuch" in said
    assert re.search("does not exist|no topic matches|no such group|there is no", said), said


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("topic create t --config bogus=1", 1, "Unknown topic config name: bogus"),
        ("topic create t --config retention.ms=soon", 1, "Invalid value soon for"),
        ("config alter --broker 1 --set log.cleaner.thread=1", 1, "mean log.cleaner.threads?"),
        ("config alter --cluster --set bogus=1", 1, "unknown setting bogus"),
        ("config describe --broker 9", 1, "there is no broker 9; there are 1, 2, 3"),
        ("features upgrade bogus=2", 1, "feature bogus"),
        ("topic list --bogus", 2, "No such option: --bogus"),
        ("topic lst", 2, "No such command 'lst'"),
    ],
)
def test_an_unknown_setting(
    cluster: LocalCluster, tidelog: Cli, command: str, code: int, words: str
) -> None:
    ran = tidelog(cluster.bootstrap, *command.split())
    assert (ran.exit_code, ran.stdout) == (code, "")
    assert words in ran.stderr, ran.stderr
