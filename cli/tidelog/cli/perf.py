"""``tidelog perf``: how fast records go in and come out, measured with librdkafka."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.client import check_reachable, client_config, making_client
from tidelog.cli.failures import CommandFailed, WrongUse
from tidelog.cli.perf_stats import CONSUMED_HEADER, DETAILED_HEADER, Consumed, Sent, wait_s
from tidelog.cli.progress import record_progress

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

_BATCH: Final = 500
_WAIT_S: Final = 0.1
_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class ProducePerf:
    bootstrap: str
    topic: str
    num_records: int
    payloads: Sequence[bytes]
    throughput: float
    interval_ms: int
    as_json: bool
    settings: Mapping[str, str]


def payloads_of_size(size: int) -> list[bytes]:
    return [bytes(random.Random(0).choices(_LETTERS, k=size))]


def payloads_of_file(path: Path, delimiter: str) -> list[bytes]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise WrongUse(f"{path}: {error}") from None
    parts = data.split(delimiter.encode().decode("unicode_escape").encode())
    payloads = [part for part in parts if part]
    if not payloads:
        raise WrongUse(f"{path}: has no payloads")
    return payloads


def measure_produce(options: ProducePerf) -> None:
    from confluent_kafka import Producer

    config = client_config(options.bootstrap, {"partitioner": "random"}, options.settings)
    with making_client():
        producer = Producer(config)
    check_reachable(producer, options.bootstrap)
    run = _Run(producer, options)
    try:
        run.send_all()
    except KeyboardInterrupt:
        print("stopped early", file=sys.stderr)
    run.finish()


class _Run:
    def __init__(self, producer: Producer, options: ProducePerf) -> None:
        self._producer = producer
        self._options = options
        self._total = Sent(time.monotonic())
        self._window = Sent(self._total.since_s)
        self._failed = 0
        self._first_error = ""
        self._advance: Callable[[int], None] = lambda done: None

    def send_all(self) -> None:
        options = self._options
        choose = random.Random(1)
        with record_progress("Producing", options.num_records) as self._advance:
            for number in range(options.num_records):
                self._send(choose.choice(options.payloads))
                self._report()
                if number % 64 == 0 or options.throughput > 0:
                    self._keep_rate(number + 1)
            self._drain()

    def _keep_rate(self, sent: int) -> None:
        elapsed_s = time.monotonic() - self._total.since_s
        self._producer.poll(wait_s(sent, self._options.throughput, elapsed_s))

    def _send(self, payload: bytes) -> None:
        from confluent_kafka import KafkaException

        while True:
            try:
                self._producer.produce(self._options.topic, payload, on_delivery=self._note)
                return
            except BufferError:
                self._producer.poll(_WAIT_S)
                self._report()
            except KafkaException as error:
                raise CommandFailed(f"a record was refused: {error.args[0].str()}") from None

    def _drain(self) -> None:
        while self._producer.flush(_WAIT_S):
            self._report()

    def _note(self, error: KafkaError | None, message: Message) -> None:
        self._advance(1)
        if error is not None:
            self._failed += 1
            self._first_error = self._first_error or error.str()
            return
        latency_ms = (message.latency() or 0.0) * 1000
        size = len(message)
        self._total.add(size, latency_ms)
        self._window.add(size, latency_ms)

    def _report(self) -> None:
        now_s = time.monotonic()
        if (now_s - self._window.since_s) * 1000 < self._options.interval_ms:
            return
        if not self._options.as_json:
            print(self._window.line(now_s), flush=True)
        self._window = Sent(now_s)

    def finish(self) -> None:
        self._drain()
        now_s = time.monotonic()
        if self._options.as_json:
            print(json.dumps(self._total.as_object(now_s) | {"failed": self._failed}))
        else:
            print(self._total.final_line(now_s))
        if self._failed:
            raise CommandFailed(f"{self._failed} records were not delivered: {self._first_error}")


@dataclass(frozen=True, slots=True)
class ConsumePerf:
    bootstrap: str
    topic: str
    messages: int
    group: str
    timeout_ms: int
    from_latest: bool
    shows_details: bool
    hides_header: bool
    interval_ms: int
    as_json: bool
    settings: Mapping[str, str]


def measure_consume(options: ConsumePerf) -> None:
    from confluent_kafka import Consumer

    defaults = {
        "group.id": options.group,
        "auto.offset.reset": "latest" if options.from_latest else "earliest",
        "check.crcs": "true",
    }
    with making_client():
        consumer = Consumer(client_config(options.bootstrap, defaults, options.settings))
    try:
        cluster = check_reachable(consumer, options.bootstrap)
        if options.topic not in cluster.topics:
            raise CommandFailed(f"topic {options.topic!r} does not exist; tidelog topic list")
        total = _consume(consumer, options)
    finally:
        consumer.close()
    if total.records < options.messages:
        raise CommandFailed(
            f"only {total.records} of {options.messages} messages came: nothing more within "
            f"{options.timeout_ms} ms (--timeout)"
        )


def _consume(consumer: Any, options: ConsumePerf) -> Consumed:
    shows_text = not options.as_json
    if shows_text and not options.hides_header:
        print(DETAILED_HEADER if options.shows_details else CONSUMED_HEADER)
    total = Consumed(_now_ms())
    window = replace(total)
    joining_since_ms = total.started_ms

    def assigned(*_: object) -> None:
        total.rebalance_ms += _now_ms() - joining_since_ms

    def revoked(*_: object) -> None:
        nonlocal joining_since_ms
        joining_since_ms = _now_ms()

    consumer.subscribe([options.topic], on_assign=assigned, on_revoke=revoked)
    last_ms = total.started_ms
    try:
        with record_progress("Consuming", options.messages) as advance:
            while total.records < options.messages and _now_ms() - last_ms < options.timeout_ms:
                wanted = min(_BATCH, options.messages - total.records)
                count = _take(consumer.consume(wanted, _WAIT_S), total)
                advance(count)
                now_ms = _now_ms()
                last_ms = now_ms if count else last_ms
                if now_ms - window.started_ms >= options.interval_ms:
                    if shows_text and options.shows_details:
                        print(total.line(now_ms, since=window), flush=True)
                    window = replace(total, started_ms=now_ms)
    except KeyboardInterrupt:
        print("stopped early", file=sys.stderr)
    end_ms = last_ms if total.records else _now_ms()
    if options.as_json:
        print(json.dumps(total.as_object(end_ms)))
    else:
        print(total.line(end_ms, since=window if options.shows_details else None))
    return total


def _take(messages: Sequence[Message], total: Consumed) -> int:
    count = 0
    for message in messages:
        error = message.error()
        if error is None:
            count += 1
            total.record_bytes += len(message) + len(message.key() or b"")
        elif error.fatal() or not error.retriable():
            raise CommandFailed(f"reading failed: {error.str()}")
    total.records += count
    return count


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
