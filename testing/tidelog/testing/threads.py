"""Waiting for a blocking call on whatever event loop a test has.

asyncio it is mostly; anyio's plugin runs tests on trio as well, where that is installed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    work = partial(call, *args, **kwargs)
    if _is_on_asyncio() or "trio" not in sys.modules:
        return await asyncio.to_thread(work)
    found: T = await import_module("trio").to_thread.run_sync(work)
    return found


def _is_on_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
