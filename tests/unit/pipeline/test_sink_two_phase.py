"""Whatever dies between two steps of the protocol: every row once, and nothing left open."""

from __future__ import annotations

import random
from contextlib import nullcontext
from typing import Any

import pytest
from pretended_transactions import PretendedTransactions
from sink_job import QUERY, Died, Job, Row, drive

from tidelog.pipeline.decision import (
    MAX_ENTRY_BYTES,
    Decision,
    Task,
    Transaction,
    from_entries,
    is_task_id,
    to_entries,
)
from tidelog.pipeline.errors import (
    BrokerRefused,
    BrokerUnavailable,
    DecidedButLost,
    Fenced,
)
from tidelog.pipeline.two_phase import Prepared, TwoPhase


def all_is_well(job: Job, batches: int, rows: int = 6) -> bool:
    wanted = [Row(batch, row) for batch in range(batches) for row in range(rows)]
    seen = [row for row in job.brokers.visible if isinstance(row, Row)]
    return sorted(seen) == wanted and not job.brokers.open_transactions("p")


def test_three_batches_without_any_fault() -> None:
    job = Job(PretendedTransactions())
    job.start()
    for _ in range(3):
        job.run_batch()
    assert all_is_well(job, 3)
    assert job.steps[0] == "plan-fenced" and job.steps[-1] == "commit-done"


STEPS = (
    "plan-fenced", "plan-settled", "task-began", "task-sent-some", "task-wrote", "commit-began",
    "commit-undecided", "commit-decided", "commit-ended-one", "commit-done",
)  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_death_at_each_step(step: str, nth: int) -> None:
    left = [nth]

    def dies(reached: str) -> bool:
        left[0] -= reached == step
        return reached == step and left[0] == 0

    job = Job(PretendedTransactions(), dies)
    drive(job, batches=4)
    assert left[0] <= 0, "the step was reached"
    assert all_is_well(job, 4)


@pytest.mark.parametrize("seed", range(150))
def test_deaths_wherever_they_fall(seed: int) -> None:
    rng = random.Random(seed)
    job = Job(PretendedTransactions(), lambda step: rng.random() < 0.08, rng=rng)
    drive(job, batches=5)
    assert all_is_well(job, 5)


def test_a_replay_of_a_decided_batch_writes_nothing() -> None:
    job = Job(PretendedTransactions())
    job.start()
    job.run_batch()
    job.batch = 0
    job.start()
    plan = job.protocol().plan()
    assert plan.decided is not None and plan.decided.covers(QUERY, 0)
    job.run_batch()
    assert all_is_well(job, 1)
    assert "commit-repeated" in job.steps


def test_another_query_with_the_same_prefix_is_not_taken_for_this_one() -> None:
    assert Decision("q", 5, ()).covers("q", 5)
    assert Decision("q", 5, ()).covers("q", 4)
    assert not Decision("q", 5, ()).covers("q", 6)
    assert not Decision("other", 5, ()).covers("q", 5)


def test_a_driver_that_was_overtaken_is_fenced_and_disturbs_nobody() -> None:
    brokers = PretendedTransactions()
    old, new = Job(brokers), Job(brokers)
    old.start()
    plan = old.protocol().plan()
    done = old.task(plan, 0, 1, 6)
    assert done is not None
    new.starts = 5
    new.start()
    new_plan = new.protocol().plan()
    new_done = new.task(new_plan, 0, 1, 6)
    assert new_done is not None
    with pytest.raises(Fenced, match="another driver with the same checkpoint"):
        old.protocol().commit([done], 0)
    late = old.task(plan, 0, 1, 6)
    assert late is not None
    with pytest.raises(Fenced, match="Only one of them may run"):
        old.protocol().commit([late], 0)
    old.protocol().abort(plan.driver)
    new.protocol().commit([new_done], 0)
    old.protocol().abort(plan.driver)
    new.batch = 1
    new.run_batch()
    assert all_is_well(new, 2)


def test_a_stale_plan_does_not_abort_what_a_younger_driver_decided() -> None:
    """The old driver stands still at two points of its plan, for as long as the new one needs."""
    brokers = PretendedTransactions()
    old, new = Job(brokers), Job(brokers)
    old.start()
    new.starts = 5
    new.start()
    done: list[Prepared] = []

    def write_at_first_point(step: str) -> bool:
        if step == "plan-fenced":
            prepared = new.task(new.protocol().plan(), 0, 1, 6)
            assert prepared is not None
            done.append(prepared)
        return False

    def decide_at_second_point(group: str) -> dict[int, str]:
        found = brokers.entries(group)
        new.dies = lambda step: step == "commit-decided"
        with pytest.raises(Died):
            new.protocol().commit(done, 0)
        return found

    old.dies = write_at_first_point
    protocol = old.protocol()
    assert old.process is not None
    vars(old.process)["entries"] = decide_at_second_point
    protocol.plan()
    new.dies = lambda step: False
    new.start()
    new.run_batch()
    assert all_is_well(new, 1)


def test_a_driver_that_is_overtaken_while_it_commits_or_aborts_disturbs_nobody() -> None:
    for point in ("commit-ended-one", "abort-began"):
        brokers = PretendedTransactions()
        old, new = Job(brokers), Job(brokers)
        old.start()
        new.starts = 5
        new.start()
        done: list[Prepared] = []
        plan = old.protocol().plan()
        prepared = old.task(plan, 0, 1, 6)
        assert prepared is not None

        def take_over(*_: object, new: Job = new, done: list[Prepared] = done) -> bool:
            task = new.task(new.protocol().plan(), 0, 1, 6)
            assert task is not None
            done.append(task)
            return False

        if point == "commit-ended-one":
            new.batch = 1
            old.dies = lambda step: step == "commit-ended-one" and take_over()
            old.protocol().commit([prepared], 0)
        else:
            protocol = old.protocol()
            assert old.process is not None
            vars(old.process)["end"] = lambda *_, commit: take_over()
            protocol.abort(plan.driver)
        new.protocol().commit(done, new.batch)
        assert all_is_well(new, new.batch + 1)


def test_an_attempt_that_lost_the_race_is_aborted() -> None:
    brokers = PretendedTransactions()
    job = Job(brokers)
    job.start()
    plan = job.protocol().plan()

    def write(transaction: Transaction) -> int:
        brokers.produce(transaction, Row(0, 0))
        return 1

    winner = job.protocol().prepare(plan, QUERY, 0, Task(job.run, 0, 1), write)
    slow = job.protocol().prepare(plan, QUERY, 0, Task(job.run, 0, 2), write)
    early = brokers.begin(Task(job.run, 0, 0).id("p"), 1)
    assert slow.transaction is not None
    job.protocol().commit([winner], 0)
    assert all_is_well(job, 1, rows=1)
    with pytest.raises(Fenced):
        brokers.produce(early, Row(0, 0))


def test_a_transaction_that_timed_out_is_noticed_before_the_decision() -> None:
    brokers = PretendedTransactions()
    job = Job(brokers)
    job.start()
    done = job.task(job.protocol().plan(), 0, 1, 6)
    assert done is not None
    brokers.expire(Task(job.run, 0, 0).id("p"))
    with pytest.raises(BrokerUnavailable, match=r"took longer than kafka.transaction.timeout.ms"):
        job.protocol().commit([done], 0)
    job.run_batch()
    assert all_is_well(job, 1)


def test_a_decided_transaction_that_was_lost_is_an_error_every_time() -> None:
    brokers = PretendedTransactions()
    job = Job(brokers, lambda step: step == "commit-decided")
    job.start()
    with pytest.raises(Died):
        job.run_batch()
    for name in brokers.open_transactions("p"):
        brokers.expire(name)
    job.dies = lambda step: False
    for _ in range(2):
        job.start()
        with pytest.raises(DecidedButLost, match="its rows are missing"):
            job.run_batch()


def test_an_abort_without_any_message_leaves_nothing_open() -> None:
    brokers = PretendedTransactions()
    job = Job(brokers)
    job.start()
    plan = job.protocol().plan()
    brokers.produce(brokers.begin(Task(job.run, 0, 0).id("p"), 1), Row(0, 0))
    job.protocol().abort(None)
    assert not brokers.open_transactions("p") and not brokers.visible
    job.protocol().abort(plan.driver)  # fenced by now, and that is no error


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("point", ["before it has an id", "before it looks", "before it writes"])
def test_a_task_that_is_late_for_an_abort_leaves_nothing_open(point: str, is_known: bool) -> None:
    """Spark does not wait for tasks that it stops: they go on for a moment."""
    brokers = PretendedTransactions()
    job = Job(brokers)
    job.start()
    plan = job.protocol().plan()

    def abort() -> bool:
        TwoPhase(brokers, "p", 60_000).abort(plan.driver if is_known else None)
        return False

    def write(transaction: Transaction) -> int:
        if point == "before it writes":
            abort()
        brokers.produce(transaction, Row(0, 0))
        return 1

    def begin(*given: Any) -> Transaction:
        abort()
        return brokers.begin(*given)

    protocol = job.protocol()
    if point == "before it has an id":
        vars(job.process)["begin"] = begin
    elif point == "before it looks":
        job.dies = lambda step: step == "task-began" and abort()
    with nullcontext() if point != "before it writes" else pytest.raises(Fenced):
        late = protocol.prepare(plan, QUERY, 0, Task(job.run, 0, 0), write)
        assert late.is_overtaken and late.transaction is None
        with pytest.raises(Fenced, match="another driver"):
            job.protocol().commit([late], 0)
    assert not brokers.open_transactions("p")
    job.dies = lambda step: False
    job.start()
    job.run_batch()
    assert all_is_well(job, 1)


def test_an_abort_fences_no_task_of_a_driver_that_took_over_meanwhile() -> None:
    brokers = PretendedTransactions()
    old, new = Job(brokers), Job(brokers)
    old.start()
    plan = old.protocol().plan()
    new.starts = 5
    new.start()
    done: list[Prepared] = []

    def take_over(step: str) -> bool:
        if step == "plan-settled":
            task = new.task(new.protocol().plan(), 0, 1, 6)
            assert task is not None
            done.append(task)
        return False

    old.dies = take_over
    old.protocol().abort(plan.driver)
    new.protocol().commit(done, 0)
    assert all_is_well(new, 1)


def test_prefixes_that_begin_alike_are_told_apart() -> None:
    task = Task("0000000a", 3, 1)
    assert is_task_id("app", task.id("app"))
    assert is_task_id("app", task.id("app"), "0000000a")
    assert not is_task_id("app", task.id("app"), "0000000b")
    assert not is_task_id("app", task.id("app-2"))
    assert not is_task_id("app", task.id("app-12345678"))
    assert not is_task_id("app", "app-driver")


@pytest.mark.parametrize("count", [0, 1, 100, 1000, 4000])
def test_a_decision_is_read_as_it_was_written(count: int) -> None:
    tasks = (
        Transaction(Task("0000000a", number, 0).id("app"), 1000 + number, number % 7)
        for number in range(count)
    )
    decision = Decision(QUERY, 12, tuple(tasks))
    entries = to_entries(decision, "app")
    assert max(map(len, entries)) <= MAX_ENTRY_BYTES
    older = dict(enumerate(["{}"] * (len(entries) + 2)))
    assert from_entries(older | dict(enumerate(entries)), "app") == decision
    assert from_entries({}, "app") is None


def test_entries_of_others_are_told() -> None:
    for text in ("", "[]", "{}", '{"query":"q","batch":1,"entries":2,"transactions":[]}'):
        with pytest.raises(BrokerRefused, match="keeps something that is no decision"):
            from_entries({0: text}, "app")
    many = Decision("q", 1, tuple(Transaction(f"p-{n:08x}-0-0", n, 0) for n in range(20_000)))
    with pytest.raises(BrokerRefused, match="20000 tasks"):
        to_entries(many, "p")
