"""Produces that wait for replicas at a broker that was cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tidelog.broker.handlers.parked_produces import ParkedProduces
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import Offset
from tidelog.replication.outcomes import Produced
from tidelog.simulation import World, run_simulation

E = ErrorCode


@dataclass
class Room:
    world: World
    cut_off: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.produces = ParkedProduces(self.world.clock, lambda: bool(self.cut_off))

    def wait_for(self, *outcomes: asyncio.Future[Produced]) -> asyncio.Task[tuple[ErrorCode, ...]]:
        async def wait() -> tuple[ErrorCode, ...]:
            with self.produces.parked(outcomes):
                return tuple([(await one).code for one in outcomes])

        return asyncio.create_task(wait())


def in_room(script: Callable[[Room], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        await script(Room(world))

    run_simulation(main, 0)


def outcome() -> asyncio.Future[Produced]:
    return asyncio.get_running_loop().create_future()


def test_whoever_waits_when_the_broker_is_cut_off_is_sent_to_look_for_the_leader() -> None:
    async def script(room: Room) -> None:
        done, stuck = outcome(), outcome()
        waiting = room.wait_for(done, stuck)
        done.set_result(Produced(E.NONE, Offset(7)))
        await asyncio.sleep(10)
        assert not waiting.done(), "the partition has the time-out of the request"
        room.cut_off.append(True)
        await asyncio.sleep(0.3)
        assert waiting.result() == (E.NONE, E.NOT_LEADER_OR_FOLLOWER)

    in_room(script)


def test_who_comes_later_is_given_the_time_that_a_write_takes_which_goes_through() -> None:
    async def script(room: Room) -> None:
        room.cut_off.append(True)
        quick, stuck = outcome(), outcome()
        served, sent_away = room.wait_for(quick), room.wait_for(stuck)
        await asyncio.sleep(0.4)
        quick.set_result(Produced(E.NONE, Offset(7)))
        assert await served == (E.NONE,)
        assert not sent_away.done()
        await asyncio.sleep(0.4)
        assert sent_away.result() == (E.NOT_LEADER_OR_FOLLOWER,)

    in_room(script)


def test_nothing_is_looked_at_when_nobody_waits() -> None:
    async def script(room: Room) -> None:
        for _ in range(2):
            one = outcome()
            waiting = room.wait_for(one)
            await asyncio.sleep(0.1)
            one.set_result(Produced(E.NONE))
            await waiting
            await asyncio.sleep(1)
            assert room.produces._timer is None
        gone = room.wait_for(outcome())
        await asyncio.sleep(0.1)
        gone.cancel()
        await asyncio.wait([gone])
        await asyncio.sleep(1)
        assert room.produces._timer is None

    in_room(script)
