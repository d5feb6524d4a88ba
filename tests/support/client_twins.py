"""The synchronous client in the clothes of the asynchronous one, so that one suite tests both.

A ``Twin`` makes awaitable what the asynchronous client has as coroutines, by running it in a
thread; what that one answers without waiting, the twin does, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tidelog import client
from tidelog.client import sync

_AT_ONCE = ("assignment", "paused", "positions", "group_metadata")
_END = object()


class Twin:
    def __init__(self, native: Any) -> None:
        self.native = native

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.native, name)
        if name in _AT_ONCE:
            return method
        if name == "transaction":
            return lambda: _transaction(method)
        if name == "commit_soon":
            return lambda *args: asyncio.wrap_future(method(*args))

        async def call(*args: Any, **kwargs: Any) -> Any:
            found = await asyncio.to_thread(method, *args, **kwargs)
            return asyncio.wrap_future(found) if name == "enqueue" else found

        return call

    async def __aenter__(self) -> Twin:
        self.native.__enter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.native.close)

    def __aiter__(self) -> Twin:
        return self

    async def __anext__(self) -> Any:
        record = await asyncio.to_thread(next, self.native, _END)
        if record is _END:
            raise StopAsyncIteration
        return record


@asynccontextmanager
async def _transaction(begin: Callable[[], Any]) -> AsyncIterator[Twin]:
    manager = begin()
    inner = await asyncio.to_thread(manager.__enter__)
    try:
        yield Twin(inner)
    except BaseException as error:
        if not await asyncio.to_thread(manager.__exit__, type(error), error, None):
            raise
    else:
        await asyncio.to_thread(manager.__exit__, None, None, None)


@dataclass(frozen=True)
class Kit:
    """One of the two clients."""

    name: str

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        if self.name == "asyncio":
            return getattr(client, kind)  # type: ignore[no-any-return]
        make = getattr(sync, kind)
        return lambda *args, **kwargs: Twin(make(*args, **kwargs))

    def listener(self, **methods: Callable[[list[Any]], Any]) -> Any:
        """Of functions that give a coroutine, or nothing; the twin's are run to their end."""
        loop = asyncio.get_running_loop()

        def run(method: Callable[[list[Any]], Any]) -> Callable[[list[Any]], None]:
            def told(partitions: list[Any]) -> None:
                asyncio.run_coroutine_threadsafe(_finish(method(partitions)), loop).result()

            return told

        if self.name == "asyncio":
            found: Any = client.RebalanceListener()
        else:
            found = sync.RebalanceListener()
            methods = {name: run(method) for name, method in methods.items()}
        for name, method in methods.items():
            setattr(found, name, method)
        return found


async def _finish(found: Any) -> None:
    if found is not None:
        await found
