"""A node as a process: what it is told before it serves, and the ports it cannot have."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import pytest

from tidelog.broker.node import Node, NodeFailed
from tidelog.broker.port_check import refuse_taken_ports
from tidelog.broker.process import _start_unless
from tidelog.broker.real_ports import CannotStart
from tidelog.kernel.settings.checks import Endpoints, endpoints
from tidelog.kernel.settings.load import load


class Starting:
    """A node that takes until told, or fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.may_serve = asyncio.Event()
        self.was_cancelled = False

    async def start(self) -> None:
        if self.failure is not None:
            raise self.failure
        try:
            await self.may_serve.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


def test_a_node_that_serves_is_let_be() -> None:
    async def main() -> None:
        node = Starting()
        node.may_serve.set()
        assert await _start_unless(asyncio.Event(), cast(Node, node))
        assert not node.was_cancelled

    asyncio.run(main())


def test_a_node_that_waits_for_others_is_stopped(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node, stop = Starting(), asyncio.Event()
        waiting = asyncio.create_task(_start_unless(stop, cast(Node, node)))
        await asyncio.sleep(0)
        assert not waiting.done()
        stop.set()
        assert await waiting is False
        assert node.was_cancelled

    with caplog.at_level("INFO"):
        asyncio.run(main())
    assert "told to stop before the node came into service" in caplog.text


def test_a_node_that_cannot_start_says_so() -> None:
    async def main() -> None:
        with pytest.raises(NodeFailed, match="no disk"):
            await _start_unless(asyncio.Event(), cast(Node, Starting(NodeFailed("no disk"))))

    asyncio.run(main())


def places(listeners: str) -> Endpoints:
    given = ["node.id=1", "controller.quorum.voters=1@127.0.0.1:1", f"listeners={listeners}"]
    return endpoints(load(environment={}, overrides=given).settings)


def taken(host: str = "127.0.0.1", **options: Any) -> socket.socket:
    return socket.create_server((host, 0), **options)


@pytest.mark.parametrize(
    ("listeners", "name"),
    [
        ("PLAINTEXT://127.0.0.1:{},CONTROLLER://127.0.0.1:0", "PLAINTEXT"),
        ("PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{}", "CONTROLLER"),
        ("PLAINTEXT://localhost:{},CONTROLLER://:0", "PLAINTEXT"),
        ("PLAINTEXT://:{},CONTROLLER://127.0.0.1:0", "PLAINTEXT"),
    ],
)
def test_a_port_that_somebody_has_is_told_by_its_listener(listeners: str, name: str) -> None:
    with taken() as other:
        port = other.getsockname()[1]
        with pytest.raises(CannotStart) as refused:
            refuse_taken_ports(places(listeners.format(port)))
    told = str(refused.value)
    assert told.startswith("listeners: cannot listen on ")
    assert f":{port} ({name}): Address already in use; stop what listens there" in told
    refuse_taken_ports(places(listeners.format(port)))  # and now it is free


def test_a_host_that_nobody_knows() -> None:
    with pytest.raises(CannotStart, match=r"no\.such\.host\.invalid:9092 \(PLAINTEXT\)"):
        refuse_taken_ports(places("PLAINTEXT://no.such.host.invalid:9092,CONTROLLER://:0"))
