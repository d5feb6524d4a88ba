"""A query as Spark runs it, over the sink's protocol: each batch until it is in the commit log.

Every step of the protocol runs in a process that may die at it; then nothing of that process
reaches the brokers any more. A task that dies is tried again, a driver that dies is started again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidelog.pipeline.decision import Task, Transaction
from tidelog.pipeline.errors import BrokerUnavailable, PipelineError
from tidelog.pipeline.two_phase import Plan, Prepared, TwoPhase

QUERY = "11111111-2222-3333-4444-555555555555"


class Died(BaseException):
    """The process that ran the step is gone."""


class Process:
    """What a process sees of the brokers: nothing any more once it is dead."""

    def __init__(self, brokers: Any) -> None:
        self._brokers = brokers
        self.is_dead = False

    def __getattr__(self, name: str) -> Any:
        if self.is_dead:
            raise Died("long ago")
        return getattr(self._brokers, name)


class Row(NamedTuple):
    batch: int
    number: int


@dataclass
class Job:
    """A query as Spark runs it: each batch until it is in the commit log, whatever dies."""

    brokers: Any
    """A ``CoordinatorsPort`` that can also ``produce`` a row in a transaction."""
    dies: Callable[[str], bool] = lambda step: False
    prefix: str = "p"
    batch: int = 0
    starts: int = 0
    run: str = ""
    steps: list[str] = field(default_factory=list)
    rng: random.Random = field(default_factory=lambda: random.Random(5))

    process: Process | None = None

    def reached(self, step: str) -> None:
        self.steps.append(step)
        if self.dies(step):
            if self.process is not None:
                self.process.is_dead = True
            raise Died(step)

    def protocol(self) -> TwoPhase:
        """In a process of its own, as Spark does it."""
        self.process = Process(self.brokers)
        return TwoPhase(self.process, self.prefix, 60_000, self.reached)

    def start(self) -> None:
        self.starts += 1
        self.run = f"{self.starts:08x}"

    def run_batch(self, rows: int = 6) -> None:
        """``Died`` if the driver does, other errors if Spark would end the query."""
        plan = self.protocol().plan()
        tasks = self.rng.choice((1, 2, 3))  # a repeated batch may be cut otherwise
        done: list[Prepared | None] = [self.task(plan, n, tasks, rows) for n in range(tasks)]
        known = [one for one in done if one is not None]
        try:
            if len(known) < tasks:
                raise BrokerUnavailable("a task failed too often")
            self.protocol().commit(known, self.batch)
        except Exception:
            self.protocol().abort(known[0].driver if known else None)
            raise
        self.batch += 1

    def task(self, plan: Plan, number: int, tasks: int, rows: int) -> Prepared | None:
        for attempt in range(3):
            name = Task(self.run, number, attempt)

            def write(transaction: Transaction) -> int:
                mine = [row for row in range(rows) if row % tasks == number]
                for row in mine:
                    self.brokers.produce(transaction, Row(self.batch, row))
                self.reached("task-sent-some")
                return len(mine)

            try:
                return self.protocol().prepare(plan, QUERY, self.batch, name, write)
            except Died as death:
                if not str(death).startswith("task"):
                    raise
        return None


def drive(job: Job, batches: int) -> None:
    """Start the driver again until all batches are in the commit log."""
    while job.batch < batches:
        assert job.starts < 300, "it comes to no end"
        job.start()
        try:
            while job.batch < batches:
                job.run_batch()
        except (Died, PipelineError):
            continue
    job.dies = lambda step: False
    job.start()
    job.protocol().plan()  # the next batch, were there one
