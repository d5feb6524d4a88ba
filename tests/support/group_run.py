"""Groups of stock consumers that read while members come and go and their coordinator is killed.

Every member commits what it has read, one portion at a time. Afterwards nothing may be unread, and
no committed offset may ever have gone back. Records may be read twice: a member that is cut off
between reading and committing leaves the rest to its successor.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import aiokafka
import confluent_kafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.errors import KafkaError as AioError
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.coordinator.assignors.range import RangePartitionAssignor as PythonRange
from raw_client import RawConnection
from waiting import until

from tidelog.cli.brokers import Brokers, Place
from tidelog.cli.failures import CommandFailed
from tidelog.cli.groups import describe_group
from tidelog.kernel.addresses import SocketAddress
from tidelog.testing.local_cluster import LocalCluster
from tidelog.testing.local_node import ending
from tidelog.wire.protocol.apis import ApiKey

PATIENCE_S: Final = 90.0
PARTITIONS: Final = 6
_POLL_S: Final = 0.2
_SESSION_MS: Final = 6_000
_MEMBER_PROGRAM: Final = Path(__file__).parent / "group_member.py"


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


class MemberFailed(Exception):
    """A member's process did not end as it should; the text has what it printed."""


class ClientAborted(UserWarning):
    """The client library aborted where that cannot be a broker's doing."""


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
    """A process, because librdkafka aborts the one it is in where it finds itself in a wrong state.

    A member that closes may get there when its coordinator has just gone (librdkafka #4792 tells of
    such a way). That says nothing about a broker, and must not take the tests with it; an abort
    while records are read and committed fails the test.
    """

    program: Sequence[str] = (sys.executable, "-X", "faulthandler", str(_MEMBER_PROGRAM))

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
        work = json.dumps({"topic": self._topic, "config": self._config})
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints,
            subprocess.Popen(
                [*self.program, work],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            ) as process,
        ):
            assert process.stdin is not None and process.stdout is not None
            threading.Thread(target=self._end_input, args=(process.stdin,), daemon=True).start()
            is_closing = False
            for line in process.stdout:
                if line.endswith("\n"):  # its last may be torn
                    is_closing = self._hear(json.loads(line)) or is_closing
            code = process.wait(PATIENCE_S)
            self.readings.note_owned(self.name, ())
            complaints.seek(0)
            self._judge(code, is_closing, complaints.read())

    def _end_input(self, its_input: IO[str]) -> None:
        self.leaving.wait()
        with suppress(OSError):  # it has ended already
            its_input.close()

    def _hear(self, told: Mapping[str, Any]) -> bool:
        """Whether only the client's close is left to do."""
        match told:
            case {"owned": list(owned)}:
                self.readings.note_owned(self.name, owned)
            case {"read": list(rows)}:
                for partition, offset, value in rows:
                    self.readings.note(partition, offset, value.encode("latin-1"))
        return "closing" in told

    def _judge(self, code: int, is_closing: bool, complaints: str) -> None:
        if code == -signal.SIGABRT and is_closing:
            told = f"librdkafka aborted the member {self.name} while it closed: {complaints}"
            warnings.warn(told, ClientAborted, stacklevel=1)
        elif code != 0 or not is_closing:
            raise MemberFailed(f"{self.name} ended with {ending(code)}:\n{complaints}")


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
    """Looks at who has which partition; in a group at rest nobody has what another has.

    It asks the coordinator itself: librdkafka's administrative client aborts the process when the
    coordinator that it is about to ask goes away (``eonce->refcnt > 0``, librdkafka #4605).
    """

    def __init__(self, cluster: LocalCluster, group: str) -> None:
        super().__init__(daemon=True)
        self._servers = cluster.bootstrap
        self._group = group
        self._stopping = threading.Event()
        self.looks = 0
        self.shared: list[tuple[Place, str, str]] = []
        """Partitions with two owners."""

    def run(self) -> None:
        while not self._stopping.is_set():
            self.look()
            time.sleep(0.05)

    def look(self) -> None:
        try:
            with Brokers(self._servers) as brokers:
                group = describe_group(brokers, self._group)
        except (CommandFailed, OSError):
            return  # its coordinator is being replaced
        if group is None or group.state != "Stable":
            return
        self.looks += 1
        owners: dict[Place, str] = {}
        for member in group.members:
            for place in member.assignment:
                other = owners.setdefault(place, member.member_id)
                if other != member.member_id:
                    self.shared.append((place, other, member.member_id))

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


def standing(cluster: LocalCluster, group: str, readings: Readings) -> str:
    """What members say they have, and what their coordinator says they should have."""
    with readings.lock:
        said = [f"{name} has {sorted(owned)}" for name, owned in sorted(readings.owners.items())]
    try:
        with Brokers(cluster.bootstrap) as brokers:
            told = describe_group(brokers, group)
    except (CommandFailed, OSError) as error:
        return "; ".join([*said, f"nobody tells of the group: {error}"])
    if told is None:
        return "; ".join([*said, "there is no such group"])
    given = [f"{one.member_id} is given {[p for _, p in one.assignment]}" for one in told.members]
    return "; ".join([*said, f"the group is {told.state}", *given])


def are_shared(readings: Readings, members: Iterable[str]) -> bool:
    """Whether every partition has one owner among these, and every member a part."""
    with readings.lock:
        parts = [readings.owners.get(name, set()) for name in members]
    return all(parts) and sorted(p for part in parts for p in part) == list(range(PARTITIONS))


def unread(sent: Mapping[tuple[int, int], bytes], readings: Readings) -> list[tuple[int, int]]:
    with readings.lock:
        return sorted(sent.keys() - readings.seen.keys())
