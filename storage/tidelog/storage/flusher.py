"""Group commit for the logs of one log directory: a thin shell over ``Log.begin_flush``.

While a log's flush is under way, further requests for it are gathered into one more. Flushes
of different logs run side by side, a few at a time. Failure and delay are not retried here: a
failed fsync may have thrown pages away, so the directory is reported, once, and nothing in it
is ever flushed again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tidelog.kernel.ids import Offset
from tidelog.kernel.meters import Spread
from tidelog.kernel.ports import Clock, Disk, Offload
from tidelog.storage.flush import Flush
from tidelog.storage.log import Log, LogFailed

_CONCURRENT_FLUSHES: Final = 4
_STALL_SLICES: Final = 10


class Flusher:
    """Call ``request`` after appending; the callbacks run on the event loop."""

    def __init__(
        self,
        disk: Disk,
        offload: Offload,
        *,
        on_flushed: Callable[[Log, Offset], None],
        on_failed: Callable[[Log, str], None],
        on_stalled: Callable[[Log], None],
        stall_timeout_ms: int,
        clock: Clock | None = None,
        durations_ms: Spread | None = None,
    ) -> None:
        """``clock`` is for topics with ``flush.ms`` (see ``flush_policy``)."""
        self._durations_ms = durations_ms or Spread()
        self._disk = disk
        self._offload = offload
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._on_stalled = on_stalled
        self._stall_timeout_ms = stall_timeout_ms
        self._clock = clock
        self._waiting: dict[Log, None] = {}
        self._running: dict[Log, asyncio.Task[None]] = {}
        self._watches: dict[Log, asyncio.TimerHandle] = {}
        self._is_closed = False
        self._has_failed = False

    def request(self, log: Log) -> None:
        """See to it that everything appended so far is flushed."""
        if self._is_closed or self._has_failed:
            return
        self._waiting[log] = None
        self._start_next()

    def forget(self, log: Log) -> None:
        """The log is closed or gone; a flush of it that runs is let finish."""
        self._waiting.pop(log, None)

    async def drain(self) -> None:
        """Wait until nothing is asked for and nothing runs."""
        while self._running:
            await asyncio.wait(list(self._running.values()))

    async def close(self) -> None:
        self._is_closed = True
        self._waiting.clear()
        await self.drain()

    def _start_next(self) -> None:
        for log in list(self._waiting):
            if self._is_closed or len(self._running) >= _CONCURRENT_FLUSHES:
                return
            if log in self._running:
                continue
            del self._waiting[log]
            if log.failure is None:
                self._start(log)

    def _start(self, log: Log) -> None:
        try:
            flush = log.begin_flush(None if self._clock is None else self._clock.wall_ms())
        except OSError as error:
            self._fail(log, error)
            return
        if flush is None:
            self._on_flushed(log, log.flushed_end)
            return
        task = asyncio.get_running_loop().create_task(self._flush(log, flush))
        self._running[log] = task

    async def _flush(self, log: Log, flush: Flush) -> None:
        self._watch(log, flush, _STALL_SLICES)
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        try:
            await self._offload.run(flush.steps(self._disk))
            self._durations_ms.observe((loop.time() - begun_s) * 1000)
            self._complete(log, flush)
        except OSError as error:
            self._fail(log, error)
        finally:
            self._watches.pop(log).cancel()
            del self._running[log]
            self._start_next()

    def _watch(self, log: Log, flush: Flush, slices_left: int) -> None:
        """Call the flush stalled after so many slices of time in which this process ran and no
        file was synced.

        A log that has to catch up may have many files to sync: a disk that is slow with each of
        them does not hang. And a process that was stopped (SIGSTOP, a machine that sleeps) finds
        the whole pause in one slice, and the end of the flush waiting behind it: that is no reason
        to give up a disk either.
        """
        if slices_left == 0:
            self._on_stalled(log)
            return
        loop = asyncio.get_running_loop()
        slice_s = self._stall_timeout_ms / 1000 / _STALL_SLICES
        due_s, synced = loop.time() + slice_s, flush.synced

        def look() -> None:
            is_late = loop.time() > due_s + slice_s
            left = slices_left if is_late else slices_left - 1
            self._watch(log, flush, left if flush.synced == synced else _STALL_SLICES)

        self._watches[log] = loop.call_at(due_s, look)

    def _complete(self, log: Log, flush: Flush) -> None:
        if self._has_failed:
            return  # another flush failed meanwhile: what this one synced does not count
        try:
            log.complete_flush(flush)
        except LogFailed:
            return  # whoever saw it fail has reported it
        self._on_flushed(log, log.flushed_end)

    def _fail(self, log: Log, error: OSError) -> None:
        log.fail(f"flush failed: {error}")
        self._waiting.clear()
        if not self._has_failed:
            self._has_failed = True
            self._on_failed(log, f"flush of {log.tp} failed: {error}")
