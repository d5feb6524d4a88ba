"""Prices orders: reads one topic, writes another, exactly once."""

from __future__ import annotations

from typing import Any

from tidelog.client import (
    BEGINNING,
    Consumer,
    RequestFailed,
    TransactionalProducer,
    json_deserializer,
    json_serializer,
    str_deserializer,
    str_serializer,
)

PRICES = {"apple": 30, "pear": 45}


def invoice(order: Any) -> dict[str, Any]:
    total = sum(PRICES[item] * count for item, count in order["items"].items())
    return {"order": order["id"], "cents": total}


async def go_back(consumer: Consumer[str, Any]) -> None:
    """To what is committed: the records since then are read again."""
    for partition, position in (await consumer.committed(consumer.assignment())).items():
        await consumer.seek(partition, BEGINNING if position is None else position.offset)


async def price_orders(bootstrap: str, source: str, target: str, *, count: int) -> None:
    """Price so many orders; what was read and what was written are committed together."""
    at = {"bootstrap.servers": bootstrap}
    reading = {
        **at,
        "group.id": f"pricing-{source}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    done = 0
    async with (
        Consumer(
            reading, key_deserializer=str_deserializer, value_deserializer=json_deserializer
        ) as consumer,
        TransactionalProducer(
            {**at, "transactional.id": f"pricing-{source}"},
            key_serializer=str_serializer,
            value_serializer=json_serializer,
        ) as producer,
    ):
        await consumer.subscribe(source)
        while done < count:
            orders = await consumer.poll(1.0, max_records=10)
            if not orders:
                continue
            try:
                async with producer.transaction() as transaction:
                    for order in orders:
                        await transaction.enqueue(target, invoice(order.value), key=order.key)
                    await transaction.send_offsets(consumer)
            except RequestFailed as failure:
                if failure.fatal:
                    raise
                await go_back(consumer)
                continue
            done += len(orders)
