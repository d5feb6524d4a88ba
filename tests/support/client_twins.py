"""The synchronous client in the clothes of the asynchronous one, so that one suite tests both.

A ``Twin`` makes awaitable what the asynchronous client has as coroutines, by running it in a
thread; what that one answers without waiting, the twin does, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
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

    def listener(self, **methods: Callable[[list[Any]], Coroutine[Any, Any, None]]) -> Any:
        """Of coroutine functions; the twin's wait for nothing and are run where they are told."""
        found: Any = client.RebalanceListener()
        if self.name != "asyncio":
            found = sync.RebalanceListener()
        for name, method in methods.items():
            setattr(found, name, method if self.name == "asyncio" else _in_place(method))
        return found


def _in_place(
    method: Callable[[list[Any]], Coroutine[Any, Any, None]],
) -> Callable[[list[Any]], None]:
    def told(partitions: list[Any]) -> None:
        with suppress(StopIteration):
            method(partitions).send(None)
            raise AssertionError("a listener of the synchronous twin waits for nothing")

    return told
