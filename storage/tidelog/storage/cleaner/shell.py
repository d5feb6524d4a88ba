"""One pass of the cleaner on the event loop: its heavy part off the loop, its swaps on it."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from tidelog.kernel.ports import Clock, Offload, Steps
from tidelog.storage.cleaner.cleaning import Cleaning
from tidelog.storage.cleaner.report import CleaningReport
from tidelog.storage.cleaner.throttle import Throttle

T = TypeVar("T")


async def clean(
    cleaning: Cleaning, offload: Offload, clock: Clock, throttle: Throttle
) -> CleaningReport:
    """Run a pass to its end; what came of it. ``OSError`` if the disk is broken.

    The owner may call ``cleaning.abort`` meanwhile. If this task is cancelled, the pass leaves
    nothing behind but the segments that were swapped in already, which is no harm.
    """
    while True:
        has_output = await _run(cleaning, offload, clock, throttle)
        if not has_output:
            cleaning.conclude()
            return cleaning.report
        cleaning.swap()


async def _run(cleaning: Cleaning, offload: Offload, clock: Clock, throttle: Throttle) -> bool:
    """Work until there is a segment to swap in, or nothing left to do."""
    steps = cleaning.work()
    if throttle.is_unlimited:
        return await offload.run(steps)
    while True:
        started_ms, before = clock.monotonic_ms(), cleaning.report.bytes_moved
        done = await offload.run(_window(steps, cleaning, throttle.window_bytes))
        moved = cleaning.report.bytes_moved - before
        rest_ms = throttle.rest_ms(moved, clock.monotonic_ms() - started_ms)
        try:
            await asyncio.sleep(rest_ms / 1000)
        except asyncio.CancelledError:
            steps.close()
            raise
        if done is not None:
            return done


def _window(steps: Steps[T], cleaning: Cleaning, most_bytes: float) -> Steps[T | None]:
    """Some steps; None if there are more."""
    before = cleaning.report.bytes_moved
    while cleaning.report.bytes_moved - before < most_bytes:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
        try:
            yield
        except GeneratorExit:  # whoever waited is gone; only here nobody else runs the steps
            steps.close()
            raise
    return None
