"""A controller on a ``PeerServer``: the whole Controller contract, and the loops behind it.

Wiring, in this order: make the ``Controller``, give it to the quorum as its state machine,
``attach`` the quorum, ``serve`` on the server before it starts, and ``run`` beside it.
"""

from __future__ import annotations

from tidelog.controller.service import methods
from tidelog.controller.service.controller import Controller
from tidelog.controller.service.duties import Duties
from tidelog.controller.service.forwarding import Forwarding
from tidelog.controller.service.handlers import Handlers
from tidelog.controller.service.heartbeats import Heartbeats
from tidelog.controller.service.watching import Watching
from tidelog.kernel.peers import PeerServer
from tidelog.kernel.ports import Offload


class ControllerService:
    def __init__(self, controller: Controller, offload: Offload | None = None) -> None:
        self._handlers = Handlers(controller, Forwarding(controller, offload))
        self._heartbeats = Heartbeats(controller)
        self._watching = Watching(controller)
        self._duties = Duties(controller)

    def serve(self, server: PeerServer) -> None:
        """Register every method of the contract."""
        handlers = self._handlers
        server.on_unary(methods.REGISTER_BROKER, handlers.register_broker)
        server.on_unary(methods.UNREGISTER_BROKER, handlers.unregister_broker)
        server.on_unary(methods.ALTER_PARTITION, handlers.alter_partition)
        server.on_unary(methods.REPORT_REPLICAS, handlers.report_replicas)
        server.on_unary(methods.ALLOCATE_PRODUCER_IDS, handlers.allocate_producer_ids)
        server.on_unary(methods.FORWARD, handlers.forward)
        server.on_unary(methods.DESCRIBE_QUORUM, handlers.describe_quorum)
        server.on_unary(methods.ADD_VOTER, handlers.add_voter)
        server.on_unary(methods.REMOVE_VOTER, handlers.remove_voter)
        server.on_stream(methods.HEARTBEAT, self._heartbeats.serve)
        server.on_stream(methods.WATCH_METADATA, self._watching.serve)

    async def run(self) -> None:
        """Until cancelled; raises if a decision turns out to be defective."""
        await self._duties.run()
