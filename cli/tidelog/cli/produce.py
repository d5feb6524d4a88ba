"""Lines to records to the cluster, as kafka-console-producer does it, on librdkafka.

Keys go to the partitions that Java's clients choose (murmur2), so that records of one key stay
together whoever writes them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.client import check_reachable, client_config, making_client
from tidelog.cli.failures import CommandFailed
from tidelog.cli.records import BadRecord, Headers, NewRecord

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

DELIVERY_TIMEOUT_MS: Final = 120_000
_SHOWN_FAILURES: Final = 10
_FULL_QUEUE_WAIT_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    bootstrap: str
    topic: str
    parse: Callable[[bytes, int], NewRecord]
    """A line and its number to a record; ``BadRecord`` if it is none."""
    headers: Headers = ()
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    is_synchronous: bool = False
    prints_json: bool = False
    client_settings: Mapping[str, str] | None = None


def produce_lines(options: ProduceOptions, lines: Iterable[bytes]) -> None:
    """Send all lines and wait for their acknowledgement; ``CommandFailed`` if one got none."""
    from confluent_kafka import Producer

    config = client_config(
        options.bootstrap,
        {"partitioner": "murmur2_random", "message.timeout.ms": str(DELIVERY_TIMEOUT_MS)},
        options.client_settings or {},
    )
    with making_client():
        producer = Producer(config)
    check_reachable(producer, options.bootstrap)
    deliveries = Deliveries(options.prints_json)
    problem = None
    try:
        _send_all(producer, options, lines, deliveries)
    except BadRecord as error:
        problem = str(error)
    except KeyboardInterrupt:
        pass  # what was read is still sent
    producer.flush()
    if deliveries.failed:
        problem = f"{deliveries.failed} records were not delivered" + (
            f"; {problem}" if problem else ""
        )
    if problem:
        raise CommandFailed(problem)


def _send_all(
    producer: Producer, options: ProduceOptions, lines: Iterable[bytes], deliveries: Deliveries
) -> None:
    for number, line in enumerate(lines, start=1):
        record = completed(options.parse(line, number), options)
        _send(producer, options.topic, record, deliveries)
        if options.is_synchronous:
            producer.flush()
        else:
            producer.poll(0)


def completed(record: NewRecord, options: ProduceOptions) -> NewRecord:
    """With what was given once for all records; what a record says itself goes first."""
    return replace(
        record,
        key=options.key if record.key is None else record.key,
        headers=(*options.headers, *record.headers),
        partition=options.partition if record.partition is None else record.partition,
        timestamp_ms=(options.timestamp_ms if record.timestamp_ms is None else record.timestamp_ms),
    )


def _send(producer: Producer, topic: str, record: NewRecord, deliveries: Deliveries) -> None:
    from confluent_kafka import KafkaException

    optional: dict[str, Any] = {}
    if record.partition is not None:
        optional["partition"] = record.partition
    if record.timestamp_ms is not None:
        optional["timestamp"] = record.timestamp_ms
    while True:
        try:
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                on_delivery=deliveries.note,
                **optional,
            )
            return
        except BufferError:
            producer.poll(_FULL_QUEUE_WAIT_S)
        except KafkaException as error:
            raise BadRecord(f"a record was refused: {error.args[0].str()}") from None


class Deliveries:
    """Counts what came of each record, and says so where somebody wants to know."""

    def __init__(self, prints_json: bool) -> None:
        self.failed = 0
        self._prints_json = prints_json

    def note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed += 1
            if self.failed <= _SHOWN_FAILURES:
                print(f"not delivered: {error.str()}", file=sys.stderr)
        elif self._prints_json:
            where = {
                "topic": message.topic(),
                "partition": message.partition(),
                "offset": message.offset(),
                "timestamp": message.timestamp()[1],
            }
            print(json.dumps(where), flush=True)
