"""Rows exactly once: tasks prepare transactions, one decision makes all of them count.

Theory: a batch is written by many tasks, in a transaction each, and must count as a whole or not at
all, whatever dies. So tasks leave their transactions open. The driver then commits the list of them
(``decision``), in a transaction of its own: that is the one moment at which the batch is decided.
Only afterwards are the tasks' transactions committed; whoever finds a decision and open
transactions of it goes on with that, and everything else that is open is aborted.

1. *plan* (for every batch, before its tasks): the driver's id gets a new epoch. That fences older
   drivers and settles whether their last decision was made. Of the transactions that were open
   *before* that, those of the decision are committed and the others aborted. (Those that are
   opened later may be a younger driver's, and may already be decided by it.)
2. *task*: if its batch is decided it writes nothing. Else it takes the next epoch of an id of its
   own, looks whether the driver that planned it is still the latest, and writes in a transaction.
3. *commit*: the decision, then the end of every transaction in it.
4. *replay* of a decided batch: all tasks skipped, and *commit* ends the transactions again, which
   does nothing where it was done.
5. *abort*: as *plan*, but only if no other driver took over. Tasks may still be at work then,
   because Spark does not wait for those it stops. One that has not looked yet finds that the driver
   has a newer epoch. One that has looked had its id before that: all such ids get a newer epoch,
   too, and so it cannot open its transaction any more.

A transaction that a broker gave up (it was open for too long) must be noticed before the decision:
*commit* looks at each. If it happens after the decision, rows are lost and that is an error.

Pure but for ``Coordinators``, which asks brokers. ``reached`` is told every step, for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from tidelog.pipeline.decision import (
    Decision,
    Task,
    Transaction,
    driver_id,
    from_entries,
    is_task_id,
    to_entries,
)
from tidelog.pipeline.errors import (
    BrokerUnavailable,
    DecidedButLost,
    Fenced,
    NotOngoing,
    PipelineError,
)
from tidelog.pipeline.positions import Place


class CoordinatorsPort(Protocol):
    """What the protocol asks brokers for; ``Coordinators`` says what each does."""

    def begin(
        self, transactional_id: str, timeout_ms: int, after: Transaction | None = None
    ) -> Transaction: ...
    def add_partitions(self, transaction: Transaction, places: Collection[Place]) -> None: ...
    def commit_entries(
        self, transaction: Transaction, group: str, entries: Sequence[str], number: int
    ) -> None: ...
    def end(self, transaction: Transaction, *, commit: bool) -> None: ...
    def entries(self, group: str) -> dict[int, str]: ...
    def describe(self, transactional_id: str) -> tuple[Transaction, bool]: ...
    def open_transactions(self, prefix: str, *, or_about_to_be: bool = False) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What the driver found before the tasks of a batch."""

    driver: Transaction
    decided: Decision | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a task did."""

    query: str
    task: Task
    driver: Transaction
    transaction: Transaction | None
    """None if it had no rows, or skipped them."""
    is_decided: bool
    """Its batch was decided before, so it wrote nothing."""
    rows: int = 0
    is_overtaken: bool = False
    """Its driver is not the latest any more, so it wrote nothing."""


class TwoPhase:
    def __init__(
        self,
        coordinators: CoordinatorsPort,
        prefix: str,
        timeout_ms: int,
        reached: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._coordinators = coordinators
        self._prefix = prefix
        self._timeout_ms = timeout_ms
        self._reached = reached

    # --- on the driver, before the tasks -------------------------------------------------

    def plan(self, after: Transaction | None = None) -> Plan:
        """``after``: only if that driver is still the latest, else ``Fenced``."""
        were_open = self._open_tasks()
        driver = self._coordinators.begin(driver_id(self._prefix), self._timeout_ms, after)
        self._reached("plan-fenced")
        decided = self._decided()
        self._settle(were_open, decided)
        self._reached("plan-settled")
        return Plan(driver, decided)

    def _decided(self) -> Decision | None:
        return from_entries(self._coordinators.entries(self._prefix), self._prefix)

    def _open_tasks(self, *, or_about_to_be: bool = False) -> list[str]:
        found = self._coordinators.open_transactions(self._prefix, or_about_to_be=or_about_to_be)
        return [name for name in found if is_task_id(self._prefix, name)]

    def _settle(self, names: Collection[str], decided: Decision | None) -> None:
        """Commit what is decided of these, and abort the others."""
        kept = {one.id: one for one in decided.transactions} if decided else {}
        for name in names:
            latest, is_open = self._coordinators.describe(name)
            if kept.get(name) == latest:
                self._roll_forward(latest)
            elif is_open:
                self._coordinators.begin(name, self._timeout_ms)

    # --- in a task -----------------------------------------------------------------------

    def prepare(
        self,
        plan: Plan,
        query: str,
        batch: int,
        task: Task,
        write: Callable[[Transaction], int],
    ) -> Prepared:
        """``write`` writes all rows in the transaction and says how many there were."""
        if plan.decided is not None and plan.decided.covers(query, batch):
            return Prepared(query, task, plan.driver, None, is_decided=True)
        transaction = self._coordinators.begin(task.id(self._prefix), self._timeout_ms)
        self._reached("task-began")
        if self._coordinators.describe(plan.driver.id)[0] != plan.driver:
            # No error: the driver hears of it when it commits, and then knows who it is.
            return Prepared(query, task, plan.driver, None, is_decided=False, is_overtaken=True)
        try:
            rows = write(transaction)
            self._reached("task-wrote")
        except BaseException:
            # Nobody else would end it before the next batch is planned, and readers would wait.
            with suppress(PipelineError):
                self._coordinators.end(transaction, commit=False)
            raise
        kept = transaction if rows else None
        return Prepared(query, task, plan.driver, kept, is_decided=False, rows=rows)

    # --- on the driver, after the tasks --------------------------------------------------

    def commit(self, done: Sequence[Prepared], batch: int) -> None:
        self._reached("commit-began")
        if any(one.is_overtaken for one in done):
            raise self._overtaken(batch)
        if all(one.is_decided for one in done):
            self._commit_again(batch)
            return
        if any(one.is_decided for one in done):
            raise BrokerUnavailable(
                f"batch {batch}: some of its tasks found it decided and some did not, so they "
                "were planned apart; nothing is decided, run it again"
            )
        decision = Decision(
            done[0].query, batch, tuple(one.transaction for one in done if one.transaction)
        )
        driver = done[0].driver
        self._require_open(decision, driver)
        try:
            self._coordinators.commit_entries(
                driver, self._prefix, to_entries(decision, self._prefix), batch
            )
            self._reached("commit-undecided")
            self._coordinators.end(driver, commit=True)
        except (Fenced, NotOngoing) as error:
            raise self._overtaken(batch) from error
        self._reached("commit-decided")
        self._finish(decision)
        self._abort_other_attempts(done, decision)
        self._reached("commit-done")

    def _abort_other_attempts(self, done: Sequence[Prepared], decision: Decision) -> None:
        """Those that lost the race; they are of this run, so no younger driver's."""
        run = done[0].task.run
        names = [name for name in self._open_tasks() if is_task_id(self._prefix, name, run)]
        self._settle(names, decision)
        for one in done:
            for attempt in range(one.task.attempt):
                earlier = replace(one.task, attempt=attempt).id(self._prefix)
                self._coordinators.begin(earlier, self._timeout_ms)

    def _commit_again(self, batch: int) -> None:
        decided = self._decided()
        # A later decision is only made once this batch's transactions have ended.
        if decided is not None and decided.batch == batch:
            self._finish(decided)
        self._reached("commit-repeated")

    def _finish(self, decision: Decision) -> None:
        for transaction in decision.transactions:
            self._roll_forward(transaction)
            self._reached("commit-ended-one")

    def _roll_forward(self, transaction: Transaction) -> None:
        try:
            self._coordinators.end(transaction, commit=True)
        except (Fenced, NotOngoing) as error:
            raise DecidedButLost(
                f"a batch was decided, and then transaction {transaction.id!r} of it was aborted, "
                "most likely because it was open for longer than kafka.transaction.timeout.ms: "
                "its rows are missing. With another transactionalIdPrefix the batch is written "
                f"again as a whole. ({error})"
            ) from error

    def _require_open(self, decision: Decision, driver: Transaction) -> None:
        for transaction in decision.transactions:
            latest, is_open = self._coordinators.describe(transaction.id)
            if latest == transaction and is_open:
                continue
            if self._coordinators.describe(driver.id)[0] != driver:
                raise self._overtaken(decision.batch)
            raise BrokerUnavailable(
                f"batch {decision.batch} is not written: transaction {transaction.id!r} of one of "
                "its tasks is not open any more, most likely because the batch took longer than "
                f"kafka.transaction.timeout.ms ({self._timeout_ms})"
            )

    def _overtaken(self, batch: int) -> Fenced:
        return Fenced(
            f"batch {batch} is not written: another driver with the same checkpoint, txnAppId or "
            f"transactionalIdPrefix ({self._prefix!r}) took over while this one was at work. "
            "Only one of them may run."
        )

    def abort(self, driver: Transaction | None) -> None:
        """``driver``: as planned; None if no task came so far as to tell.

        Without it there is no telling whether another driver took over; then that is fenced.
        """
        self._reached("abort-began")
        try:
            if driver is not None:
                with suppress(NotOngoing):
                    self._coordinators.end(driver, commit=False)
            self._fence_tasks(self.plan(after=driver))
        except Fenced:
            return  # the one who took over has aborted all this

    def _fence_tasks(self, plan: Plan) -> None:
        """Those that looked for their driver before it got its newer epoch, and go on."""
        names = self._open_tasks(or_about_to_be=True)
        if self._coordinators.describe(plan.driver.id)[0] != plan.driver:
            return  # some may be of a younger driver; those that are not are its to fence
        kept = plan.decided.transactions if plan.decided else ()
        for name in names:
            if self._coordinators.describe(name)[0] not in kept:
                self._coordinators.begin(name, self._timeout_ms)
