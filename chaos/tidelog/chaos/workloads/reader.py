"""Readers: one that follows a topic while the cluster is broken, one that reads all at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tidelog.chaos.history import Outcome, Record, Verb
from tidelog.chaos.recorder import Recorder
from tidelog.chaos.workloads.stage import (
    FINAL_READER,
    Stage,
    TopicPlan,
    Worker,
    client_settings,
)
from tidelog.chaos.workloads.values import ForeignRecord, decode_value

_BATCH: Final = 500
_POLL_S: Final = 0.1
_ASK_S: Final = 5.0


class UnfinishedRead(Exception):
    """The end of a topic could not be read; nothing can be said about what is missing."""


def records_of(messages: Sequence[Message]) -> list[Record]:
    return [_record(message) for message in messages if message.error() is None]


def _record(message: Message) -> Record:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None and partition is not None and offset is not None
    try:
        key, sequence = decode_value(_bytes(message.key()), _bytes(message.value()))
    except ForeignRecord as error:
        raise ForeignRecord(f"{topic}-{partition} at offset {offset}: {error}") from None
    return Record(topic, partition, offset, key, sequence)


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def first_error(messages: Sequence[Message]) -> KafkaError | None:
    """The first that is worth noting; the end of a partition is none."""
    errors = (message.error() for message in messages)
    return next((e for e in errors if e is not None and not _is_usual(e)), None)


def _is_usual(error: KafkaError) -> bool:
    usual = {
        KafkaError._PARTITION_EOF,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
    }
    return error.code() in usual or bool(error.retriable())


def note_poll(
    recorder: Recorder, client: str, invoked_ms: float, messages: Sequence[Message], group: str = ""
) -> list[Record]:
    """An empty poll is not worth a line; an error that is not of the usual kind is."""
    seen = records_of(messages)
    error = first_error(messages)
    if error is not None:
        recorder.operation(
            client, Verb.POLL, invoked_ms, Outcome.FAILED, group=group, error=error.str()
        )
    if seen:
        recorder.operation(client, Verb.POLL, invoked_ms, Outcome.OK, group=group, seen=seen)
    return seen


class LiveReader(Worker):
    """Follows all partitions of a topic from their start.

    A log that became shorter below its position is an error to it and not a reason to jump: it is
    noted, and a new reader (with a number of its own) begins from the start.
    """

    def __init__(self, stage: Stage, topic: TopicPlan, client: str) -> None:
        super().__init__(client)
        self._stage = stage
        self._topic = topic
        self._life = 0

    def work(self) -> None:
        while not self.stopping.is_set():
            self._life += 1
            consumer = _consumer(self._stage, self.name)
            consumer.assign([TopicPartition(self._topic.name, p, 0) for p in self._partitions])
            try:
                self._follow(consumer, f"{self.name}.{self._life}")
            finally:
                consumer.close()

    @property
    def _partitions(self) -> range:
        return range(self._topic.partitions)

    def _follow(self, consumer: Consumer, client: str) -> None:
        recorder = self._stage.recorder
        while not self.stopping.is_set():
            invoked_ms = recorder.now_ms()
            messages = consumer.consume(_BATCH, _POLL_S)
            if note_poll(recorder, client, invoked_ms, messages):
                self.note_success()
            if first_error(messages) is not None:
                self.stopping.wait(0.5)
                return


def read_everything(
    stage: Stage, topics: Sequence[TopicPlan], patience_s: float, client: str = FINAL_READER
) -> None:
    """From the start to where the end is now; raises UnfinishedRead if that takes too long."""
    deadline = time.monotonic() + patience_s
    ends = end_offsets(stage, topics, deadline)
    began_ms = stage.recorder.now_ms()
    consumer = _consumer(stage, client)
    try:
        consumer.assign([TopicPartition(topic, p, 0) for topic, p in ends])
        missing = set(ends)
        while missing:
            if time.monotonic() > deadline:
                names = ", ".join(f"{t}-{p}" for t, p in sorted(missing)[:5])
                raise UnfinishedRead(f"the end of {names} is not reached within {patience_s:g} s")
            invoked_ms = stage.recorder.now_ms()
            messages = consumer.consume(_BATCH, _POLL_S)
            note_poll(stage.recorder, client, invoked_ms, messages)
            for message in messages:
                missing -= _reached(message, ends)
    finally:
        consumer.close()
    for (topic, partition), end in ends.items():
        stage.recorder.operation(
            client, Verb.READ_TO_END, began_ms, Outcome.OK,
            topic=topic, partition=partition, offset=end,
        )  # fmt: skip


def _reached(message: Message, ends: dict[tuple[str, int], int]) -> set[tuple[str, int]]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None:
        return set()
    error = message.error()
    is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
    next_offset = offset if is_end else offset + 1
    if error is not None and not is_end:
        return set()
    return {(topic, partition)} if next_offset >= ends[topic, partition] else set()


def end_offsets(
    stage: Stage, topics: Sequence[TopicPlan], deadline: float
) -> dict[tuple[str, int], int]:
    """The end of each partition, transactions that are open included: those must end first."""
    consumer = _consumer(stage, FINAL_READER, "read_uncommitted")
    try:
        return {
            (topic.name, p): _end(consumer, TopicPartition(topic.name, p), deadline)
            for topic in topics
            for p in range(topic.partitions)
        }
    finally:
        consumer.close()


def _end(consumer: Consumer, place: TopicPartition, deadline: float) -> int:
    while True:
        try:
            return int(consumer.get_watermark_offsets(place, timeout=_ASK_S)[1])
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise UnfinishedRead(
                    f"where {place.topic}-{place.partition} ends is not to be had: "
                    f"{error.args[0].str()}"
                ) from None
            time.sleep(0.1)


def _consumer(stage: Stage, client: str, isolation: str = "read_committed") -> Consumer:
    return Consumer(
        client_settings(
            stage.bootstrap,
            client,
            group_id=f"{stage.topic_prefix}{client}",  # a must of the client; nothing is committed
            enable_auto_commit=False,
            enable_partition_eof=True,
            isolation_level=isolation,
            auto_offset_reset="error",
            fetch_wait_max_ms=100,
            fetch_error_backoff_ms=50,
        )
    )
