"""Four stock clients behind one small interface, so that one test speaks for all of them.

No consumer joins a group: partitions are assigned by hand.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import aiokafka
import confluent_kafka
import kafka

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PATIENCE_S: Final = 30.0


class Sent(NamedTuple):
    """What a producer gives, and what a consumer must get back."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None


class Got(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int

    def is_of(self, sent: Sent) -> bool:
        is_time_right = sent.timestamp_ms in (None, self.timestamp_ms)
        return is_time_right and (self.key, self.value, self.headers) == sent[:3]


class Kit(Protocol):
    name: str

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        partition: int = 0,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Offsets of the records; an exception if any was refused. acks=0 gives none."""
        ...

    def consume(self, topic: str, ends: Mapping[int, int]) -> dict[int, list[Got]]:
        """Each partition from its start up to this end, which is not included."""
        ...


class Refused(Exception):
    """A client gave up on a record; the text is the client's."""


# --- confluent-kafka -------------------------------------------------------------------


class Confluent:
    name = "confluent"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        partition: int = 0,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> list[int]:
        config: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "compression.type": codec,
            "acks": acks,
            "enable.idempotence": idempotent,
            "linger.ms": 5,
            "message.max.bytes": 10_000_000,
            "message.timeout.ms": int(PATIENCE_S * 1000),
            **(settings or {}),
        }
        producer = confluent_kafka.Producer(config)
        offsets: list[int] = []
        problems: list[str] = []

        def delivered(
            error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
        ) -> None:
            if error is not None:
                problems.append(str(error))
            elif acks != "0":
                offsets.append(message.offset() or 0)

        for sent in records:
            given: Any = {} if sent.timestamp_ms is None else {"timestamp": sent.timestamp_ms}
            producer.produce(
                topic,
                sent.value,
                sent.key,
                partition,
                on_delivery=delivered,
                headers=list(sent.headers),
                **given,
            )
        left = producer.flush(PATIENCE_S)
        if problems or left:
            raise Refused(f"{left} left; {problems[:3]}")
        return offsets

    def consume(self, topic: str, ends: Mapping[int, int]) -> dict[int, list[Got]]:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "none", "enable.auto.commit": False,
             "auto.offset.reset": "earliest", "fetch.message.max.bytes": 10_000_000}
        )  # fmt: skip
        consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in ends])
        found: dict[int, list[Got]] = {p: [] for p in ends}
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not _is_all(found, ends) and time.monotonic() < deadline:
                for message in consumer.consume(500, 0.1):
                    if message.error() is not None:
                        raise Refused(str(message.error()))
                    partition = message.partition()
                    assert partition is not None
                    found[partition].append(_of_confluent(message))
        finally:
            consumer.close()
        return found


def _of_confluent(message: confluent_kafka.Message) -> Got:
    headers: Any = message.headers() or ()
    key: Any = message.key()
    value: Any = message.value()
    return Got(
        message.offset() or 0,
        key,
        value,
        tuple((name, data) for name, data in headers),
        message.timestamp()[1],
    )


# --- kafka-python ----------------------------------------------------------------------


class KafkaPython:
    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self._servers = bootstrap.split(",")

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        partition: int = 0,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> list[int]:
        config: dict[str, Any] = {
            "bootstrap_servers": self._servers,
            "compression_type": None if codec == "none" else codec,
            "acks": acks if acks == "all" else int(acks),
            "enable_idempotence": idempotent,
            "linger_ms": 5,
            "max_request_size": 10_000_000,
            "max_block_ms": PATIENCE_S * 1000,
            **(settings or {}),
        }
        producer = kafka.KafkaProducer(**config)
        try:
            pending = [
                producer.send(
                    topic,
                    value=sent.value,
                    key=sent.key,
                    headers=list(sent.headers),
                    partition=partition,
                    timestamp_ms=sent.timestamp_ms,
                )
                for sent in records
            ]
            producer.flush(PATIENCE_S)
            offsets = [future.get(PATIENCE_S).offset for future in pending]
        except kafka.errors.KafkaError as error:
            raise Refused(str(error)) from error
        finally:
            producer.close()
        return [] if acks == "0" else offsets

    def consume(self, topic: str, ends: Mapping[int, int]) -> dict[int, list[Got]]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self._servers, enable_auto_commit=False, group_id=None,
            auto_offset_reset="earliest", max_partition_fetch_bytes=10_000_000,
        )  # fmt: skip
        assigned = [kafka.TopicPartition(topic, p) for p in ends]
        consumer.assign(assigned)
        for one in assigned:
            consumer.seek(one, 0)
        found: dict[int, list[Got]] = {p: [] for p in ends}
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not _is_all(found, ends) and time.monotonic() < deadline:
                for records in consumer.poll(timeout_ms=200).values():
                    for record in records:
                        found[record.partition].append(_of_kafka_python(record))
        finally:
            consumer.close()
        return found


def _of_kafka_python(record: Any) -> Got:
    return Got(record.offset, record.key, record.value, tuple(record.headers), record.timestamp)


# --- aiokafka --------------------------------------------------------------------------


class Aiokafka:
    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        partition: int = 0,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> list[int]:
        config: dict[str, Any] = {
            "bootstrap_servers": self._bootstrap,
            "compression_type": None if codec == "none" else codec,
            "acks": acks if acks == "all" else int(acks),
            "enable_idempotence": idempotent,
            "linger_ms": 5,
            "max_request_size": 10_000_000,
            **(settings or {}),
        }
        return asyncio.run(self._produce(topic, records, partition, acks, config))

    async def _produce(
        self,
        topic: str,
        records: Sequence[Sent],
        partition: int,
        acks: str,
        config: Mapping[str, Any],
    ) -> list[int]:
        producer = aiokafka.AIOKafkaProducer(**config)
        await producer.start()
        try:
            pending = [
                await producer.send(
                    topic,
                    sent.value,
                    sent.key,
                    partition,
                    sent.timestamp_ms,
                    list(sent.headers) or None,
                )
                for sent in records
            ]
            answers = await asyncio.wait_for(asyncio.gather(*pending), PATIENCE_S)
        except aiokafka.errors.KafkaError as error:
            raise Refused(str(error)) from error
        finally:
            await producer.stop()
        return [] if acks == "0" else [answer.offset for answer in answers]

    def consume(self, topic: str, ends: Mapping[int, int]) -> dict[int, list[Got]]:
        return asyncio.run(self._consume(topic, ends))

    async def _consume(self, topic: str, ends: Mapping[int, int]) -> dict[int, list[Got]]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, enable_auto_commit=False,
            auto_offset_reset="earliest", max_partition_fetch_bytes=10_000_000,
        )  # fmt: skip
        await consumer.start()
        found: dict[int, list[Got]] = {p: [] for p in ends}
        try:
            assigned = [aiokafka.TopicPartition(topic, p) for p in ends]
            consumer.assign(assigned)
            for one in assigned:
                consumer.seek(one, 0)
            deadline = time.monotonic() + PATIENCE_S
            while not _is_all(found, ends) and time.monotonic() < deadline:
                batches = await consumer.getmany(timeout_ms=200)
                for records in batches.values():
                    for record in records:
                        found[record.partition].append(_of_kafka_python(record))
        finally:
            await consumer.stop()
        return found


# --- kcat ------------------------------------------------------------------------------


class Kcat:
    """One process per call. Its records have one set of headers, and no time of their own."""

    name = "kcat"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def run(self, *arguments: str, given: bytes = b"") -> bytes:
        command = ["kcat", "-b", self._bootstrap, *arguments]
        done = subprocess.run(command, input=given, capture_output=True, timeout=PATIENCE_S)
        if done.returncode != 0:
            raise Refused(done.stderr.decode())
        return done.stdout

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        partition: int = 0,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> list[int]:
        options = {"acks": acks, "enable.idempotence": str(idempotent).lower(), "linger.ms": "5"}
        options |= {name: str(value) for name, value in (settings or {}).items()}
        flags = [flag for name, value in options.items() for flag in ("-X", f"{name}={value}")]
        flags += [f for n, v in records[0].headers for f in ("-H", f"{n}={v.decode()}")]
        if codec != "none":
            flags += ["-z", codec]
        lines = [(sent.key or b"") + b"\t" + (sent.value or b"") for sent in records]
        self.run(
            "-P", "-t", topic, "-p", str(partition), "-K", "\t", "-Z", *flags,
            given=b"\n".join(lines) + b"\n",
        )  # fmt: skip
        return []

    def consume(self, topic: str, ends: Mapping[int, int]) -> dict[int, list[Got]]:
        return {partition: self._consume(topic, partition, end) for partition, end in ends.items()}

    def _consume(self, topic: str, partition: int, end: int) -> list[Got]:
        printed = self.run(
            "-C", "-t", topic, "-p", str(partition), "-o", "beginning", "-c", str(end), "-e", "-J",
            "-X", "fetch.message.max.bytes=10000000",
        )  # fmt: skip
        return [_of_kcat(json.loads(line)) for line in printed.splitlines()]


def _of_kcat(line: dict[str, Any]) -> Got:
    headers: list[str] = line.get("headers", [])
    pairs = zip(headers[::2], headers[1::2], strict=True)
    return Got(
        line["offset"],
        None if line["key"] is None else line["key"].encode(),
        None if line["payload"] is None else line["payload"].encode(),
        tuple((name, value.encode()) for name, value in pairs),
        line["ts"],
    )


def _is_all(found: Mapping[int, list[Got]], ends: Mapping[int, int]) -> bool:
    return all(end == 0 or (found[p] and found[p][-1].offset >= end - 1) for p, end in ends.items())


KITS: Final[Mapping[str, Callable[[str], Kit]]] = {
    "confluent": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}
"""Those that need nothing but Python; kcat is a Debian package."""
