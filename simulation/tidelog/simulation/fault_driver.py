"""Does to a simulated cluster what a schedule says, and leaves it sound.

Owner: the simulation, one driver per run; nobody else may strike the same cluster meanwhile. At
every moment the driver knows which faults are under way; it compares what they ask for with what
it did, and does the difference. A node that went down, by a fault or by halting itself, is
started again when the last fault that names it is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from tidelog.simulation.fault_schedule import FaultSchedule
from tidelog.simulation.faults import (
    Conditions,
    Crash,
    FailedOperation,
    Fault,
    FaultTarget,
    FlippedBit,
    Kill,
    PowerLoss,
    Stop,
    conditions,
    end_ms,
    nodes_of,
)
from tidelog.simulation.trace import NOBODY, Trace

K = TypeVar("K")
V = TypeVar("V")


class FaultDriver:
    def __init__(self, target: FaultTarget, trace: Trace | None = None) -> None:
        self._target = target
        self._trace = trace
        self._active: list[Fault] = []
        self._done = Conditions()

    async def run(self, schedule: FaultSchedule) -> None:
        """Strike, from now on, until the last fault is over."""
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        moments = sorted(
            [(fault.at_ms, True, number) for number, fault in enumerate(schedule.faults)]
            + [(end_ms(fault), False, number) for number, fault in enumerate(schedule.faults)],
            key=lambda moment: (moment[0], moment[2], not moment[1]),
        )
        for at_ms, is_begin, number in moments:
            await asyncio.sleep(max(0.0, start_s + at_ms / 1000 - loop.time()))
            fault = schedule.faults[number]
            if is_begin:
                await self._begin(fault)
            else:
                await self._end(fault)

    async def heal(self) -> None:
        """End whatever is under way, also when ``run`` was cancelled half way."""
        for fault in list(self._active):
            await self._end(fault)

    async def _begin(self, fault: Fault) -> None:
        self._note("begins", fault)
        self._active.append(fault)
        target = self._target
        match fault:
            case Kill():
                if target.is_alive(fault.node):
                    await target.kill(fault.node)
            case PowerLoss():
                await target.power_loss(fault.nodes)
            case Stop():
                if target.is_alive(fault.node):
                    target.stop(fault.node)
            case Crash():
                if target.is_alive(fault.node):
                    target.crash_at(fault.node, fault.nth, is_power_loss=fault.is_power_loss)
            case FailedOperation():
                target.fail_disk(fault.node, fault.operation, fault.times)
            case FlippedBit():
                target.flip_bit(fault.node, fault.draw)
            case _:
                pass
        self._adjust()

    async def _end(self, fault: Fault) -> None:
        self._note("is over", fault)
        self._active.remove(fault)
        if isinstance(fault, FailedOperation) and not self._is_failing(fault.node):
            self._target.repair_disk(fault.node)
        if isinstance(fault, Crash):
            self._target.crash_at(fault.node, None, is_power_loss=fault.is_power_loss)
        self._adjust()
        await self._restart_after(fault)
        self._adjust()

    async def _restart_after(self, ended: Fault) -> None:
        down = conditions(self._active).down
        named = {node for fault in self._active for node in nodes_of(fault)}
        for node in nodes_of(ended):
            is_due = isinstance(ended, Kill | PowerLoss | Stop | Crash) or node not in named
            if is_due and node not in down and not self._target.is_alive(node):
                await self._target.restart(node)

    def _is_failing(self, node: int) -> bool:
        return any(isinstance(one, FailedOperation) and one.node == node for one in self._active)

    def _adjust(self) -> None:
        """Do what is wanted and not done, take back what is done and not wanted."""
        target, done, wanted = self._target, self._done, conditions(self._active)
        # A process that ended took its stop with it; a new one is stopped again.
        done.paused = {node for node in done.paused if target.is_alive(node)}
        wanted.paused = {node for node in wanted.paused if target.is_alive(node)}
        for way in sorted(done.cut - wanted.cut):
            target.mend(*way)
        for way in sorted(wanted.cut - done.cut):
            target.cut(*way)
        _each_change(
            done.quality, wanted.quality, lambda way, quality: target.set_quality(*way, quality)
        )
        _each_change(
            done.step_delay_ms,
            wanted.step_delay_ms,
            lambda node, delay_ms: target.slow_disk(node, delay_ms or 0.0),
        )
        for node in sorted(done.stalled ^ wanted.stalled):
            target.stall_disk(node, node in wanted.stalled)
        _each_change(done.free_bytes, wanted.free_bytes, target.limit_disk)
        _each_change(
            done.skew_ms,
            wanted.skew_ms,
            lambda node, skew_ms: target.set_clock_skew(node, skew_ms or 0),
        )
        for node in sorted(done.paused - wanted.paused):
            target.resume(node)
        for node in sorted(wanted.paused - done.paused):
            target.pause(node)
        self._done = wanted

    def _note(self, what: str, fault: Fault) -> None:
        if self._trace is not None:
            self._trace.note(NOBODY, f"fault {what}", fault=fault)


def _each_change(
    done: dict[K, V], wanted: dict[K, V], change: Callable[[K, V | None], None]
) -> None:
    for key in dict.fromkeys([*done, *wanted]):
        if done.get(key) != wanted.get(key):
            change(key, wanted.get(key))
