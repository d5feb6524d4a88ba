"""One append of a group: replicated, refused, or slow and then perhaps replicated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.kernel.errors import ErrorCode


@dataclass(slots=True)
class PendingAppend:
    """Hears of a ``ShardLog.write``; says ``finished``, or ``delayed`` and later maybe ``late``."""

    finished: Callable[[ErrorCode], None]
    delayed: Callable[[], None]
    late: Callable[[], None]
    _is_slow: bool = False
    _is_replicated: bool = False

    def replicated(self, position: int) -> None:
        self._is_replicated = True
        if self._is_slow:
            self.late()

    def answered(self, code: ErrorCode) -> None:
        if code is not ErrorCode.REQUEST_TIMED_OUT:
            self.finished(code)
        elif self._is_replicated:  # in the turn in which the wait was over
            self.finished(ErrorCode.NONE)
        else:
            self._is_slow = True
            self.delayed()
