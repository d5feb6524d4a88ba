"""Targets, as far as they can be known without a cluster: refusals, filters, queues."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.chaos.faults import FAULTS
from tidelog.chaos.targets import compose, namespaces, packets
from tidelog.chaos.targets.base import SOUND, Target, TargetError
from tidelog.chaos.targets.commands import run
from tidelog.chaos.targets.compose import ComposeTarget
from tidelog.chaos.targets.local import LocalTarget
from tidelog.chaos.targets.netns import NetnsTarget
from tidelog.chaos.targets.packets import NodePackets, queue_commands

ADDRESSES = {1: "10.0.0.1", 2: "10.0.0.2", 3: "10.0.0.3"}


@pytest.fixture
def target(tmp_path: Path) -> LocalTarget:
    """Not started."""
    return LocalTarget(3, data_dir=tmp_path)


# --- local -----------------------------------------------------------------------------


def test_local_can_do_everything_but_lose_packets(target: LocalTarget) -> None:
    as_target: Target = target
    refused = {name for name in FAULTS if as_target.cannot(name) is not None}
    assert refused == {"loss"}


def test_without_rigged_disks_what_needs_them_is_refused(tmp_path: Path) -> None:
    plain = LocalTarget(3, data_dir=tmp_path, is_rigged=False)

    refused = {name for name in FAULTS if plain.cannot(name) is not None}
    assert refused == {
        "loss", "disk-full", "disk-slow", "read-only", "clock-skew", "power-loss",
        "power-loss-all",
    }  # fmt: skip
    with pytest.raises(TargetError, match="not rigged"):
        plain.rig(1, SOUND)


def test_one_node_is_too_few_for_a_cut(tmp_path: Path) -> None:
    reason = LocalTarget(1, data_dir=tmp_path).cannot("cut")
    assert reason == "cut needs 3 nodes, and there are 1"


def test_a_cluster_that_was_not_started_is_not_broken(target: LocalTarget) -> None:
    with pytest.raises(TargetError, match="was not started"):
        target.cut(1, 2)
    with pytest.raises(TargetError, match="node 1 is not running"):
        target.pause(1)


def test_settings_of_the_launcher_are_refused_as_by_the_launcher(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"node\.id differs from node to node"):
        LocalTarget(3, data_dir=tmp_path, settings={"node.id": "4"})


# --- rights ----------------------------------------------------------------------------


def test_namespaces_need_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(TargetError, match="needs root; try --target local"):
        NetnsTarget(3)


def test_namespaces_need_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(namespaces, "missing", lambda tools: ["tc", "iptables"])

    with pytest.raises(TargetError, match="needs tc, iptables: apt install iproute2 iptables"):
        NetnsTarget(3)


def test_containers_need_an_engine_and_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(TargetError, match="there is no compose file"):
        ComposeTarget(tmp_path / "absent.yml")
    file = tmp_path / "docker-compose.yml"
    file.write_text("services: {}\n")
    monkeypatch.setattr(compose, "succeeds", lambda *command: False)
    with pytest.raises(TargetError, match="needs a running Docker engine"):
        ComposeTarget(file)


def test_containers_links_need_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "docker-compose.yml"
    file.write_text("services: {}\n")
    monkeypatch.setattr(compose, "missing", lambda tools: [])
    monkeypatch.setattr(compose, "succeeds", lambda *command: True)
    monkeypatch.setattr(compose, "run", lambda *command: "node1\nnode2\nnode3\nprometheus\n")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    target = ComposeTarget(file)

    assert list(target.nodes) == [1, 2, 3]
    assert target.cannot("cut") is None, "the network of a container can be taken away as a whole"
    reason = target.cannot("cut-one-way")
    assert reason == (
        "cut-one-way: packets of containers are filtered as root on the engine's machine, Linux"
    )


def test_a_command_that_fails_says_what_it_was_and_what_it_said() -> None:
    with pytest.raises(TargetError, match="sh -c echo no >&2; exit 3: exit code 3: no"):
        run("sh", "-c", "echo no >&2; exit 3")
    with pytest.raises(TargetError, match="no-such-tool"):
        run("no-such-tool")


# --- packets ---------------------------------------------------------------------------


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What would have been run in the namespace of node 1."""
    noted: list[str] = []

    def note(*command: str) -> str:
        noted.append(" ".join(command[1:]))
        return ""

    monkeypatch.setattr(packets, "run", note)
    monkeypatch.setattr(packets, "succeeds", lambda *command: bool(note(*command)) or True)
    monkeypatch.setattr(packets, "has_netem", lambda: True)
    monkeypatch.setattr(packets, "_RESET_S", 0.0)
    yield noted


@pytest.fixture
def node() -> NodePackets:
    return NodePackets(lambda: ["in-node-1"], ADDRESSES)


def test_packets_are_dropped_where_they_arrive(node: NodePackets, commands: list[str]) -> None:
    node.cut_from(2)
    assert commands == ["iptables -w -F INPUT", "iptables -w -A INPUT -s 10.0.0.2 -j DROP"]
    commands.clear()
    node.lose_from(3, 0.05)
    assert commands == [
        "iptables -w -F INPUT",
        "iptables -w -A INPUT -s 10.0.0.3 -m statistic --mode random --probability 0.05 -j DROP",
        "iptables -w -A INPUT -s 10.0.0.2 -j DROP",
    ]
    commands.clear()
    node.mend_from(2)
    node.lose_from(3, 0.0)
    assert commands[-1] == "iptables -w -F INPUT"


def test_a_reset_is_a_rule_that_goes_again(node: NodePackets, commands: list[str]) -> None:
    node.reset_from(2, 9093)
    added, deleted = commands
    assert added == (
        "iptables -w -A INPUT -s 10.0.0.2 -p tcp --dport 9093 -j REJECT --reject-with tcp-reset"
    )
    assert deleted == added.replace("-A", "-D")


def test_a_new_namespace_is_brought_to_what_is_wanted(
    node: NodePackets, commands: list[str]
) -> None:
    node.restore()
    assert commands == []
    node.cut_from(2)
    node.slow_to(3, 0.0, 1000.0)
    wanted = list(commands)
    commands.clear()
    node.restore()
    assert commands == wanted
    node.heal()
    commands.clear()
    node.heal()
    assert commands == []


def test_one_destination_is_slowed_and_no_other() -> None:
    limited = [" ".join(command) for command in queue_commands(2, "10.0.0.2", 0.0, 1_000_000.0)]
    assert limited == [
        "tc class add dev eth0 parent 1: classid 1:2 htb rate 8000000bit burst 50000",
        "tc filter add dev eth0 parent 1: protocol ip u32 match ip dst 10.0.0.2/32 flowid 1:2",
    ]
    delayed = queue_commands(3, "10.0.0.3", 40.0, 0.0)
    assert " ".join(delayed[-1]) == (
        "tc qdisc add dev eth0 parent 1:3 netem delay 40ms limit 100000"
    )


def test_a_kernel_without_netem_cannot_delay(
    monkeypatch: pytest.MonkeyPatch, node: NodePackets, commands: list[str]
) -> None:
    monkeypatch.setattr(packets, "has_netem", lambda: False)

    with pytest.raises(TargetError, match="which this machine lacks; --target local delays"):
        node.slow_to(2, 10.0, 0.0)
    assert commands == []
