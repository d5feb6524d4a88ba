"""The process that forks nodes, with nodes that end at once: what they print, and how they end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tidelog.testing.nursery import Nursery, NurseryFailed


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """One for all tests: to import is what takes long."""
    running = Nursery()
    yield running
    running.close()


def test_a_node_prints_and_ends_as_one_started_by_hand_would(nursery: Nursery) -> None:
    node, output = nursery.start(["--help"])
    with output:
        assert output.read().startswith("usage: tidelog server")
    assert (node.wait(30), node.poll()) == (0, 0)
    lost, output = nursery.start(["--config", "/no/such/file"])
    with output:
        assert "No such file or directory: '/no/such/file'" in output.read()
    assert lost.wait(30) == 2
    assert len({node.pid, lost.pid, os.getpid()}) == 3


def test_signals_to_a_node_that_has_ended_are_dropped(nursery: Nursery) -> None:
    node, output = nursery.start(["--help"])
    with output:
        output.read()
    node.wait(30)
    node.kill()
    node.send_signal(signal.SIGTERM)
    assert node.returncode == 0


def test_arguments_may_be_many_and_strange(nursery: Nursery) -> None:
    more = [part for number in range(5000) for part in ("-o", f"größer.{number}=\n \"'")]
    node, output = nursery.start(["--config", "/no/such/file", *more])
    with output:
        assert "/no/such/file" in output.read()
    assert node.wait(30) == 2


def test_a_nursery_that_has_ended_says_so() -> None:
    ended = Nursery()
    ended.close()
    with pytest.raises(NurseryFailed):
        ended.start(["--help"])
