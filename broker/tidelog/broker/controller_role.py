"""The controller role of a node: a member of the quorum with the controller it replicates.

It is served before the node's logs are recovered: a quorum must be able to form while brokers are
still reading their disks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog.broker.ports import NodePorts
from tidelog.controller.decisions.policy import SUPPORTED_FEATURES, ControllerPolicy
from tidelog.controller.metadata.records import Endpoint, FeatureRange, RegisterController
from tidelog.controller.quorum.quorum import Quorum, QuorumPorts
from tidelog.controller.quorum.settings import QuorumSettings
from tidelog.controller.raft.model import Identity, ReplicaKey
from tidelog.controller.service.controller import Controller
from tidelog.controller.service.node import ControllerService
from tidelog.kernel.ids import DirectoryId
from tidelog.kernel.peers import PeerIdentity
from tidelog.kernel.ports import Offload
from tidelog.kernel.settings import Settings
from tidelog.kernel.settings.checks import Endpoints


class ControllerRole:
    """Made by ``open``; its methods are served before ``start``."""

    def __init__(self, quorum: Quorum, controller: Controller, offload: Offload) -> None:
        self.quorum = quorum
        self.controller = controller
        self._service = ControllerService(controller, offload)
        self._duties: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        settings: Settings,
        identity: PeerIdentity,
        endpoints: Endpoints,
        metadata_dir: str,
        directory_id: DirectoryId,
        ports: NodePorts,
        on_fatal: Callable[[BaseException], None],
    ) -> ControllerRole:
        """Read the metadata directory; ``RefusedToStart`` if it cannot be trusted."""
        quorum = await Quorum.open(
            metadata_dir,
            Identity(
                ReplicaKey(identity.node_id, directory_id),
                identity.cluster_id,
                tuple(sorted(endpoints.voters)),
            ),
            QuorumSettings.of(settings),
            QuorumPorts(ports.clock, ports.random, ports.disk, ports.offload, ports.peers),
            on_fatal,
        )
        told = endpoints.rpc_advertised
        controller = Controller(
            ControllerPolicy(identity.cluster_id, identity.node_id, settings),
            clock=ports.clock,
            random=ports.random,
            halt=lambda _, error: on_fatal(error),
            registration=RegisterController(
                identity.node_id,
                identity.incarnation_id,
                (Endpoint(endpoints.rpc.name, told.host, told.port),),
                tuple(FeatureRange(name, *r) for name, r in sorted(SUPPORTED_FEATURES.items())),
            ),
        )
        controller.attach(quorum)
        return cls(quorum, controller, ports.offload)

    def serve(self, ports: NodePorts) -> None:
        self.quorum.serve(ports.peer_server)
        self._service.serve(ports.peer_server)

    def start(self, on_fatal: Callable[[BaseException], None]) -> None:
        """Take part in the quorum; the peer server is up by now."""
        self.quorum.start(self.controller)
        self._duties = asyncio.get_running_loop().create_task(
            self._service.run(), name="controller duties"
        )
        self._duties.add_done_callback(lambda task: _report(task, on_fatal))

    async def close(self) -> None:
        """Hand leadership on and let the files go."""
        if self._duties is not None:
            self._duties.cancel()
            await asyncio.gather(self._duties, return_exceptions=True)
        await self.quorum.close()


def _report(task: asyncio.Task[None], on_fatal: Callable[[BaseException], None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        on_fatal(error)
