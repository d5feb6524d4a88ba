"""Transactions that cannot end, and calls that are cancelled while a thread is in them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidelog.client import Fenced, MustAbort, TimedOut, TransactionalProducer, WrongState, sync
from tidelog.client.errors import ClientClosed
from tidelog.client.outbox import Outbox
from tidelog.client.transacting import State, Transactions

TIMED_OUT = KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True)
MUST_ABORT = KafkaError(KafkaError._PURGE_QUEUE, "a record was lost", txn_requires_abort=True)
FENCED = KafkaError(KafkaError._FENCED, "another has the name", fatal=True)


class Librdkafka:
    """Notes calls; fails those that ``failures`` names, and holds up one if told so."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failures: dict[str, KafkaError] = {}
        self.held_up = ""
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name == self.held_up:
            self.reached.set()
            assert self.go_on.wait(20)
        if name in self.failures:
            raise KafkaException(self.failures[name])

    def init_transactions(self, timeout_s: float) -> None:
        self._call("init")

    def begin_transaction(self) -> None:
        self._call("begin")

    def commit_transaction(self, timeout_s: float) -> None:
        self._call("commit")

    def abort_transaction(self, timeout_s: float) -> None:
        self._call("abort")


def transactions(rd: Librdkafka, timeout_s: float = 0.2) -> Transactions:
    outbox = SimpleNamespace(
        rd=rd,
        config=SimpleNamespace(text=lambda name: "orders", seconds=lambda name: timeout_s),
        troubles=SimpleNamespace(tried=lambda: "tried a:1"),
    )
    return Transactions(cast("Outbox", outbox))


def test_a_commit_without_an_end_ends_the_producer_and_says_so() -> None:
    rd = Librdkafka()
    found = transactions(rd)
    found.begin()
    rd.failures["commit"] = TIMED_OUT
    with pytest.raises(TimedOut, match="whether it was committed is not known") as caught:
        found.commit()
    assert caught.value.fatal and caught.value.outcome_unknown and not caught.value.retriable
    assert "tried a:1" in str(caught.value)
    assert rd.calls.count("commit") > 1  # it was tried until the time was up
    assert found.state is State.OVER
    for call in (found.begin, found.commit, found.require_open):
        with pytest.raises(TimedOut, match="make another"):
            call()
    found.abort()
    assert "abort" not in rd.calls  # it may be committed


def test_an_abort_without_an_end_ends_the_producer_too() -> None:
    rd = Librdkafka()
    found = transactions(rd)
    found.begin()
    rd.failures["abort"] = TIMED_OUT
    with pytest.raises(TimedOut, match="the cluster aborts it by itself") as caught:
        found.abort()
    assert caught.value.fatal
    with pytest.raises(TimedOut, match="make another"):
        found.begin()


def test_a_transaction_that_must_be_aborted_is_and_the_next_may_begin() -> None:
    rd = Librdkafka()
    found = transactions(rd)
    found.begin()
    rd.failures["commit"] = MUST_ABORT
    with pytest.raises(MustAbort, match="a record was lost"):
        found.commit()
    rd.failures.clear()
    found.begin()
    found.commit()
    assert rd.calls == ["init", "begin", "commit", "abort", "begin", "commit"]


def test_one_that_was_fenced_is_told_so_again() -> None:
    rd = Librdkafka()
    found = transactions(rd)
    rd.failures["init"] = FENCED
    for _ in range(2):
        with pytest.raises(Fenced) as caught:
            found.begin()
        assert caught.value.fatal
    assert rd.calls == ["init"]


def test_who_could_not_register_may_try_again() -> None:
    rd = Librdkafka()
    found = transactions(rd)
    rd.failures["init"] = TIMED_OUT
    with pytest.raises(TimedOut) as caught:
        found.begin()
    assert caught.value.retriable and not caught.value.fatal
    rd.failures.clear()
    found.begin()
    assert found.state is State.OPEN


# --- on an event loop --------------------------------------------------------------------

CONFIG = {"bootstrap.servers": "127.0.0.1:1", "transactional.id": "orders"}


@pytest.fixture
def rd() -> Iterator[Librdkafka]:
    found = Librdkafka()
    yield found
    found.go_on.set()


def producer_on(rd: Librdkafka) -> TransactionalProducer:
    producer = TransactionalProducer(CONFIG)
    producer.__dict__["_transactions"] = transactions(rd, 5.0)
    return producer


async def one_transaction(producer: TransactionalProducer) -> None:
    async with producer.transaction():
        pass


async def cancel_while_in(rd: Librdkafka, call: str, work: Any) -> None:
    rd.held_up = call
    rd.reached.clear()
    task = asyncio.ensure_future(work)
    assert await asyncio.to_thread(rd.reached.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    rd.held_up = ""


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("call", "calls"),
    [
        ("init", ["init", "begin", "abort"]),
        ("begin", ["init", "begin", "abort"]),
        ("commit", ["init", "begin", "commit"]),  # it goes to its end, and is not taken back
    ],
)
async def test_what_was_cancelled_does_not_stay_open(
    rd: Librdkafka, call: str, calls: list[str]
) -> None:
    async with producer_on(rd) as producer:
        await cancel_while_in(rd, call, one_transaction(producer))
        next_one = asyncio.ensure_future(one_transaction(producer))
        await asyncio.sleep(0.01)
        assert not next_one.done()  # it waits for the thread
        rd.go_on.set()
        await next_one
    assert rd.calls == [*calls, "begin", "commit"]


@pytest.mark.asyncio
async def test_an_abort_goes_to_its_end_whoever_cancels(rd: Librdkafka) -> None:
    async def fail(producer: TransactionalProducer) -> None:
        async with producer.transaction():
            raise KeyError("the program's own")

    async with producer_on(rd) as producer:
        await cancel_while_in(rd, "abort", fail(producer))
        rd.go_on.set()
        await one_transaction(producer)
    assert rd.calls == ["init", "begin", "abort", "begin", "commit"]


@pytest.mark.asyncio
async def test_a_producer_closed_in_a_transaction_aborts_it(rd: Librdkafka) -> None:
    producer = producer_on(rd)
    with pytest.raises(ClientClosed):
        async with producer.transaction():
            await producer.close()
    assert rd.calls == ["init", "begin", "abort"]


def test_the_twin_does_so_too(rd: Librdkafka) -> None:
    producer = sync.TransactionalProducer(CONFIG)
    producer.__dict__["_transactions"] = transactions(rd)
    with pytest.raises(ClientClosed), producer.transaction():
        producer.close()
    assert rd.calls == ["init", "begin", "abort"]


@pytest.mark.asyncio
async def test_transactions_do_not_nest(rd: Librdkafka) -> None:
    async with producer_on(rd) as producer, producer.transaction():
        with pytest.raises(WrongState, match="do not nest"):
            async with producer.transaction():
                pass
    assert rd.calls == ["init", "begin", "commit"]
