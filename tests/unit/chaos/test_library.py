"""Blocks of the library heal what they did, whatever happens inside, and refuse what is unknown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidelog.chaos
from tidelog.chaos import Cluster, TargetError
from tidelog.chaos.targets.local import LocalTarget


class Noted(LocalTarget):
    """A target whose links and processes are words."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(3, data_dir=data_dir)
        self.calls: list[str] = []

    def _note(self, *words: object) -> None:
        self.calls.append(" ".join(map(str, words)))

    def cut(self, source: int, target: int) -> None:
        self._note("cut", source, target)

    def mend(self, source: int, target: int) -> None:
        self._note("mend", source, target)

    def pause(self, node: int) -> None:
        self._note("pause", node)

    def resume(self, node: int) -> None:
        self._note("resume", node)

    def kill(self, node: int) -> None:
        self._note("kill", node)

    def start_node(self, node: int) -> None:
        self._note("start", node)

    def slow_link(self, source: int, target: int, delay_ms: float, bytes_per_s: float) -> None:
        self._note("slow", source, target, f"{delay_ms:g}", f"{bytes_per_s:g}")


@pytest.fixture
def target(tmp_path: Path) -> Noted:
    return Noted(tmp_path)


BLOCKS: list[tuple[Callable[[Cluster], Any], str]] = [
    (
        lambda cluster: cluster.cut(1, from_="controllers"),
        "cut 1 2; cut 2 1; cut 1 3; cut 3 1; in; mend 3 1; mend 1 3; mend 2 1; mend 1 2",
    ),
    (lambda cluster: cluster.cut(1, from_=3, one_way=True), "cut 1 3; in; mend 1 3"),
    (
        lambda cluster: cluster.cut(2, from_=[1, 2], one_way=False),
        "cut 2 1; cut 1 2; in; mend 1 2; mend 2 1",
    ),
    (lambda cluster: cluster.paused(1, 3), "pause 1; pause 3; in; resume 3; resume 1"),
    (lambda cluster: cluster.killed(2), "kill 2; in; start 2"),
    (lambda cluster: cluster.slowed(3, delay_ms=5, to=1), "slow 3 1 5 0; in; slow 3 1 0 0"),
]


@pytest.mark.parametrize(("block", "calls"), BLOCKS)
def test_a_block_heals_whatever_happens_in_it(
    target: Noted, block: Callable[[Cluster], Any], calls: str
) -> None:
    with pytest.raises(ZeroDivisionError), block(Cluster(target)):
        target.calls.append("in")
        raise ZeroDivisionError
    assert "; ".join(target.calls) == calls


@pytest.mark.parametrize(
    ("whom", "reason"),
    [(7, "no node 7; there are"), ("everybody", "'everybody' is not all, controllers")],
)
def test_nobody_is_cut_off_from_nowhere(target: Noted, whom: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason), Cluster(target).cut(1, from_=whom):
        pass
    assert target.calls == []


def test_who_is_who_is_asked_of_a_cluster_that_runs(target: Noted) -> None:
    with pytest.raises(TargetError, match="use it in a with block"):
        Cluster(target).leader_of("t", 0)


def test_the_package_offers_what_it_says() -> None:
    assert tidelog.chaos.Cluster is Cluster
    with pytest.raises(AttributeError, match="no attribute 'Clutter'"):
        tidelog.chaos.Clutter  # noqa: B018
