"""How a listener on an event loop is told of partitions, while librdkafka waits in a thread.

librdkafka reports a change inside of a poll, or of ``close``, and goes on when its callback is
done. The polling thread therefore waits until the listener, which runs on the event loop, is. What
the listener asks of the consumer meanwhile is done by the waiting thread itself: any other would
have to wait for the end of ``close``, which waits for the listener.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Final, TypeAlias, TypeVar

from tidelog.client.errors import WrongState
from tidelog.client.records import TopicPartition

T = TypeVar("T")

_CHECK_S: Final = 0.5

_Job: TypeAlias = Callable[[], None]
_Method: TypeAlias = "Callable[[list[TopicPartition]], Awaitable[None] | None]"


class RebalanceListener:
    """Told of partitions that come and go. Override what you need; each runs inside of a poll.

    A method may be ``async`` or not; either runs on the consumer's event loop.
    """

    def on_assigned(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """New ones; ``await consumer.seek(…)`` here says where to begin."""
        return None

    def on_revoked(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """About to go; ``await consumer.commit()`` here is the last chance to."""
        return None

    def on_lost(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """Gone already: another member may have them."""
        return self.on_revoked(partitions)


class Desk:
    """Takes jobs while a thread waits for a listener, and has that thread do them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job | None] | None = None
        self.listener: asyncio.Task[Any] | None = None
        """In which a listener runs, on its event loop."""

    def is_listener(self) -> bool:
        """Whether it is the listener who asks, and not the program that waits for it."""
        return self.listener is not None and asyncio.current_task() is self.listener

    def submit(self, call: Callable[[], T]) -> Future[T] | None:
        """None if no listener runs."""
        with self._lock:
            if self._jobs is None:
                return None
            done: Future[T] = Future()
            self._jobs.put(lambda: _settle(done, call))
            return done

    def serve(self, tell: Callable[[], Future[None]], is_loop_alive: Callable[[], bool]) -> None:
        """Tell the listener, and do jobs until it is done; raises what it raised.

        The desk is open before the listener can ask: a job of its that went elsewhere would wait
        for the poll, which waits for the listener.
        """
        jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        with self._lock:
            self._jobs = jobs
        try:
            telling = tell()
            telling.add_done_callback(lambda _: jobs.put(None))
            self._work(jobs, telling, is_loop_alive)
        finally:
            with self._lock:
                self._jobs = None
            while not jobs.empty():
                if (job := jobs.get()) is not None:
                    job()
        telling.result()

    def _work(
        self,
        jobs: queue.SimpleQueue[_Job | None],
        telling: Future[None],
        is_loop_alive: Callable[[], bool],
    ) -> None:
        while True:
            try:
                job = jobs.get(timeout=_CHECK_S)
            except queue.Empty:
                if is_loop_alive():
                    continue
                telling.cancel()
                raise WrongState("the event loop stopped while a listener ran") from None
            if job is None:
                return
            job()


def _settle(done: Future[T], call: Callable[[], T]) -> None:
    """As an executor does: whatever was raised belongs to whoever asked."""
    if not done.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        done.set_exception(error)
    else:
        done.set_result(result)


class OnLoop:
    """Tells a listener on its event loop, and returns when it is done."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, listener: RebalanceListener, desk: Desk
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._desk = desk

    def on_assigned(self, partitions: list[TopicPartition]) -> None:
        self._tell(self._listener.on_assigned, partitions)

    def on_revoked(self, partitions: list[TopicPartition]) -> None:
        self._tell(self._listener.on_revoked, partitions)

    def on_lost(self, partitions: list[TopicPartition]) -> None:
        self._tell(self._listener.on_lost, partitions)

    def _tell(self, method: _Method, partitions: list[TopicPartition]) -> None:
        async def tell() -> None:
            self._desk.listener = asyncio.current_task()
            try:
                found: Any = method(partitions)
                if inspect.isawaitable(found):
                    await found
            finally:
                self._desk.listener = None

        self._desk.serve(
            lambda: asyncio.run_coroutine_threadsafe(tell(), self._loop), self._loop.is_running
        )
