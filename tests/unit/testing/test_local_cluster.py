"""The launcher of local clusters, with a stand-in for the node (``fake_node``).

What is shown here is the launcher's own work: places, files, waiting, faults, ends.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.settings.load import load
from tidelog.kernel.settings.properties import parse_properties
from tidelog.testing import local_cluster, local_node, ports
from tidelog.testing.local_cluster import ClusterFailed, LocalCluster, replicated
from tidelog.testing.ports import Ports
from tidelog.testing.probe import ProbeFailed, ask_cluster

FAKE_NODE = (sys.executable, str(Path(__file__).parents[2] / "support/fake_node.py"))
Make = Callable[..., LocalCluster]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[LocalCluster] = []

    def new(nodes: int = 1, **options: Any) -> LocalCluster:
        cluster = LocalCluster(nodes, server=FAKE_NODE, **{"data_dir": tmp_path / "d", **options})
        made.append(cluster)
        return cluster

    yield new
    for cluster in made:
        cluster.kill_all()
        cluster.stop()


def behave(cluster: LocalCluster, node_id: int, behaviour: str) -> None:
    file = cluster.data_dir / f"node-{node_id}.behaviour"
    file.write_text(behaviour, encoding="utf-8")


@contextmanager
def taken_port(host: str = "127.0.0.1") -> Iterator[int]:
    with socket.create_server((host, 0)) as server:
        yield server.getsockname()[1]


# --- start and end --------------------------------------------------------------------------


def test_a_cluster_serves_and_describes_itself(make: Make) -> None:
    cluster = make(2)
    with cluster:
        assert [ask_cluster(n.kafka, 30.0).brokers.keys() for n in cluster.nodes.values()] == [
            {1, 2},
            {1, 2},
        ]
        described = json.loads(json.dumps(cluster.description()))
        assert list(described) == ["cluster_id", "bootstrap", "nodes"]
        first = described["nodes"][0]
        assert list(first) == ["id", "pid", "kafka", "rpc", "http", "data_dir", "config"]
        assert described["bootstrap"].split(",") == [n["kafka"] for n in described["nodes"]]
        assert (first["id"], first["http"]) == (1, str(cluster.nodes[1].http))
        os.kill(first["pid"], 0)
        assert Path(first["config"]).is_file() and Path(first["data_dir"]).is_dir()
    assert not any(node.is_running for node in cluster.nodes.values())
    assert [node.last_words[-1] for node in cluster.nodes.values()] == ["INFO clean end"] * 2


def test_a_node_can_be_started_from_its_file_by_hand(make: Make) -> None:
    with make(1) as cluster:
        cluster.kill(1)
        config = cluster.description()["nodes"][0]["config"]
        by_hand = subprocess.Popen([*FAKE_NODE, "--config", config], stdout=subprocess.PIPE)
        assert by_hand.stdout is not None
        with by_hand.stdout:
            by_hand.stdout.readline()
            by_hand.kill()
            by_hand.wait()


def test_the_node_s_lines_are_handed_on(make: Make) -> None:
    lines: list[tuple[int, str]] = []
    with make(1, on_line=lambda node_id, line: lines.append((node_id, line))):
        pass
    assert lines == [
        (1, "INFO serving from node-1.properties"),
        (1, "DEBUG a detail"),
        (1, "INFO clean end"),
    ]


def test_temporary_data_goes_and_other_data_stays(make: Make, tmp_path: Path) -> None:
    with make(1, data_dir=None) as temporary:
        assert temporary.is_ephemeral and temporary.data_dir.is_dir()
    assert not temporary.data_dir.exists()
    with make(1) as kept:
        pass
    assert (tmp_path / "d/node-1/meta.properties").is_file()
    with make(1) as again:
        assert again.cluster_id == kept.cluster_id != temporary.cluster_id


def test_an_exception_inside_stops_all_nodes(make: Make) -> None:
    cluster = make(2)
    with pytest.raises(RuntimeError, match="the test itself"), cluster:
        raise RuntimeError("the test itself")
    assert not any(node.is_running for node in cluster.nodes.values())


def test_a_node_that_ignores_sigterm_is_killed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_cluster, "_STOP_S", 0.2)
    cluster = make(1)
    behave(cluster, 1, "stubborn")
    with cluster:
        pass
    assert cluster.nodes[1].exit_code == -signal.SIGKILL


# --- nodes that do not come up --------------------------------------------------------------


def test_a_node_that_dies_at_start_is_quoted_and_the_others_end(make: Make) -> None:
    cluster = make(2)
    behave(cluster, 2, "dies")
    with pytest.raises(ClusterFailed, match="node 2 ended with exit code 3:\n  it was a good life"):
        cluster.start()
    assert not any(node.is_running for node in cluster.nodes.values())


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("deaf", "node 1 at 127.0.0.1:.*refused"),
        ("garbage", "node 1 at .*answer of [0-9]+ bytes"),
        ("foreign", "node 1 belongs to cluster another"),
    ],
)
def test_a_cluster_that_does_not_serve_in_time_says_why(
    make: Make, behaviour: str, said: str
) -> None:
    for timeout_s in (1, 5, 25):  # the node itself may need more than the first
        cluster = make(1)
        behave(cluster, 1, behaviour)
        with pytest.raises(ClusterFailed, match=f"does not serve after {timeout_s} s") as failure:
            cluster.start(timeout_s=timeout_s)
        if re.search(said, str(failure.value)):
            return
    pytest.fail(str(failure.value))


def test_nothing_serves_while_no_node_was_started(make: Make) -> None:
    with pytest.raises(ClusterFailed, match="no node was started"):
        make(1).wait_until_serving(0)


# --- faults ---------------------------------------------------------------------------------


def test_kill_stop_and_restart(make: Make) -> None:
    with make(3) as cluster:
        cluster.kill(1)
        assert cluster.nodes[1].exit_code == -signal.SIGKILL
        cluster.stop_node(2)
        assert cluster.nodes[2].exit_code == 0
        cluster.wait_until_serving()
        assert ask_cluster(cluster.nodes[3].kafka, 30.0).brokers.keys() == {3}
        assert cluster.fallen() == []
        cluster.start_node(1)
        cluster.start_node(2)
        cluster.wait_until_serving()
        assert ask_cluster(cluster.nodes[3].kafka, 30.0).brokers.keys() == {1, 2, 3}
        with pytest.raises(ClusterFailed, match="node 3 is running already"):
            cluster.start_node(3)


def test_a_node_killed_from_outside_is_noticed(make: Make) -> None:
    with make(2) as cluster:
        process = cluster.nodes[2].process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert [node.node_id for node in cluster.fallen()] == [2]
        with pytest.raises(ClusterFailed, match="node 2 ended with signal SIGKILL"):
            cluster.wait_until_serving()


def test_a_paused_node_is_silent_goes_on_and_can_be_stopped_while_paused(make: Make) -> None:
    with make(1) as cluster:
        cluster.pause(1)
        with pytest.raises(ProbeFailed):
            ask_cluster(cluster.nodes[1].kafka, timeout_s=0.2)
        cluster.resume(1)
        cluster.wait_until_serving()
        cluster.pause(1)
        cluster.stop_node(1)
        assert cluster.nodes[1].exit_code == 0
        with pytest.raises(ClusterFailed, match="node 1 is not running"):
            cluster.pause(1)


@pytest.mark.parametrize(
    ("code", "text"), [(0, "exit code 0"), (3, "exit code 3"), (-9, "signal SIGKILL")]
)
def test_endings(code: int, text: str) -> None:
    assert local_node.ending(code) == text


# --- places ---------------------------------------------------------------------------------


def test_ports_follow_from_the_first_and_taken_ones_are_replaced(make: Make) -> None:
    with taken_port() as port:
        cluster = make(2, port=port)
        assert cluster.moved_ports[0] == (port, cluster.nodes[1].kafka.port)
        free = {n: a for n, a in _addresses(cluster).items() if n - port in (1, 10, 11)}
        moved = dict(cluster.moved_ports)
        assert all(address.port == moved.get(n, n) for n, address in free.items())
        with cluster:
            assert cluster.nodes[1].kafka.port != port


def _addresses(cluster: LocalCluster) -> dict[int, SocketAddress]:
    wanted = {}
    first = cluster.moved_ports[0][0]
    for number, node in cluster.nodes.items():
        wanted[first + 10 * (number - 1)] = node.kafka
        wanted[first + 10 * (number - 1) + 1] = node.rpc
    return wanted


def test_all_ports_of_a_cluster_differ(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn from so few that drawing one twice is certain."""
    first = Ports().draw("127.0.0.1").port
    monkeypatch.setattr(ports, "_DRAWN_FROM", range(first, first + 40))
    nodes = make(9).nodes.values()
    drawn = [port for node in nodes for port in (node.kafka.port, node.rpc.port)]
    assert len(set(drawn)) == 18


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"port": 65_530, "nodes": 2}, "port 65540 does not exist"),
        ({"port": 0}, "port 0 does not exist"),
        ({"host": "203.0.113.7"}, "is that an address of this machine"),
        ({"settings": {"node.id": "7"}}, "node.id differs from node to node"),
    ],
)
def test_impossible_places_are_refused(make: Make, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ClusterFailed, match=said):
        make(**options)


def test_one_directory_serves_one_launcher(make: Make, tmp_path: Path) -> None:
    first = make(1)
    with pytest.raises(ClusterFailed, match="in use by another local cluster"):
        make(1)
    first.stop()
    make(1)
    assert (tmp_path / "d").is_dir()


def test_data_of_another_number_of_nodes_is_refused(make: Make, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"d/node-{number}/__cluster_metadata-0").mkdir(parents=True)
    for nodes in (1, 5):
        with pytest.raises(ClusterFailed, match=f"of 3 nodes, and {nodes} were asked for"):
            make(nodes)
    make(3)


def test_damaged_and_foreign_directories_are_refused_by_name(make: Make, tmp_path: Path) -> None:
    meta = tmp_path / "d/node-1/meta.properties"
    meta.parent.mkdir(parents=True)
    meta.write_text("version=1\n", encoding="utf-8")
    with pytest.raises(ClusterFailed, match=r"meta\.properties: cluster\.id is missing"):
        make(1)
    meta.write_text("version=1\ncluster.id=x\nnode.id=9\n", encoding="utf-8")
    with pytest.raises(ClusterFailed, match="node-1 was formatted for node 9, not for 1"):
        make(1).start()


# --- configuration --------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_the_files_are_configurations_of_nodes(make: Make, nodes: int) -> None:
    cluster = make(nodes, settings={"num.partitions": "7"})
    for node in cluster.nodes.values():
        settings = load(file_text=cluster.properties(node)).settings
        assert settings.get_int("num.partitions") == 7
        assert settings.get_int("node.id") == node.node_id
        assert settings.get_list("log.dirs") == (str(node.data_dir),)


def test_replication_depends_on_the_number_of_nodes() -> None:
    chosen = [
        (r["default.replication.factor"], r["min.insync.replicas"])
        for r in map(replicated, (1, 2, 3, 5))
    ]
    assert chosen == [("1", "1"), ("2", "1"), ("3", "2"), ("3", "2")]


def test_what_is_asked_for_beats_what_is_chosen(make: Make) -> None:
    cluster = make(3, settings={"min.insync.replicas": "1"})
    assert cluster.settings["min.insync.replicas"] == "1"


def test_values_survive_the_file(make: Make, tmp_path: Path) -> None:
    value = "  spaces, a \\ and – more"
    cluster = make(1, settings={"broker.rack": value}, data_dir=tmp_path / "väter")
    read = parse_properties(cluster.properties(cluster.nodes[1]))
    assert read["broker.rack"] == value
    assert read["log.dirs"] == str(tmp_path / "väter/node-1")


def test_only_clients_are_let_in_from_outside(make: Make) -> None:
    with make(1, host="0.0.0.0", advertised_host="tide.example") as cluster:
        node = cluster.nodes[1]
        assert (node.kafka.host, node.rpc.host) == ("tide.example", "127.0.0.1")
        read = parse_properties(node.config.read_text(encoding="utf-8"))
        assert read["listeners"].startswith("PLAINTEXT://0.0.0.0:")
        assert read["advertised.listeners"] == f"PLAINTEXT://tide.example:{node.kafka.port}"
        assert cluster.bootstrap == f"tide.example:{node.kafka.port}"
