"""An asynchronous client lives on one event loop: that of its first call."""

from __future__ import annotations

import asyncio

from tidelog.client.errors import WrongEventLoop


class LoopBound:
    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None, "a client that was used has a loop"
        return self._loop

    def require(self) -> asyncio.AbstractEventLoop:
        """The loop that runs, if it is the client's own."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            raise WrongEventLoop(
                f"this {self._owner} needs a running asyncio event loop; "
                "tidelog.client.sync has one that needs none"
            ) from None
        if self._loop is None:
            self._loop = running
        if self._loop is not running:
            raise WrongEventLoop(
                f"this {self._owner} was first used on another event loop; make one per loop"
            )
        return running
