"""The process that forks nodes, with nodes that end at once: what they print, and how they end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

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


LAUNCHER = """
import os, signal, sys
from pathlib import Path
from tidelog.testing.nursery import Nursery

nursery = Nursery()
nursery.leftover = Path(sys.argv[1])
for _ in range(3):
    nursery.start(["--help"])
"""


def launched(leftover: Path, end: str) -> None:
    """A launcher of three nodes, until it has ended in this way."""
    (leftover / "node-1").mkdir(parents=True)
    program = [sys.executable, "-c", LAUNCHER + end, str(leftover)]
    subprocess.run(program, timeout=60, check=False)


def test_what_is_left_over_goes_if_the_launcher_is_killed(tmp_path: Path) -> None:
    launched(tmp_path / "data", "os.kill(os.getpid(), signal.SIGKILL)")
    until(lambda: not (tmp_path / "data").exists(), "the nursery removes it")
    assert tmp_path.exists()


def test_it_goes_also_if_the_launcher_had_not_read_all_it_was_told(tmp_path: Path) -> None:
    """A socket that is closed with something unread is reset, which is no end of input."""
    leftover = tmp_path / "data"
    leftover.mkdir()
    ours, theirs = socket.socketpair()
    with theirs:
        program = [sys.executable, "-m", "tidelog.testing.nursery_process", str(theirs.fileno())]
        nursery = subprocess.Popen(program, pass_fds=[theirs.fileno()])
    request = json.dumps({"arguments": ["--help"], "leftover": str(leftover)})
    with ours, open(os.devnull, "wb") as output:
        socket.send_fds(ours, [f"{request}\n".encode()], [output.fileno()])
        until(
            lambda: ours.recv(1000, socket.MSG_PEEK).count(b"\n") == 2, "a node was born and ended"
        )
    assert nursery.wait(60) == 0
    assert not leftover.exists()


def test_what_is_left_over_is_the_launchers_while_it_lives(tmp_path: Path) -> None:
    launched(tmp_path / "data", "nursery.close()")
    assert (tmp_path / "data" / "node-1").exists()


def test_a_nursery_that_has_ended_says_so() -> None:
    ended = Nursery()
    ended.close()
    with pytest.raises(NurseryFailed):
        ended.start(["--help"])
