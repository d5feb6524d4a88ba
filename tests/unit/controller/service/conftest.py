"""An active controller whose records commit at once, with its handlers and a broker or two."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from controller_cluster import (
    CLUSTER_ID,
    FEATURES,
    QuorumLog,
    context_of,
    directory,
    node,
    uuid,
)

from tidelog.controller.decisions.policy import ControllerPolicy
from tidelog.controller.decisions.registration import RegistrationRequest
from tidelog.controller.metadata.records import Endpoint
from tidelog.controller.service.contract import registration_message
from tidelog.controller.service.controller import Controller
from tidelog.controller.service.duties import Duties
from tidelog.controller.service.forwarding import Forwarding
from tidelog.controller.service.handlers import Handlers
from tidelog.controller.service.heartbeats import Heartbeats
from tidelog.controller.service.watching import Watching
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import IncarnationId
from tidelog.kernel.peers import StreamReset
from tidelog.kernel.settings import Settings
from tidelog.simulation import SimRandom, World, run_simulation
from tidelog.v1 import controller_pb2 as pb

T = TypeVar("T")


class ScriptedStream:
    """The server's end of a stream: the test puts requests in and takes answers out."""

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[Any] = asyncio.Queue()
        self.sent: list[Any] = []
        self.is_over = False
        self.room = asyncio.Event()
        self.room.set()

    async def send(self, message: Any) -> None:
        await self.room.wait()
        if self.is_over:
            raise StreamReset("the peer has gone")
        self.sent.append(message)

    def offer(self, message: Any) -> bool:
        self.sent.append(message)
        return True

    async def receive(self) -> Any:
        message = await self.inbox.get()
        if message is None:
            raise StreamReset("the peer has gone")
        return message

    def close(self) -> None:
        self.inbox.put_nowait(None)

    def put(self, message: Any) -> None:
        self.inbox.put_nowait(message)

    def reset(self) -> None:
        self.is_over = True
        self.inbox.put_nowait(None)


class Desk:
    """One controller, elected, and all that it serves."""

    def __init__(self, world: World, *, standby: bool = False, **settings: str) -> None:
        values = {name.replace("_", "."): value for name, value in settings.items()}
        self.world = world
        self.log = QuorumLog()
        self.halted: list[str] = []
        self.controller = Controller(
            ControllerPolicy(CLUSTER_ID, node(1), Settings.of(values)),
            clock=world.clock,
            random=SimRandom(7),
            halt=lambda why, error: self.halted.append(why),
        )
        self.member = self.log.join(self.controller)
        self.handlers = Handlers(self.controller, Forwarding(self.controller))
        self.heartbeats = Heartbeats(self.controller)
        self.watching = Watching(self.controller)
        self.duties = Duties(self.controller)
        if not standby:
            self.log.elect(node(1))

    def request(self, broker: int, incarnation: int = 0, **changes: Any) -> RegistrationRequest:
        values: dict[str, Any] = {
            "broker_id": node(broker),
            "cluster_id": CLUSTER_ID,
            "incarnation_id": IncarnationId(uuid(100 * broker + incarnation)),
            "log_dirs": (directory(broker),),
            "endpoints": (Endpoint("PLAINTEXT", "localhost", 9092),),
            "features": FEATURES,
        }
        return RegistrationRequest(**(values | changes))

    async def register(self, request: RegistrationRequest) -> pb.RegisterBrokerResponse:
        return await self.handlers.register_broker(
            context_of(request.broker_id), registration_message(request)
        )

    async def add_broker(self, broker: int) -> tuple[int, ScriptedStream]:
        """Register it, and unfence it by a heartbeat; its epoch and its stream."""
        answer = await self.register(self.request(broker))
        assert answer.error_code == ErrorCode.NONE, answer
        stream = ScriptedStream()
        self.spawn_heartbeats(broker, stream)
        stream.put(self.heartbeat(answer.broker_epoch))
        await asyncio.sleep(0.1)
        assert not self.controller.committed.brokers[node(broker)].fenced
        return answer.broker_epoch, stream

    def spawn_heartbeats(self, broker: int, stream: ScriptedStream) -> None:
        asyncio.get_running_loop().create_task(self._serve_heartbeats(broker, stream))

    async def _serve_heartbeats(self, broker: int, stream: ScriptedStream) -> None:
        with contextlib.suppress(StreamReset):
            await self.heartbeats.serve(context_of(broker), stream)

    def heartbeat(self, epoch: int | None, sequence: int = 1, **more: Any) -> pb.HeartbeatRequest:
        end = self.controller.committed.offset + 1
        return pb.HeartbeatRequest(
            sequence=sequence, broker_epoch=epoch, **({"metadata_end_offset": end} | more)
        )


@pytest.fixture
def at_the_desk() -> Callable[..., Any]:
    """Runs a scenario with a desk, in virtual time."""

    def run(
        scenario: Callable[[Desk], Coroutine[Any, Any, T]], standby: bool = False, **settings: str
    ) -> T:
        async def main(world: World) -> T:
            return await scenario(Desk(world, standby=standby, **settings))

        return run_simulation(main, seed=1)

    return run
