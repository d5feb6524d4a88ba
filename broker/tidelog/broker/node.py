"""A node: one process with the broker role, the controller role, or both.

The peer server is up before anything that takes long, so that a quorum can form and brokers can
be heard of while logs are recovered. Whatever a role cannot survive ends the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from tidelog.broker.controller_role import ControllerRole
from tidelog.broker.directories import metadata_directory, own_directories
from tidelog.broker.metrics.state_changes import StateChanges
from tidelog.broker.ports import NodePorts
from tidelog.controller.client.calls import ControllerUnavailable
from tidelog.controller.client.controller_client import RegistrationRefused
from tidelog.controller.quorum.errors import RefusedToStart
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.peers import PeerIdentity
from tidelog.kernel.settings import Settings
from tidelog.kernel.settings.checks import endpoints
from tidelog.storage.format import read_identity
from tidelog.storage.log_dir import LogDirectory, LogDirLocked, open_directory
from tidelog.storage.names import LOCK

if TYPE_CHECKING:
    from tidelog.broker.broker_role import BrokerRole

log = logging.getLogger(__name__)


class NodeFailed(Exception):
    """The node cannot go on, or cannot start; the text says why."""


class Node:
    """``start``, then ``run`` until told to stop, then ``stop``; also ``stop`` after a failure."""

    def __init__(self, settings: Settings, identity: PeerIdentity, ports: NodePorts) -> None:
        self._settings = settings
        self._identity = identity
        self._ports = ports
        self._endpoints = endpoints(settings)
        self.roles = settings.get_list("process.roles")
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._locks: list[AbstractContextManager[None]] = []
        self._directories: list[LogDirectory] = []
        self._has_server = False
        self.node_id = identity.node_id
        self.state_changes = StateChanges(identity.node_id)
        self.controller: ControllerRole | None = None
        self.broker: BrokerRole | None = None

    async def start(self) -> None:
        """Return when the node serves; raises ``NodeFailed`` if it cannot."""
        try:
            await self._start()
        except (RefusedToStart, RegistrationRefused, ControllerUnavailable, LogDirLocked) as error:
            raise NodeFailed(str(error)) from error
        except OSError as error:
            raise NodeFailed(f"{error}") from error

    async def _start(self) -> None:
        if "broker" in self.roles:
            self._open_directories()
        if "controller" in self.roles:
            self.controller = await self._open_controller()
            self.controller.serve(self._ports)
        if "broker" in self.roles:
            self.broker = self._open_broker()
            self.broker.client.feed.subscribe(self.state_changes.note)
            self.broker.serve_peers()
        rpc = self._endpoints.rpc
        self._has_server = True
        bound = await self._ports.peer_server.start(SocketAddress(rpc.host, rpc.port))
        log.info("node %s serves other nodes at %s", self._identity.node_id, bound)
        if self.controller is not None:
            self.controller.start(self.fail)
        if self.broker is not None:
            await self._until_done_or_failed(self.broker.start())

    def _open_broker(self) -> BrokerRole:
        # Late: a node that is only a controller does not load what brokers need, which is much.
        from tidelog.broker.broker_role import BrokerRole

        return BrokerRole(
            self._settings,
            self._identity,
            self._endpoints,
            self._directories,
            self._ports,
            self.fail,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop`` is set, or something happens that the node cannot survive."""
        await self._until_done_or_failed(stop.wait())

    async def stop(self) -> None:
        """Leave in good order as far as that is still possible."""
        if self.broker is not None:
            if not self._failure.done():
                await self.broker.shut_down()
            await self.broker.close()
        else:
            for directory in self._directories:
                directory.abandon()
        if self.controller is not None:
            await self.controller.close()
        if self._has_server:
            await self._ports.peer_server.close()
        for lock in self._locks:
            lock.__exit__(None, None, None)

    def fail(self, error: BaseException) -> None:
        """Something that makes going on unsafe; ``run`` ends with it."""
        if not self._failure.done():
            self._failure.set_exception(NodeFailed(f"{type(error).__name__}: {error}"))
            self._failure.exception()  # it is told by run, start or nobody; never as unheard

    async def _until_done_or_failed(self, work: Coroutine[Any, Any, object]) -> None:
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(work)
        waited: list[asyncio.Future[Any]] = [task, self._failure]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                await self._failure
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _open_directories(self) -> None:
        for path in own_directories(self._settings):
            self._directories.append(
                open_directory(
                    self._ports.disk,
                    path,
                    self._ports.random,
                    cluster_id=self._identity.cluster_id,
                    node_id=self._identity.node_id,
                )
            )

    async def _open_controller(self) -> ControllerRole:
        path = metadata_directory(self._settings)
        if path not in {directory.path for directory in self._directories}:
            self._lock(path)
        meta = read_identity(self._ports.disk, path)
        if meta is None:
            raise NodeFailed(f"{path} is not formatted")
        return await ControllerRole.open(
            self._settings,
            self._identity,
            self._endpoints,
            path,
            meta.directory_id,
            self._ports,
            self.fail,
        )

    def _lock(self, path: str) -> None:
        lock = self._ports.disk.lock(f"{path}/{LOCK}")
        try:
            lock.__enter__()
        except BlockingIOError as error:
            raise LogDirLocked(f"{path} is in use by another process") from error
        self._locks.append(lock)
