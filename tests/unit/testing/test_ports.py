"""Ports that launchers choose: no two of them the same, though neither has bound it yet."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tidelog.kernel.addresses import SocketAddress
from tidelog.testing.ports import Ports

LAUNCHER = """
import sys
from tidelog.kernel.addresses import SocketAddress
from tidelog.testing.ports import Ports
ports = Ports()
print(ports.want(SocketAddress("127.0.0.1", int(sys.argv[1]))).port, flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="claims to ports are Linux's")


def test_a_port_is_chosen_by_one_launcher_at_a_time() -> None:
    first, second = Ports(), Ports()
    chosen = first.draw("127.0.0.1")
    moved = second.want(chosen)
    assert moved != chosen and second.moved == [(chosen.port, moved.port)]
    first.release()
    assert Ports().want(chosen) == chosen
    assert first.want(chosen) != chosen  # a cluster's ports differ, also from those it had


def test_other_processes_see_the_claim_until_its_holder_ends() -> None:
    chosen = Ports().draw("127.0.0.1")
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(chosen.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert int(other.stdout.readline()) == chosen.port
        assert Ports().want(chosen) != chosen
        other.kill()
        other.wait(60)
        assert Ports().want(chosen) == chosen


def test_a_launcher_that_is_forgotten_claims_nothing() -> None:
    chosen = Ports().draw("127.0.0.1")
    assert Ports().want(SocketAddress("127.0.0.1", chosen.port)) == chosen
