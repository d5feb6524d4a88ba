"""A producer of numbered records: idempotent, acks=all, each key from one writer only.

A partition that does not answer does not hold up the others: each has a window of records of its
own, and while that is full its keys have to wait.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tidelog.chaos.history import Outcome, Verb
from tidelog.chaos.workloads.outcomes import outcome_of_append
from tidelog.chaos.workloads.pace import Pace
from tidelog.chaos.workloads.stage import Stage, TopicPlan, Worker, client_settings
from tidelog.chaos.workloads.values import encode_value

_TICK_S: Final = 0.005
_DELIVERY_MS: Final = 60_000
_ANSWER_MS: Final = 1_500
_REQUEST_MS: Final = 2_000
"""A node that stands still breaks no connection: what was sent there is asked for again before the
session of a broker ends, so that it is the cluster's patience that shows, and not the client's."""


@dataclass(slots=True)
class Pending:
    """A record on its way."""

    key: str
    sequence: int | None
    partition: int
    invoked_ms: float


class Writer(Worker):
    def __init__(
        self,
        stage: Stage,
        topic: TopicPlan,
        client: str,
        *,
        rate: float,
        keys: int = 30,
        value_bytes: int = 100,
        tombstone_share: float = 0.0,
    ) -> None:
        super().__init__(client)
        self._recorder = stage.recorder
        self._bootstrap = stage.bootstrap
        self._topic = topic
        self._rate = rate
        self._window = max(100, int(2 * rate / topic.partitions))
        self._keys = [f"{client}-{number}" for number in range(keys)]
        self._next = dict.fromkeys(self._keys, 0)
        self._value_bytes = value_bytes
        self._tombstone_share = tombstone_share
        self._drawn = random.Random(f"{stage.seed} {client}")
        self._under_way: dict[int, Pending] = {}
        self._full = Counter[int]()
        self._drain_s = stage.patience_s
        self._fatal = ""
        """Why this producer is of no use any more."""

    # --- life --------------------------------------------------------------------------

    def work(self) -> None:
        producer = self._producer()
        pace = Pace(self._rate, time.monotonic())
        try:
            while not self.stopping.is_set():
                for _ in range(pace.due(time.monotonic())):
                    self._write_one(producer)
                self._poll(producer, _TICK_S)
                if self._fatal:
                    producer = self._start_again(producer)
            self._drain(producer)
        finally:
            self._give_up()

    def finish(self, patience_s: float) -> None:
        """What is not answered by then stays unknown, and is noted as such."""
        self._drain_s = patience_s
        super().finish(patience_s + 5.0)

    def _drain(self, producer: Producer) -> None:
        deadline = time.monotonic() + self._drain_s
        while len(producer) and not self._fatal and time.monotonic() < deadline:
            self._poll(producer, 0.05)
        self._poll(producer, 0)

    def _poll(self, producer: Producer, for_s: float) -> None:
        """Serves answers; the client raises here what has put an end to it."""
        try:
            producer.poll(for_s)
        except KafkaException as error:
            self._see_fatal(error.args[0])

    def _give_up(self) -> None:
        for pending in list(self._under_way.values()):
            self._note(pending, Outcome.UNKNOWN, None, "no answer", has_ended=False)
        self._under_way.clear()
        self._full.clear()

    def _start_again(self, producer: Producer) -> Producer:
        self._recorder.note(f"{self.name} begins again with a new producer: {self._fatal}")
        producer.purge()
        self._poll(producer, 1.0)
        self._give_up()
        self._fatal = ""
        return self._producer()

    def _producer(self) -> Producer:
        return Producer(
            client_settings(
                self._bootstrap,
                self.name,
                acks="all",
                enable_idempotence=True,
                linger_ms=2,
                request_timeout_ms=_ANSWER_MS,
                socket_timeout_ms=_REQUEST_MS,
                message_timeout_ms=_DELIVERY_MS,
                error_cb=self._see_fatal,
            )
        )

    # --- records -----------------------------------------------------------------------

    def _write_one(self, producer: Producer) -> None:
        index = self._drawn.randrange(len(self._keys))
        partition = index % self._topic.partitions
        if self._full[partition] >= self._window:
            return
        key = self._keys[index]
        sequence = self._draw_sequence(key)
        pending = Pending(key, sequence, partition, self._recorder.now_ms())
        value = None if sequence is None else encode_value(key, sequence, self._value_bytes)
        try:
            producer.produce(
                self._topic.name,
                value,
                key,
                partition=partition,
                on_delivery=partial(self._delivered, pending),
            )
        except BufferError:
            return
        except KafkaException as error:  # refused before it was queued
            self._see_fatal(error.args[0])
            self._note(pending, Outcome.FAILED, None, error.args[0].str())
        else:
            self._under_way[id(pending)] = pending
            self._full[partition] += 1
        if sequence is not None:
            self._next[key] += 1

    def _draw_sequence(self, key: str) -> int | None:
        is_tombstone = self._tombstone_share and self._drawn.random() < self._tombstone_share
        return None if is_tombstone else self._next[key]

    def _delivered(self, pending: Pending, error: KafkaError | None, message: Message) -> None:
        if self._under_way.pop(id(pending), None) is None:
            return  # it was given up
        self._full[pending.partition] -= 1
        text = "" if error is None else error.str()
        if error is not None:
            self._see_fatal(error)
        offset = message.offset() if error is None else None
        self._note(pending, outcome_of_append(error), offset, text)

    def _see_fatal(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error.str()

    def _note(
        self,
        pending: Pending,
        outcome: Outcome,
        offset: int | None,
        error: str,
        *,
        has_ended: bool = True,
    ) -> None:
        if outcome is Outcome.OK:
            self.note_success()
        self._recorder.operation(
            self.name,
            Verb.APPEND,
            pending.invoked_ms,
            outcome,
            has_ended=has_ended,
            topic=self._topic.name,
            partition=pending.partition,
            offset=offset,
            key=pending.key,
            sequence=pending.sequence,
            error=error,
        )


def writers(
    stage: Stage, topic: TopicPlan, prefix: str, number: int, rate: float
) -> Sequence[Writer]:
    """Several that share a rate."""
    return [Writer(stage, topic, f"{prefix}-{n}", rate=rate / number) for n in range(1, number + 1)]
