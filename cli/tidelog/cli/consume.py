"""Records from the cluster to the screen, as kafka-console-consumer does it, on librdkafka.

Without a group the partitions are read directly, and nothing is remembered. With one, the group's
members share them, and progress is committed.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from tidelog.cli.ask import Connection
from tidelog.cli.client import REACH_S, check_reachable, client_config, making_client
from tidelog.cli.failures import CommandFailed, WrongUse
from tidelog.cli.records import Headers, ReadRecord
from tidelog.cli.start_offset import FROM_THE_BEGINNING, FROM_THE_END, LATEST, StartOffset
from tidelog.wire.protocol.apis import ApiKey

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition
    from confluent_kafka.admin._metadata import ClusterMetadata

_NO_GROUP: Final = "tidelog-console"
"""librdkafka wants a name even where no group is joined."""
_COORDINATOR_VERSION: Final = 2
_BATCH: Final = 500
_WAIT_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    bootstrap: str
    topic: str | None
    include: str | None
    line: Callable[[ReadRecord], bytes]
    start: StartOffset = FROM_THE_END
    partitions: tuple[int, ...] = ()
    group: str | None = None
    max_messages: int | None = None
    timeout_ms: int | None = None
    until_end: bool = False
    isolation_level: str = "read_uncommitted"
    client_settings: Mapping[str, str] | None = None


def consume_records(options: ConsumeOptions, out: BinaryIO) -> int:
    """How many records were printed."""
    from confluent_kafka import Consumer

    from_beginning = options.start == FROM_THE_BEGINNING
    config = client_config(
        options.bootstrap,
        {
            "group.id": options.group or _NO_GROUP,
            "enable.auto.commit": "false" if options.group is None else "true",
            "auto.offset.reset": "earliest" if from_beginning else "latest",
            "isolation.level": options.isolation_level,
            "enable.partition.eof": str(options.until_end).lower(),
        },
        options.client_settings or {},
    )
    with making_client():
        consumer = Consumer(config)
    reading = Reading(consumer, options, out)
    try:
        topics = chosen_topics(check_reachable(consumer, options.bootstrap), options)
        _begin(consumer, options, topics)
        reading.run()
    except KeyboardInterrupt:
        pass
    finally:
        consumer.close()
    return reading.count


def chosen_topics(cluster: ClusterMetadata, options: ConsumeOptions) -> dict[str, list[int]]:
    """The topics to read, each with its partitions to read."""
    if options.include is not None:
        try:
            pattern = re.compile(options.include)
        except re.error as error:
            raise WrongUse(f"--include {options.include}: {error}") from None
        names = [name for name in cluster.topics if pattern.fullmatch(name)]
    else:
        names = [name for name in cluster.topics if name == options.topic]
    if not names:
        raise CommandFailed(
            f"Topic '{options.topic or options.include}' does not exist; tidelog topic list shows "
            "what does, tidelog topic create makes one"
        )
    return {name: _chosen(cluster, name, options.partitions) for name in names}


def _chosen(cluster: ClusterMetadata, topic: str, wanted: tuple[int, ...]) -> list[int]:
    there = sorted(cluster.topics[topic].partitions)
    if missing := sorted(set(wanted) - set(there)):
        raise CommandFailed(
            f"Topic '{topic}' has no partition {missing[0]}; there are 0 to {len(there) - 1}"
        )
    return sorted(set(wanted)) or there


def _begin(consumer: Consumer, options: ConsumeOptions, topics: Mapping[str, list[int]]) -> None:
    from confluent_kafka import KafkaException, TopicPartition

    if options.group is not None:
        _require_groups(options)
        names = [f"^({options.include})$"] if options.include is not None else list(topics)
        consumer.subscribe(names)
        return
    places = [(topic, index) for topic, indexes in topics.items() for index in indexes]
    if options.start.timestamp_ms is None:
        offset = LATEST if options.start.offset is None else options.start.offset
        assigned = [TopicPartition(topic, index, offset) for topic, index in places]
    else:
        at = options.start.timestamp_ms
        try:
            assigned = consumer.offsets_for_times(
                [TopicPartition(topic, index, at) for topic, index in places], timeout=REACH_S
            )
        except KafkaException as error:
            raise CommandFailed(f"no offsets for that time: {error.args[0].str()}") from None
    consumer.assign(assigned)


def _require_groups(options: ConsumeOptions) -> None:
    """librdkafka looks for a coordinator for ever, also where there are none."""
    if "security.protocol" in (options.client_settings or {}):
        return
    with Connection(options.bootstrap) as connection:
        if not connection.serves(ApiKey.FIND_COORDINATOR, _COORDINATOR_VERSION):
            raise CommandFailed(
                f"the node at {connection.address} serves no consumer groups; leave out --group"
            )


class Reading:
    """One run from the first record to the last that is wanted."""

    def __init__(self, consumer: Consumer, options: ConsumeOptions, out: BinaryIO) -> None:
        self.count = 0
        self._consumer = consumer
        self._options = options
        self._out = out
        self._at_end: set[tuple[str, int]] = set()

    def run(self) -> None:
        quiet_since_s = time.monotonic()
        while not self._is_complete():
            messages = self._consumer.consume(self._batch_size(), _WAIT_S)
            if self._take(messages):
                quiet_since_s = time.monotonic()
            elif self._is_quiet_for_too_long(quiet_since_s):
                return

    def _batch_size(self) -> int:
        if self._options.max_messages is None:
            return _BATCH
        return min(_BATCH, self._options.max_messages - self.count)

    def _is_complete(self) -> bool:
        limit = self._options.max_messages
        if limit is not None and self.count >= limit:
            return True
        return self._options.until_end and self._is_at_end()

    def _is_at_end(self) -> bool:
        assigned = {_place(one) for one in self._consumer.assignment()}
        return bool(assigned) and assigned <= self._at_end

    def _is_quiet_for_too_long(self, since_s: float) -> bool:
        timeout_ms = self._options.timeout_ms
        return timeout_ms is not None and (time.monotonic() - since_s) * 1000 >= timeout_ms

    def _take(self, messages: Iterable[Message]) -> bool:
        before = self.count
        for message in messages:
            if message.error() is not None:
                self._note_error(message)
                continue
            self._at_end.discard((message.topic() or "", message.partition() or 0))
            self._out.write(self._options.line(read_record(message)))
            self.count += 1
        self._out.flush()
        return self.count > before

    def _note_error(self, message: Message) -> None:
        from confluent_kafka import KafkaError

        error = message.error()
        if error is None:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            self._at_end.add((message.topic() or "", message.partition() or 0))
        elif error.fatal() or not error.retriable():
            raise CommandFailed(f"reading failed: {error.str()}")
        else:
            print(f"trying again: {error.str()}", file=sys.stderr)


def _place(assigned: TopicPartition) -> tuple[str, int]:
    return assigned.topic, assigned.partition


def read_record(message: Message) -> ReadRecord:
    kind, timestamp_ms = message.timestamp()
    return ReadRecord(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        value=_bytes(message.value()),
        key=_bytes(message.key()),
        headers=_headers(message),
        timestamp_ms=timestamp_ms if kind else None,
        timestamp_type="LogAppendTime" if kind == 2 else "CreateTime",
        leader_epoch=message.leader_epoch(),
    )


def _headers(message: Message) -> Headers:
    pairs: Any = message.headers() or ()
    return tuple((str(name), _bytes(value)) for name, value in pairs)


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode("utf-8") if isinstance(data, str) else data
