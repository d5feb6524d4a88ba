"""``tidelog up`` as a process, with a stand-in for the node: what it prints, writes and leaves."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidelog.cli.failures import CommandFailed
from tidelog.cli.up import UpOptions, run_up, suggestions, warnings
from tidelog.kernel.addresses import SocketAddress
from tidelog.testing.local_cluster import LocalCluster
from tidelog.testing.ports import Ports

FAKE_NODE = Path(__file__).parents[2] / "support/fake_node.py"
PROGRAM = f"""
import sys, tidelog.cli.up as up
inner = up.run_up
up.run_up = lambda options, nursery: inner(options, ({sys.executable!r}, {str(FAKE_NODE)!r}))
sys.argv[0] = "tidelog"
from tidelog.cli import main
main._begin_nursery = lambda: None
main.main()
"""
Run = Callable[..., Any]


class Up:
    """A running ``tidelog up``; every wait is for a line, or for the end of the process."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "up", *arguments],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.seen: list[str] = []

    def read_until(self, text: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen.append(line)
            if text in line:
                return line
        raise AssertionError(f"{text!r} never came: {self.seen} {self.process.communicate()}")

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str, str]:
        self.process.send_signal(number)
        return self.finish()

    def finish(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, "".join(self.seen) + out, err


Start = Callable[..., Up]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Start]:
    started: list[Up] = []

    def start(*arguments: str) -> Up:
        one = Up("--port", str(free_base()), *arguments, cwd=tmp_path)
        started.append(one)
        return one

    yield start
    for one in started:
        if one.process.poll() is None:
            one.end(signal.SIGTERM)


def free_base() -> int:
    return Ports().draw("127.0.0.1").port


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_whole_life(up: Start, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    running = up("--nodes", "3", "--ready-file", str(ready))
    running.read_until("Ctrl-C stops the cluster.")
    greeting = "".join(running.seen)
    described = json.loads(ready.read_text(encoding="utf-8"))
    assert list(described) == ["cluster_id", "bootstrap", "nodes"]
    assert f"Bootstrap server: {described['bootstrap']}\n" in greeting
    assert "  default.replication.factor=3\n  min.insync.replicas=2\n" in greeting
    assert f"tidelog produce hello -b {described['nodes'][0]['kafka']}\n" in greeting
    assert f"kill -9 {described['nodes'][2]['pid']}; " in greeting
    assert [node["data_dir"] for node in described["nodes"]] == [
        f"{tmp_path}/data/node-{number}" for number in (1, 2, 3)
    ]
    assert "[2] INFO serving from node-2.properties\n" in greeting
    assert "DEBUG" not in greeting
    code, out, err = running.end()
    assert (code, err) == (0, "")
    assert "[1] INFO clean end\n" in out and out.endswith("Stopped.\n")
    assert not ready.exists()
    assert not any(is_alive(node["pid"]) for node in described["nodes"])
    assert (tmp_path / "data/node-1/meta.properties").is_file()


def test_json_leaves_standard_output_to_scripts(up: Start, tmp_path: Path) -> None:
    running = up("--nodes", "1", "--json", "--ephemeral", "--log-level", "debug")
    described = json.loads(running.read_until("{"))
    directory = Path(described["nodes"][0]["data_dir"])
    assert directory.is_dir()
    code, out, err = running.end(signal.SIGTERM)
    assert (code, json.loads(out)) == (0, described)
    assert "[1] DEBUG a detail\n" in err and "Stopped.\n" in err
    assert not directory.exists()
    assert not (tmp_path / "data").exists()


def test_a_node_that_falls_stays_down_and_the_last_one_ends_it(up: Start) -> None:
    running = up("--nodes", "2", "--json")
    first, second = json.loads(running.read_until("{"))["nodes"]
    os.kill(second["pid"], signal.SIGKILL)
    assert running.process.stderr is not None
    said = iter(running.process.stderr)
    assert any("Node 2 ended with signal SIGKILL." in line for line in said)
    os.kill(first["pid"], signal.SIGTERM)
    code, _, err = running.finish()
    assert code == 1
    assert "tidelog up: all nodes have ended" in err


def test_a_node_that_falls_is_started_again_if_asked_for(up: Start, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    running = up("--nodes", "1", "--restart", "--ready-file", str(ready))
    running.read_until("Ctrl-C")
    before = json.loads(ready.read_text(encoding="utf-8"))["nodes"][0]
    os.kill(before["pid"], signal.SIGKILL)
    running.read_until("Node 1 ended with signal SIGKILL.")
    running.read_until("Starting it again in 1 s.")
    running.read_until("Node 1 was started again.")
    after = json.loads(ready.read_text(encoding="utf-8"))["nodes"][0]
    assert after["pid"] != before["pid"]
    assert after["config"] == before["config"]


def test_ctrl_c_while_it_starts(up: Start, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/node-1.behaviour").write_text("deaf", encoding="utf-8")
    running = up("--nodes", "1")
    running.read_until("[1] INFO serving")
    code, out, err = running.end()
    assert (code, err) == (0, "")
    assert "Stopped.\n" in out


def test_a_second_ctrl_c_kills(up: Start, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/node-1.behaviour").write_text("stubborn", encoding="utf-8")
    running = up("--nodes", "1", "--json")
    pid = json.loads(running.read_until("{"))["nodes"][0]["pid"]
    running.process.send_signal(signal.SIGINT)
    assert running.process.stderr is not None
    assert any("once more to kill" in line for line in running.process.stderr)
    code, _, _ = running.end()
    assert code == 0
    assert not is_alive(pid)


def test_a_reader_that_goes_away_stops_nothing(up: Start, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    running = up("--nodes", "1", "--ready-file", str(ready))
    running.read_until("Ctrl-C")
    assert running.process.stdout is not None
    running.process.stdout.close()
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(60) == 0


# --- without a process of its own ---------------------------------------------------------------


def options(data_dir: Path, **changed: Any) -> UpOptions:
    plain = UpOptions(
        nodes=1,
        port=free_base(),
        data_dir=data_dir,
        overrides=(),
        ready_file=None,
        as_json=False,
        restart=False,
        host="127.0.0.1",
        advertised_host=None,
        level="INFO",
    )
    return replace(plain, **changed)


def test_a_node_that_dies_at_start_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "node-1.behaviour").write_text("dies", encoding="utf-8")
    before = signal.getsignal(signal.SIGINT)
    said = "node 1 ended with exit code 3:\n  it was a good life"
    with pytest.raises(CommandFailed, match=said):
        run_up(options(tmp_path), server=(sys.executable, str(FAKE_NODE)))
    assert signal.getsignal(signal.SIGINT) is before


def test_taken_ports_are_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        wanted = options(tmp_path, port=server.getsockname()[1])
        cluster = LocalCluster(1, port=wanted.port, data_dir=tmp_path)
        assert warnings(wanted, cluster)[0] == (
            f"Port {wanted.port} is taken; using {cluster.nodes[1].kafka.port} instead."
        )
        cluster.stop()


@pytest.mark.parametrize(
    ("host", "is_warned"),
    [("127.0.0.1", False), ("localhost", False), ("::1", False), ("127.8.9.10", False),
     ("0.0.0.0", True), ("::", True), ("tide.example", True)],
)  # fmt: skip
def test_other_machines_are_warned_about(tmp_path: Path, host: str, is_warned: bool) -> None:
    cluster = LocalCluster(1, data_dir=tmp_path)
    lines = warnings(options(tmp_path, host=host), cluster)
    assert [("nothing is authenticated" in line) for line in lines] == [True] * is_warned
    cluster.stop()


def test_the_default_address_needs_no_mention(tmp_path: Path) -> None:
    cluster = LocalCluster(1, data_dir=tmp_path)
    elsewhere = str(cluster.nodes[1].kafka)
    assert all(f" -b {elsewhere}" in line for line in suggestions(cluster))
    cluster.nodes[1].kafka = SocketAddress("127.0.0.1", 9092)
    assert not any(" -b " in line for line in suggestions(cluster))
    cluster.stop()


def test_one_directory_one_cluster(
    tidelog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster = LocalCluster(1, data_dir=tmp_path / "data")
    ran = tidelog("up", "--nodes", "1")
    assert (ran.code, "in use by another local cluster" in ran.err) == (1, True)
    cluster.stop()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--nodes", "0"), "--nodes"),
        (("--port", "70000"), "--port"),
        (("--colour",), "No such option"),
        (("-o", "num.partitions"), "-o num.partitions: must be name=value"),
        (("-o", "num.partitions=many"), "num.partitions=many"),
        (("-o", "num.partitons=3"), "-o num.partitons=3: unknown setting; did you mean num.part"),
        (("--ephemeral", "--data-dir", "d"), "not both"),
        (("--log-level", "loud"), "--log-level"),
        (("extra",), "unexpected extra argument"),
    ],
)
def test_wrong_uses(
    tidelog: Run,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = tidelog("up", *arguments)
    assert ran.code == 2
    assert said in " ".join(ran.err.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-o", "node.id=7"), "node.id differs from node to node"),
        (("--port", "65535"), "port 65536 does not exist"),
        (("--host", "203.0.113.7"), "is that an address of this machine?"),
        (("--data-dir", "file/below"), "Not a directory"),
    ],
)
def test_what_cannot_be_started(
    tidelog: Run,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    ran = tidelog("up", *arguments)
    assert ran.code == 1
    assert said in ran.err


def test_an_environment_that_makes_all_nodes_one(
    tidelog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_NODE_ID", "7")
    ran = tidelog("up")
    assert (ran.code, "KAFKA_NODE_ID would give every node the same node.id" in ran.err) == (
        2,
        True,
    )
