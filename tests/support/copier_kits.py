"""What a copier is built on: a consumer and a transactional producer of one stock client.

Both kits keep to the rules of exactly once (KIP-98, KIP-447): offsets are those of the records
that were read, and the generation is the one under which their partitions were assigned, so that
whoever was replaced meanwhile is refused.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import confluent_kafka
import kafka
import kafka.errors
from confluent_kafka import Consumer, KafkaException, Producer
from kafka.structs import OffsetAndMetadata

from tidelog.chaos.workloads.patience import ClientHangs, within

_BATCH: Final = 40
_CALL_S: Final = 30.0
_SESSION_MS: Final = 6_000
_LOST_S: Final = 8.0
"""After which a client is taken to have lost its own request; both do when a coordinator dies.

librdkafka 2.16 waits for a group coordinator that has left the metadata, whatever the
time-out of ``send_offsets_to_transaction`` (its issues 5456 and 5511). kafka-python 3.0.12 does
not put a transactional request back whose coordinator refuses the connection
(``Sender._maybe_send_pending_request``, where ``await_ready`` raises)."""
Read = list[tuple[int, str]]
"""Partitions and values, in the order read."""


class MustAbort(Exception):
    """The transaction is lost, the producer is not."""


class MustBeginAgain(Exception):
    """Only a new producer helps."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a copier is to do, and in whose name."""

    servers: str
    source: str
    target: str
    name: str
    timeout_ms: int
    is_static: bool
    """Whether it takes its predecessor's place in the group at once (KIP-345)."""


class Kit(Protocol):
    """One life of a copier; every call may raise ``MustAbort`` or ``MustBeginAgain``."""

    def __init__(self, work: Work) -> None: ...

    def open(self) -> None:
        """Fence whoever had the name before."""

    def read(self) -> Read: ...

    def begin(self) -> None: ...

    def write(self, partition: int, value: str) -> None: ...

    def commit(self) -> None:
        """What was written, and how far was read."""

    def abort(self) -> None:
        """And go back to what is committed."""

    def close(self) -> None: ...


def _within(patience_s: float, call: Callable[[], object]) -> None:
    try:
        within(patience_s, call)
    except ClientHangs:
        raise MustBeginAgain(f"no answer within {patience_s:g} s") from None


def group_of(name: str) -> str:
    return f"group of {name}"


def _debug() -> dict[str, str]:
    """COPIER_DEBUG=eos,cgrp,protocol: what librdkafka is to tell about itself."""
    contexts = os.environ.get("COPIER_DEBUG")
    return {"debug": contexts} if contexts else {}


class ConfluentKit:
    """On librdkafka."""

    def __init__(self, work: Work) -> None:
        self._source, self._target = work.source, work.target
        self._consumer = Consumer(
            {
                "bootstrap.servers": work.servers,
                "group.id": group_of(work.name),
                **({"group.instance.id": work.name} if work.is_static else {}),
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": _SESSION_MS,
                **_debug(),
            }
        )
        self._producer = Producer(
            {
                "bootstrap.servers": work.servers,
                "transactional.id": work.name,
                "transaction.timeout.ms": work.timeout_ms,
                **_debug(),
            }
        )
        self._member: Any = None
        self._positions: dict[int, int] = {}

    def open(self) -> None:
        self._try(lambda: self._producer.init_transactions(_CALL_S))
        self._consumer.subscribe([self._source], on_assign=self._assigned)

    def _assigned(self, consumer: Consumer, places: list[confluent_kafka.TopicPartition]) -> None:
        self._member = consumer.consumer_group_metadata()

    def read(self) -> Read:
        found: Read = []
        self._positions = {}
        for message in self._consumer.consume(_BATCH, 0.5):
            value, partition, offset = message.value(), message.partition(), message.offset()
            if message.error() is None:
                assert value is not None and partition is not None and offset is not None
                found.append((partition, value.decode()))
                self._positions[partition] = offset + 1
        return found

    def begin(self) -> None:
        self._producer.begin_transaction()

    def write(self, partition: int, value: str) -> None:
        self._try(lambda: self._producer.produce(self._target, value, partition=partition))
        self._producer.poll(0)

    def commit(self) -> None:
        offsets = [
            confluent_kafka.TopicPartition(self._source, partition, offset)
            for partition, offset in self._positions.items()
        ]
        self._try(
            lambda: _within(
                _LOST_S,
                lambda: self._producer.send_offsets_to_transaction(offsets, self._member, _CALL_S),
            )
        )
        self._try(lambda: self._producer.commit_transaction(_CALL_S))

    def abort(self) -> None:
        self._try(lambda: self._producer.abort_transaction(_CALL_S))
        self._try(self._rewind)

    def _rewind(self) -> None:
        assignment = self._consumer.assignment()
        for place in self._consumer.committed(assignment, _CALL_S):
            place.offset = max(place.offset, 0)
            self._consumer.seek(place)

    def close(self) -> None:
        self._consumer.close()

    def _try(self, call: Callable[[], object]) -> None:
        """Again while the client says that trying again may help."""
        deadline = time.monotonic() + 3 * _CALL_S
        while True:
            try:
                call()
                return
            except KafkaException as failure:
                error = failure.args[0]
                if error.txn_requires_abort():
                    raise MustAbort(str(error)) from failure
                if not error.retriable() or time.monotonic() > deadline:
                    raise MustBeginAgain(str(error)) from failure
                time.sleep(0.05)


_FATAL: Final = (
    kafka.errors.ProducerFencedError,
    kafka.errors.InvalidProducerIdMappingError,
    kafka.errors.AuthorizationError,
    kafka.errors.UnsupportedVersionError,
)


class KafkaPythonKit(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """On kafka-python."""

    def __init__(self, work: Work) -> None:
        self._source, self._target = work.source, work.target
        self._member: Any = None
        self._positions: dict[kafka.TopicPartition, OffsetAndMetadata] = {}
        with _told():
            self._connect(work)

    def _connect(self, work: Work) -> None:
        hosts = work.servers.split(",")
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=hosts,
            group_id=group_of(work.name),
            group_instance_id=work.name if work.is_static else None,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=1_000,
            max_poll_records=_BATCH,
        )
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=hosts,
            transactional_id=work.name,
            transaction_timeout_ms=work.timeout_ms,
            reconnect_backoff_max_ms=1_000,
        )

    def open(self) -> None:
        self._try(self._producer.init_transactions)
        self._consumer.subscribe([self._source], listener=self)

    def on_partitions_assigned(self, assigned: object) -> None:
        self._member = self._consumer.group_metadata()

    def on_partitions_revoked(self, revoked: object) -> None:
        pass

    def read(self) -> Read:
        found: Read = []
        self._positions = {}
        with _told():
            polled = self._consumer.poll(500)
        for place, messages in polled.items():
            found += [(place.partition, message.value.decode()) for message in messages]
            self._positions[place] = OffsetAndMetadata(messages[-1].offset + 1, "", -1)
        return found

    def begin(self) -> None:
        with _told():
            self._producer.begin_transaction()

    def write(self, partition: int, value: str) -> None:
        with _told():
            self._producer.send(self._target, value.encode(), partition=partition)

    def commit(self) -> None:
        self._try(lambda: self._producer.send_offsets_to_transaction(self._positions, self._member))
        self._try(self._producer.commit_transaction)

    def abort(self) -> None:
        self._try(self._producer.abort_transaction)
        self._try(self._rewind)

    def _rewind(self) -> None:
        for place in self._consumer.assignment():
            self._consumer.seek(place, self._consumer.committed(place) or 0)

    def close(self) -> None:
        """What it cannot send any more it may try to, as any zombie does."""
        with suppress(kafka.errors.KafkaError):
            self._producer.close(timeout=1)
        with suppress(kafka.errors.KafkaError):
            self._consumer.close(timeout_ms=5_000)

    def _try(self, call: Callable[[], object]) -> None:
        with _told():
            _within(_LOST_S, call)


@contextmanager
def _told() -> Iterator[None]:
    """What an error of kafka-python asks for."""
    try:
        yield
    except _FATAL as error:
        raise MustBeginAgain(repr(error)) from error
    except kafka.errors.KafkaError as error:
        raise MustAbort(repr(error)) from error


KITS: Final[dict[str, type[Kit]]] = {"confluent": ConfluentKit, "kafka-python": KafkaPythonKit}
