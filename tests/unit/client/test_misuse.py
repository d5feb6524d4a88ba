"""Clients that are closed, on the wrong event loop, or have no broker to speak to."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidelog import client
from tidelog.client import sync


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address that nobody listens on: bound, and not listened at, so that nobody else can."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def hasty(nowhere: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": nowhere,
        "request.timeout.ms": 100,
        "delivery.timeout.ms": 200,
        "linger.ms": 0,
        **more,
    }


# --- no broker ---------------------------------------------------------------------------


def test_a_record_that_nobody_takes_says_who_was_tried(nowhere: str) -> None:
    with (
        sync.Producer(hasty(nowhere)) as producer,
        pytest.raises(client.TimedOut) as caught,
    ):
        producer.send("t", b"x")
    assert caught.value.retriable and caught.value.outcome_unknown
    assert "delivery.timeout.ms=200" in str(caught.value)
    assert f"tried {nowhere}" in str(caught.value) and "refused" in str(caught.value)


@pytest.mark.asyncio
async def test_the_same_on_an_event_loop_and_all_of_many_fail(nowhere: str) -> None:
    async with client.Producer(hasty(nowhere)) as producer:
        outcomes = await asyncio.gather(
            *(producer.send("t", b"x") for _ in range(50)), return_exceptions=True
        )
    assert {type(one) for one in outcomes} == {client.TimedOut}


def test_an_administrator_says_who_was_tried(nowhere: str) -> None:
    config = {"bootstrap.servers": nowhere, "default.api.timeout.ms": 300}
    with sync.Admin(config) as admin, pytest.raises(client.TimedOut, match=f"tried {nowhere}"):
        admin.describe_topic("t")
    with sync.Admin(config) as admin, pytest.raises(client.RequestFailed, match="could not be"):
        admin.list_topics()


def test_a_consumer_polls_in_vain_but_says_it_cannot_commit(nowhere: str) -> None:
    config = {"bootstrap.servers": nowhere, "group.id": "g", "default.api.timeout.ms": 300}
    with sync.Consumer(config) as consumer:
        consumer.subscribe("t")
        assert consumer.poll(0.3) == []
        with pytest.raises(client.RequestFailed, match=f"tried {nowhere}"):
            consumer.committed([client.TopicPartition("t", 0)])


def test_a_full_buffer_blocks_for_max_block_ms_and_then_says_so(nowhere: str) -> None:
    config = hasty(nowhere, **{"buffer.memory": 2048, "max.block.ms": 50})
    config["delivery.timeout.ms"] = 60_000
    producer = sync.Producer(config)
    with pytest.raises(client.TimedOut, match=r"fill buffer\.memory=2048.*within 0\.05 s"):
        for _ in range(10):
            producer.enqueue("t", b"x" * 700)
    producer.close(timeout_s=0)


@pytest.mark.asyncio
async def test_the_same_wait_does_not_hold_up_the_event_loop(nowhere: str) -> None:
    config = hasty(nowhere, **{"buffer.memory": 2048, "max.block.ms": 300})
    config["delivery.timeout.ms"] = 60_000
    producer = client.Producer(config)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    ticking = asyncio.ensure_future(tick())
    with pytest.raises(client.TimedOut, match="fill buffer"):
        futures = [await producer.enqueue("t", b"x" * 700) for _ in range(10)]
        assert not futures
    ticking.cancel()
    assert ticks > 3
    await producer.close(timeout_s=0)


@pytest.mark.asyncio
async def test_records_given_up_at_the_end_are_told(nowhere: str) -> None:
    config = hasty(nowhere)
    config["delivery.timeout.ms"] = 60_000
    producer = client.Producer(config)
    delivered = await producer.enqueue("t", b"x")
    with pytest.raises(client.TimedOut, match="1 records are not acknowledged"):
        await producer.flush(timeout_s=0.05)
    await producer.close(timeout_s=0)
    with pytest.raises(client.RequestFailed) as caught:
        await delivered
    assert caught.value.name == "_PURGE_QUEUE"


# --- closed ------------------------------------------------------------------------------

SYNC_CALLS: list[tuple[type[Any], dict[str, Any], Callable[[Any], object]]] = [
    (sync.Producer, {}, lambda one: one.send("t", b"")),
    (sync.Producer, {}, lambda one: one.enqueue("t", b"")),
    (sync.Producer, {}, lambda one: one.flush()),
    (sync.Producer, {}, lambda one: one.__enter__()),
    (sync.TransactionalProducer, {"transactional.id": "x"}, lambda one: one.send("t", b"")),
    (sync.Consumer, {"group.id": "g"}, lambda one: one.poll(0)),
    (sync.Consumer, {"group.id": "g"}, lambda one: one.subscribe("t")),
    (sync.Consumer, {"group.id": "g"}, lambda one: one.commit()),
    (sync.Consumer, {"group.id": "g"}, lambda one: one.commit_soon()),
    (sync.Consumer, {"group.id": "g"}, lambda one: one.assignment()),
    (sync.Consumer, {"group.id": "g"}, lambda one: one.positions()),
    (sync.Consumer, {"group.id": "g"}, lambda one: one.seek(client.TopicPartition("t", 0), 1)),
    (sync.Consumer, {"group.id": "g"}, lambda one: one.group_metadata()),
    (sync.Admin, {}, lambda one: one.list_topics()),
    (sync.Admin, {}, lambda one: one.create_topic("t")),
]


@pytest.mark.parametrize(("kind", "more", "call"), SYNC_CALLS)
def test_a_closed_client_says_so(
    nowhere: str, kind: type[Any], more: dict[str, Any], call: Callable[[Any], object]
) -> None:
    one = kind({"bootstrap.servers": nowhere, **more})
    one.close()
    one.close()  # again is no error
    with pytest.raises(client.ClientClosed, match="is closed") as caught:
        call(one)
    assert (caught.value.name, caught.value.retriable) == ("_STATE", False)


@pytest.mark.asyncio
async def test_closed_asynchronous_clients_say_so(nowhere: str) -> None:
    at = {"bootstrap.servers": nowhere}
    producer, admin = client.Producer(at), client.Admin(at)
    consumer = client.Consumer({**at, "group.id": "g"})
    for one in (producer, admin, consumer):
        await one.close()
        await one.close()
    for call in (
        lambda: producer.send("t", b""),
        lambda: producer.flush(),
        lambda: consumer.poll(0),
        lambda: consumer.commit(),
        lambda: consumer.subscribe("t"),
        lambda: admin.list_topics(),
    ):
        with pytest.raises(client.ClientClosed):
            await call()
    assert [record async for record in consumer] == []


def test_a_closed_consumer_ends_its_iteration(nowhere: str) -> None:
    consumer = sync.Consumer({"bootstrap.servers": nowhere, "group.id": "g"})
    consumer.close()
    assert list(consumer) == []


@pytest.mark.parametrize("kind", [sync.Producer, client.Producer, sync.Consumer, client.Consumer])
def test_a_client_nobody_closed_is_mentioned(nowhere: str, kind: type[Any]) -> None:
    with pytest.warns(ResourceWarning, match=f"a {kind.__name__} was never closed"):
        kind({"bootstrap.servers": nowhere})
        gc.collect()


# --- event loops -------------------------------------------------------------------------


def test_a_client_belongs_to_one_event_loop(nowhere: str) -> None:
    producer = client.Producer(hasty(nowhere))
    consumer = client.Consumer({"bootstrap.servers": nowhere, "group.id": "g"})
    admin = client.Admin({"bootstrap.servers": nowhere})

    async def enter() -> None:
        await producer.__aenter__()
        await consumer.__aenter__()
        await admin.__aenter__()

    asyncio.run(enter())
    for call in (
        lambda: producer.send("t", b""),
        lambda: producer.close(),
        lambda: consumer.poll(0),
        lambda: consumer.subscribe("t"),
        lambda: consumer.commit(),
        lambda: admin.list_topics(),
    ):
        with pytest.raises(client.WrongEventLoop, match="first used on another event loop"):
            asyncio.run(call())
    producer._is_closed = True
    producer._outbox.close(0)
    consumer._core.close()


def test_without_an_event_loop_the_twin_is_named(nowhere: str) -> None:
    producer = client.Producer(hasty(nowhere))
    with pytest.raises(client.WrongEventLoop, match=r"tidelog\.client\.sync"):
        producer.send("t", b"").send(None)
    asyncio.run(producer.close())


# --- wrong uses --------------------------------------------------------------------------


def test_transactions_need_a_name_and_a_name_needs_transactions(nowhere: str) -> None:
    with pytest.raises(client.ConfigError, match=r"needs transactional\.id"):
        sync.TransactionalProducer({"bootstrap.servers": nowhere})
    with pytest.raises(client.ConfigError, match="use TransactionalProducer"):
        sync.Producer({"bootstrap.servers": nowhere, "transactional.id": "x"})


def test_a_transactional_producer_sends_only_in_a_transaction(nowhere: str) -> None:
    config = {"bootstrap.servers": nowhere, "transactional.id": "x"}
    with (
        sync.TransactionalProducer(config) as producer,
        pytest.raises(client.WrongState, match="only inside of a transaction"),
    ):
        producer.send("t", b"")


def test_a_transaction_without_a_broker_times_out_and_says_who_was_tried(nowhere: str) -> None:
    config: dict[str, Any] = {
        "bootstrap.servers": nowhere,
        "transactional.id": "x",
        "transaction.timeout.ms": 1000,
        "request.timeout.ms": 500,
    }
    begun = time.monotonic()
    with (
        sync.TransactionalProducer(config) as producer,
        pytest.raises(client.TimedOut, match=f"tried {nowhere}"),
        producer.transaction(),
    ):
        pass
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda one: one.subscribe([]), "at least one name"),
        (lambda one: one.subscribe([1]), "names are wanted"),
        (lambda one: one.subscribe("^a.*"), "re.compile"),
        (lambda one: one.subscribe("__consumer_offsets"), "exclude.internal.topics=false"),
        (lambda one: one.poll(0, max_records=0), "max_records=0"),
        (lambda one: one.seek(client.TopicPartition("t", 0), -5), "is no position"),
        (lambda one: one.seek(client.TopicPartition("t", 0), 5), "is not assigned"),
        (lambda one: one.pause(client.TopicPartition("t", 0)), "is not assigned"),
        (lambda one: one.commit({client.TopicPartition("t", 0): -1}), "is no offset"),
    ],
)
def test_what_a_consumer_refuses(nowhere: str, call: Callable[[Any], object], words: str) -> None:
    with sync.Consumer({"bootstrap.servers": nowhere, "group.id": "g"}) as consumer:
        with pytest.raises(client.ClientError) as caught:
            call(consumer)
        assert words in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda one: one.subscribe("t"),
        lambda one: one.commit(),
        lambda one: one.group_metadata(),
        lambda one: one.committed([]),
    ],
)
def test_without_a_group_there_is_no_group(nowhere: str, call: Callable[[Any], object]) -> None:
    with (
        sync.Consumer({"bootstrap.servers": nowhere}) as consumer,
        pytest.raises(client.WrongState, match=r"without group\.id"),
    ):
        call(consumer)


@pytest.mark.asyncio
async def test_one_task_polls_at_a_time(nowhere: str) -> None:
    async with client.Consumer({"bootstrap.servers": nowhere, "group.id": "g"}) as consumer:
        await consumer.subscribe("t")
        first = asyncio.ensure_future(consumer.poll(0.3))
        await asyncio.sleep(0)
        with pytest.raises(client.WrongState, match="another task polls"):
            await consumer.poll(0)
        assert await first == []


@pytest.mark.parametrize(
    ("arguments", "options"),
    [((None,), {}), (("",), {}), (("t", "three"), {}), (("t", 1, "x"), {})],
)
def test_an_administrator_refuses_what_is_no_topic(
    nowhere: str, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    with sync.Admin({"bootstrap.servers": nowhere}) as admin, pytest.raises(client.WrongType):
        admin.create_topic(*arguments, **options)
