"""``ThreadOffload``: results, errors, and what happens to work nobody waits for any more."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from tidelog.kernel.ports import Offload, Steps
from tidelog.kernel.real import ThreadOffload


def thread_names(steps: int) -> Steps[list[str]]:
    names = []
    for _ in range(steps):
        names.append(threading.current_thread().name)
        yield
    return names


def failing(error: Exception) -> Steps[None]:
    yield
    raise error


class Interruptible:
    """Work whose first step ends only when the test says so."""

    def __init__(self, closing_error: Exception | None = None) -> None:
        self.entered = threading.Event()
        self.may_go_on = threading.Event()
        self.events: list[str] = []
        self._closing_error = closing_error

    def steps(self) -> Steps[None]:
        try:
            self.entered.set()
            assert self.may_go_on.wait(timeout=30)
            self.events.append("first step")
            yield
            self.events.append("second step")
        finally:
            self.events.append("closed")
            if self._closing_error is not None:
                raise self._closing_error


async def cancel_in_first_step(offload: ThreadOffload, work: Interruptible) -> None:
    waiting = asyncio.create_task(offload.run(work.steps()))
    assert await asyncio.to_thread(work.entered.wait, 30)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert work.events == []
    work.may_go_on.set()
    offload.close()


def test_work_runs_in_one_thread_of_the_pool() -> None:
    offload: Offload = ThreadOffload(2)
    names = asyncio.run(offload.run(thread_names(3)))
    assert len(names) == 3
    assert len(set(names)) == 1
    assert names[0].startswith("offload")


def test_an_error_reaches_the_caller() -> None:
    with pytest.raises(OSError, match="no disk"):
        asyncio.run(ThreadOffload(1).run(failing(OSError("no disk"))))


def test_cancelled_work_ends_at_its_next_yield_and_close_waits_for_it() -> None:
    work = Interruptible()
    asyncio.run(cancel_in_first_step(ThreadOffload(1), work))
    assert work.events == ["first step", "closed"]


def test_an_error_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    work = Interruptible(closing_error=OSError("no disk"))
    with caplog.at_level(logging.ERROR):
        asyncio.run(cancel_in_first_step(ThreadOffload(1), work))
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_work_cancelled_before_its_first_step_never_runs() -> None:
    async def scenario() -> None:
        offload = ThreadOffload(1)
        blocker, late = Interruptible(), Interruptible()
        blocking = asyncio.create_task(offload.run(blocker.steps()))
        assert await asyncio.to_thread(blocker.entered.wait, 30)
        waiting = asyncio.create_task(offload.run(late.steps()))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        blocker.may_go_on.set()
        await blocking
        offload.close()
        assert blocker.events == ["first step", "second step", "closed"]
        assert late.events == []

    asyncio.run(scenario())


def test_a_closed_pool_and_an_empty_one_are_refused() -> None:
    offload = ThreadOffload(1)
    offload.close()
    with pytest.raises(RuntimeError):
        asyncio.run(offload.run(thread_names(1)))
    with pytest.raises(ValueError, match="at least 1 thread"):
        ThreadOffload(0)
