"""Ids for idempotent producers: each once, and soon."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest
from admin_desk import Desk, at_desk
from pretended_cluster import context_of

from tidelog.broker.context import ControllerRefused
from tidelog.broker.handlers.producer_id_blocks import ProducerIdBlocks
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import APIS, ApiKey

VERSIONS = range(APIS[ApiKey.INIT_PRODUCER_ID].max_version + 1)
BLOCK = 1000


async def init(desk: Desk, version: int = 4, **fields: Any) -> tuple[int, int, int]:
    given = {
        "transactional_id": None,
        "transaction_timeout": timedelta(seconds=1),
        "producer_id": -1,
        "producer_epoch": -1,
        **fields,
    }
    response = await desk.ask(ApiKey.INIT_PRODUCER_ID, version, **given)
    return response.error_code.value, response.producer_id, response.producer_epoch


async def settled() -> None:
    await asyncio.sleep(0.001)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_producer_comes_again_until_the_first_block_is_there(version: int) -> None:
    async def scenario(desk: Desk) -> None:
        assert await init(desk, version) == (14, -1, -1)
        await settled()
        assert await init(desk, version) == (0, 0, 0)
        assert await init(desk, version) == (0, 1, 0)

    at_desk(scenario)


def test_nobody_waits_after_a_prefetch() -> None:
    async def scenario(desk: Desk) -> None:
        desk.administration.producer_ids.prefetch()
        await settled()
        assert await init(desk) == (0, 0, 0)

    at_desk(scenario)


def test_the_next_block_is_asked_for_when_nine_tenths_are_used() -> None:
    async def scenario(desk: Desk) -> None:
        ids = desk.administration.producer_ids
        ids.prefetch()
        await settled()
        for _ in range(BLOCK * 9 // 10):
            ids.take()
        await settled()
        assert desk.cluster.blocks == 1
        ids.take()
        await settled()
        assert desk.cluster.blocks == 2

    at_desk(scenario)


def test_no_id_is_given_twice_by_two_brokers_and_over_many_blocks() -> None:
    async def scenario(desk: Desk) -> None:
        brokers = [ProducerIdBlocks(context_of(desk.cluster, broker)) for broker in (1, 2)]
        taken: list[int] = []
        refused = 0
        for _ in range(6000):
            for broker in brokers:
                found = broker.take()
                if found is None:
                    refused += 1
                else:
                    taken.append(found)
            await asyncio.sleep(0)
        assert len(taken) == len(set(taken))
        assert len(taken) > 11_900
        assert refused < 20  # before the first block, never between two
        for broker in brokers:
            await broker.close()

    at_desk(scenario)


def test_when_the_next_block_is_late_producers_come_again() -> None:
    async def scenario(desk: Desk) -> None:
        ids = desk.administration.producer_ids
        ids.prefetch()
        await settled()
        desk.cluster.gate.clear()
        first = [ids.take() for _ in range(BLOCK)]
        assert None not in first
        assert [ids.take(), ids.take()] == [None, None]
        desk.cluster.gate.set()
        await settled()
        assert ids.take() == BLOCK
        assert desk.cluster.blocks == 2

    at_desk(scenario)


def test_a_refusal_is_not_the_end(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(desk: Desk) -> None:
        refusal = ControllerRefused(ErrorCode.BROKER_ID_NOT_REGISTERED, "not yet")
        desk.cluster.refusal = refusal
        assert (await init(desk))[0] == 14
        await asyncio.sleep(0.12)
        assert desk.cluster.blocks == 3
        desk.cluster.refusal = None
        await asyncio.sleep(0.1)
        assert await init(desk) == (0, 0, 0)

    with caplog.at_level(logging.WARNING):
        at_desk(scenario)
    assert "no producer ids for now: BROKER_ID_NOT_REGISTERED: not yet" in caplog.text


def test_a_producer_that_had_an_id_gets_another_one() -> None:
    async def scenario(desk: Desk) -> None:
        desk.administration.producer_ids.prefetch()
        await settled()
        assert await init(desk, producer_id=5, producer_epoch=3) == (0, 0, 0)

    at_desk(scenario)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"producer_id": 5}, 42),
        ({"producer_epoch": 0}, 42),
        ({"transactional_id": ""}, 42),
    ],
)
def test_what_is_refused_gets_no_id(fields: dict[str, Any], code: int) -> None:
    async def scenario(desk: Desk) -> None:
        desk.administration.producer_ids.prefetch()
        await settled()
        assert await init(desk, **fields) == (code, -1, -1)
        assert not ErrorCode(code).retriable
        assert await init(desk) == (0, 0, 0)

    at_desk(scenario)


def test_before_its_coordinator_is_there_a_transactional_producer_comes_again() -> None:
    async def scenario(desk: Desk) -> None:
        assert await init(desk, transactional_id="tx") == (15, -1, -1)

    at_desk(scenario)
