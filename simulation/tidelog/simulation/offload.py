"""``Offload`` without threads: each step runs inline, at a moment the seed chooses."""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from tidelog.kernel.ports import Random, Steps, in_one_go
from tidelog.simulation.disk_faults import DiskFaults

T = TypeVar("T")

_STALL_CHECK_S: Final = 0.010


class InlineOffload:
    """Runs all steps on the spot, for tests in which time plays no part."""

    __slots__ = ()

    async def run(self, work: Steps[T]) -> T:
        return in_one_go(work)


class SimOffload:
    """Waits a drawn delay before each step, so that other events fall between the steps.

    The disk's faults slow it down (``step_delay_ms``) or hold it up for as long as they say
    (``stalled``): offloaded work is mostly fsync, and a call that blocks has no other way to
    let virtual time pass. The wait comes before the step, so what a stalled fsync was to make
    durable is not durable yet.
    """

    def __init__(
        self, random: Random, faults: DiskFaults | None = None, *, max_delay_ms: float = 5.0
    ) -> None:
        self._random = random
        self._faults = DiskFaults() if faults is None else faults
        self._max_delay_ms = max_delay_ms

    async def run(self, work: Steps[T]) -> T:
        try:
            while True:
                await self._wait()
                next(work)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            work.close()

    async def _wait(self) -> None:
        drawn_ms = self._random.random() * self._max_delay_ms
        await asyncio.sleep((drawn_ms + self._faults.step_delay_ms) / 1000.0)
        # Polled, because a fault is a plain field that any test may set without a loop.
        while self._faults.stalled:  # noqa: ASYNC110
            await asyncio.sleep(_STALL_CHECK_S)
