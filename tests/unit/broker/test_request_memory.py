"""Room for requests: who gets it, in which order, and that none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.broker.request_memory import RequestMemory
from tidelog.simulation import World, run_simulation


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main(_: World) -> None:
        await scenario()

    run_simulation(main, seed=1, shuffle=False)


@pytest.mark.parametrize(
    ("limit", "used", "asked", "fits"),
    [
        (100, 0, 100, True),
        (100, 0, 101, True),  # alone
        (100, 40, 60, True),
        (100, 40, 61, False),
        (100, 101, 1, False),
        (0, 1 << 40, 1 << 40, True),
        (-1, 1 << 40, 1 << 40, True),
    ],
)
def test_what_fits(limit: int, used: int, asked: int, fits: bool) -> None:
    memory = RequestMemory(limit)
    if used:
        assert memory.try_take(used)
    assert memory.try_take(asked) is fits
    assert memory.used_bytes == used + (asked if fits else 0)


def test_room_is_given_in_the_order_of_asking() -> None:
    async def scenario() -> None:
        memory, served = RequestMemory(100), list[int]()

        async def ask(size: int) -> None:
            await memory.take(size)
            served.append(size)

        assert memory.try_take(100)
        asking = [asyncio.ensure_future(ask(size)) for size in (90, 5)]
        await asyncio.sleep(0)
        memory.give_back(60)
        await asyncio.sleep(0)
        assert served == [] and not memory.try_take(1)  # 5 would fit, but 90 came first
        memory.give_back(40)
        await asyncio.gather(*asking)
        assert served == [90, 5] and memory.used_bytes == 95

    run(scenario)


def test_whoever_stops_waiting_leaves_no_gap() -> None:
    async def scenario() -> None:
        memory = RequestMemory(100)
        assert memory.try_take(50)
        large, small = (asyncio.ensure_future(memory.take(size)) for size in (90, 20))
        await asyncio.sleep(0)
        large.cancel()
        await asyncio.sleep(0)
        await small
        assert memory.used_bytes == 70

        waiting = asyncio.ensure_future(memory.take(60))
        await asyncio.sleep(0)
        memory.give_back(70)
        waiting.cancel()  # in the moment in which it was let in
        await asyncio.gather(waiting, return_exceptions=True)
        assert memory.used_bytes == 0

    run(scenario)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 150), st.integers(0, 30), st.booleans()), max_size=30))
def test_the_limit_holds_and_everybody_is_served(asked: list[tuple[int, int, bool]]) -> None:
    async def scenario() -> None:
        memory = RequestMemory(100)

        async def use(size: int, ms: int, gives_up: bool) -> None:
            try:
                async with asyncio.timeout(0.01 if gives_up else None):
                    await memory.take(size)
            except TimeoutError:
                return
            assert memory.used_bytes <= max(100, size)
            await asyncio.sleep(ms / 1000)
            memory.give_back(size)

        await asyncio.gather(*(use(*one) for one in asked))
        assert memory.used_bytes == 0 and memory.try_take(100)

    run(scenario)
