"""A producer and a consumer for test rigs: what they do, one JSON object a line, as Kafka's do it.

Each line has the time in milliseconds and a name; what else it has depends on the name. They run
until they have done what was asked, or until SIGTERM or SIGINT, and then still say how it ended.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.client import check_reachable, client_config, making_client
from tidelog.cli.failures import CommandFailed
from tidelog.cli.perf_stats import wait_s

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

_BATCH: Final = 500
_WAIT_S: Final = 0.1


def say(name: str, **fields: Any) -> None:
    print(
        json.dumps({"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}), flush=True
    )


@dataclass(slots=True)
class Stop:
    is_asked: bool = False


@contextmanager
def stopping() -> Iterator[Stop]:
    """A signal asks for an orderly end."""
    stop = Stop()

    def ask(*_: object) -> None:
        stop.is_asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- producing --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VerifiableProduce:
    bootstrap: str
    topic: str
    max_messages: int
    throughput: float
    value_prefix: int | None
    repeating_keys: int | None
    settings: Mapping[str, str]

    def value(self, number: int) -> str:
        return str(number) if self.value_prefix is None else f"{self.value_prefix}.{number}"

    def key(self, number: int) -> str | None:
        return None if self.repeating_keys is None else str(number % self.repeating_keys)


@dataclass(slots=True)
class Outcome:
    sent: int = 0
    acknowledged: int = 0


def run_producer(options: VerifiableProduce) -> None:
    from confluent_kafka import Producer

    with making_client():
        producer = Producer(client_config(options.bootstrap, {}, options.settings))
    check_reachable(producer, options.bootstrap)
    outcome = Outcome()
    started_s = time.monotonic()
    say("startup_complete")
    with stopping() as stop:
        while not stop.is_asked and outcome.sent != options.max_messages:
            _produce(producer, options, outcome)
            outcome.sent += 1
            producer.poll(0)
            while not stop.is_asked:
                elapsed_s = time.monotonic() - started_s
                rest_s = wait_s(outcome.sent, options.throughput, elapsed_s)
                if not rest_s:
                    break
                producer.poll(min(rest_s, _WAIT_S))
        producer.flush()
    elapsed_s = max(time.monotonic() - started_s, 1e-9)
    say("shutdown_complete")
    say(
        "tool_data",
        sent=outcome.sent,
        acked=outcome.acknowledged,
        target_throughput=options.throughput,
        avg_throughput=round(outcome.acknowledged / elapsed_s, 3),
    )
    if outcome.acknowledged < outcome.sent:
        missing = outcome.sent - outcome.acknowledged
        raise CommandFailed(f"{missing} records were not acknowledged")


def _produce(producer: Producer, options: VerifiableProduce, outcome: Outcome) -> None:
    from confluent_kafka import KafkaException

    key, value = options.key(outcome.sent), options.value(outcome.sent)

    def note(error: KafkaError | None, message: Message) -> None:
        if error is None:
            outcome.acknowledged += 1
            say(
                "producer_send_success",
                key=key,
                value=value,
                topic=message.topic(),
                partition=message.partition(),
                offset=message.offset(),
            )
        else:
            _say_error(options.topic, key, value, error.name(), error.str())

    while True:
        try:
            producer.produce(options.topic, value=value, key=key, on_delivery=note)
            return
        except BufferError:
            producer.poll(_WAIT_S)
        except KafkaException as error:
            _say_error(options.topic, key, value, error.args[0].name(), error.args[0].str())
            return


def _say_error(topic: str, key: str | None, value: str, kind: str, text: str) -> None:
    say("producer_send_error", key=key, value=value, topic=topic, exception=kind, message=text)


# --- consuming --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VerifiableConsume:
    bootstrap: str
    topic: str
    group: str
    max_messages: int
    commits_by_itself: bool
    is_verbose: bool
    settings: Mapping[str, str]


@dataclass(slots=True)
class Span:
    """Records of one partition in one batch."""

    count: int = 0
    least: int = -1
    most: int = -1

    def add(self, offset: int) -> None:
        self.least = offset if self.count == 0 else min(self.least, offset)
        self.most = max(self.most, offset)
        self.count += 1


@dataclass(slots=True)
class Batch:
    spans: dict[tuple[str, int], Span] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(span.count for span in self.spans.values())

    def add(self, topic: str, partition: int, offset: int) -> None:
        self.spans.setdefault((topic, partition), Span()).add(offset)

    def partitions(self) -> list[dict[str, Any]]:
        return [
            {
                "topic": topic,
                "partition": partition,
                "count": span.count,
                "minOffset": span.least,
                "maxOffset": span.most,
            }
            for (topic, partition), span in sorted(self.spans.items())
        ]

    def next_offsets(self) -> dict[tuple[str, int], int]:
        return {place: span.most + 1 for place, span in sorted(self.spans.items())}


def run_consumer(options: VerifiableConsume) -> None:
    from confluent_kafka import Consumer

    defaults = {
        "group.id": options.group,
        "enable.auto.commit": str(options.commits_by_itself).lower(),
        "auto.offset.reset": "earliest",
    }
    with making_client():
        consumer = Consumer(client_config(options.bootstrap, defaults, options.settings))
    try:
        check_reachable(consumer, options.bootstrap)
        consumer.subscribe(
            [options.topic],
            on_assign=lambda _, places: say("partitions_assigned", partitions=_places(places)),
            on_revoke=lambda _, places: say("partitions_revoked", partitions=_places(places)),
        )
        say("startup_complete")
        with stopping() as stop:
            consumed = 0
            while not stop.is_asked and consumed != options.max_messages:
                left = options.max_messages - consumed if options.max_messages >= 0 else _BATCH
                consumed += _consume(consumer, options, min(left, _BATCH))
    finally:
        consumer.close()
        say("shutdown_complete")


def _places(places: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": one.topic, "partition": one.partition} for one in places]


def _consume(consumer: Consumer, options: VerifiableConsume, wanted: int) -> int:
    batch = Batch()
    for message in consumer.consume(wanted, _WAIT_S):
        error = message.error()
        if error is not None:
            if error.fatal() or not error.retriable():
                raise CommandFailed(f"reading failed: {error.str()}")
            continue
        _take(batch, message, is_verbose=options.is_verbose)
    if not batch.count:
        return 0
    say("records_consumed", count=batch.count, partitions=batch.partitions())
    if not options.commits_by_itself:
        _commit(consumer, batch.next_offsets())
    return batch.count


def _take(batch: Batch, message: Message, *, is_verbose: bool) -> None:
    topic, partition = message.topic() or "", message.partition() or 0
    offset = message.offset() or 0
    batch.add(topic, partition, offset)
    if is_verbose:
        say(
            "record_data",
            key=_text(message.key()),
            value=_text(message.value()),
            topic=topic,
            partition=partition,
            offset=offset,
        )


def _text(data: str | bytes | None) -> str | None:
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else data


def _commit(consumer: Consumer, offsets: Mapping[tuple[str, int], int]) -> None:
    from confluent_kafka import KafkaException, TopicPartition

    asked = [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
    error: str | None = None
    try:
        results: Sequence[TopicPartition] = consumer.commit(offsets=asked, asynchronous=False) or []
        error = next((one.error.str() for one in results if one.error is not None), None)
    except KafkaException as failure:
        error = failure.args[0].str()
    shown = [
        {"topic": topic, "partition": index, "offset": offset}
        for (topic, index), offset in offsets.items()
    ]
    problem = {} if error is None else {"error": error}
    say("offsets_committed", offsets=shown, success=error is None, **problem)
