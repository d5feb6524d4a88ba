"""Callbacks of the virtual loop: asyncio's handles, made as cheaply as Python can.

A seed makes hundreds of thousands of them. Here nothing is kept for asyncio's debug mode, which
reports callbacks that are slow in real time, and attributes are set without a call of ``__init__``.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any, Protocol


class TimerOwner(Protocol):
    _timer_cancelled_count: int


class SimHandle(asyncio.Handle):
    """Whoever makes one sets the attributes below."""

    __slots__ = ()
    __init__ = object.__init__
    _callback: Any
    _args: Any
    _context: contextvars.Context
    _cancelled: bool
    _repr = None
    _source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = None
        self._args = None


class SimTimerHandle(asyncio.TimerHandle):
    """The same with a time. Timers are kept with it in a heap, which then compares numbers; among
    those of one time no order is defined, as in asyncio."""

    __slots__ = ()
    __init__ = object.__init__
    _callback: Any
    _args: Any
    _context: contextvars.Context
    _cancelled: bool
    _loop: TimerOwner
    _scheduled: bool
    _when: float
    _repr = None
    _source_traceback = None

    def __lt__(self, other: object) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return hash(self._when)

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = None
            self._args = None
            if self._scheduled:
                self._loop._timer_cancelled_count += 1
