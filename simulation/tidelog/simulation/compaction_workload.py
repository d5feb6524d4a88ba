"""Keys that are written, overwritten and deleted on a compacted topic while faults strike.

Each partition has one idempotent producer, so what it sent last of a key is what the key is: the
*truth* that every replica must tell when the log is read from its beginning.

Owner: the run of one seed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.errors import ErrorCode
from tidelog.simulation import kafka_messages
from tidelog.simulation.clients import Clients
from tidelog.simulation.cluster import SimCluster
from tidelog.simulation.final_checks import StoredBatch, stored_batches
from tidelog.simulation.history import History, PartitionName, Send, Violation
from tidelog.simulation.partition_checks import newest_image
from tidelog.simulation.random import SimRandom
from tidelog.simulation.sim_client import NoAnswer, SimKafkaClient
from tidelog.simulation.sim_consumer import SimConsumer
from tidelog.simulation.sim_producer import IdempotentProducer
from tidelog.wire.batch import Codec
from tidelog.wire.records import Record, build_batch, decode_records

PRICES: Final = "prices"
CLEANER_SETTINGS: Final = {
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": str(1 << 20),
    "log.cleaner.min.cleanable.ratio": "0.05",
    "log.cleaner.delete.retention.ms": "500",
    "log.roll.ms": "700",
    "replica.fetch.wait.max.ms": "200",
}
_KEYS: Final = 12
_TOMBSTONES: Final = 0.2


class KeyedProducer(IdempotentProducer):
    """Its values are ``key=text``; without a text the record is a tombstone.

    Some keys change all the time. Others are written once, deleted some time later, and never
    written again: those are the ones that could come back.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._short_lived: list[str] = []

    def _value(self) -> bytes:
        self._next_number += 1
        drawn = self._random.random()
        if drawn < _TOMBSTONES and self._short_lived:
            chosen = self._random.randrange(len(self._short_lived))
            return f"{self._short_lived.pop(chosen)}=".encode()
        if drawn < 2 * _TOMBSTONES:
            key = f"s{self._next_number}"
            self._short_lived.append(key)
        else:
            key = f"k{self._random.randrange(_KEYS)}"
        padding = "." * self._random.choice((0, 20, 200))
        return f"{key}={self._next_number}{padding}".encode()

    def _batch(self, send: Send) -> bytes:
        now_ms = self._clock.wall_ms()
        pairs = [value.split(b"=", 1) for value in send.values]
        records = [Record(i, now_ms, key, text or None) for i, (key, text) in enumerate(pairs)]
        return build_batch(
            records,
            codec=Codec.GZIP if send.base_sequence % 7 == 0 else Codec.NONE,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=send.base_sequence,
        )


class CompactionWorkload:
    """``begin``, let time pass, ``finish``, ``check``."""

    def __init__(
        self,
        cluster: SimCluster,
        history: History,
        random: SimRandom,
        *,
        partitions: int,
        pause_s: float,
        may_be_damaged: bool,
    ) -> None:
        self.partitions: list[PartitionName] = [(PRICES, index) for index in range(partitions)]
        self._cluster = cluster
        self._clients = Clients(cluster)
        self._history = history
        self._random = random
        self._pause_s = pause_s
        self._may_be_damaged = may_be_damaged
        self._producers: list[KeyedProducer] = []

    async def begin(self) -> None:
        await self._clients.do("creator", self._create)
        for partition in self.partitions:
            name = f"keyed-{partition[1]}"
            client = self._clients.client(name)
            producer = KeyedProducer(
                client,
                name,
                partition,
                self._history,
                self._cluster.world.clock,
                self._random.fork(name),
                window=3,
                pause_s=self._pause_s,
                request_timeout_s=5.0,
            )
            self._producers.append(producer)
            self._clients.run(client, producer.run())

    async def _create(self, client: SimKafkaClient) -> None:
        configs = {"cleanup.policy": "compact"}
        request = kafka_messages.create_topic(PRICES, len(self.partitions), 3, configs, 10_000)
        while True:
            try:
                answer = await client.call_any(request, 15.0)
            except NoAnswer:
                continue
            code = ErrorCode(int(answer.topics[0].error_code))
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            await asyncio.sleep(0.1)

    async def finish(self, within_s: float) -> None:
        """Everything sent is acknowledged, and a reader gets from the beginning to the end."""
        for producer in self._producers:
            producer.stop()

        def is_idle() -> bool:
            return not any(producer.backlog for producer in self._producers)

        await self._cluster.until(is_idle, "all keys are acknowledged", within_s)
        readers = [self._start_reader(partition) for partition in self.partitions]

        def is_read() -> bool:
            return all(reader.is_at_end for reader in readers)

        await self._cluster.until(is_read, "compacted logs are read to their ends", within_s)
        for reader in readers:
            reader.stop()
        await self._cluster.until(lambda: self._clients.are_done, "clients end")

    def _start_reader(self, partition: PartitionName) -> SimConsumer:
        name = f"late-reader-{partition[1]}"
        client = self._clients.client(name)
        reader = SimConsumer(
            client, name, partition, self._history, may_be_damaged=self._may_be_damaged
        )
        self._clients.run(client, reader.run())
        return reader

    # --- the truth ---------------------------------------------------------------------

    def check(self) -> None:
        """Every replica tells the truth about every key: what is deleted stays deleted."""
        image = newest_image(self._cluster)
        topic = None if image is None else image.topics.named(PRICES)
        if topic is None:
            raise Violation(f"topic {PRICES} is gone")
        for index, state in sorted(topic.partitions.items()):
            wanted = self._truth((PRICES, int(index)))
            for node in state.replicas:
                ref = PartitionRef(topic.topic_id, index)
                found = told_by(stored_batches(self._cluster, int(node), ref))
                _compare(f"node {node} {PRICES}-{index}", wanted, found)

    def _truth(self, partition: PartitionName) -> dict[bytes, bytes]:
        told: dict[bytes, bytes] = {}
        for send in self._history.sends.get(partition, []):
            for value in send.values:
                key, text = value.split(b"=", 1)
                _put(told, key, text or None)
        return told


def told_by(batches: Iterable[StoredBatch]) -> dict[bytes, bytes]:
    """What a reader from the beginning knows of each key at the end."""
    told: dict[bytes, bytes] = {}
    for batch in batches:
        for record in decode_records(batch.data, batch.header):
            if record.key is not None:
                _put(told, record.key, record.value)
    return told


def _put(told: dict[bytes, bytes], key: bytes, text: bytes | None) -> None:
    if text is None:
        told.pop(key, None)
    else:
        told[key] = text


def _compare(where: str, wanted: dict[bytes, bytes], found: dict[bytes, bytes]) -> None:
    for key in sorted({*wanted, *found}):
        if key not in wanted:
            raise Violation(f"{where}: the deleted key {key!r} is back as {found[key][:20]!r}")
        if found.get(key) != wanted[key]:
            told = found.get(key, b"nothing")
            raise Violation(f"{where}: {key!r} is {told[:20]!r}, not {wanted[key][:20]!r}")
