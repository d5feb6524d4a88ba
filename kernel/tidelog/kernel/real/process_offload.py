"""``Workers`` as processes of this machine: ``python -m MODULE`` at the other end of a socket.

Theory: Python code in a thread takes the interpreter's lock from the event loop, some milliseconds
at a time, and whoever waits for an answer of the node feels each of them. A process has a lock of
its own, and a priority of its own: the scheduler gives it what the node leaves over.

Questions and answers are frames, a length of four bytes and so many bytes, strictly in turn. The
worker's end of the socket is its standard input (``worker_process`` has its side). It ends when it
reads the end of its input: when it is let go, or when this process is gone, however that came.

Owner: the node's start-up code. Workers that nobody uses are kept for a while, because a new one
takes a third of a second to import what it needs. One that was torn off in the middle of an answer
is killed, and whoever hired it goes on only when it is dead: it may hold files open.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tidelog.kernel.ports import Worker, WorkerLost
from tidelog.kernel.real.worker_process import LENGTH, WORKER_OF

_log = logging.getLogger(__name__)

_IDLE_S: Final = 300.0
_GRACE_S: Final = 10.0
WORKER_ENVIRONMENT: Final = {
    # Numerical libraries would start a thread for each core, for work that has one.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # Arrays of some megabytes come and go all the time: without these the allocator (glibc) gives
    # each back to the system, which has to clear the next one. It costs a tenth of the time.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_TOP_PAD_": str(16 << 20),
}
"""What is set for every worker, whatever this process has."""


class _Process:
    """A worker that runs."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self.is_answering = False
        self.idle_timer: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    async def ask(self, question: bytes) -> bytes:
        if self.is_answering:
            raise ValueError("a worker is asked one question at a time")
        self.is_answering = True
        try:
            self._writer.writelines((LENGTH.pack(len(question)), question))
            await self._writer.drain()
            (size,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            answer = await self._reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError) as error:
            code = await self.end(at_once=True)
            raise WorkerLost(f"the worker process {self.pid} ended (exit code {code})") from error
        self.is_answering = False
        return answer

    async def end(self, *, at_once: bool) -> int:
        """Return when the process is no more; its exit code."""
        if self.idle_timer is not None:
            self.idle_timer.cancel()
        if at_once:
            self._process.kill()
        self._writer.close()
        loop = asyncio.get_running_loop()
        waiting = loop.run_in_executor(None, self._wait)
        return await asyncio.shield(waiting)

    def _wait(self) -> int:
        try:
            return self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


class WorkerProcesses:
    """Workers that run ``module``; as many as are hired at a time."""

    def __init__(self, module: str, *, idle_s: float = _IDLE_S) -> None:
        self._module = module
        self._idle_s = idle_s
        self._idle: list[_Process] = []
        self._ending: set[asyncio.Task[int]] = set()
        self._is_closed = False

    @property
    def idle_pids(self) -> list[int]:
        return [worker.pid for worker in self._idle]

    @asynccontextmanager
    async def hire(self) -> AsyncIterator[Worker]:
        worker = await self._take()
        try:
            yield worker
        except BaseException:
            await worker.end(at_once=True)  # nobody can say what it was left with
            raise
        if self._is_closed or worker.has_ended:
            await worker.end(at_once=False)
        else:
            self._keep(worker)

    async def _take(self) -> _Process:
        if self._is_closed:
            raise WorkerLost("this process is ending and starts no workers any more")
        while self._idle:
            worker = self._idle.pop()
            if worker.idle_timer is not None:
                worker.idle_timer.cancel()
            if not worker.has_ended:
                return worker
            await worker.end(at_once=False)
        return await self._start()

    async def _start(self) -> _Process:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = _launch(self._module, theirs)
            except OSError as error:
                ours.close()
                raise WorkerLost(f"a worker process could not be started: {error}") from error
        reader, writer = await asyncio.open_connection(sock=ours)
        _log.debug("worker process %d runs %s", process.pid, self._module)
        return _Process(process, reader, writer)

    def _keep(self, worker: _Process) -> None:
        loop = asyncio.get_running_loop()
        worker.idle_timer = loop.call_later(self._idle_s, self._retire, worker)
        self._idle.append(worker)

    def _retire(self, worker: _Process) -> None:
        if worker in self._idle:
            self._idle.remove(worker)
            task = asyncio.get_running_loop().create_task(worker.end(at_once=False))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End those that are idle; those that are hired end when they are let go."""
        self._is_closed = True
        for worker in list(self._idle):
            self._retire(worker)
        if self._ending:
            await asyncio.wait(list(self._ending))


def _launch(module: str, link: socket.socket) -> subprocess.Popen[bytes]:
    # Not with the loop's own means: they fork, and run the handlers that other libraries have
    # registered for that (gRPC); here the system starts the program directly.
    environment = {**os.environ, **WORKER_ENVIRONMENT, WORKER_OF: str(os.getpid())}
    command = (sys.executable, "-m", module)
    return subprocess.Popen(command, stdin=link.fileno(), stdout=2, env=environment)
