"""``Offload`` on threads: blocking work (fsync, recovery, cleaning) beside the event loop.

Owner: the node's start-up code, which closes the pool last. A piece of work belongs to one
thread from its first step to its last, so its generator is never entered twice at once.

A caller that is cancelled stops waiting at once. Its work is not torn off: it runs on to its
next ``yield``, where the generator is closed and its ``finally`` blocks run.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import TypeVar

from tidelog.kernel.ports import Steps

T = TypeVar("T")

_log = logging.getLogger(__name__)


class ThreadOffload:
    """Runs each piece of work in one of ``threads`` threads."""

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise ValueError(f"an offload needs at least 1 thread, not {threads}")
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="offload")

    async def run(self, work: Steps[T]) -> T:
        loop = asyncio.get_running_loop()
        abandoned = threading.Event()
        waiting = loop.run_in_executor(self._pool, _run_steps, work, abandoned)
        try:
            return await waiting
        finally:
            abandoned.set()  # too late to matter unless the wait was cancelled

    def close(self) -> None:
        """Wait for the work that is under way; none is accepted afterwards."""
        self._pool.shutdown(wait=True)


def _run_steps(work: Steps[T], abandoned: threading.Event) -> T:
    try:
        while not abandoned.is_set():
            next(work)
        work.close()
    except StopIteration as stop:
        result: T = stop.value
        return result
    except Exception:
        if abandoned.is_set():
            _log.exception("work failed after its caller had stopped waiting for it")
        raise
    raise CancelledError
