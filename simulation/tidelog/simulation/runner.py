"""Many seeds, in parallel processes, with a line of progress each and all that a failure needs."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from dataclasses import dataclass
from typing import Final, TextIO

from tidelog.simulation.cleaned_runs import CleanedGroupRun, CleanedTransactionRun
from tidelog.simulation.cluster_run import ClusterRun
from tidelog.simulation.compaction_run import CompactionRun
from tidelog.simulation.fault_schedule import FaultSchedule, shrink
from tidelog.simulation.group_run import GroupRun
from tidelog.simulation.quorum_run import QuorumRun
from tidelog.simulation.seed_run import SeedResult, SeedRun, run_seed
from tidelog.simulation.transaction_run import TransactionRun

_RUNS: Final[tuple[type[SeedRun], ...]] = (
    QuorumRun, ClusterRun, GroupRun, TransactionRun,
    CompactionRun, CleanedGroupRun, CleanedTransactionRun,
)  # fmt: skip
KINDS: Final[dict[str, type[SeedRun]]] = {run.kind: run for run in _RUNS}

_SEEDS_PER_PROCESS: Final = 50


@dataclass(frozen=True, slots=True)
class Order:
    kind: str
    first_seed: int
    count: int
    minutes: float | None = None
    """Begin no further seed after so long; None: run all."""
    processes: int = 2
    is_verbose: bool = False


def run_one(kind: str, seed: int, schedule: FaultSchedule | None = None) -> SeedResult:
    """One seed in this process; what nodes log goes nowhere."""
    logger = logging.getLogger("tidelog")
    did_propagate, logger.propagate = logger.propagate, False
    quiet = logging.NullHandler()
    logger.addHandler(quiet)
    try:
        return run_seed(KINDS[kind], seed, schedule)
    finally:
        logger.removeHandler(quiet)
        logger.propagate = did_propagate


def run_many(order: Order, out: TextIO | None = None) -> list[SeedResult]:
    """Run seeds one after the other, telling standard output or ``out``; the failures."""
    out = sys.stdout if out is None else out
    begin_s = time.monotonic()
    failures: list[SeedResult] = []
    done = events = 0
    virtual_s = 0.0
    for result in _results(order, begin_s):
        done += 1
        events += result.events
        virtual_s += result.virtual_s
        if result.failure is not None:
            failures.append(result)
            print(describe_failure(result), file=out, flush=True)
        elif order.is_verbose or done % 10 == 0 or done == order.count:
            spent = f"{time.monotonic() - begin_s:.0f} s"
            print(
                f"{done}/{order.count} {order.kind} seeds in {spent}, {len(failures)} failed;"
                f" seed {result.seed}: {result.summary}",
                file=out,
                flush=True,
            )
    print(
        f"{done} {order.kind} seeds from {order.first_seed} on, {len(failures)} failed,"
        f" {events} events, {virtual_s / 60:.1f} simulated minutes",
        file=out,
        flush=True,
    )
    return failures


def _results(order: Order, begin_s: float) -> Iterator[SeedResult]:
    seeds = _within_time(range(order.first_seed, order.first_seed + order.count), order, begin_s)
    if order.processes <= 1 or order.count == 1:
        for seed in seeds:
            yield run_one(order.kind, seed)
        return
    # Fresh interpreters: a fork would take over whatever this process has been through.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        order.processes,
        mp_context=context,
        initializer=_freeze_modules,
        max_tasks_per_child=_SEEDS_PER_PROCESS,
    ) as pool:
        running: set[Future[SeedResult]] = set()
        for seed in seeds:
            running.add(pool.submit(run_one, order.kind, seed))
            if len(running) > order.processes:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        for future in as_completed(running):
            yield future.result()


def _freeze_modules() -> None:
    """What is imported by now never becomes garbage; the collector need not walk it every seed."""
    gc.freeze()


def _within_time(seeds: Iterable[int], order: Order, begin_s: float) -> Iterator[int]:
    for seed in seeds:
        if order.minutes is not None and time.monotonic() - begin_s > order.minutes * 60:
            return
        yield seed


def shrunk(result: SeedResult) -> FaultSchedule:
    """A part of a failing schedule that still fails."""
    return shrink(
        result.schedule,
        lambda part: run_one(result.kind, result.seed, part).failure is not None,
    )


def describe_failure(result: SeedResult) -> str:
    """All that somebody needs who wants to know why."""
    return "\n".join(
        [
            f"FAILED {result.kind} seed {result.seed} after {result.virtual_s:.3f} s:",
            f"{result.failure}",
            f"so far: {result.summary}",
            f"schedule: {result.schedule}",
            f"as code: {result.schedule!r}",
            f"the last of {result.events} events, digest {result.digest}:",
            result.tail,
            f"again: make sim KIND={result.kind} SEED={result.seed}",
            f"smaller: python -m tidelog.simulation shrink --kind {result.kind}"
            f" --seed {result.seed}",
        ]
    )
