"""Worker processes: answers, ends of all kinds, and nobody left behind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tidelog.kernel.ports import Worker, WorkerLost, Workers
from tidelog.kernel.real.process_offload import WorkerProcesses

SUPPORT = str(Path(__file__).parents[2] / "support")


@pytest.fixture(autouse=True)
def _can_import_support(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", SUPPORT)


def with_workers(
    script: Callable[[WorkerProcesses], Awaitable[None]], *, idle_s: float = 60.0
) -> None:
    async def main() -> None:
        workers = WorkerProcesses("echo_worker", idle_s=idle_s)
        try:
            await script(workers)
        finally:
            await workers.close()
        assert workers.idle_pids == []

    asyncio.run(asyncio.wait_for(main(), 60))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def pid_of(worker: Worker) -> int:
    return int(await worker.ask(b"pid"))


def test_a_worker_answers_nicely_and_is_used_again() -> None:
    async def script(workers: WorkerProcesses) -> None:
        port: Workers = workers
        large = os.urandom(3 << 20)
        async with port.hire() as worker:
            first = await pid_of(worker)
            assert first != os.getpid()
            assert await worker.ask(large) == large
            assert await worker.ask(b"") == b""
            assert int(await worker.ask(b"nice")) >= min(19, os.nice(0) + 10)
        async with port.hire() as worker:
            assert await pid_of(worker) == first
            async with port.hire() as other:
                assert await pid_of(other) != first

    with_workers(script)


@pytest.mark.parametrize("how", [b"die", b"crash"])
def test_a_worker_that_ends_is_lost_and_replaced(how: bytes) -> None:
    async def script(workers: WorkerProcesses) -> None:
        with pytest.raises(WorkerLost, match="exit code"):
            async with workers.hire() as worker:
                await worker.ask(how)
        async with workers.hire() as worker:
            assert await worker.ask(b"there?") == b"there?"

    with_workers(script)


def test_a_worker_that_ended_while_idle_is_not_hired() -> None:
    async def script(workers: WorkerProcesses) -> None:
        async with workers.hire() as worker:
            pid = await pid_of(worker)
        os.kill(pid, 9)
        async with workers.hire() as worker:
            # It may not be known to be dead yet; then it is lost like any other.
            try:
                assert await pid_of(worker) != pid
            except WorkerLost:
                return

    with_workers(script)


def test_a_cancelled_wait_ends_the_process_first() -> None:
    async def script(workers: WorkerProcesses) -> None:
        pids: list[int] = []

        async def wait() -> None:
            async with workers.hire() as worker:
                pids.append(await pid_of(worker))
                await worker.ask(b"never")

        task = asyncio.create_task(wait())
        while not pids:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not is_alive(pids[0])
        assert workers.idle_pids == []

    with_workers(script)


def test_an_error_of_whoever_hired_it_ends_the_process_too() -> None:
    async def script(workers: WorkerProcesses) -> None:
        with pytest.raises(OSError, match="no disk"):
            async with workers.hire() as worker:
                pid = await pid_of(worker)
                raise OSError("no disk")
        assert not is_alive(pid)

    with_workers(script)


def test_an_idle_worker_is_let_go_after_a_while() -> None:
    async def script(workers: WorkerProcesses) -> None:
        async with workers.hire() as worker:
            pid = await pid_of(worker)
        while is_alive(pid):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert workers.idle_pids == []

    with_workers(script, idle_s=0.0)


def test_none_is_hired_after_the_end() -> None:
    async def script(workers: WorkerProcesses) -> None:
        await workers.close()
        with pytest.raises(WorkerLost):
            async with workers.hire():
                pass

    with_workers(script)


def test_what_cannot_be_started_is_lost() -> None:
    async def main() -> None:
        with pytest.raises(WorkerLost, match="exit code"):
            async with WorkerProcesses("no_such_module").hire() as worker:
                await worker.ask(b"there?")

    asyncio.run(main())


OWNER = """
import asyncio, os, signal
from tidelog.kernel.real.process_offload import WorkerProcesses
async def main():
    async with WorkerProcesses("echo_worker").hire() as worker:
        print((await worker.ask(b"pid")).decode(), flush=True)
        asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGKILL)
        await worker.ask(b"{question}")
        await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.parametrize("question", ["pid", "never"])
def test_a_worker_dies_with_its_owner(question: str) -> None:
    if question == "never" and not sys.platform.startswith("linux"):
        pytest.skip("elsewhere a worker looks up only between two questions")
    script = OWNER.replace("{question}", question)
    owner = subprocess.run((sys.executable, "-c", script), stdout=subprocess.PIPE, timeout=60)
    pid = int(owner.stdout)

    async def until_gone() -> None:
        while is_alive(pid):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(until_gone(), 30))
