"""Reads one topic and writes another, exactly once: what is read, what is written and how far was
read belong to one transaction (KIP-98, KIP-447).

Copiers share a group, so one takes over where another stops. Whatever goes wrong is answered as
the client's manual says: try again, abort and go back to what is committed, or begin again with a
new producer, which fences the old one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tidelog.chaos.history import Outcome, Record, Verb
from tidelog.chaos.workloads.outcomes import outcome_of_append
from tidelog.chaos.workloads.patience import within
from tidelog.chaos.workloads.reader import note_poll
from tidelog.chaos.workloads.stage import Stage, TopicPlan, Worker, client_settings
from tidelog.chaos.workloads.values import encode_value

_BATCH: Final = 500
_CALL_S: Final = 15.0
_LOST_S: Final = _CALL_S + 3.0
"""A call that should be over by now never will be."""
CALLS_S: Final = 2 * _LOST_S
"""A copier that is told to end may have one to wait for, and one to clean up."""
_TRANSACTION_MS: Final = 40_000
_REQUEST_MS: Final = 30_000
"""Longer than nodes are stopped for. Before KIP-890 transactions have no epoch of their own, and a
client that asks twice for the end of one risks that the late request ends the next."""
_SESSION_MS: Final = 6_000


@dataclass(slots=True)
class Attempt:
    """A transaction under way."""

    name: str
    invoked_ms: float
    is_commit: bool = False
    """Whether its commit was asked for; until then it cannot have been committed."""
    tokens: Iterator[int] = field(default_factory=count)
    writes: dict[int, tuple[Record, float]] = field(default_factory=dict)
    """By token: those that were not answered yet."""


class Copier(Worker):
    def __init__(
        self, stage: Stage, source: TopicPlan, target: TopicPlan, group: str, client: str
    ) -> None:
        super().__init__(client)
        self._stage = stage
        self._recorder = stage.recorder
        self._from, self._to = source, target
        self._group = group
        self._attempts = 0
        self._session = 0

    def work(self) -> None:
        while not self.stopping.is_set():
            self._live()
            self.stopping.wait(0.1)

    def _live(self) -> None:
        """One life of the program: until an error that only a new producer survives."""
        consumer, producer = self._consumer(), self._producer()
        try:
            consumer.subscribe([self._from.name], on_assign=self._began_session)
            self._again(lambda: producer.init_transactions(_CALL_S))
            while not self.stopping.is_set() and self._step(consumer, producer):
                pass
        except KafkaException as error:
            self._recorder.note(f"{self.name} begins again: {error.args[0].str()}")
        finally:
            consumer.close()

    def _step(self, consumer: Consumer, producer: Producer) -> bool:
        """False: this producer is of no use any more."""
        invoked_ms = self._recorder.now_ms()
        messages = consumer.consume(_BATCH, 0.2)
        read = note_poll(self._recorder, self._session_name, invoked_ms, messages, self._group)
        if not read:
            return True
        self._attempts += 1
        attempt = Attempt(f"{self.name}-{self._attempts}", self._recorder.now_ms())
        try:
            self._copy(consumer, producer, read, attempt)
        except KafkaException as error:
            return self._recover(consumer, producer, attempt, error.args[0])
        self._end(attempt, Outcome.OK)
        self.note_success()
        return True

    # --- one transaction ---------------------------------------------------------------

    def _copy(
        self, consumer: Consumer, producer: Producer, read: list[Record], attempt: Attempt
    ) -> None:
        producer.begin_transaction()
        for record in read:
            self._write(producer, record, attempt)
        positions = {(r.topic, r.partition): r.offset + 1 for r in read}
        places = [TopicPartition(t, p, offset) for (t, p), offset in positions.items()]
        member = consumer.consumer_group_metadata()
        invoked_ms, outcome = self._recorder.now_ms(), Outcome.UNKNOWN
        try:
            send = partial(producer.send_offsets_to_transaction, places, member, _CALL_S)
            self._again(lambda: within(_LOST_S, send))
            outcome = Outcome.OK
        finally:
            for place in places:
                self._note_offset(place, attempt, invoked_ms, outcome)
        producer.flush(_CALL_S)  # what it leaves over the commit waits for
        attempt.is_commit = True
        self._again(lambda: producer.commit_transaction(_CALL_S))

    def _write(self, producer: Producer, record: Record, attempt: Attempt) -> None:
        sequence = record.sequence
        assert sequence is not None
        token = next(attempt.tokens)
        invoked_ms = self._recorder.now_ms()
        partition = record.partition % self._to.partitions
        written = Record(self._to.name, partition, -1, record.key, sequence)
        producer.produce(
            self._to.name,
            encode_value(record.key, sequence, 100),
            record.key,
            partition=partition,
            on_delivery=partial(self._delivered, attempt, token),
        )
        attempt.writes[token] = (written, invoked_ms)
        producer.poll(0)

    def _delivered(
        self, attempt: Attempt, token: int, error: KafkaError | None, message: Message
    ) -> None:
        offset = message.offset() if error is None else None
        self._note_write(attempt, token, outcome_of_append(error), offset, error)

    def _note_write(
        self,
        attempt: Attempt,
        token: int,
        outcome: Outcome,
        offset: int | None,
        error: KafkaError | None,
        *,
        has_ended: bool = True,
    ) -> None:
        if (write := attempt.writes.pop(token, None)) is None:
            return
        written, invoked_ms = write
        self._recorder.operation(
            self.name,
            Verb.APPEND,
            invoked_ms,
            outcome,
            has_ended=has_ended,
            topic=written.topic,
            partition=written.partition,
            offset=offset,
            key=written.key,
            sequence=written.sequence,
            transaction=attempt.name,
            error="" if error is None else error.str(),
        )

    def _note_offset(
        self, place: TopicPartition, attempt: Attempt, invoked_ms: float, outcome: Outcome
    ) -> None:
        self._recorder.operation(
            self.name,
            Verb.COMMIT_OFFSET,
            invoked_ms,
            outcome,
            topic=place.topic,
            partition=place.partition,
            offset=place.offset,
            group=self._group,
            transaction=attempt.name,
        )

    def _end(self, attempt: Attempt, outcome: Outcome, error: str = "") -> None:
        for token in list(attempt.writes):
            self._note_write(attempt, token, Outcome.UNKNOWN, None, None, has_ended=False)
        self._recorder.operation(
            self.name,
            Verb.END_TRANSACTION,
            attempt.invoked_ms,
            outcome,
            transaction=attempt.name,
            is_commit=attempt.is_commit,
            error=error,
        )

    # --- when it went wrong ------------------------------------------------------------

    def _recover(
        self, consumer: Consumer, producer: Producer, attempt: Attempt, error: KafkaError
    ) -> bool:
        if not error.txn_requires_abort():
            self._recorder.note(f"{self.name} begins again: {error.str()}")
            self._end(attempt, Outcome.UNKNOWN, error.str())
            return False
        try:
            self._again(lambda: producer.abort_transaction(_CALL_S))
        except KafkaException as second:
            self._end(attempt, Outcome.UNKNOWN, second.args[0].str())
            return False
        attempt.is_commit = False
        self._end(attempt, Outcome.OK, error.str())
        return self._rewind(consumer)

    def _rewind(self, consumer: Consumer) -> bool:
        """Back to what is committed: what was read since was not copied."""
        self._session += 1
        try:
            for place in consumer.committed(consumer.assignment(), _CALL_S):
                offset = max(place.offset, 0)
                consumer.seek(TopicPartition(place.topic, place.partition, offset))
        except KafkaException as error:
            self._recorder.note(f"{self.name} begins again: {error.args[0].str()}")
            return False
        return True

    def _again(self, call: Callable[[], object]) -> None:
        """While the client says that trying again may help, and somebody waits for it."""
        deadline = time.monotonic() + self._stage.patience_s
        while True:
            try:
                call()
                return
            except KafkaException as error:
                is_over = time.monotonic() > deadline or self.stopping.is_set()
                if not error.args[0].retriable() or is_over:
                    raise
                time.sleep(0.05)

    # --- clients -----------------------------------------------------------------------

    @property
    def _session_name(self) -> str:
        """A new name wherever reading may begin anew: within one, offsets only rise."""
        return f"{self.name}.{self._session}"

    def _began_session(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._session += 1

    def _consumer(self) -> Consumer:
        return Consumer(
            client_settings(
                self._stage.bootstrap,
                self.name,
                group_id=self._group,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=_SESSION_MS,
                fetch_wait_max_ms=100,
            )
        )

    def _producer(self) -> Producer:
        return Producer(
            client_settings(
                self._stage.bootstrap,
                self.name,
                transactional_id=f"{self._stage.topic_prefix}{self.name}",
                transaction_timeout_ms=_TRANSACTION_MS,
                socket_timeout_ms=_REQUEST_MS,
                linger_ms=2,
            )
        )
