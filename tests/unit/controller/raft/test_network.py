"""A quorum under faults, from seeds; every property of Raft is judged after every event.

See tests/support/raft_network.py for the faults and raft_checks.py for the properties.
"""

from __future__ import annotations

import random

import pytest
from raft_checks import Violation
from raft_network import Faults, Host, Network, run_seed
from slow_tests import slow_after

from tidelog.controller.raft.events import PeerStreamReset
from tidelog.controller.raft.model import Term
from tidelog.controller.raft.roles import Role

GROUPS = [range(start, start + 10) for start in range(0, 250, 10)]


@pytest.mark.parametrize(
    "numbers", slow_after(8, GROUPS), ids=lambda numbers: f"{numbers[0]}-{numbers[-1]}"
)
def test_nothing_is_lost_and_the_quorum_recovers(numbers: range) -> None:
    for seed in numbers:
        run_seed(seed)


def test_the_seeds_show_what_they_are_meant_to() -> None:
    """A quiet network would prove nothing."""
    networks = [run_seed(seed, fault_ms=6_000.0) for seed in range(500, 515)]
    assert sum(len(network.checks.leaders) for network in networks) > 45
    assert sum(len(network.checks.chain) for network in networks) > 300
    assert any(network.lost_disks for network in networks)
    snapshots = [h.disk.snapshot for network in networks for h in network.hosts.values()]
    assert sum(snapshot is not None for snapshot in snapshots) > 10


def test_a_seed_replays_exactly() -> None:
    first, second = run_seed(7), run_seed(7)
    assert first.events == second.events
    assert first.checks.digests == second.checks.digests
    assert list(first.trace) == list(second.trace)


def quiet_network(seed: int = 1) -> Network:
    network = Network(seed, Faults(max_delay_ms=2, max_sync_ms=2))
    assert network.run_for(5_000.0, until=network.agree)
    return network


def role_of(host: Host) -> Role:
    assert host.node is not None
    return host.node.status.role


def test_three_fresh_nodes_elect_a_leader_soon() -> None:
    assert quiet_network().now_ms < 1_500.0


@pytest.mark.parametrize("seed", range(1, 11))
def test_a_killed_leader_is_replaced_long_before_silence_would_tell(seed: int) -> None:
    """The followers' streams to it break, and that is enough (DESIGN, 2.3)."""
    network = quiet_network(seed)
    leader = network.leader()
    assert leader is not None
    network.crash(leader)
    network.run_for(5.0)  # a stream breaks behind the last message that was said on it
    for host in network.running():
        network.step(host, PeerStreamReset(leader.node_id))
    before_ms = network.now_ms
    assert network.run_for(2_000.0, until=lambda: network.leader() is not None)
    assert network.now_ms - before_ms < 600.0


def test_a_node_that_was_cut_off_disturbs_nobody_on_its_return() -> None:
    """Pre-vote: its term does not rise while it is away, and the leader stays."""
    network = quiet_network()
    leader = network.leader()
    assert leader is not None and leader.node is not None
    term = leader.node.status.term
    away = next(host for host in network.running() if host is not leader)
    others = [n for n in network.hosts if n != away.node_id]
    network.cut_links.update((away.node_id, n) for n in others)
    network.cut_links.update((n, away.node_id) for n in others)
    network.run_for(8_000.0)
    network.cut_links.clear()
    network.run_for(4_000.0)
    assert network.leader() is leader
    assert leader.node.status.term == term
    assert role_of(away) is Role.FOLLOWER


def test_a_leader_that_was_cut_off_resigns() -> None:
    network = quiet_network()
    leader = network.leader()
    assert leader is not None
    network.cut_links.update((n, leader.node_id) for n in network.hosts)
    network.run_for(1_300.0)
    assert role_of(leader) is Role.LEADER
    network.run_for(400.0)
    assert role_of(leader) is Role.RESIGNED


def test_a_stalled_quorum_keeps_its_leader() -> None:
    """All three stand still for 2.5 s, as on a laptop that slept: nobody concludes anything."""
    network = quiet_network()
    leader = network.leader()
    for host in network.hosts.values():
        host.stalled_until_ms = network.now_ms + 2_500.0
    network.run_for(6_000.0)
    assert network.leader() is leader
    assert len(network.checks.leaders) == 1


def test_the_checks_can_fail() -> None:
    """Disks that kept less than they promised: the next heartbeat is answered with a lie."""
    network = quiet_network()
    leader = network.leader()
    assert leader is not None
    for host in network.hosts.values():
        if host is not leader:
            host.disk.entries.clear()
    with pytest.raises(Violation, match="acknowledges"):
        network.run_for(1_000.0)


def test_two_leaders_of_one_term_are_noticed() -> None:
    network = quiet_network()
    one, two = list(network.hosts.values())[:2]
    assert one.node is not None and two.node is not None
    network.checks.leaders.pop(Term(90), None)
    network.checks.became_leader(one.key, Term(90), one.node)
    with pytest.raises(Violation, match="two leaders"):
        network.checks.became_leader(two.key, Term(90), two.node)


def test_chance_is_drawn_from_the_seed_only() -> None:
    random.seed(1)
    first = run_seed(3, fault_ms=1_000.0).events
    random.seed(2)
    assert run_seed(3, fault_ms=1_000.0).events == first
