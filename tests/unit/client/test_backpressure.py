"""Senders that wait for room: in the order they came, and each looks only when it is first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tidelog.client import ClientClosed, Producer, TimedOut
from tidelog.client.outbox import NewRecord

SENDERS = 300


class Buffer:
    """In librdkafka's place: takes what there is room for."""

    def __init__(self) -> None:
        self.room = 0
        self.taken: list[bytes | None] = []
        self.offers = 0

    def offer(self, record: NewRecord, ticket: object) -> bool:
        self.offers += 1
        if len(self.taken) >= self.room:
            return False
        self.taken.append(record.value)
        return True


@pytest_asyncio.fixture
async def producer() -> AsyncIterator[Producer]:
    config = {"bootstrap.servers": "127.0.0.1:1", "max.block.ms": 20_000}
    async with Producer(config) as found:
        yield found


@pytest.fixture
def buffer(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> Buffer:
    found = Buffer()
    monkeypatch.setattr(producer._outbox, "offer", found.offer)
    return found


def start(producer: Producer, count: int = SENDERS) -> list[asyncio.Task[Any]]:
    return [asyncio.ensure_future(producer.enqueue("t", b"%d" % number)) for number in range(count)]


@pytest.mark.asyncio
async def test_many_senders_get_room_in_their_order_and_at_little_cost(
    producer: Producer, buffer: Buffer
) -> None:
    senders = start(producer)
    while not all(sender.done() for sender in senders):
        buffer.room += 10
        producer._resolve_here([])  # some were acknowledged
        for _ in range(30):
            await asyncio.sleep(0)
    assert buffer.taken == [b"%d" % number for number in range(SENDERS)]
    assert buffer.offers < 3 * SENDERS  # and not their square


@pytest.mark.asyncio
async def test_who_comes_later_does_not_go_first(producer: Producer, buffer: Buffer) -> None:
    (first,) = start(producer, 1)
    await asyncio.sleep(0)
    buffer.room = 2
    second = asyncio.ensure_future(producer.enqueue("t", b"second"))
    await asyncio.sleep(0)
    producer._resolve_here([])
    await asyncio.gather(first, second)
    assert buffer.taken == [b"0", b"second"]


@pytest.mark.asyncio
async def test_one_that_gives_up_lets_the_next_go(producer: Producer, buffer: Buffer) -> None:
    first, second = start(producer, 2)
    await asyncio.sleep(0)
    first.cancel()
    buffer.room = 1
    await asyncio.wait_for(second, 20)
    assert buffer.taken == [b"1"]


@pytest.mark.asyncio
async def test_all_who_wait_are_told_when_it_is_closed(producer: Producer, buffer: Buffer) -> None:
    senders = start(producer, 3)
    await asyncio.sleep(0)
    await producer.close(0)
    found = await asyncio.gather(*senders, return_exceptions=True)
    assert [type(one) for one in found] == [ClientClosed] * 3


@pytest.mark.asyncio
async def test_the_time_in_line_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Producer({"bootstrap.servers": "127.0.0.1:1", "max.block.ms": 50}) as producer:
        monkeypatch.setattr(producer._outbox, "offer", Buffer().offer)
        found = await asyncio.gather(*start(producer, 3), return_exceptions=True)
    assert [type(one) for one in found] == [TimedOut] * 3
