"""Calls look for the active controller, and wait no longer than they must."""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog.controller.client.active_controller import ActiveController
from tidelog.controller.client.calls import ControllerCalls
from tidelog.controller.service.methods import ALLOCATE_PRODUCER_IDS
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NodeId
from tidelog.simulation import World, run_simulation
from tidelog.v1 import controller_pb2 as pb

ONE, TWO = NodeId(1), NodeId(2)


class Controllers:
    """Both answer; none is active before it is elected."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.elected: NodeId | None = None
        self.asked_ms: list[float] = []

    async def call(self, node: NodeId, *_: Any, **__: Any) -> Any:
        self.asked_ms.append(self._world.loop.elapsed_ms())
        code = ErrorCode.NONE if node == self.elected else ErrorCode.NOT_CONTROLLER
        return pb.AllocateProducerIdsResponse(error_code=code)

    def open_stream(self, *_: Any) -> Any:
        raise AssertionError("calls open no streams")


def test_a_call_that_waits_for_an_election_goes_on_with_the_news() -> None:
    async def main(world: World) -> None:
        controllers, active = Controllers(world), ActiveController([ONE, TWO])
        calls = ControllerCalls(controllers, active, clock=world.clock, random=world.random)
        request = pb.AllocateProducerIdsRequest()
        calling = asyncio.ensure_future(
            calls.call(ALLOCATE_PRODUCER_IDS, request, timeout_ms=60_000)
        )
        await asyncio.sleep(5)
        pauses = [
            after - before
            for before, after in zip(controllers.asked_ms, controllers.asked_ms[1:], strict=False)
        ]
        assert pauses[0] < 40 and max(pauses) > 200  # ever longer
        controllers.elected = TWO
        active.learn(TWO, 1)
        assert (await calling).error_code == ErrorCode.NONE
        assert controllers.asked_ms[-1] - 5000 < 1

    run_simulation(main, seed=1)
