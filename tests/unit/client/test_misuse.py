"""Clients that are closed, on the wrong event loop, or have no broker to speak to."""

from __future__ import annotations

import asyncio
import gc
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidelog import client
from tidelog.client import sync

ZERO = client.TopicPartition("t", 0)
ANYTHING: Any = 1.5


class Waiting(client.RebalanceListener):
    async def on_revoked(self, partitions: list[client.TopicPartition]) -> None:
        raise AssertionError("nobody is there to await this")


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
    with sync.Admin(config) as admin, pytest.raises(client.TimedOut, match="could not be") as said:
        admin.list_topics()
    assert f"within 0.3 s; tried {nowhere}" in str(said.value)
    assert str(said.value).count("Connection refused") == 1


def test_a_consumer_polls_in_vain_but_says_it_cannot_commit(nowhere: str) -> None:
    config = {"bootstrap.servers": nowhere, "group.id": "g", "default.api.timeout.ms": 300}
    with sync.Consumer(config) as consumer:
        consumer.subscribe("t")
        assert consumer.poll(0.3) == []
        with pytest.raises(client.RequestFailed, match=f"tried {nowhere}"):
            consumer.committed([client.TopicPartition("t", 0)])


def test_who_did_not_poll_still_says_why_nobody_was_reached(nowhere: str) -> None:
    config = {"bootstrap.servers": nowhere, "default.api.timeout.ms": 300}
    words = f"tried {nowhere}: {nowhere}: Connection refused"
    with sync.Consumer(config) as consumer, pytest.raises(client.TimedOut, match=words):
        consumer.end_offset(ZERO)


def test_a_commit_without_a_coordinator_is_given_up_with_the_session(nowhere: str) -> None:
    config = {
        "bootstrap.servers": nowhere,
        "group.id": "g",
        "session.timeout.ms": 1000,
        "heartbeat.interval.ms": 300,
    }
    with sync.Consumer(config) as consumer, pytest.raises(client.TimedOut) as caught:
        consumer.commit({ZERO: 1})
    assert caught.value.retriable and not caught.value.outcome_unknown  # it was never sent


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
    (sync.Consumer, {"group.id": "g"}, lambda one: one.position(ZERO)),
    (sync.Consumer, {"group.id": "g"}, lambda one: one.end_offset(ZERO)),
    (sync.Consumer, {"group.id": "g"}, lambda one: one.offset_at(ZERO, 1)),
    (sync.Consumer, {"group.id": "g"}, lambda one: one.committed([ZERO])),
    (sync.Consumer, {"group.id": "g"}, lambda one: one.assign([ZERO])),
    (sync.Consumer, {"group.id": "g"}, lambda one: one.pause(ZERO)),
    (sync.Consumer, {"group.id": "g"}, lambda one: one.unsubscribe()),
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


@pytest.mark.asyncio
async def test_an_iteration_ends_when_another_task_closes_the_consumer(nowhere: str) -> None:
    consumer = client.Consumer({"bootstrap.servers": nowhere, "group.id": "g"})
    await consumer.subscribe("t")

    async def iterate() -> list[object]:
        return [record async for record in consumer]

    iterating = asyncio.ensure_future(iterate())
    await asyncio.sleep(0.05)
    await consumer.close()
    assert await asyncio.wait_for(iterating, 20) == []


def test_an_iteration_ends_when_another_thread_closes_the_consumer(nowhere: str) -> None:
    consumer = sync.Consumer({"bootstrap.servers": nowhere, "group.id": "g"})
    consumer.subscribe("t")
    closing = threading.Timer(0.05, consumer.close)
    closing.start()
    assert list(consumer) == []
    closing.join()


@pytest.mark.asyncio
async def test_commits_under_way_are_waited_for(
    nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = client.Consumer({"bootstrap.servers": nowhere, "group.id": "g"})
    may_end, ended = threading.Event(), []

    def commit(offsets: object) -> None:
        assert may_end.wait(20)
        ended.append(consumer._core.is_closed)

    monkeypatch.setattr(consumer._core, "commit", commit)
    consumer.commit_soon({ZERO: 1})
    closing = asyncio.ensure_future(consumer.close())
    await asyncio.sleep(0.05)
    may_end.set()
    await closing
    assert ended == [False]


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
        (lambda one: one.subscribe([1]), "topics: a name is wanted, not 1"),
        (lambda one: one.subscribe(5), "a name, names or a pattern are wanted, not 5"),
        (lambda one: one.subscribe(re.compile("(?i)t")), "has flags"),
        (lambda one: one.subscribe("t", print), "a RebalanceListener is wanted"),
        (lambda one: one.subscribe("t", Waiting()), "on_revoked is async"),
        (lambda one: one.poll("1"), "timeout_s: seconds are wanted, not '1'"),
        (lambda one: one.poll(float("nan")), "timeout_s: seconds are wanted, not nan"),
        (lambda one: one.poll(0, max_records="5"), "max_records: a whole number is wanted"),
        (lambda one: one.assign("t"), "several of TopicPartition(topic, number)"),
        (lambda one: one.assign(client.TopicPartition("t", 0)), "several of TopicPartition"),
        (lambda one: one.assign(["t"]), "TopicPartition(topic, number) is wanted, not 't'"),
        (lambda one: one.assign([("t", "0")]), "partition: a whole number is wanted, not str"),
        (lambda one: one.assign([("t", -1)]), "partition=-1"),
        (lambda one: one.seek("t", 0), "TopicPartition(topic, number) is wanted"),
        (lambda one: one.seek(ZERO, 2**70), "offset=1180591620717411303424"),
        (lambda one: one.seek(ZERO, client.AtTime(ANYTHING)), "timestamp_ms: a whole number"),
        (lambda one: one.offset_at(ZERO, "5"), "timestamp_ms: a whole number is wanted"),
        (lambda one: one.end_offset("t"), "TopicPartition(topic, number) is wanted"),
        (lambda one: one.position("t"), "TopicPartition(topic, number) is wanted"),
        (lambda one: one.committed("t"), "several of TopicPartition"),
        (lambda one: one.pause([ZERO]), "TopicPartition(topic, number) is wanted"),
        (lambda one: one.commit([5]), "offsets: a dictionary is wanted"),
        (lambda one: one.commit({"t": 5}), "TopicPartition(topic, number) is wanted"),
        (lambda one: one.commit({ZERO: client.OffsetAndMetadata(1, ANYTHING)}), "metadata is text"),
        (lambda one: one.commit({ZERO: client.OffsetAndMetadata(1, "", ANYTHING)}), "leader_epoch"),
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
    ("call", "words"),
    [
        (lambda one: one.create_topic(None), "name: a name is wanted, not None"),
        (lambda one: one.create_topic(""), "name: a name is wanted"),
        (lambda one: one.create_topic("t", "three"), "partitions: a whole number"),
        (lambda one: one.create_topic("t", 0), "partitions=0"),
        (lambda one: one.create_topic("t", 1 << 30), "num_partitions out of expected range"),
        (lambda one: one.create_topic("t", 1, "x"), "replication_factor: a whole number"),
        (lambda one: one.create_topic("t", 1, 70_000), "replication_factor=70000"),
        (lambda one: one.create_topic("t", configs=["x"]), "configs: a dictionary is wanted"),
        (lambda one: one.create_topic("t", configs={"a": [1]}), "a: text, a number, true or"),
        (lambda one: one.create_topic("t", configs={5: "x"}), "configs: a name is wanted"),
        (lambda one: one.create_topic("t", assignments=[1]), "ids of brokers per partition"),
        (lambda one: one.create_topic("t", assignments=[]), "a list of replicas per partition"),
        (lambda one: one.create_topic("t", assignments=[["1"]]), "assignments: a whole number"),
        (lambda one: one.create_topic("t", 2, assignments=[[1]]), "give them, or"),
        (lambda one: one.create_partitions("t", "4"), "total: a whole number"),
        (lambda one: one.create_partitions("t", 0), "total=0"),
        (lambda one: one.topic_configs(""), "topic: a name is wanted"),
        (lambda one: one.set_topic_configs("t", ["x"]), "configs: a dictionary is wanted"),
        (lambda one: one.broker_configs("x"), "node_id: a whole number"),
        (lambda one: one.set_broker_configs(None, {"a": "b"}), "node_id: a whole number"),
        (lambda one: one.delete_records({ZERO: "1"}), "offset: a whole number"),
        (lambda one: one.delete_records({ZERO: client.BEGINNING}), "offset: a whole number"),
        (lambda one: one.delete_records({"t": 1}), "TopicPartition(topic, number) is wanted"),
        (lambda one: one.set_group_offsets("g", {ZERO: -1}), "is no offset"),
        (lambda one: one.set_group_offsets("g", {ZERO: "1"}), "is no offset"),
        (lambda one: one.describe_group(b"g"), "group_id: a name is wanted"),
    ],
)
def test_what_an_administrator_refuses(
    nowhere: str, call: Callable[[Any], object], words: str
) -> None:
    with sync.Admin({"bootstrap.servers": nowhere}) as admin:
        with pytest.raises(client.WrongType) as caught:
            call(admin)
        assert words in str(caught.value)


@pytest.mark.parametrize("timeout_s", ["1", True, float("nan")])
def test_what_is_no_time_to_wait(nowhere: str, timeout_s: Any) -> None:
    with sync.Producer({"bootstrap.servers": nowhere}) as producer:
        for wait in (producer.flush, producer.close):
            with pytest.raises(client.WrongType, match="timeout_s: seconds are wanted"):
                wait(timeout_s)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda at: sync.Producer(at, value_serializer=5), "value_serializer"),  # type: ignore[arg-type]
        (lambda at: client.Producer(at, key_serializer="x"), "key_serializer"),  # type: ignore[arg-type]
        (lambda at: sync.Consumer(at, value_deserializer=5), "value_deserializer"),  # type: ignore[arg-type]
        (lambda at: client.Consumer(at, key_deserializer=5), "key_deserializer"),  # type: ignore[arg-type]
    ],
)
def test_a_serializer_is_a_function(nowhere: str, make: Any, word: str) -> None:
    with pytest.raises(client.WrongType, match=f"{word}: a function is wanted"):
        make({"bootstrap.servers": nowhere})
