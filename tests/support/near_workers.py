"""Workers of the cleaner in this very process: everything but the process is real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tidelog.kernel.ports import Disk, Worker
from tidelog.storage.cleaner.pass_messages import Question, decode_question
from tidelog.storage.cleaner.worker import CleanerWorker


class NearWorkers:
    """``before`` sees each question and may raise in its place."""

    def __init__(self, disk: Disk, before: Callable[[Question], None] | None = None) -> None:
        self._disk = disk
        self._before = before
        self.questions: list[Question] = []

    @asynccontextmanager
    async def hire(self) -> AsyncIterator[Worker]:
        yield NearWorker(self, CleanerWorker(self._disk))

    def see(self, question: Question) -> None:
        self.questions.append(question)
        if self._before is not None:
            self._before(question)


class NearWorker:
    def __init__(self, owner: NearWorkers, worker: CleanerWorker) -> None:
        self._owner = owner
        self._worker = worker

    async def ask(self, question: bytes) -> bytes:
        self._owner.see(decode_question(question))
        await asyncio.sleep(0.01)
        return self._worker.answer(question)
