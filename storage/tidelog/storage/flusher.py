"""Group commit for the logs of one log directory: a thin shell over ``Log.begin_flush``.

While a log's flush is under way, further requests for it are gathered into one more. Flushes
of different logs run side by side, a few at a time. Failure and delay are not retried here: a
failed fsync may have thrown pages away, so the directory is reported and never flushed again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tidelog.kernel.ids import Offset
from tidelog.kernel.ports import Disk, Offload
from tidelog.storage.flush import Flush
from tidelog.storage.log import Log, LogFailed

_CONCURRENT_FLUSHES: Final = 4


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
    ) -> None:
        self._disk = disk
        self._offload = offload
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._on_stalled = on_stalled
        self._stall_timeout_ms = stall_timeout_ms
        self._waiting: dict[Log, None] = {}
        self._running: dict[Log, asyncio.Task[None]] = {}
        self._closed = False

    def request(self, log: Log) -> None:
        """See to it that everything appended so far is flushed."""
        if self._closed:
            return
        self._waiting[log] = None
        self._start_next()

    def forget(self, log: Log) -> None:
        """The log is closed or gone; a flush of it that runs is let finish."""
        self._waiting.pop(log, None)

    async def drain(self) -> None:
        """Wait until nothing is asked for and nothing runs."""
        while self._running or self._waiting:
            await asyncio.wait(list(self._running.values()))

    async def close(self) -> None:
        self._closed = True
        self._waiting.clear()
        await self.drain()

    def _start_next(self) -> None:
        for log in list(self._waiting):
            if len(self._running) >= _CONCURRENT_FLUSHES:
                return
            if log in self._running:
                continue
            del self._waiting[log]
            if log.failure is not None:
                continue
            flush = log.begin_flush()
            if flush is None:
                self._on_flushed(log, log.flushed_end)
                continue
            task = asyncio.get_running_loop().create_task(self._flush(log, flush))
            self._running[log] = task

    async def _flush(self, log: Log, flush: Flush) -> None:
        loop = asyncio.get_running_loop()
        stalled = loop.call_later(self._stall_timeout_ms / 1000, self._on_stalled, log)
        try:
            await self._offload.run(flush.steps(self._disk))
            log.complete_flush(flush)
        except OSError as error:
            log.fail(f"flush failed: {error}")
            self._on_failed(log, f"flush of {log.tp} failed: {error}")
        except LogFailed as error:
            self._on_failed(log, str(error))
        else:
            self._on_flushed(log, log.flushed_end)
        finally:
            stalled.cancel()
            del self._running[log]
            if not self._closed:
                self._start_next()
