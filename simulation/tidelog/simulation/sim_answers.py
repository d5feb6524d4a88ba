"""What an answer's error code means to somebody who asks by hand."""

from __future__ import annotations

from typing import Any

from tidelog.kernel.errors import ErrorCode


class CallFailed(Exception):
    """A node refused; ``code`` says why."""

    def __init__(self, what: str, code: ErrorCode) -> None:
        super().__init__(f"{what}: {code.name} ({code.message})")
        self.code = code


def check(what: str, code: Any) -> None:
    found = ErrorCode(int(code))
    if found is not ErrorCode.NONE:
        raise CallFailed(what, found)
