"""Groups of stock consumers that read while members come and go and their coordinator is killed.

Every member commits what it has read, one portion at a time. Afterwards nothing may be unread, and
no committed offset may ever have gone back. Records may be read twice: a member that is cut off
between reading and committing leaves the rest to its successor.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import aiokafka
import confluent_kafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.coordinator.assignors.range import RangePartitionAssignor as PythonRange
from raw_client import RawConnection
from waiting import until

from tidelog.kernel.addresses import SocketAddress
from tidelog.testing.local_cluster import LocalCluster
from tidelog.wire.protocol.apis import ApiKey

PATIENCE_S: Final = 90.0
PARTITIONS: Final = 6
_POLL_S: Final = 0.2
_SESSION_MS: Final = 6_000


@dataclass
class Readings:
    """What all members of a group have read, by partition and offset."""

    seen: dict[tuple[int, int], bytes] = field(default_factory=dict)
    owners: dict[str, set[int]] = field(default_factory=dict)
    """The partitions that each member said it has."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, partition: int, offset: int, value: bytes) -> None:
        with self.lock:
            known = self.seen.setdefault((partition, offset), value)
        assert known == value, (partition, offset)

    def note_owned(self, name: str, partitions: Iterable[int]) -> None:
        with self.lock:
            self.owners[name] = set(partitions)


class Member(threading.Thread, ABC):
    """One consumer on a thread of its own, until it is told to leave."""

    def __init__(self, name: str, readings: Readings) -> None:
        super().__init__(name=name, daemon=True)
        self.readings = readings
        self.leaving = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.consume()
        except BaseException as error:
            self.failure = error
            raise

    @abstractmethod
    def consume(self) -> None:
        """Read and commit until ``leaving`` is set."""

    def leave(self) -> None:
        self.leaving.set()
        self.join(PATIENCE_S)
        assert not self.is_alive(), f"{self.name} does not end"
        assert self.failure is None, (self.name, self.failure)


class ConfluentMember(Member):
    def __init__(
        self, name: str, readings: Readings, bootstrap: str, group: str, topic: str, **config: Any
    ) -> None:
        super().__init__(name, readings)
        self._topic = topic
        own: dict[str, Any] = {
            key.replace("_", "."): value for key, value in config.items() if value is not None
        }
        if own.get("group.protocol") != "consumer":
            own.setdefault("session.timeout.ms", _SESSION_MS)
        self._config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **own,
        }

    def consume(self) -> None:
        consumer = confluent_kafka.Consumer(self._config)
        consumer.subscribe([self._topic])
        try:
            while not self.leaving.is_set():
                found = consumer.consume(50, _POLL_S)
                for message in found:
                    if message.error() is None:
                        place = (message.partition() or 0, message.offset() or 0)
                        self.readings.note(*place, message.value() or b"")
                owned = {one.partition for one in consumer.assignment()}
                self.readings.note_owned(self.name, owned)
                if any(message.error() is None for message in found):
                    self._commit(consumer)
        finally:
            consumer.close()
            self.readings.note_owned(self.name, ())

    def _commit(self, consumer: confluent_kafka.Consumer) -> None:
        # It fails if a rebalance came between: whoever has the partition reads on from before.
        with suppress(confluent_kafka.KafkaException):
            consumer.commit(asynchronous=False)


class KafkaPythonMember(Member):
    def __init__(
        self, name: str, readings: Readings, bootstrap: str, group: str, topic: str
    ) -> None:
        super().__init__(name, readings)
        self._servers, self._group, self._topic = bootstrap, group, topic

    def consume(self) -> None:
        consumer = kafka.KafkaConsumer(
            self._topic,
            bootstrap_servers=self._servers,
            group_id=self._group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=1_000,
            partition_assignment_strategy=[PythonRange],
        )
        try:
            while not self.leaving.is_set():
                found = consumer.poll(timeout_ms=int(_POLL_S * 1000), max_records=50)
                for records in found.values():
                    for record in records:
                        self.readings.note(record.partition, record.offset, record.value)
                owned = {one.partition for one in consumer.assignment()}
                self.readings.note_owned(self.name, owned)
                if found:
                    self._commit(consumer)
        finally:
            consumer.close()
            self.readings.note_owned(self.name, ())

    def _commit(self, consumer: Any) -> None:
        with suppress(kafka.errors.KafkaError):
            consumer.commit(timeout_ms=10_000)


class AiokafkaMember(Member):
    def __init__(
        self, name: str, readings: Readings, bootstrap: str, group: str, topic: str
    ) -> None:
        super().__init__(name, readings)
        self._servers, self._group, self._topic = bootstrap, group, topic

    def consume(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            self._topic,
            bootstrap_servers=self._servers,
            group_id=self._group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=1_000,
            partition_assignment_strategy=(AioRange,),
        )
        await consumer.start()
        try:
            while not self.leaving.is_set():
                found = await consumer.getmany(timeout_ms=int(_POLL_S * 1000), max_records=50)
                for records in found.values():
                    for record in records:
                        self.readings.note(record.partition, record.offset, record.value)
                owned = {one.partition for one in consumer.assignment()}
                self.readings.note_owned(self.name, owned)
                if found:
                    with suppress(AioError, TimeoutError):
                        await asyncio.wait_for(consumer.commit(), 10)
        finally:
            await consumer.stop()
            self.readings.note_owned(self.name, ())


class Production(threading.Thread):
    """Numbers, one by one to all partitions in turn, until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._topic = topic
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "message.timeout.ms": 60_000,
                "log_level": 0,
            }
        )
        self._stopping = threading.Event()
        self.sent: dict[tuple[int, int], bytes] = {}

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            value = str(number).encode()
            self._producer.produce(
                self._topic, value, partition=number % PARTITIONS, on_delivery=self._delivered
            )
            self._producer.poll(0.002)
            number += 1
        assert self._producer.flush(PATIENCE_S) == 0

    def _delivered(self, error: Any, message: confluent_kafka.Message) -> None:
        assert error is None, error
        self.sent[message.partition() or 0, message.offset() or 0] = message.value() or b""

    def finish(self) -> None:
        self._stopping.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()


class CommitWatch(threading.Thread):
    """Looks at the committed offsets all the time; they must never go back."""

    def __init__(self, cluster: LocalCluster, group: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._cluster, self._group, self._topic = cluster, group, topic
        self._stopping = threading.Event()
        self.latest: dict[int, int] = {}
        self.went_back: list[tuple[int, int, int]] = []

    def run(self) -> None:
        while not self._stopping.is_set():
            self.look()
            time.sleep(0.05)

    def look(self) -> None:
        for partition, offset in committed_offsets(self._cluster, self._group, self._topic).items():
            known = self.latest.get(partition, -1)
            if offset < known:
                self.went_back.append((partition, known, offset))
            self.latest[partition] = offset

    def finish(self) -> None:
        self._stopping.set()
        self.join(PATIENCE_S)


class OwnerWatch(threading.Thread):
    """Looks at who has which partition; in a group at rest nobody has what another has."""

    def __init__(self, cluster: LocalCluster, group: str) -> None:
        super().__init__(daemon=True)
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self._group = group
        self._stopping = threading.Event()
        self.looks = 0
        self.shared: list[tuple[int, str, str]] = []
        """Partitions with two owners."""

    def run(self) -> None:
        while not self._stopping.is_set():
            self.look()
            time.sleep(0.05)

    def look(self) -> None:
        try:
            asked = self._admin.describe_consumer_groups([self._group], request_timeout=5)
            group = asked[self._group].result(10)
        except confluent_kafka.KafkaException:
            return  # its coordinator is being replaced
        if group.state is not ConsumerGroupState.STABLE:
            return
        self.looks += 1
        owners: dict[int, str] = {}
        for member in group.members:
            for place in member.assignment.topic_partitions:
                other = owners.setdefault(place.partition, member.member_id)
                if other != member.member_id:
                    self.shared.append((place.partition, other, member.member_id))

    def finish(self) -> None:
        self._stopping.set()
        self.join(PATIENCE_S)


def committed_offsets(cluster: LocalCluster, group: str, topic: str) -> dict[int, int]:
    """From whoever coordinates the group; empty while nobody says so."""
    for address in cluster.bootstrap.split(","):
        try:
            with RawConnection(SocketAddress.parse(address), 5) as connection:
                answer = connection.ask(
                    ApiKey.OFFSET_FETCH,
                    8,
                    groups=[
                        {
                            "group_id": group,
                            "topics": [
                                {"name": topic, "partition_indexes": list(range(PARTITIONS))}
                            ],
                        }
                    ],
                    require_stable=False,
                )
        except OSError:
            continue
        [found] = answer.groups
        if int(found.error_code) == 0:
            rows = found.topics[0].partitions
            return {int(row.partition_index): int(row.committed_offset) for row in rows}
    return {}


def coordinator_of(cluster: LocalCluster, group: str) -> int:
    """The node that coordinates a group, as soon as one does."""
    found = until(lambda: _coordinator_of(cluster, group), f"somebody coordinates {group}")
    return int(found)


def _coordinator_of(cluster: LocalCluster, group: str) -> int | None:
    for address in cluster.bootstrap.split(","):
        try:
            with RawConnection(SocketAddress.parse(address), 5) as connection:
                answer = connection.ask(
                    ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group]
                )
        except OSError:
            continue
        [row] = answer.coordinators
        if int(row.error_code) == 0:
            return int(row.node_id)
    return None


def create_topic(cluster: LocalCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(30)


def are_shared(readings: Readings, members: Iterable[str]) -> bool:
    """Whether every partition has one owner among these, and every member a part."""
    with readings.lock:
        parts = [readings.owners.get(name, set()) for name in members]
    return all(parts) and sorted(p for part in parts for p in part) == list(range(PARTITIONS))


def unread(sent: Mapping[tuple[int, int], bytes], readings: Readings) -> list[tuple[int, int]]:
    with readings.lock:
        return sorted(sent.keys() - readings.seen.keys())
