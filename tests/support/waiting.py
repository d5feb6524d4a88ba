"""Waiting for what other processes do: ask again and again, and say what never came."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 0.02

Found = TypeVar("Found")


def until(
    look: Callable[[], Found | None], what: str | Callable[[], str], *, within_s: float = PATIENCE_S
) -> Found:
    """The first answer that is true; what was waited for is told if none comes in time."""
    deadline = time.monotonic() + within_s
    while not (found := look()):
        if time.monotonic() > deadline:
            told = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {within_s:g} s: {told}")
        time.sleep(_PAUSE_S)
    return found
