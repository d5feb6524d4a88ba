"""The HTTP side of a node: a socket that is bound at once, and a server that starts when asked.

Importing aiohttp takes several times as long as anything else in a node's start, and 10 MB. So the
port is bound before the node starts, which is also when a port that is taken is found out, and the
server behind it is loaded, in a thread, when the first client knocks. That client waits a moment;
a node that nobody asks never pays. Asked early, ``/readyz`` tells what the node is waiting for.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from importlib import import_module
from typing import Any, Final

from tidelog.broker.metrics.collecting import Collector
from tidelog.broker.metrics.loop_lag import LoopLag
from tidelog.broker.metrics.node_facts import NodeFacts
from tidelog.broker.node import Node
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.ports import Disk

log = logging.getLogger(__name__)

_BACKLOG: Final = 64
_GOODBYE_S: Final = 0.5


def bind(address: SocketAddress) -> socket.socket:
    """Bind and listen; ``OSError`` if that is not possible."""
    if not address.host and socket.has_dualstack_ipv6():
        bound = socket.create_server(
            ("", address.port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
        )
    else:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        bound = socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    bound.setblocking(False)
    return bound


def node_version() -> str:
    from importlib import metadata  # slow to import, and not needed for a start

    try:
        return metadata.version("tidelog")
    except metadata.PackageNotFoundError:
        return "unknown"


class HttpSide:
    """Owner: the process. ``start`` before the node starts, ``close`` after it stopped."""

    def __init__(self, bound: socket.socket, node: Node, cluster_id: str, disk: Disk) -> None:
        self._bound = bound
        self._lag = LoopLag()
        self._view = NodeFacts(node, cluster_id, disk)
        self._changes = node.state_changes
        self._task: asyncio.Task[None] | None = None
        self._runner: Any = None

    def start(self) -> None:
        host, port = self._bound.getsockname()[:2]
        log.info("metrics and health are served at http://%s", SocketAddress(host, port))
        self._lag.start()
        asyncio.get_running_loop().add_reader(self._bound, self._knocked)

    def _knocked(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._bound)
        self._task = loop.create_task(self._serve(), name="load the http server")
        self._task.add_done_callback(_tell_failure)

    async def _serve(self) -> None:
        await asyncio.to_thread(import_module, "aiohttp.web")
        from aiohttp import web

        from tidelog.broker.http.app import make_app

        version = node_version()
        collector = Collector(self._view, self._changes, self._lag, version=version)
        app = make_app(self._view, collector, version=version)
        runner = self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=_GOODBYE_S
        )
        await runner.setup()
        await web.SockSite(runner, self._bound, backlog=_BACKLOG).start()

    async def close(self) -> None:
        self._lag.stop()
        if self._task is None:
            asyncio.get_running_loop().remove_reader(self._bound)
        else:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()
        self._bound.close()


def _tell_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the http server could not be started: %s", error, exc_info=error)
