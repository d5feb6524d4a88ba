"""What a real node would only log: an error that nobody foresaw. In a simulation it is a finding.

Collected from three places: exceptions that tasks died of and callbacks raised (the handler of the
loop), lives of nodes that ended with something else than ``NodeFailed``, and log records that carry
an exception at level ERROR or above. What a process says while it is being killed does not count.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from tidelog.simulation.cluster import SimCluster
from tidelog.simulation.disk_faults import SimulatedCrash
from tidelog.simulation.event_loop import World
from tidelog.simulation.processes import CURRENT_PROCESS

_EXPECTED = ("tidelog.controller.quorum.quorum",)
"""Loggers whose errors announce the end of the node, which is judged as such."""


class Defects:
    """``check`` raises the first one found."""

    def __init__(self, world: World, cluster: SimCluster) -> None:
        self._found: list[BaseException] = []
        self._handler = _LogHandler(self._found)
        world.loop.set_exception_handler(self._unhandled)
        cluster.on_defect = lambda where, error: self._add(error, where)
        logger = logging.getLogger("tidelog")
        for old in [h for h in logger.handlers if isinstance(h, _LogHandler)]:
            logger.removeHandler(old)
        logger.addHandler(self._handler)

    def check(self) -> None:
        if self._found:
            raise self._found[0]

    def _add(self, error: BaseException, where: str) -> None:
        if isinstance(error, BaseExceptionGroup):
            rest = error.split((SimulatedCrash, asyncio.CancelledError))[1]
            if rest is None:
                return
            error = rest
        if not isinstance(error, SimulatedCrash | asyncio.CancelledError):
            error.add_note(where)
            self._found.append(error)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            self._add(error, str(context.get("message")))


class _LogHandler(logging.Handler):
    def __init__(self, found: list[BaseException]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        process = CURRENT_PROCESS.get()
        if process is None or not process.is_alive or record.name in _EXPECTED:
            return
        error = record.exc_info[1] if record.exc_info else None
        # A disk that fails to read leaves no other answer than to hang up, and is logged.
        if error is not None and not isinstance(error, SimulatedCrash | OSError):
            error.add_note(f"{process.name} logged: {record.getMessage()}")
            self._found.append(error)
