"""One pass of the cleaner on the event loop: its heavy half elsewhere, its swaps here.

Elsewhere is a process of its own where there are ``Workers``, else whatever the ``Offload`` is:
threads on a real machine, which share the interpreter's lock with the loop, and drawn moments in
the simulation. The work, the limit of bytes per second and the ways to end it are the same.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Protocol, TypeVar

from tidelog.kernel.ports import Clock, Offload, Steps, Worker, WorkerLost, Workers
from tidelog.storage.cleaner.cleaning import Cleaning
from tidelog.storage.cleaner.pass_messages import (
    Begin,
    End,
    Failed,
    Question,
    Work,
    Worked,
    decode_answer,
    encode_question,
)
from tidelog.storage.cleaner.report import CleaningReport, Outcome
from tidelog.storage.cleaner.throttle import Throttle

T = TypeVar("T")

_log = logging.getLogger(__name__)

_BYTES_PER_QUESTION: Final = float(16 << 20)
"""What a worker does without looking up: a tenth of a second's work."""


async def clean(
    cleaning: Cleaning,
    offload: Offload,
    clock: Clock,
    throttle: Throttle,
    workers: Workers | None = None,
) -> CleaningReport:
    """Run a pass to its end; what came of it. ``OSError`` if the disk is broken.

    The owner may call ``cleaning.abort`` meanwhile. If this task is cancelled, the pass leaves
    nothing behind but the segments that were swapped in already, which is no harm.
    """
    try:
        await _work_and_swap(cleaning, offload, clock, throttle, workers)
    except WorkerLost as lost:
        if cleaning.report.bytes_moved:
            cleaning.give_up(Outcome.WORKER_LOST, str(lost))
        else:  # where no process can be started, logs have to be cleaned all the same
            _log.warning("%s is cleaned beside the event loop: %s", cleaning.inputs.tp, lost)
            await _work_and_swap(cleaning, offload, clock, throttle, None)
    return cleaning.conclude()


async def _work_and_swap(
    cleaning: Cleaning,
    offload: Offload,
    clock: Clock,
    throttle: Throttle,
    workers: Workers | None,
) -> None:
    async with _heavy_half(cleaning, offload, workers) as half:
        while await _until_complete(half, cleaning, clock, throttle):
            await _swap(cleaning, offload)


async def _swap(cleaning: Cleaning, offload: Offload) -> None:
    """Names change here, and are made durable elsewhere."""
    is_swapping = cleaning.begin_swap()
    while is_swapping:
        failure = None
        try:
            await offload.run(cleaning.sync_swap())
        except OSError as error:
            failure = error
        is_swapping = cleaning.advance_swap(failure)


class _HeavyHalf(Protocol):
    async def work(self, most_bytes: float) -> bool | None:
        """Whether there is a segment to swap in; None if there is more to do for that."""
        ...


async def _until_complete(
    half: _HeavyHalf, cleaning: Cleaning, clock: Clock, throttle: Throttle
) -> bool:
    """Work until there is a segment to swap in (True), or nothing left to do."""
    while True:
        started_ms, before = clock.monotonic_ms(), cleaning.report.bytes_moved
        done = await half.work(throttle.window_bytes)
        if not throttle.is_unlimited:
            moved = cleaning.report.bytes_moved - before
            rest_ms = throttle.rest_ms(moved, clock.monotonic_ms() - started_ms)
            await asyncio.sleep(rest_ms / 1000)
        if done is not None:
            return done


@asynccontextmanager
async def _heavy_half(
    cleaning: Cleaning, offload: Offload, workers: Workers | None
) -> AsyncIterator[_HeavyHalf]:
    half: AbstractAsyncContextManager[_HeavyHalf]
    half = _here(cleaning, offload) if workers is None else _elsewhere(cleaning, workers)
    async with half as found:
        yield found


# --- steps -------------------------------------------------------------------------------


@asynccontextmanager
async def _here(cleaning: Cleaning, offload: Offload) -> AsyncIterator[_HeavyHalf]:
    half = _InSteps(cleaning, offload)
    try:
        yield half
    except asyncio.CancelledError:
        half.tear_off()
        raise


class _InSteps:
    def __init__(self, cleaning: Cleaning, offload: Offload) -> None:
        self._cleaning = cleaning
        self._offload = offload
        self._steps: Steps[bool] | None = None
        self._is_running = False

    async def work(self, most_bytes: float) -> bool | None:
        if self._steps is None:
            self._steps = self._cleaning.work()
        self._is_running = True
        done = await self._offload.run(_window(self._steps, self._cleaning, most_bytes))
        self._is_running = False
        if done is not None:
            self._steps = None
        return done

    def tear_off(self) -> None:
        if self._steps is not None and not self._is_running:
            self._steps.close()


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


# --- a process of its own ----------------------------------------------------------------


@asynccontextmanager
async def _elsewhere(cleaning: Cleaning, workers: Workers) -> AsyncIterator[_HeavyHalf]:
    try:
        async with workers.hire() as worker:
            half = _InProcess(cleaning, worker)
            await half.ask(Begin(cleaning.inputs))
            yield half
            await half.end()
    except asyncio.CancelledError:
        # The worker is no more.
        cleaning.give_up(Outcome.ABORTED, "the pass was torn off")
        raise


class _InProcess:
    def __init__(self, cleaning: Cleaning, worker: Worker) -> None:
        self._cleaning = cleaning
        self._worker = worker

    async def ask(self, question: Question) -> Worked:
        answer = decode_answer(await self._worker.ask(encode_question(question)))
        if isinstance(answer, Failed):
            raise OSError(answer.errno, answer.text or os.strerror(answer.errno))
        return answer

    async def work(self, most_bytes: float) -> bool | None:
        cleaning = self._cleaning
        if cleaning.report.outcome is not None:
            return False  # the swap has ended the pass
        if cleaning.abort_reason is not None:
            await self.end()
            cleaning.give_up(Outcome.ABORTED, cleaning.abort_reason)
            return False
        answer = await self.ask(Work(min(most_bytes, _BYTES_PER_QUESTION)))
        cleaning.told(answer.replaced, answer.report)
        if answer.has_more:
            return None
        return answer.replaced > 0

    async def end(self) -> None:
        await self.ask(End())
